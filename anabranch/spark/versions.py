"""All that differs between the Spark versions that Anabranch runs on: 4.1 to 4.3.

Nothing else asks which version there is. Where a difference can be seen in Spark itself, it is
looked for there: vendors take changes from later versions into earlier ones.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from inspect import signature
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import __version__
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas import types
from pyspark.sql.types import DataType, StructType

__all__ = [
    "MINIMUM",
    "AvailableNow",
    "Limits",
    "arrow_schema",
    "arrow_type",
    "limit_problems",
    "limits_of",
    "local_checkpoints",
    "newest_of",
    "read_limit",
    "repartition_problems",
    "repartition_state",
    "version_problems",
]

MINIMUM = (4, 1)
"""The oldest version that is tested."""

# Spark 4.1 knows no time zone here and always writes UTC, which is what later ones are told.
_ZONE: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in signature(types.to_arrow_schema).parameters else {}
)


def arrow_schema(fields: StructType, large: bool) -> pa.Schema:
    """The Arrow schema in which Spark hands these columns to Python and takes them back.

    Examples
    --------
    >>> from pyspark.sql.types import StringType, TimestampType
    >>> fields = StructType().add("ts", TimestampType()).add("name", StringType())
    >>> [str(field.type) for field in arrow_schema(fields, large=False)]
    ['timestamp[us, tz=UTC]', 'string']
    """
    return types.to_arrow_schema(fields, prefers_large_types=large, **_ZONE)


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type in which Spark hands a column to Python.

    Examples
    --------
    >>> from pyspark.sql.types import LongType
    >>> arrow_type(LongType())
    DataType(int64)
    """
    return types.to_arrow_type(data_type, **_ZONE)


def local_checkpoints(spark: SparkSession) -> dict[str, str]:
    """Settings with which a classic session writes checkpoints to a local disk the short way.

    By default Spark renames each file so that Hadoop starts eight processes to look for links: 40
    ms a file. A rename by the file system is as atomic on a local disk. It may not be elsewhere,
    and an object store refuses to replace what a repeated micro-batch has written before.

    Examples
    --------
    >>> local_checkpoints(spark).keys()
    dict_keys(['spark.sql.streaming.checkpointFileManagerClass'])
    """
    loader = spark.sparkContext._jvm.org.apache.spark.util.Utils  # type: ignore[union-attr]
    for folder in ("streaming.checkpointing", "streaming"):
        name = f"org.apache.spark.sql.execution.{folder}.FileSystemBasedCheckpointFileManager"
        if loader.classIsLoadable(name):
            return {"spark.sql.streaming.checkpointFileManagerClass": name}
    return {}


def newest_of(value: Column, by: Column, most: int) -> Column:
    """The values with the largest `by` of an aggregate, at most so many, as an array.

    Spark 4.1 finds one at a time: there rows fall into as many parts, and each part has its newest.

    Examples
    --------
    >>> rows = spark.range(9).select(newest_of(F.col("id"), F.col("id"), 2).alias("ids"))
    >>> rows.first().ids
    [8, 7]
    """
    if "k" in signature(F.max_by).parameters:
        return F.max_by(value, by, most)
    part = F.pmod(F.xxhash64(value, by), F.lit(most))
    each = [F.max_by(value, F.when(part == number, by)) for number in range(most)]
    return F.filter(F.array(*each), lambda one: one.isNotNull())


def version_problems(found: str = __version__) -> list[str]:
    """What to say of a Spark that is too old, or newer than any that exists today.

    Examples
    --------
    >>> version_problems("4.1.4"), version_problems("4.2.0.dev1")
    ([], [])
    >>> version_problems("4.0.2")
    ["Spark is 4.0.2, and Anabranch needs 4.1 or newer, below 5: pip install 'pyspark>=4.1,<5'"]
    """
    numbers = tuple(int(part) for part in found.split(".")[:2])
    if MINIMUM <= numbers < (5,):
        return []
    return [
        f"Spark is {found}, and Anabranch needs {MINIMUM[0]}.{MINIMUM[1]} or newer, below 5: "
        "pip install 'pyspark>=4.1,<5'"
    ]


# Spark 4.2 brought it, for classic sessions; it is not public yet, so its name may change.
_MANAGER = "_streamingCheckpointManager"


def repartition_problems(found: str = __version__, session: type = SparkSession) -> list[str]:
    """What to say of a Spark that cannot repartition the state of a checkpoint.

    Examples
    --------
    >>> repartition_problems("4.1.4", object)
    ["Spark is 4.1.4, and only 4.2 or newer can repartition a checkpoint's state: rescale it with \
a newer Spark, which must then run the query too"]
    """
    if hasattr(session, _MANAGER):
        return []
    return [
        f"Spark is {found}, and only 4.2 or newer can repartition a checkpoint's state: rescale it "
        "with a newer Spark, which must then run the query too"
    ]


def repartition_state(spark: SparkSession, checkpoint: str, partitions: int) -> None:
    """Spread the state in a checkpoint over so many partitions, as one more micro-batch."""
    getattr(spark, _MANAGER).repartition(checkpoint, partitions)


# Spark 4.2 brought limits of a micro-batch to data sources in Python, and "available now".
_streaming: Any = None
with suppress(ImportError):
    _streaming = import_module("pyspark.sql.streaming.datasource")
AvailableNow: Any = getattr(_streaming, "SupportsTriggerAvailableNow", object)
"""What a source inherits from that knows the trigger "available now"."""


def limit_problems(found: str = __version__, limits: bool = _streaming is not None) -> list[str]:
    """What to say of a Spark whose data sources in Python know no limits of a micro-batch.

    Examples
    --------
    >>> limit_problems("4.1.4", False)
    ['Spark is 4.1.4, and only 4.2 or newer tells a source where it stands: leave max_files=, \
max_bytes= and keep= out']
    """
    if limits:
        return []
    return [
        f"Spark is {found}, and only 4.2 or newer tells a source where it stands: leave "
        "max_files=, max_bytes= and keep= out"
    ]


class Limits(NamedTuple):
    """The most that a micro-batch should read, of what Spark counts."""

    files: int | None = None
    bytes: int | None = None
    rows: int | None = None


def read_limit(limits: Limits) -> Any:
    """What a source says that a micro-batch should read at most."""
    if limits.files is not None:
        return _streaming.ReadMaxFiles(limits.files)
    if limits.bytes is not None:
        return _streaming.ReadMaxBytes(limits.bytes)
    if limits.rows is not None:
        return _streaming.ReadMaxRows(limits.rows)
    return _streaming.ReadAllAvailable()


def limits_of(limit: Any) -> Limits:
    """The limit that Spark gives to a source.

    Examples
    --------
    >>> limits_of(None)
    Limits(files=None, bytes=None, rows=None)
    """
    names = ("max_files", "max_bytes", "max_rows")
    return Limits(*(getattr(limit, name, None) for name in names))
