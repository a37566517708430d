"""A driver process that writes into a sink, to be killed between any two of its commits.

``python driver.py FOLDER CALL --sink parquet`` correlates the files of a `Feed` in FOLDER into the
sink; CALL is a JSON object, the arguments of the sink. With ``--kill STEP@BATCH`` it gets SIGKILL,
and its JVM too, as soon as that batch has come to that step. With ``--batch`` it writes the answer
of the same call over tables to FOLDER/batch.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anabranch as ab
from tests.spark.feeds import PATIENCE, Feed
from tests.spark.sessions import new_session

CALL: dict[str, Any] = {"where": ab.cosine("v") >= 0.6, "window": ("3 seconds", "2 seconds")}


class Killer(logging.Handler):
    """Kills this process and its JVM where the log says that a step was reached."""

    def __init__(self, where: str) -> None:
        super().__init__()
        step, _, batch = where.rpartition("@")
        self.ending = f"batch {batch}: {step}"

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().endswith(self.ending):
            os.killpg(0, signal.SIGKILL)


def rich(frame: Any) -> Any:
    """The rows with columns of every kind that a result may keep."""
    from pyspark.sql import functions as F

    return frame.select(
        "*",
        F.col("x").cast("decimal(9,2)").alias("price"),
        F.array("name", "room").alias("tags"),
        F.struct(F.col("ts").alias("seen"), F.array(F.struct("x", "name")).alias("more")).alias(
            "s"
        ),
        F.to_date("ts").alias("day"),
    )


def pairs(spark: Any, feed: Feed, batch: bool = False) -> Any:
    """The correlated pairs, with rich columns kept."""
    sides = map(rich, feed.tables(spark) if batch else feed.streams(spark))
    late = {} if batch else {"watermark": "3 seconds"}
    return ab.correlate(*sides, **CALL, **late, keep=(["price", "tags", "s", "day"], ["name"]))


def distinct(spark: Any, feed: Feed, batch: bool = False) -> Any:
    """Rows without those that came before: stateful too, and Spark alone."""
    left, _ = map(rich, feed.tables(spark) if batch else feed.streams(spark))
    result = left if batch else left.withWatermark("ts", "3 seconds")
    return result.dropDuplicates(["id", "ts"]).select("id", "ts", "price", "tags", "s", "day")


RESULTS = {"pairs": pairs, "distinct": distinct}


def main() -> None:
    """Run to the end of the input, or to the kill."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("call", type=json.loads)
    parser.add_argument("--sink", required=True)
    parser.add_argument("--kill")
    parser.add_argument("--batch", action="store_true")
    parser.add_argument("--result", choices=RESULTS, default="pairs")
    parser.add_argument("--read", help="with --batch: write this table to FOLDER/read")
    parser.add_argument("--remote")
    parser.add_argument("--conf", type=json.loads, default={})
    options = parser.parse_args()
    log = logging.getLogger("anabranch.sinks")
    log.setLevel(logging.DEBUG)
    log.addHandler(logging.StreamHandler())
    if options.kill:
        log.addHandler(Killer(options.kill))
    spark = new_session(options.folder, "local[2]", remote=options.remote, settings=options.conf)
    feed, make = Feed(options.folder), RESULTS[options.result]
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    query = (
        make(spark, feed)
        .writeStream.foreachBatch(getattr(ab.sinks, options.sink)(**options.call))
        .option("checkpointLocation", str(options.folder / "out.checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE), "the query hangs"
    if options.batch:
        make(spark, feed, batch=True).write.mode("overwrite").parquet(str(options.folder / "batch"))
        if options.read:
            spark.table(options.read).write.parquet(str(options.folder / "read"))
    print(json.dumps({"ended": True}))
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
