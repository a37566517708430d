"""A driver process of its own, to be killed, given executors, or run through Spark Connect.

``python driver.py FOLDER --master local[2]`` correlates the files of a `Feed` in FOLDER until all
are processed, and prints the query's figures as the last line. With ``--changing`` it also asks
for another plan every five micro-batches, by hand as an operator would.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.plans.plan import Plan
from tests.correlation import twin
from tests.spark import nearest_feed as nearest_driver
from tests.spark.feeds import SECOND, Feed

SPANS = (3 * SECOND, 2 * SECOND)
LATE = 3 * SECOND
PLANS = {"ssp": ab.ssp(2), "csp": ab.csp(2, "1500 milliseconds"), "grid": ab.grid(1, 2)}
EVERY = 5
TURNS = [
    ab.ssp(4, "left"),
    ab.csp(3, "1500 milliseconds", "right"),
    ab.grid(2, 2),
    ab.ssp(2, "right", weights=[1, 3]),
    ab.csp(4, "4 seconds"),
    ab.grid(1, 3),
    ab.ssp(1),
]


def score(left: twin.Row, right: twin.Row) -> float | None:
    """The twin of this query's predicate."""
    return twin.when(lambda a, b: twin.cosine(a["v"], b["v"]), lambda s: s >= 0.6)(left, right)


def session(master: str | None, remote: str | None, folder: Path, workers: int = 2) -> Any:
    """A session that leaves nothing behind outside `folder`."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("anabranch test driver")
    builder = builder.remote(remote) if remote else builder.master(master)
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "scratch"),
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
    }.items():
        builder = builder.config(name, value)
    return ab.configure(builder.getOrCreate(), workers=workers)


@contextmanager
def asking(query: Any, log: ab.PlanLog, turns: Sequence[Plan], every: int) -> Iterator[None]:
    """Request the next of the plans whenever `every` more batches have been reported."""
    stop = threading.Event()

    def ask() -> None:
        asked = -1
        while not stop.wait(0.05):
            progress = query.lastProgress
            turn = -1 if progress is None else progress.batchId // every
            if turn > asked:
                asked = turn
                log.append(turns[turn % len(turns)], cause=f"turn {turn}")

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    time.sleep(1)  # the listener hears of the last batch a little later


def run_changing(feed: Feed, spark: Any, call: dict[str, Any]) -> Any:
    """Run to the end of the input under one plan after the other."""
    control = str(feed.folder / "control")
    call = {**call, "plan": ab.grid(2, 2), "late": "3 seconds", "control": control}
    query = feed.start(ab.correlate(*feed.streams(spark), **call))
    with asking(query, ab.PlanLog(control), TURNS, EVERY):
        query.awaitTermination()
    return query


def run_assembly(options: argparse.Namespace) -> None:
    """Assemble the invocations of a feed."""
    from tests.spark.invocations import CALL

    spark = session(options.master, options.remote, options.folder)
    feed = Feed(options.folder, (CALL, CALL))
    query = feed.run(
        ab.assemble(
            feed.streams(spark),
            key=["page", "client"],
            collect=["service", "ms"],
            response="ms",
            close=ab.learned("300 ms", risk=0.4, after=4, linger="900 ms"),
            late="1 second",
        )
    )
    print(json.dumps(ab.metrics(query)))
    spark.stop()


def main() -> None:
    """Run to the end of the input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master")
    parser.add_argument("--remote")
    parser.add_argument("--plan", choices=PLANS, default="ssp")
    parser.add_argument("--changing", action="store_true", help="under changing plans")
    parser.add_argument("--nearest", action="store_true", help="`nearest` in place of `correlate`")
    parser.add_argument("--routed", action="store_true", help="`nearest` under interest routing")
    parser.add_argument("--batch", action="store_true", help="also as a batch, into FOLDER/batch")
    parser.add_argument("--assemble", action="store_true", help="assemble instead")
    options = parser.parse_args()
    if options.assemble:
        return run_assembly(options)
    workers = 4 if options.changing else 2
    spark = session(options.master, options.remote, options.folder, workers)
    feed = Feed(options.folder)
    if options.nearest:
        nearest_driver.run(options.folder, spark, options.routed)
        return
    call = {
        "where": ab.cosine("v") >= 0.6,
        "window": ("3 seconds", "2 seconds"),
        "plan": PLANS[options.plan],
        "keep": (["name"], []),
    }
    if options.changing:
        query = run_changing(feed, spark, call)
    else:
        query = feed.run(ab.correlate(*feed.streams(spark), **call, late="3 seconds"))
    if options.batch:
        ab.correlate(*feed.tables(spark), **call).write.parquet(str(feed.folder / "batch"))
    print(json.dumps(ab.metrics(query)))
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
