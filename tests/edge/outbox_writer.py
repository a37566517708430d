"""Writes to the outbox in a folder and says what was kept, until it is killed.

With a point and a number it kills itself: ``inside`` a transaction, after so many times ten
instructions of SQLite, or ``unsaid``, when it has kept so many transactions and not yet said so.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys

from anabranch.edge.agent_state import Effects
from anabranch.edge.outbox import Outbox
from anabranch.edge.own_stream import Row


def main(folder: str, point: str = "", last: str = "0") -> None:
    box = Outbox(folder)
    _, rows, _ = box.load()
    number = 1 + max((row.n for row in rows), default=-1)
    print(box.incarnation, flush=True)
    count = itertools.count(1)

    def die() -> None:
        if next(count) >= int(last):
            os.kill(os.getpid(), signal.SIGKILL)

    if point == "inside":
        box._base.set_progress_handler(die, 10)
    while True:
        several = [Row("gps", number + k, number, 3, {"xy": [0.5, number]}) for k in range(5)]
        frame = (number, b"f%d" % number)
        later = Effects(rows=several[3:], frames=[frame], state=b"%d" % number)
        box.commit([Effects(rows=several[:3]), later])
        if point == "unsaid":
            die()
        print(number, flush=True)
        number += 5


if __name__ == "__main__":
    main(*sys.argv[1:])
