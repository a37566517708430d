"""A driver on a cluster: ``python driver.py FOLDER --master spark://... [VERB ...]``.

Runs each verb over the `Feed` in the folder of its name until all files are processed, those of
tables once, and prints what it saw of the executors as the last line.
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
from anabranch.spark.follow_stream import follow_frames
from anabranch.spark.follow_tables import result_columns
from tests.spark import emd_driver, follow_world, nearest_feed, test_rejects, test_spans
from tests.spark.events import CALL
from tests.spark.feeds import ROW, Feed
from tests.spark.modes import MODES
from tests.spark.sessions import new_session

JOIN = {"where": ab.cosine("v") >= 0.6, "window": ("3 seconds", "2 seconds")}
ALIKE: dict[str, Any] = {"where": ab.cosine("v") >= 0.9, "window": "2 seconds"}
LEARNED = ab.close.learned("300 ms", risk=0.4, after=4, remember="900 ms")
LATE = {"watermark": "3 seconds"}
SHAPE: dict[str, Any] = {"key": ["page", "client"], "keep": ["service", "ms"], "response": "ms"}
EDGES = [("news", "p", 9.0, 1.0), ("p", "q", 5.0, 1.0), ("q", "r", 2.0, 7.0)]
OF_PAIRS = ("one", "dedupe", "left", "full", "anti", "rows")  # of `MODES`


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
    return ab.assemble(feed.streams(spark), **SHAPE, close=LEARNED, watermark="1 second")


def groups(spark: Any, feed: Feed) -> Any:
    pairs = ab.correlate(feed.streams(spark)[0], **ALIKE, **LATE)
    return ab.groups(pairs, gap="1 second")


def follow(spark: Any, feed: Feed) -> Any:
    """From frames as devices send them; the broker is left out."""
    frames = spark.readStream.schema("seq long, subject string, data binary")
    frames = frames.option("maxFilesPerTrigger", 1).parquet(str(feed.folder / "frames"))
    columns = result_columns(follow_world.views())
    return follow_frames(frames, columns, str(feed.folder / "control"))


def rejects(spark: Any, feed: Feed) -> Any:
    """The pairs; rows that are bad or late go into a folder beside them."""
    call = {**test_rejects.CALL, "rejects": str(feed.folder / "rejects")}
    return ab.correlate(*feed.streams(spark), **call, watermark="1 second")


def spans_of(spark: Any, feed: Feed) -> Any:
    return test_spans.traces(test_spans.messages(spark, feed.folder / "in"))


def video(spark: Any, feed: Feed) -> Any:
    frames = ab.video.frames(
        spark, str(feed.folder / "films"), start="2024-05-01", picture=(64, 36)
    )
    return ab.video.shots(frames)


def instances(spark: Any, feed: Feed) -> Any:
    return ab.assemble(feed.tables(spark), **SHAPE, close=ab.close.count(3, "2500 ms"))


def sla(spark: Any, feed: Feed) -> Any:
    return ab.sla(instances(spark, feed), "2 seconds", service="page")


def rank_services(spark: Any, feed: Feed) -> Any:
    return ab.rank_services(instances(spark, feed), "2 seconds", service="page")


def top(spark: Any, feed: Feed) -> Any:
    asked = nearest_feed.query_frame(spark, nearest_feed.fixed_queries())
    call: dict[str, Any] = {"by": "v", "output": "top", "plan": ab.broadcast(2)}
    return ab.top(ab.nearest(feed.tables(spark)[1], asked, **call))


def place_pairs(spark: Any, _: Feed) -> Any:
    edges = spark.createDataFrame(EDGES, "a string, b string, rate_a double, rate_b double")
    return ab.place_pairs(edges, {"news": "cloud"}, upload_cost=1.0, download_cost=1.0)


def place(spark: Any, _: Feed) -> Any:
    inputs = [("v", "s", 3.0), ("v", "t", 1.0), ("w", "t", 2.0)]
    frame = spark.createDataFrame(inputs, "view string, input string, rate double")
    placed = ab.place(frame, {"s": "phone", "t": "watch"})
    return spark.createDataFrame(sorted(placed.location.items()), "view string, at string")


def fit_windows(spark: Any, feed: Feed) -> Any:
    fit = ab.fit_windows(feed.tables(spark)[0], key=["page", "client"], settle="3 seconds")
    return spark.createDataFrame([(repr(fit),)], "fit string")


VERBS: dict[str, tuple[Callable[[Any, Feed], Any], Any]] = {
    "correlate": (correlate, (ROW, ROW)),
    "emd": (emd, (emd_driver.SCHEMA, emd_driver.SCHEMA)),
    "nearest": (nearest, (nearest_feed.OP, nearest_feed.OBJECT)),
    "assemble": (assemble, (CALL, CALL)),
    "groups": (groups, (ROW, ROW)),
    "selective": (selective, (nearest_feed.OP, nearest_feed.OBJECT)),
    "follow": (follow, (ROW, ROW)),
    "rejects": (rejects, (ROW, ROW)),
    "spans_of": (spans_of, (ROW, ROW)),
    "video": (video, (ROW, ROW)),
    "rank_services": (rank_services, (CALL, CALL)),
    "top": (top, (nearest_feed.OP, nearest_feed.OBJECT)),
    **{name: (partial(mode, name), (ROW, ROW)) for name in OF_PAIRS},
}
OF_TABLES = {"sla": sla, "place": place, "place_pairs": place_pairs, "fit_windows": fit_windows}
TABLES = {*OF_TABLES, "rank_services", "top"}  # what ends by itself
VERBS |= {name: (call, (CALL, CALL)) for name, call in OF_TABLES.items()}


def feed_of(folder: Path, verb: str, hold: str | None = None) -> Feed:
    """The feed of a verb; what waits for the watermark needs batches without rows."""
    waits = verb not in ("correlate", "emd", "rejects")
    return Feed(folder / verb, VERBS[verb][1], idle=waits, hold=hold)


def main() -> None:
    """Run to the end of the input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("verbs", nargs="*", default=list(VERBS))
    parser.add_argument("--master", default="local[1]")
    parser.add_argument("--remote", help="the master of a server, to be reached through Connect")
    parser.add_argument("--hold", help="wait to be killed at the first result that this holds for")
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE of a Spark setting")
    parser.add_argument("--python", help="the Python that Spark starts; by default this one")
    options = parser.parse_args()
    if options.python:
        os.environ["PYSPARK_PYTHON"] = options.python
    settings = dict(one.split("=", 1) for one in options.set)
    spark = new_session(options.folder, options.master, 2, options.remote, settings)
    for verb in options.verbs:
        feed = feed_of(options.folder, verb, options.hold)
        result = VERBS[verb][0](spark, feed)
        if verb in TABLES:
            result.write.parquet(str(feed.folder / "out"))
        else:
            feed.run(result)
    if options.remote:  # which knows nothing of executors
        spark.stop()
        return print(json.dumps({}))
    hosts = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    print(json.dumps({"hosts": sorted({info.host() for info in hosts})}))
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
