"""Ours beside what people use instead, on the same data in the same run.

::

    python -m benchmarks.rivals [--quick] [--flink PYTHON] [--out FOLDER]

One core, no Spark: `correlate`'s matcher against FAISS's flat range search and a consumer that one
writes in numpy, for blocks of several sizes, with the smallest at which ours wins. Two cores on
Spark, tables: `ab.correlate` against a cross join with Spark's own vector function, and
`ab.nearest` against Spark's `nearestByJoin`. With the Python of an environment that has
``apache-flink``: a band join of two streams on two attributes (`flink_band`). Every answer is
compared with the rival's. Packages that are not installed are left out, and said so. Other rivals
have benchmarks of their own: POT in ``emd``, ``session_window`` in ``assemble``, rapidfuzz in
``text``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.correlation.filters.tiles import Pair
from anabranch.correlation.matching import Matcher
from anabranch.flow.blocks import Block
from benchmarks.correlate_kernel import directions, one_core, specification, unit
from benchmarks.measuring import Row, Screen, in_turns, machine, ratio

_WIDTH, _THRESHOLD = 64, 0.6
_FRESH = 1000  # rows of a micro-batch
_WINDOW = 1 << 40
_K = 5
_BAND_SECONDS = 10
_PLAIN = 60_000  # rows a side


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--flink", help="the Python of an environment with apache-flink")
    call = parser.parse_args(arguments)
    screen, described = Screen(), machine()
    details = {"vectors": vectors(screen, call.quick), "tables": tables(screen, call.quick)}
    if call.flink:
        details["bands"] = bands(screen, call.quick, call.flink)
    screen.table("beside the rivals")
    stem = "rivals-quick" if call.quick else "rivals"
    result = {
        "benchmark": "rivals",
        "quick": call.quick,
        "machine": described,
        "rows": [row.to_dict() for row in screen.rows],
        "details": details,
    }
    call.out.mkdir(parents=True, exist_ok=True)
    (call.out / f"{stem}.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0


def vectors(screen: Screen, quick: bool) -> dict[str, Any]:
    """A micro-batch of 1,000 rows against a stored block, cosine of at least 0.6, on one core."""
    sizes = (1000, 4000) if quick else (250, 1000, 4000, 16_000, 64_000)
    found: dict[str, Any] = {}
    with one_core():
        for size in sizes:
            screen.step(f"vectors: {_FRESH:,} x {size:,}")
            found[str(size)] = _one_size(screen, size, 3 if quick else 7)
    by_size = dict(found)
    for rival in ("FAISS", "numpy"):
        won = [int(size) for size, of in by_size.items() if of.get(rival, 0) > 1]
        if any(rival in of for of in by_size.values()):
            least = f"from {min(won):,} stored rows on" if won else "at no size tried"
            screen.step(f"vectors: ours is faster than {rival} {least}")
            found[f"wins against {rival}"] = min(won) if won else None
    return found


def _one_size(screen: Screen, size: int, rounds: int) -> dict[str, float]:
    left, right = directions(_FRESH, _WIDTH, 1), directions(size, _WIDTH, 2)
    a, b = unit(left), unit(right)
    counts: dict[str, int] = {}
    matcher = Matcher(specification({"v": "array<float>"}, ab.cosine("v") >= _THRESHOLD))
    stored = _block(right)

    def ours() -> None:
        parts = matcher.matches(Pair(_block(left), stored, (_WINDOW, _WINDOW)))
        counts["ours"] = sum(len(part.left) for part in parts)

    def numpy_consumer() -> None:
        i, _ = np.nonzero(a @ b.T >= _THRESHOLD)
        counts["numpy"] = len(i)

    runs: dict[str, Callable[[], object]] = {"ours": ours, "numpy": numpy_consumer}
    if (search := _faiss(b)) is not None:
        runs["FAISS"] = lambda: counts.__setitem__("FAISS", search(a))
    seconds = in_turns(runs, rounds)
    # Ours decides in float64, the others in float32: only pairs on the edge may differ.
    assert max(counts.values()) - min(counts.values()) <= 2 + max(counts.values()) // 100, counts
    ratios = {}
    for rival in [name for name in runs if name != "ours"]:
        ratios[rival] = ratio(seconds[rival], seconds["ours"])
        what = f"correlate against {rival}, {size:,} stored rows"
        screen.add(Row("vectors", what, ratios[rival], "times", note=f"{counts['ours']} pairs"))
    return ratios


def _faiss(right: np.ndarray) -> Callable[[np.ndarray], int] | None:
    """FAISS's flat range search; the index is made beforehand, as our bytes are kept."""
    try:
        import faiss
    except ImportError:
        return None
    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(right.shape[1])
    index.add(np.ascontiguousarray(right))

    def search(left: np.ndarray) -> int:
        limits, _, _ = index.range_search(np.ascontiguousarray(left), _THRESHOLD)
        return int(limits[-1])

    return search


def _block(rows: np.ndarray) -> Block:
    return Block.of(np.arange(len(rows)), {"id": np.arange(len(rows)), "s0": rows})


def tables(screen: Screen, quick: bool) -> dict[str, Any]:
    """Two tables on Spark with two cores: joined by similarity, and each query's nearest."""
    spark = _session()
    rows, asked, rounds = (2000, 50, 1) if quick else (6000, 200, 3)
    try:
        left, right = (_table(spark, rows, seed).cache() for seed in (1, 2))
        left.count(), right.count()
        found = {"correlate": _joined(screen, left, right, rounds)}
        if hasattr(DataFrame, "nearestByJoin"):
            found["nearest"] = _nearest(screen, left, right.limit(asked), rounds)
        return found
    finally:
        spark.stop()


