"""Spark sessions for tests: quick for many short queries, and otherwise as users have them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["into_files", "new_session"]

# Tests are short: a compiler that stops early beats one that optimises for hours. Hadoop runs chmod
# for each file that it writes, which should not take two processes each. Such a compiler would have
# room for 48 MB of code, which six queries fill in three minutes.
_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=192m -XX:+UseSerialGC -Xms512m "
    "-Djdk.lang.Process.launchMechanism=VFORK"
)
_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing"
_QUICK = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": _JAVA,
    # Generating and compiling code takes longer than reading a few rows without it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    # The other manager starts several processes for each file that it writes.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_MANAGER}.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}


def new_session(
    folder: Path,
    master: str = "local[1]",
    workers: int = 2,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """A session, through Connect if `remote`, that leaves nothing behind outside `folder`."""
    from pyspark.sql import SparkSession

    import anabranch as ab
    from anabranch.spark.class_archive import use_archive

    builder: Any = SparkSession.builder.appName("anabranch tests")
    builder = builder.remote(remote) if remote else builder.master(master)
    chosen = {
        **_QUICK,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "scratch"),
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        **(settings or {}),
    }
    for name, value in chosen.items():
        builder = builder.config(name, value)
    use_archive()
    return ab.configure(builder.getOrCreate(), workers=workers)


def into_files(frame: Any, folder: Path, kill: int | None, patience: float) -> None:
    """Run a stream to its end: each micro-batch is a file of folder/out, and written once more if
    it runs again. In the one to `kill`, computed and not yet committed, this process and its JVM
    get SIGKILL.
    """

    def keep(rows: Any, batch: int) -> None:
        found = rows.toPandas()
        if batch == kill:
            os.killpg(0, signal.SIGKILL)
        found.to_parquet(folder / "out" / f"{batch:04d}.parquet")

    (folder / "out").mkdir(exist_ok=True)
    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(folder / "out.checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(patience)
    print(json.dumps({"batches": len(list((folder / "out").glob("*.parquet")))}))
