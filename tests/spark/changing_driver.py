"""A driver that may be killed at any moment: correlates the files of a feed under changing plans.

Run as ``python -m tests.spark.changing_driver FOLDER``. It asks for another plan every five
micro-batches, by hand as an operator would, and ends when the files are used up.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.plans import Csp, Plan
from tests.spark.feeds import Feed

EVERY = 5
PLANS: list[Plan] = [
    ab.ssp(4, "left"),
    Csp(3, 1_500_000, "right"),
    ab.grid(2, 2),
    ab.ssp(2, "right", weights=[1, 3]),
    Csp(4, 4_000_000, "left"),
    ab.grid(1, 3),
    ab.ssp(1),
]
CALL = {
    "where": ab.cosine("v") >= 0.6,
    "window": ("3 seconds", "2 seconds"),
    "late": "3 seconds",
    "plan": ab.grid(2, 2),
}


def ask_for_plans(query, log: ab.PlanLog, stop: threading.Event) -> None:
    """Request the next plan whenever another five batches have been reported."""
    asked = -1
    while not stop.wait(0.05):
        progress = query.lastProgress
        turn = -1 if progress is None else progress.batchId // EVERY
        if turn > asked:
            asked = turn
            log.append(PLANS[turn % len(PLANS)], cause=f"turn {turn}")


def main(folder: Path) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    ab.configure(spark, workers=4)
    feed = Feed(folder)
    control = str(folder / "control")
    query = feed.start(ab.correlate(*feed.streams(spark), **CALL, control=control))
    stop = threading.Event()
    asking = threading.Thread(target=ask_for_plans, args=(query, ab.PlanLog(control), stop))
    asking.start()
    try:
        query.awaitTermination()
    finally:
        stop.set()
        asking.join()
    time.sleep(1)  # let the listener hear of the last batch
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
