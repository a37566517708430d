"""A driver whose checkpoint and plan log are in an object store.

``python store_driver.py FOLDER S3A CONTROL SETTINGS`` correlates the files of a `Feed` in FOLDER,
with its checkpoint at the address S3A. With ``--rescale 4`` it continues on a copy of that, over
four partitions.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import anabranch as ab
from tests.cluster.driver import JOIN
from tests.spark.feeds import Feed, heard
from tests.spark.sessions import new_session


def main() -> None:
    """Run to the end of the input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("place")
    parser.add_argument("control")
    parser.add_argument("settings")
    parser.add_argument("--hold", help="wait to be killed at the first result that this holds for")
    parser.add_argument("--rescale", type=int)
    options = parser.parse_args()
    spark = new_session(options.folder, "local[2]", settings=json.loads(options.settings))
    feed = Feed(options.folder, hold=options.hold, checkpoints=options.place)
    name, control = "out", options.control
    if options.rescale:
        name, old = "more", f"{options.place}/out.checkpoint"
        to = f"{options.place}/more.checkpoint"
        control = ab.rescale(old, options.rescale, to=to, control=control).control
        ab.configure(spark, workers=options.rescale)
    call = {**JOIN, "plan": ab.grid(1, 2), "watermark": "3 seconds", "control": control}
    query = feed.run(ab.correlate(*feed.streams(spark), **call), name)
    heard(spark)
    entries = ab.plans.PlanLog(control).entries()
    (state,) = query.lastProgress.stateOperators
    print(json.dumps({"entries": len(entries), "partitions": state.numShufflePartitions}))
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
