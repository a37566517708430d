"""Worker keys: Spark's own hash sends them one to each task."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.flow.hashing import worker_keys


@pytest.mark.parametrize("partitions", [1, 2, 4, 6, 8, 16])
def test_worker_keys_fill_every_partition_once(spark: Any, partitions: int) -> None:
    keys = worker_keys(partitions)
    frame = spark.createDataFrame([(key,) for key in keys], "key long")
    found = frame.selectExpr(f"pmod(hash(cast(key as int)), {partitions}) AS task").collect()
    assert sorted(row.task for row in found) == list(range(partitions))


def test_repartition_agrees_with_the_hash(spark: Any) -> None:
    """As the stateful operator shuffles: by the key alone, into the session's partitions."""
    frame = spark.createDataFrame([(key,) for key in worker_keys(8)], "worker int")
    tasks = frame.repartition(8, "worker").rdd.glom().map(len).collect()
    assert tasks == [1] * 8


def test_more_partitions_than_workers(spark: Any) -> None:
    frame = spark.createDataFrame([(key,) for key in worker_keys(4)], "worker int")
    tasks = frame.repartition(12, "worker").rdd.glom().map(len).collect()
    assert sorted(tasks) == [0] * 8 + [1] * 4
