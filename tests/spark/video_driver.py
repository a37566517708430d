"""A driver for tests that kill it: key frames of channels into an exactly-once folder.

Usage: ``python video_driver.py FOLDER [--hold BATCH]``. It reads ``channels``, writes ``out`` and
keeps ``out.checkpoint``; with ``--hold`` it stops in the middle of that micro-batch, when frames
have been decoded and nothing is written, makes the file ``reached`` and waits to be killed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import anabranch as ab
from tests.spark.sessions import new_session


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hold", type=int, default=-1)
    given = parser.parse_args()
    spark = new_session(given.folder, master="local[2]")
    spark.sparkContext.setLogLevel("OFF")
    sink = ab.sinks.parquet(str(given.folder / "out"), app="keys", via="driver")

    def write(rows: Any, batch: int) -> None:
        if batch == given.hold:
            rows.count()
            (given.folder / "reached").touch()
            while True:
                time.sleep(1)
        sink(rows, batch)

    path, start = str(given.folder / "channels"), "2024-05-01"
    frames = ab.video.frames(spark, path, start=start, closed="all", max_files=1, picture=None)
    query = (
        ab.video.shots(frames)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(given.folder / "out.checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(json.dumps({"batches": len(query.recentProgress)}))


if __name__ == "__main__":
    main()
