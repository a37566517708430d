"""Writes to the outbox in a folder and says what was kept, until it is killed.

With a number it kills itself, after so many times ten instructions of SQLite.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys

from anabranch.edge.agent_state import Effects
from anabranch.edge.outbox import Outbox
from anabranch.edge.own_stream import Row


def main(folder: str, last: int | None = None) -> None:
    box = Outbox(folder)
    _, rows, _ = box.load()
    number = 1 + max((row.n for row in rows), default=-1)
    print(box.incarnation, flush=True)
    if last is not None:
        count = itertools.count(1)

        def die() -> None:
            if next(count) >= last:
                os.kill(os.getpid(), signal.SIGKILL)

        box._base.set_progress_handler(die, 10)
    while True:
        several = [Row("gps", number + k, number, 3, {"xy": [0.5, number]}) for k in range(5)]
        frame = (number, b"f%d" % number)
        later = Effects(rows=several[3:], frames=[frame], state=b"%d" % number)
        box.commit([Effects(rows=several[:3]), later])
        print(number, flush=True)
        number += 5


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
