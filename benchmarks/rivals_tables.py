"""Tables on Spark, two cores: `correlate` beside a cross join, `nearest` beside `nearestByJoin`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import anabranch as ab
from benchmarks.agreeing import agreed, band_of, codes
from benchmarks.correlate_kernel import cosine_threshold, directions, unit
from benchmarks.measuring import Row, Screen, in_turns, ratio
from benchmarks.rivals_vectors import TIMES, winning

__all__ = ["session", "tables"]

_WIDTH, _K = 64, 5
_RATE = 8e-6
_SECONDS, _WINDOW = 60, 20
_ASKED = 200
_LARGE = 8000  # rows a side, from which a cross join takes minutes and is timed once


def session() -> SparkSession:
    """Two cores, as `ab.configure` sets them up."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark: SparkSession = ab.configure(builder, workers=2).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def tables(screen: Screen, quick: bool) -> dict[str, Any]:
    """Two tables joined by similarity, and each query's nearest, at several sizes."""
    spark = session()
    rounds = 1 if quick else 3
    found: dict[str, Any] = {"cross join": {}, "nearestByJoin": {}}
    try:
        for size in (1000, 2000) if quick else (500, 1000, 2000, 4000, 8000, 16_000):
            screen.step(f"tables: {size:,} x {size:,} rows")
            least = 1000 if size >= 16_000 else 0
            often = rounds if size < _LARGE else 1
            found["cross join"][size] = _joined(screen, spark, size, often, least)
        if hasattr(DataFrame, "nearestByJoin"):
            for size in (1000, 2000) if quick else (500, 1500, 6000, 24_000):
                screen.step(f"tables: {_ASKED} queries, {size:,} objects")
                found["nearestByJoin"][size] = _nearest(screen, spark, size, rounds)
        else:
            screen.step("tables: this Spark has no nearestByJoin")
    finally:
        spark.stop()
    found["wins"] = {
        rival: winning(screen, "tables", rival, by_size) for rival, by_size in found.items()
    }
    return found


def _table(spark: SparkSession, vectors: np.ndarray) -> DataFrame:
    values = [(n, vector.tolist()) for n, vector in enumerate(vectors)]
    made = spark.createDataFrame(values, "id long, v array<float>").withColumn(
        "ts", F.timestamp_seconds(1_700_000_000 + F.col("id") % _SECONDS)
    )
    made = made.cache()
    made.count()
    return made


def _joined(screen: Screen, spark: SparkSession, size: int, rounds: int, least: int) -> float:
    rows = [unit(directions(size, _WIDTH, seed)) for seed in (1, 2)]
    threshold = cosine_threshold(directions(2000, _WIDTH, 3), directions(64_000, _WIDTH, 4), _RATE)
    left, right = (_table(spark, vectors) for vectors in rows)
    apart = F.abs(F.unix_micros("a.ts") - F.unix_micros("b.ts"))
    alike = F.expr(f"vector_cosine_similarity(a.v, b.v) >= {threshold}")
    pairs: dict[str, np.ndarray] = {}

    def keep(name: str, found: DataFrame) -> None:
        numbers = found.toArrow()
        pairs[name] = codes(numbers.column(0).to_numpy(), numbers.column(1).to_numpy(), size)

    def ours() -> None:
        where = ab.cosine("v") >= threshold
        found = ab.correlate(left, right, where=where, window=f"{_WINDOW} seconds")
        keep("ours", found.select("left_id", "right_id"))

    def theirs() -> None:
        found = left.alias("a").crossJoin(right.alias("b"))
        found = found.filter((apart <= _WINDOW * 1_000_000) & alike)
        keep("Spark", found.select("a.id", "b.id"))

    gain = _gain(ours, theirs, rounds)
    matched = agreed(
        pairs["ours"], pairs["Spark"], (rows[0], rows[1]), threshold, band_of(_WIDTH), least
    )
    lag = np.abs(np.arange(_SECONDS)[:, None] - np.arange(_SECONDS)[None])
    rate = matched / (size**2 * float((lag <= _WINDOW).mean()))
    note = f"{matched:,} pairs, match rate {rate:.1e}"
    what = f"correlate against a cross join, {size:,} rows a side"
    screen.add(Row("tables", what, gain, TIMES, note=note))
    left.unpersist(), right.unpersist()
    return gain


def _nearest(screen: Screen, spark: SparkSession, size: int, rounds: int) -> float:
    objects = _table(spark, unit(directions(size, _WIDTH, 1)))
    queries = _table(spark, unit(directions(_ASKED, _WIDTH, 2)))
    wanted = queries.select(F.col("id").alias("query_id"), "v").cache()
    base = objects.select(F.col("id").alias("object_id"), F.col("v").alias("w")).cache()
    wanted.count(), base.count()
    lists: dict[str, set[tuple[int, int]]] = {}

    def ours() -> None:
        hits = ab.nearest(objects, wanted, by="v", k=_K, window="1 day")
        order = Window.partitionBy("query_id").orderBy("distance", "object_id")
        best = hits.withColumn("place", F.row_number().over(order)).filter(F.col("place") <= _K)
        lists["ours"] = {(row.query_id, row.object_id) for row in best.collect()}

    def theirs() -> None:
        apart = F.expr("vector_l2_distance(v, w)")
        found = wanted.nearestByJoin(base, apart, _K, "exact", "distance")
        lists["Spark"] = {(row.query_id, row.object_id) for row in found.collect()}

    gain = _gain(ours, theirs, rounds)
    assert len(lists["ours"]) == _ASKED * _K, len(lists["ours"])
    assert lists["ours"] == lists["Spark"]
    note = f"k = {_K}, the same {len(lists['ours']):,} neighbours"
    what = f"nearest against nearestByJoin, {size:,} objects"
    screen.add(Row("tables", what, gain, TIMES, note=note))
    for frame in (objects, queries, wanted, base):
        frame.unpersist()
    return gain


def _gain(ours: Callable[[], None], theirs: Callable[[], None], rounds: int) -> float:
    """How many times as long as ours theirs takes; jobs run in several processes, so by clock."""
    seconds = in_turns({"ours": ours, "theirs": theirs}, rounds, time.perf_counter)
    return ratio(seconds["theirs"], seconds["ours"])
