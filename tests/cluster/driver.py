"""A driver on a cluster: ``python driver.py FOLDER --master spark://... [VERB ...]``.

Runs each verb over the `Feed` in the folder of its name until all files are processed, and prints
what it saw of the executors as the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anabranch as ab
from tests.spark import emd_driver, nearest_feed
from tests.spark.events import CALL
from tests.spark.feeds import ROW, Feed
from tests.spark.modes import MODES
from tests.spark.sessions import new_session

JOIN = {"where": ab.cosine("v") >= 0.6, "window": ("3 seconds", "2 seconds")}
ALIKE: dict[str, Any] = {"where": ab.cosine("v") >= 0.9, "window": "2 seconds"}
LEARNED = ab.close.learned("300 ms", risk=0.4, after=4, remember="900 ms")
LATE = {"watermark": "3 seconds"}
OF_PAIRS = ("one", "dedupe", "left", "anti", "rows")  # of `MODES`


def correlate(spark: Any, feed: Feed) -> Any:
    return ab.correlate(*feed.streams(spark), **JOIN, **LATE, plan=ab.grid(1, 2))


def emd(spark: Any, feed: Feed) -> Any:
    where = ab.emd("h", dim=emd_driver.BINS) <= emd_driver.THRESHOLD
    call = {"window": ("3 seconds", "2 seconds"), "plan": ab.ranges(2)}
    return ab.correlate(*feed.streams(spark), where=where, **call, **LATE)


def nearest(spark: Any, feed: Feed) -> Any:
    asked = nearest_feed.query_frame(spark, nearest_feed.fixed_queries())
    return ab.nearest(feed.streams(spark)[1], asked, by="v", **LATE, plan=ab.broadcast(2))


def selective(spark: Any, feed: Feed) -> Any:
    asked = nearest_feed.query_frame(spark, nearest_feed.lasting_queries())
    call = {"plan": ab.selective(2), "control": str(feed.folder / "control")}
    return ab.nearest(feed.streams(spark)[1], asked, by="v", **LATE, **call)


def mode(name: str, spark: Any, feed: Feed) -> Any:
    return MODES[name].query(*feed.streams(spark), watermark="5 seconds")


def assemble(spark: Any, feed: Feed) -> Any:
    shape = {"key": ["page", "client"], "keep": ["service", "ms"], "response": "ms"}
    return ab.assemble(feed.streams(spark), **shape, close=LEARNED, watermark="1 second")


def groups(spark: Any, feed: Feed) -> Any:
    pairs = ab.correlate(feed.streams(spark)[0], **ALIKE, **LATE)
    return ab.groups(pairs, gap="1 second")


VERBS: dict[str, tuple[Callable[[Any, Feed], Any], Any]] = {
    "correlate": (correlate, (ROW, ROW)),
    "emd": (emd, (emd_driver.SCHEMA, emd_driver.SCHEMA)),
    "nearest": (nearest, (nearest_feed.OP, nearest_feed.OBJECT)),
    "assemble": (assemble, (CALL, CALL)),
    "groups": (groups, (ROW, ROW)),
    "selective": (selective, (nearest_feed.OP, nearest_feed.OBJECT)),
    **{name: (partial(mode, name), (ROW, ROW)) for name in OF_PAIRS},
}


def feed_of(folder: Path, verb: str, hold: str | None = None) -> Feed:
    """The feed of a verb; what waits for the watermark needs batches without rows."""
    waits = verb not in ("correlate", "emd")
    return Feed(folder / verb, VERBS[verb][1], idle=waits, hold=hold)


def main() -> None:
    """Run to the end of the input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("verbs", nargs="*", default=list(VERBS))
    parser.add_argument("--master", required=True)
    parser.add_argument("--hold", help="wait to be killed at the first result that this holds for")
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE of a Spark setting")
    parser.add_argument("--python", help="the Python that Spark starts; by default this one")
    options = parser.parse_args()
    if options.python:
        os.environ["PYSPARK_PYTHON"] = options.python
    settings = dict(one.split("=", 1) for one in options.set)
    spark = new_session(options.folder, options.master, settings=settings)
    for verb in options.verbs:
        feed = feed_of(options.folder, verb, options.hold)
        feed.run(VERBS[verb][0](spark, feed))
    hosts = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    print(json.dumps({"hosts": sorted({info.host() for info in hosts})}))
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
