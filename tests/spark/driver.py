"""A driver process of its own, to be killed, given executors, or run through Spark Connect.

``python driver.py FOLDER`` correlates the files of a `Feed` in FOLDER until all
are processed, and prints the query's figures as the last line. With ``--changing`` it also asks
for another plan every five micro-batches, by hand as an operator would. With ``--mode`` it runs one
of the queries of `modes`.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

import anabranch as ab
from anabranch.plans.plan import Plan
from tests.correlation import twin
from tests.spark import modes
from tests.spark import nearest_feed as nearest_driver
from tests.spark.feeds import PATIENCE, SECOND, Feed
from tests.spark.modes import MODES
from tests.spark.sessions import new_session

SPANS = (3 * SECOND, 2 * SECOND)
LATE = 3 * SECOND
PLANS = {
    "broadcast": ab.broadcast(2),
    "segments": ab.segments(2, "1500 milliseconds"),
    "grid": ab.grid(1, 2),
}
TURNS = [
    ab.broadcast(4, "right"),
    ab.segments(3, "1500 milliseconds", "left"),
    ab.grid(2, 2),
    ab.broadcast(2, "left", weights=[1, 3]),
    ab.segments(4, "4 seconds"),
    ab.grid(1, 3),
    ab.broadcast(1),
]


score = twin.alike(0.6)


class Asker(StreamingQueryListener):
    """Requests a plan once a batch has been reported, for each batch named in `turns`."""

    def __init__(self, log: ab.plans.PlanLog, turns: Mapping[int, Plan]) -> None:
        self.log = log
        self.turns = dict(turns)
        self.ended = threading.Event()

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        due = [batch for batch in self.turns if batch <= event.progress.batchId]
        plans = [self.turns.pop(batch) for batch in due]
        if plans:
            self.log.append(plans[-1], cause=f"after batch {event.progress.batchId}")

    def onQueryTerminated(self, event: Any) -> None:
        self.ended.set()


def run_asking(
    feed: Feed, spark: Any, result: Any, log: ab.plans.PlanLog, turns: Mapping[int, Plan]
) -> Any:
    """Run to the end of the input, and until all listeners have heard of it."""
    asker = Asker(log, turns)
    spark.streams.addListener(asker)
    try:
        query = feed.run(result)
        assert asker.ended.wait(PATIENCE), "the listener heard of no end"
    finally:
        spark.streams.removeListener(asker)
    return query


def run_changing(feed: Feed, spark: Any, call: dict[str, Any]) -> Any:
    """Run to the end of the input under one plan after the other."""
    control = str(feed.folder / "control")
    call = {**call, "plan": ab.grid(2, 2), "watermark": "3 seconds", "control": control}
    result = ab.correlate(*feed.streams(spark), **call)
    turns = {5 * n: TURNS[n % len(TURNS)] for n in range(20)}
    return run_asking(feed, spark, result, ab.plans.PlanLog(control), turns)


def run_assembly(options: argparse.Namespace) -> None:
    """Assemble the events of a feed."""
    from tests.spark.events import CALL

    spark = new_session(
        options.folder, options.master, remote=options.remote, settings=dict(options.conf)
    )
    feed = Feed(options.folder, (CALL, CALL), idle=True, hold=options.hold)
    query = feed.run(
        ab.assemble(
            feed.streams(spark),
            key=["page", "client"],
            keep=["service", "ms"],
            response="ms",
            close=ab.close.learned("300 ms", risk=0.4, after=4, remember="900 ms"),
            watermark="1 second",
            rejects=_rejects(options),
        )
    )
    print(json.dumps(ab.metrics(query)))
    spark.stop()


def run_mode(options: argparse.Namespace) -> None:
    """One of the queries of `modes`, which go on without rows once the watermark has moved."""
    spark = new_session(options.folder, options.master, 2, options.remote, dict(options.conf))
    feed = Feed(options.folder, hold=options.hold, idle=True)
    kept = {"bad_rows": "drop", "rejects": _rejects(options)} if options.rejects else {}
    late = f"{modes.LATE} microseconds"
    result = MODES[options.mode].query(*feed.streams(spark), watermark=late, **kept)
    query = feed.run(result)
    print(json.dumps(ab.metrics(query)))
    spark.stop()


def _rejects(options: argparse.Namespace) -> str | None:
    return str(options.folder / "rejects") if options.rejects else None


def main() -> None:
    """Run to the end of the input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--remote")
    parser.add_argument("--plan", choices=PLANS, default="broadcast")
    parser.add_argument("--changing", action="store_true", help="under changing plans")
    parser.add_argument("--nearest", action="store_true", help="`nearest` in place of `correlate`")
    parser.add_argument("--routed", action="store_true", help="`nearest` under selective routing")
    parser.add_argument("--batch", action="store_true", help="also as a batch, into FOLDER/batch")
    parser.add_argument("--assemble", action="store_true", help="assemble instead")
    parser.add_argument("--mode", choices=MODES, help="another query instead")
    parser.add_argument("--rejects", action="store_true", help="keep bad and late rows")
    parser.add_argument("--hold", help="wait to be killed at the first result that this holds for")
    pair = lambda text: tuple(text.split("=", 1))  # noqa: E731
    parser.add_argument("--conf", type=pair, action="append", default=[], help="a setting of Spark")
    options = parser.parse_args()
    if options.assemble:
        return run_assembly(options)
    if options.mode:
        return run_mode(options)
    workers = 4 if options.changing else 2
    spark = new_session(options.folder, options.master, workers, options.remote, dict(options.conf))
    feed = Feed(options.folder, hold=options.hold)
    if options.nearest:
        nearest_driver.run(options.folder, spark, options.routed, options.hold, _rejects(options))
        return
    call = {
        "where": ab.cosine("v") >= 0.6,
        "window": ("3 seconds", "2 seconds"),
        "plan": PLANS[options.plan],
        "keep": (["name"], []),
    }
    if options.rejects:
        call |= {"where": ab.cosine("v", dim=2) >= 0.6, "bad_rows": "drop"}
        call["rejects"] = _rejects(options)
    if options.changing:
        query = run_changing(feed, spark, call)
    else:
        query = feed.run(ab.correlate(*feed.streams(spark), **call, watermark="3 seconds"))
    if options.batch:
        ab.correlate(*feed.tables(spark), **call).write.parquet(str(feed.folder / "batch"))
    print(json.dumps(ab.metrics(query)))
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
