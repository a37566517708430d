"""Folders that a sink's driver and its executors must both reach: what a path means to each.

Spark opens paths by Hadoop's configuration; Arrow and deltalake take one without a scheme for the
local disk. And a local disk may be another one on every machine.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import StateMismatch

if TYPE_CHECKING:
    from pyarrow import fs

    from anabranch.spark.sinks.sink import Batch

__all__ = [
    "absolute_path",
    "path_problem",
    "qualified",
    "refuse_lost",
    "refuse_unshared",
    "rows_in",
]


def path_problem(spark: Any, path: str) -> str | None:
    """Why a path means one place to Spark and another to the driver; None if it does not.

    Rows would go to both, by the size of their batch, and each would have progress of its own.
    """
    if _has_scheme(path):
        if "%" not in path:
            return None
        return (
            f"path={path!r} has a %, which the driver reads as the begin of an escape and Spark as "
            "it stands: name a folder without one, or a local one without a scheme"
        )
    default = _default_filesystem(spark)
    if default is None or default.startswith("file:"):
        return None
    if default.startswith("dbfs:") and path.startswith("/Volumes/"):
        return None  # Databricks shows volumes to both under one name
    there = default.rstrip("/") + (path if path.startswith("/") else f"/.../{path}")
    return (
        f"path={path!r} has no scheme, so that Spark means {default} (fs.defaultFS) and the driver "
        f"its own disk: write {there!r}, or 'file://{os.path.abspath(path)}' for a folder that all "
        "machines share"
    )


def absolute_path(path: str) -> str:
    """The path with the driver's working directory, for Java may have been started in another.

    Examples
    --------
    >>> absolute_path("/data/pairs"), absolute_path("s3a://lake/pairs"), absolute_path("file:/a")
    ('/data/pairs', 's3a://lake/pairs', 'file:/a')
    >>> absolute_path("pairs") == os.path.join(os.getcwd(), "pairs")
    True
    """
    return path if _has_scheme(path) else os.path.abspath(path)


def qualified(spark: Any, path: str) -> str | None:
    """The path with the scheme that Spark gives it; None if it has none and Spark does not say."""
    default = None if _has_scheme(path) else _default_filesystem(spark)
    return path if _has_scheme(path) else default and default.rstrip("/") + path


def rows_in(files: fs.FileSystem, paths: Iterable[str]) -> int:
    """How many rows Parquet files have, by what they say of themselves."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path, filesystem=files).num_rows for path in paths)


def refuse_lost(batch: Batch, found: int, place: str) -> None:
    """Raise unless the driver finds all rows of a batch where executors have written them."""
    if found != batch.rows:
        raise StateMismatch(
            f"batch {batch.number} has {batch.rows} rows, and the driver finds {found} of what the "
            f"executors wrote to {place}: their disks are not its own, so the batch does not "
            "count. Move the folder to a place that all machines share, such as "
            "'s3://bucket/pairs' or a mounted folder, and restart from the same checkpoint; "
            "via='driver' needs no such place"
        )


def refuse_unshared(batch: Batch, place: str) -> None:
    """Raise if a batch that executors are about to write would land on disks of their own.

    The driver commits such a table, and names files there that it has not looked for. So every
    partition first writes a small file, as its executor will write the real one.
    """
    local = re.fullmatch(r"(?:file:(?://[^/]*)?)?(/.*)", place)
    session = batch.frame.sparkSession
    if local is None or str(session.conf.get("spark.master", "local")).startswith("local"):
        return
    from pyarrow import fs

    name = f"_anabranch_{uuid.uuid4().hex}"  # readers skip what begins with an underscore
    here = Path(local[1], name)
    try:
        batch.frame.selectExpr("true AS here").write.parquet(f"{place.rstrip('/')}/{name}")
        found = rows_in(fs.LocalFileSystem(), map(str, here.glob("*.parquet")))
    finally:
        shutil.rmtree(here, ignore_errors=True)
    refuse_lost(batch, found, place)


def _has_scheme(path: str) -> bool:
    return ":" in path.partition("/")[0]


def _default_filesystem(spark: Any) -> str | None:
    """Where Spark looks for paths without a scheme; None if it does not say, as through Connect."""
    if hasattr(spark, "_jsparkSession"):
        settings = spark._jsparkSession.sessionState().newHadoopConf()
        found = spark._jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(settings)
        return str(found.toString())
    if hasattr(spark, "conf"):
        return str(spark.conf.get("spark.hadoop.fs.defaultFS", "")) or None
    return None
