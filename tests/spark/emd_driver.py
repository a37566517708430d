"""A driver that joins by Earth Mover's Distance under ranges whose cuts move, to be killed.

``python emd_driver.py FOLDER`` correlates the files of a `Feed` of histograms in FOLDER until all
are processed. Every four micro-batches it asks for other cuts and hot ranges, as an operator would;
in between the controller is free to move cuts by itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.plans.ranges import Ranges
from tests.correlation import twin
from tests.spark.driver import run_asking
from tests.spark.feeds import SECOND, START, Feed
from tests.spark.sessions import new_session

BINS = 16
THRESHOLD = 0.55
SPANS = (3 * SECOND, 2 * SECOND)
LATE = 3 * SECOND
WORKERS = 4
TURNS = [
    Ranges(4, 24, cuts=(3, 6, 9), hot=((5, (0, 1, 3)), (6, (1, 2)))),
    Ranges(3, 24, cuts=(4, 8)),
    Ranges(4, 24, cuts=(0, 7, 7), hot=((7, (0, 1, 2, 3)),)),
    ab.grid(2, 2),
    Ranges(4, 24, cuts=(2, 12, 20)),
    Ranges(2, 10, cuts=(3,), hot=((2, (0, 1)),)),
]
SCHEMA = pa.schema({"id": pa.int64(), "ts": pa.timestamp("us", "UTC"), "h": pa.list_(pa.float32())})


def batches(count: int, rows: int, seed: int) -> list[twin.Batch]:
    """Micro-batches of a second each; histograms wander over the bins, rows come out of order."""
    random = np.random.default_rng(seed)
    made: list[twin.Batch] = []
    for number in range(count):
        centre = 7.5 + 6 * np.sin(number / 4)
        sides: list[list[twin.Row]] = []
        for side in (0, 1):
            lists = []
            for n in range(rows):
                spread = random.normal(centre, random.uniform(0.3, 2), 20).round()
                h = np.bincount(spread.clip(0, BINS - 1).astype(int), minlength=BINS)
                t = START + int((number + random.uniform(-1.5, 1.5)) * SECOND)
                t -= t % SECOND if random.random() < 0.3 else 0
                lists.append({"id": (number * 1000 + n) * 2 + side, "t": t, "h": h.tolist()})
            sides.append(lists)
        made.append((sides[0], sides[1]))
    return made


def score(left: twin.Row, right: twin.Row) -> float | None:
    """The distance in twentieths, as whole numbers, where it is small enough."""
    apart = np.abs(np.cumsum(left["h"]) - np.cumsum(right["h"])).sum()
    return float(apart) / 20 if apart <= THRESHOLD * 20 else None


def main() -> None:
    """Run to the end of the input, or wait to be killed where a second argument holds."""
    folder, *hold = sys.argv[1:]
    spark = new_session(Path(folder), "local[2]", WORKERS)
    feed = Feed(Path(folder), (SCHEMA, SCHEMA), hold=hold[0] if hold else None)
    control = str(feed.folder / "control")
    result = ab.correlate(
        *feed.streams(spark),
        where=ab.emd("h", dim=BINS) <= THRESHOLD,
        window=("3 seconds", "2 seconds"),
        watermark="3 seconds",
        plan=ab.adaptive(WORKERS, start=ab.ranges(WORKERS, count=24), policies=["ranges"]),
        control=control,
    )
    turns = {4 * n: TURNS[n % len(TURNS)] for n in range(20)}
    run_asking(feed, spark, result, ab.plans.PlanLog(control), turns)
    print("{}")
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
