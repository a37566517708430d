"""A driver process that reads a stream: ``jetstream_driver.py FOLDER OPTIONS [--kill N]``.

OPTIONS is a JSON object. Each micro-batch becomes a file of FOLDER/out, in the place of what an
earlier attempt at it wrote. With ``--kill`` it gets SIGKILL, and its JVM too, in that micro-batch:
its offsets are written and its end is not.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from typing import Any

from tests.spark.feeds import PATIENCE
from tests.spark.sessions import new_session


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("options", type=json.loads)
    parser.add_argument("--kill", type=int)
    given = parser.parse_args()
    spark = new_session(given.folder)
    from anabranch.spark.jetstream import JetStream

    spark.dataSource.register(JetStream)

    def keep(frame: Any, batch: int) -> None:
        if batch == given.kill:
            os.killpg(0, signal.SIGKILL)
        frame.toPandas().to_parquet(given.folder / "out" / f"{batch}.parquet")

    (given.folder / "out").mkdir(exist_ok=True)
    query = (
        spark.readStream.format("jetstream")
        .options(**given.options)
        .load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(given.folder / "out.checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE)
    print(json.dumps({"batches": len(list((given.folder / "out").glob("*.parquet")))}))


if __name__ == "__main__":
    main()
