"""Writes to the outbox in a folder and says what was kept, until it is killed."""

from __future__ import annotations

import sys

from anabranch.edge.agent_state import Effects
from anabranch.edge.outbox import Outbox
from anabranch.edge.own_stream import Row


def main(folder: str) -> None:
    box = Outbox(folder)
    _, rows, _ = box.load()
    number = 1 + max((row.n for row in rows), default=-1)
    print(box.incarnation)
    while True:
        several = [Row("gps", number + k, number, 3, {"xy": [0.5, number]}) for k in range(5)]
        frame = (number, b"f%d" % number)
        later = Effects(rows=several[3:], frames=[frame], state=b"%d" % number)
        box.commit([Effects(rows=several[:3]), later])
        print(number, flush=True)
        number += 5


if __name__ == "__main__":
    main(sys.argv[1])