def _session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark: SparkSession = ab.configure(builder, workers=2).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _table(spark: SparkSession, rows: int, seed: int) -> DataFrame:
    values = [(n, vector.tolist()) for n, vector in enumerate(unit(directions(rows, _WIDTH, seed)))]
    return spark.createDataFrame(values, "id long, v array<float>").withColumn(
        "ts", F.timestamp_seconds(1_700_000_000 + F.col("id") % 60)
    )


def _joined(screen: Screen, left: DataFrame, right: DataFrame, rounds: int) -> float:
    window = F.abs(F.unix_micros("a.ts") - F.unix_micros("b.ts")) <= 20_000_000
    alike = F.expr(f"vector_cosine_similarity(a.v, b.v) >= {_THRESHOLD}")
    counts: dict[str, int] = {}

    def ours() -> None:
        pairs = ab.correlate(left, right, where=ab.cosine("v") >= _THRESHOLD, window="20 seconds")
        counts["ours"] = pairs.count()

    def theirs() -> None:
        counts["Spark"] = left.alias("a").crossJoin(right.alias("b")).filter(window & alike).count()

    found = _by_clock({"ours": ours, "Spark": theirs}, rounds)
    assert abs(counts["ours"] - counts["Spark"]) <= 2, counts
    screen.add(
        Row("tables", "correlate against a cross join", found, "times", note=f"{counts['ours']}")
    )
    return found


def _nearest(screen: Screen, objects: DataFrame, queries: DataFrame, rounds: int) -> float:
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

    found = _by_clock({"ours": ours, "Spark": theirs}, rounds)
    assert lists["ours"] == lists["Spark"]
    screen.add(Row("tables", "nearest against nearestByJoin", found, "times", note=f"k = {_K}"))
    return found


def bands(screen: Screen, quick: bool, flink: str) -> dict[str, Any]:
    """Two streams read to their end: rows that differ by little in both of two attributes.

    The second run of a process counts, when workers have started and code is compiled.
    """
    sizes = (5000,) if quick else (15_000, 60_000, 240_000)
    found: dict[str, Any] = {}
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            screen.step(f"bands: {size:,} rows a side")
            band = _write_bands(Path(folder), size)
            took, pairs = _our_bands(folder, band)
            found[str(size)] = {"ours": took}
            # Without cells Flink compares every row with a third of the others: minutes at 240,000.
            for way in ("cells",) if size > _PLAIN else ("plain", "cells"):
                theirs = _flink(flink, folder, band, way)
                assert theirs["pairs"] == pairs, (theirs, pairs)
                found[str(size)][f"Flink, {way}"] = theirs["seconds"]
                what = f"correlate against Flink ({way}), {size:,} rows a side"
                gain = theirs["seconds"][-1] / took[-1]
                screen.add(Row("bands", what, gain, "times", note=f"{pairs:,} pairs"))
    return found


def _write_bands(folder: Path, size: int) -> float:
    """Two CSV files of ids, milliseconds and two attributes, a minute long; the band."""
    for side, name in enumerate(("left", "right")):
        random = np.random.default_rng(side)
        t = np.sort(random.integers(0, 60_000, size)) + 1_700_000_000_000
        columns = [np.arange(size), t, *random.random((2, size)).round(6)]
        (folder / name).mkdir()
        rows = "\n".join(f"{i},{t},{x},{y}" for i, t, x, y in zip(*columns, strict=True))
        (folder / name / "rows.csv").write_text(rows + "\n")
    # About one pair a row: a third of a side is in the window, a band covers (2 band)² of it.
    return round(float(np.sqrt(3 / size) / 2), 6)


def _our_bands(folder: str, band: float) -> tuple[list[float], int]:
    spark = _session()
    took, pairs = [], 0
    try:
        for turn in range(2):
            began = time.perf_counter()
            left, right = (
                spark.readStream.schema("id long, t long, x double, y double")
                .csv(f"{folder}/{name}")
                .withColumn("ts", F.timestamp_millis("t"))
                for name in ("left", "right")
            )
            near = ab.within("x", band) & ab.within("y", band)
            found = ab.correlate(
                left, right, where=near, window=f"{_BAND_SECONDS} s", watermark="1 s"
            )
            writer = found.select("left_id").writeStream.format("memory").queryName(f"found{turn}")
            writer.trigger(availableNow=True).start().awaitTermination()
            took.append(time.perf_counter() - began)
            pairs = spark.table(f"found{turn}").count()
    finally:
        spark.stop()
    return took, pairs


def _flink(python: str, folder: str, band: float, way: str) -> Any:
    program = Path(__file__).with_name("flink_band.py")
    command = [python, str(program), folder, repr(band), str(_BAND_SECONDS), way]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"Flink failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _by_clock(runs: dict[str, Callable[[], None]], rounds: int) -> float:
    """How many times as long as ours the other takes: a job runs in several processes."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            if turn:  # the first ones start workers
                seconds[name].append(time.perf_counter() - began)
    return ratio(seconds["Spark"], seconds["ours"])


if __name__ == "__main__":
    sys.exit(main())
