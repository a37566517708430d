"""A short real stream into Parquet, and why a sink must compute what it does not need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import anabranch as ab
from tests.sinks.driver import distinct
from tests.spark.feeds import PATIENCE, Feed, scripted, settings


class Crash(RuntimeError):
    """What stands for a kill after the sink's commit and before Spark's."""


def run(result: Any, folder: Path, write: Any) -> Any:
    stream = result.writeStream.foreachBatch(write).trigger(availableNow=True)
    with settings(result.sparkSession, streaming__noDataMicroBatches__enabled=False):
        query = stream.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        assert query.awaitTermination(PATIENCE), "the query hangs"
    finally:
        query.stop()
    return query


def crashing(write: Any, at: int) -> Any:
    def call(frame: Any, number: int) -> None:
        write(frame, number)
        if number == at:
            raise Crash

    return call


def skipping(frame: Any, number: int, seen: set[int]) -> None:
    """The sink of the textbooks: what was written is not looked at."""
    if number not in seen:
        frame.collect()
        seen.add(number)


def trace(error: Any) -> str:
    """What the JVM says of an error, causes included."""
    return f"{error} {getattr(error, '_stackTrace', '')}"


def test_a_batch_that_is_skipped_unread_stops_the_query(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    feed = Feed(tmp_path).add(scripted(2, rows=(5, 5)))
    seen: set[int] = set()

    def naive(frame: Any, number: int) -> None:
        skipping(frame, number, seen)

    with pytest.raises(StreamingQueryException, match="Crash"):
        run(distinct(spark, feed), tmp_path, crashing(naive, 1))
    with pytest.raises(StreamingQueryException) as stopped:
        run(distinct(spark, feed), tmp_path, naive)
    assert "STATE_STORE_COMMIT_VALIDATION_FAILED" in trace(stopped.value)


@pytest.mark.parametrize("via", ["driver", pytest.param("spark", marks=pytest.mark.slow)])
def test_every_row_once_across_a_crash(spark: Any, tmp_path: Path, via: str) -> None:
    from pyspark.errors import StreamingQueryException

    feed = Feed(tmp_path).add(scripted(3, rows=(5, 5)))
    out = tmp_path / "out"
    sink = ab.sinks.parquet(str(out), app="rows", via=via)
    with pytest.raises(StreamingQueryException, match="Crash"):
        run(distinct(spark, feed), tmp_path, crashing(sink, 1))
    query = run(distinct(spark, feed), tmp_path, sink)
    assert query.exception() is None
    want = distinct(spark, feed, batch=True).toArrow().to_pylist()
    got = pq.read_table(out).to_pylist()
    assert sorted(map(repr, got)) == sorted(map(repr, want))
    assert len(got) == 15
    assert sorted(map(repr, spark.read.parquet(str(out)).collect())) == sorted(
        map(repr, distinct(spark, feed, batch=True).collect())
    )
    # Another checkpoint is another query: its batches have the same numbers and other rows.
    with pytest.raises(StreamingQueryException, match="belongs to query"):
        run(distinct(spark, feed), tmp_path / "other", sink)
    with pytest.raises(ab.errors.InvalidCall, match=r"column 'price' of .* is not in the result"):
        sink(distinct(spark, feed, batch=True).drop("price"), 99)


def test_a_folder_has_the_same_columns_from_every_app(spark: Any, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    numbers, texts = spark.range(2), spark.range(2).selectExpr("string(id) AS id")
    ab.sinks.parquet(out, app="x")(numbers, 0)
    other = ab.sinks.parquet(out, app="y")
    with pytest.raises(ab.errors.InvalidCall, match=r"'id' is bigint in .*, and string in the re"):
        other(texts, 0)
    other(numbers, 0)
    other(numbers, 1)
    assert spark.read.parquet(out).count() == 6
    for name in ("a.json", "b.json"):  # as a note is called
        ab.sinks.parquet(out, app=name)(numbers, 0)
    assert spark.read.parquet(out).count() == 10


def test_columns_of_one_name_are_refused(spark: Any, tmp_path: Path) -> None:
    for via in ("driver", "spark"):
        sink = ab.sinks.parquet(str(tmp_path / "out"), app="x", via=via)
        for second in ("id", "ID"):
            with pytest.raises(ab.errors.InvalidCall, match=f"columns 'id', '{second}' have one n"):
                sink(spark.range(2).selectExpr("id", f"id AS {second}"), 0)
        with settings(spark, caseSensitive="true"), pytest.raises(ab.errors.InvalidCall):
            sink(spark.range(2).selectExpr("id", "id"), 0)
    assert not (tmp_path / "out").exists()
    with settings(spark, caseSensitive="true"):
        sink(spark.range(2).selectExpr("id", "id AS ID"), 0)
        assert spark.read.parquet(str(tmp_path / "out")).columns == ["id", "ID"]


def test_intervals_are_written_by_spark_alone(spark: Any, tmp_path: Path) -> None:
    """Through the driver they would be read back as numbers, and by size some would be."""
    out = str(tmp_path / "out")
    rows = spark.range(1).selectExpr("id", "array(INTERVAL '3' SECOND) AS spans")
    with pytest.raises(ab.errors.InvalidCall, match=r"via='driver': column 'spans' is array<inter"):
        ab.sinks.parquet(out, app="x", via="driver")(rows, 0)
    ab.sinks.parquet(out, app="x")(rows, 0)
    assert spark.read.parquet(out).collect() == rows.collect()
