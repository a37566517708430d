"""A driver process of `ab.follow`: ``follow_driver.py FOLDER CALL [--kill N]``.

CALL is a JSON object, the arguments of the call over the views of `follow_world`. Each micro-batch
becomes a file of FOLDER/out, in the place of what an earlier attempt at it wrote. With ``--kill``
it gets SIGKILL, and its JVM too, when that micro-batch is computed and not yet committed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from typing import Any

import anabranch as ab
from tests.spark.feeds import PATIENCE
from tests.spark.follow_world import views
from tests.spark.sessions import new_session


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("call", type=json.loads)
    parser.add_argument("--kill", type=int)
    given = parser.parse_args()
    spark = new_session(given.folder)

    def keep(frame: Any, batch: int) -> None:
        found = frame.toPandas()
        if batch == given.kill:
            os.killpg(0, signal.SIGKILL)
        found.to_parquet(given.folder / "out" / f"{batch:04d}.parquet")

    (given.folder / "out").mkdir(exist_ok=True)
    query = (
        ab.follow(spark, views(), **given.call)
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(given.folder / "out.checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE)
    print(json.dumps({"batches": len(list((given.folder / "out").glob("*.parquet")))}))


if __name__ == "__main__":
    main()
