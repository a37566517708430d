"""Session settings that the operators need, and what to say when one is wrong."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from pyspark.sql import SparkSession

from anabranch.calls import is_whole
from anabranch.errors import InvalidCall
from anabranch.flow.hashing import spreads
from anabranch.plans.controller import Adaptive
from anabranch.plans.plan import Plan, Routing

__all__ = ["configure", "has_large_types", "partitions", "room_problems", "setting_problems"]

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PARTITIONS = "spark.sql.shuffle.partitions"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


def configure(spark: SparkSession, workers: int = 8) -> SparkSession:
    """Set what Anabranch's operators need on a session, and return it.

    Sets the number of shuffle partitions to the least number, `workers` or a little more, over
    which workers spread one per task; the RocksDB state store, which Python state needs; and its
    changelog checkpoints, which make commits cheap. A running checkpoint keeps the number of
    partitions that it was begun with. With a local master, and unless ``PYSPARK_PYTHON`` or
    ``spark.pyspark.python`` says otherwise, Python workers are this interpreter.

    Parameters
    ----------
    spark
        The session, classic or Connect.
    workers
        How many workers a plan may use: about the number of cores. Every partition costs about
        65 ms per micro-batch, so more is not better.

    Examples
    --------
    >>> import anabranch as ab
    >>> ab.configure(spark, workers=2) is spark
    True
    """
    if not is_whole(workers):
        raise InvalidCall(
            "configure", [f"workers must be a whole number of at least 1, got {workers!r}"]
        )
    workers = int(workers)
    count = next((n for n in range(workers, 2 * workers + 64) if spreads(n)), workers)
    spark.conf.set(_PARTITIONS, str(count))
    spark.conf.set(_PROVIDER, _ROCKSDB)
    spark.conf.set(_CHANGELOG, "true")
    _use_this_python(spark)
    return spark


def _use_this_python(spark: SparkSession) -> None:
    """Keep Spark from taking the system's python3, which knows nothing of a virtual environment."""
    try:
        context = spark.sparkContext
    except Exception:  # Connect has none, and its server chooses
        return
    chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if str(context.master).startswith("local") and not chosen:
        context.pythonExec = sys.executable


def partitions(spark: SparkSession) -> int:
    """The session's number of shuffle partitions."""
    return int(spark.conf.get(_PARTITIONS) or 200)


def has_large_types(spark: SparkSession) -> bool:
    """Whether strings and bytes travel between Spark and Python with offsets of 64 bits."""
    return spark.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"


def room_problems(spark: SparkSession, plan: Any) -> list[str]:
    """What to say of a plan with more workers than the session has partitions."""
    count = partitions(spark)
    if not isinstance(plan, (Plan, Routing, Adaptive)) or plan.workers <= count:
        return []
    return [
        f"plan {plan} has {plan.workers} workers, but {_PARTITIONS} is {count}: use fewer, or call "
        f"ab.configure(spark, workers={plan.workers})"
    ]


def setting_problems(spark: SparkSession, streaming: bool) -> list[str]:
    """What stands in the way of running an operator on this session."""
    count = partitions(spark)
    if streaming and not spreads(count):
        warnings.warn(
            f"{_PARTITIONS} is {count}: workers may share tasks, and each partition costs about "
            "65 ms per micro-batch; call ab.configure(spark, workers=...) with about as many as "
            "there are cores",
            stacklevel=4,
        )
    if streaming and (found := spark.conf.get(_PROVIDER, "")) != _ROCKSDB:
        short = (found or "unset").rsplit(".", 1)[-1]
        return [
            f"{_PROVIDER} is {short}, but Python state needs RocksDBStateStoreProvider: call "
            "ab.configure(spark, workers=8) once after making the session"
        ]
    return []
