"""The sections of the benchmark that run on Spark at full speed: alone, the rival, growth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import anabranch as ab
from anabranch.correlation.kernel import CorrelateJob, CorrelateKernel, CorrelateNotes
from anabranch.flow.blocks import Block
from anabranch.flow.instants import BEGINNING
from anabranch.flow.slices import Slices
from anabranch.plans.plan import LEFT, RIGHT
from benchmarks.correlate_kernel import specification
from benchmarks.correlate_spark import WIDTH, Batch, Bench, Feed, median, multiply_in_two_processes
from benchmarks.measuring import Row, Screen

__all__ = ["growth", "join", "parts", "stream"]

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_STATE = "org.apache.spark.sql.execution.streaming.state."
_STORES = {
    "join, state in memory": "HDFSBackedStateStoreProvider",
    "join, state in RocksDB": "RocksDBStateStoreProvider",
    "correlate": "RocksDBStateStoreProvider",
}
_SETTLE = 3  # micro-batches beyond the window's length that are not counted
_STATE_TARGET = 1.3 * (WIDTH * 4 + 48)


def stream(screen: Screen, bench: Bench) -> dict[str, Any]:
    """End to end, against bare products on the same two cores."""
    found: dict[str, Any] = bench.once("steady", lambda: _steady(screen, bench))
    add = screen.add
    add(
        Row(
            "stream",
            "end to end against the bare two-core product",
            found["share_of_bare"],
            "of bare",
            1.5,
            note=f"{found['rate']:.2e}/s against {found['bare_rate']:.2e}/s",
        )
    )
    batch = f"{found['comparisons']:.2e} comparisons in a micro-batch"
    add(
        Row(
            "stream",
            "comparisons per second, median of micro-batches",
            found["rate"],
            "/s",
            note=batch,
        )
    )
    rows = (
        f"match rate {found['match_rate']:.1e}, {found['window_rows']:,} rows a side in the window"
    )
    add(Row("stream", "the same by the clock on the wall", found["wall_rate"], "/s", note=rows))
    add(Row("stream", "kernel inside Spark against the bare product", found["inside"], "of bare"))
    for name, seconds in found["parts"].items():
        part = f"{seconds / found['parts']['micro-batch']:.0%} of the micro-batch"
        add(Row("stream", f"seconds: {name}", seconds, "s", note=part))
    return found


def _steady(screen: Screen, bench: Bench) -> dict[str, Any]:
    window, rows = (6, 2000) if bench.quick else (24, 10_000)
    rounds, measured, alone = (1, 5, 2.0) if bench.quick else (3, 12, 4.0)
    files = window + _SETTLE + measured
    feed = Feed.write(bench.room("feed"), files, rows)

    def bare() -> float:
        screen.step("stream: bare products, one process per core")
        return multiply_in_two_processes(10_000, alone)

    yard, runs = [bare()], []
    for _ in range(rounds):
        screen.step(f"stream: {files} micro-batches of 2 x {rows:,} rows, window {window * rows:,}")
        runs.append(_full(bench.drain(bench.correlated(feed, window)), window))
        yard.append(bare())
    # Each run is held against what products did just before and just after it.
    yards = [(yard[n] + yard[n + 1]) / 2 for n in range(rounds)]
    rates = [median(batch.rate for batch in run) for run in runs]
    inside = [median(b.comparisons / b.compare for b in run) for run in runs]
    batches = [batch for run in runs for batch in run]
    compared = sum(batch.comparisons for batch in batches)
    return {
        "share_of_bare": median(rate / yard for rate, yard in zip(rates, yards, strict=True)),
        "inside": median(rate / yard for rate, yard in zip(inside, yards, strict=True)),
        "rate": median(rates),
        "wall_rate": median(_wall_rate(run) for run in runs),
        "bare_rate": median(yard),
        "rates": rates,
        "bare_rates": yard,
        "comparisons": compared / len(batches),
        "match_rate": sum(load.pairs for b in batches for load in b.loads) / compared,
        "window_rows": window * rows,
        "batch_rows": rows,
        "parts": parts(batches),
    }


def _wall_rate(batches: Sequence[Batch]) -> float:
    """Comparisons per second between the starts of the first and of the last micro-batch."""
    compared = sum(batch.comparisons for batch in batches[:-1])
    return compared / (batches[-1].began - batches[0].began)


def _full(batches: Sequence[Batch], window: float) -> list[Batch]:
    """The micro-batches that meet a full window, without those in which things settle."""
    return list(batches[int(window) + _SETTLE :])


def parts(batches: Sequence[Batch]) -> dict[str, float]:
    """Where the median micro-batch spends its seconds."""

    def over(part: Any) -> float:
        return median(part(batch) for batch in batches)

    return {
        "micro-batch": over(lambda b: b.trigger),
        "stage that reads, routes and packs": over(lambda b: b.stages[0]),
        "stage of the workers": over(lambda b: b.stages[-1]),
        "... comparing, slowest worker": over(lambda b: b.compare),
        "... other work of its step": over(lambda b: b.busy - b.compare),
        "... state, Python start, shuffle": over(lambda b: b.stages[-1] - b.busy),
        "... of which commit, mean partition": over(
            lambda b: b.state.get("commit_ms", 0) / 1000 / max(1, len(b.loads))
        ),
        "planning and scheduling of the job": over(
            lambda b: b.durations["addBatch"] - sum(b.stages)
        ),
        "offsets, logs and planning around it": over(lambda b: b.trigger - b.durations["addBatch"]),
    }


def join(screen: Screen, bench: Bench) -> dict[str, Any]:
    """Against the join that Spark users write: a constant key, watermarks and a time range."""
    rows, files = (150, 4) if bench.quick else (500, 5)
    threshold = bench.reached_by(1e-4)
    feed = Feed.write(bench.room("slice"), files, rows)
    screen.step(f"join: all on {files} micro-batches of 2 x {rows} rows, all inside the window")
    # Rows of batch b meet all rows so far: (b + 1)^2 - b^2 batches' worth of pairs.
    compared = [((b + 1) ** 2 - b**2) * rows * rows for b in range(files)]
    rates: dict[str, float] = {}
    pairs: dict[str, set[tuple[int, int]]] = {}
    for name, provider in _STORES.items():
        rival = name != "correlate"
        sink = bench.room("pairs")
        with _state_store(bench.spark, provider):
            frame = (
                _constant_key(bench, feed, files, threshold)
                if rival
                else bench.correlated(feed, files, threshold)
            )
            batches = bench.drain(frame, sink)
        assert len(batches) == files, f"{name}: {len(batches)} micro-batches for {files} files"
        # The first micro-batches pay for a cold start on either side.
        rates[name] = median(
            count / batch.trigger for count, batch in list(zip(compared, batches, strict=True))[2:]
        )
        written = bench.spark.read.parquet(str(sink)).select("left_id", "right_id").collect()
        pairs[name] = {(row[0], row[1]) for row in written}
        assert len(written) == len(pairs[name]), f"{name}: a pair came twice"
    same = len({frozenset(found) for found in pairs.values()}) == 1
    # The rival has the better of the two state stores.
    best = max((name for name in rates if name != "correlate"), key=lambda name: rates[name])
    steady = bench.once("steady", lambda: _steady(screen, bench))
    screen.add(
        Row(
            "join",
            "correlate at full speed against the constant-key join",
            steady["rate"] / rates[best],
            "times",
            300,
            note=f"{steady['rate']:.2e}/s against {rates[best]:.2e}/s ({best})",
        )
    )
    screen.add(
        Row(
            "join",
            "same pairs on the slice (1: yes)",
            float(same),
            target=1,
            note=f"{len(pairs[best])} pairs of {sum(compared):.1e} comparisons",
        )
    )
    screen.add(
        Row(
            "join",
            "correlate against the join on the slice itself",
            rates["correlate"] / rates[best],
            "times",
            note=f"{rates['correlate']:.2e}/s: on so few rows it is fixed cost",
        )
    )
    return {
        "rates": {"constant-key join": rates[best], "correlate": rates["correlate"]},
        "rates_by_store": rates,
        "same_pairs": same,
        "full_rate": steady["rate"],
    }


@contextmanager
def _state_store(spark: Any, provider: str) -> Iterator[None]:
    """Queries begun inside the block keep their state there."""
    before = spark.conf.get(_PROVIDER)
    spark.conf.set(_PROVIDER, _STATE + provider)
    try:
        yield
    finally:
        spark.conf.set(_PROVIDER, before)


def _constant_key(bench: Bench, feed: Feed, window: int, threshold: float) -> Any:
    """The usual way round "stream-stream join without equality predicate is not supported"."""
    from pyspark.sql import functions as F

    sides = []
    for name, frame in zip(("left", "right"), feed.streams(bench.spark), strict=True):
        v = F.col("v").cast("array<double>")
        squares = F.aggregate(v, F.lit(0.0), lambda total, x: total + x * x)
        sides.append(
            frame.withWatermark("ts", "1 second").select(
                F.lit(1).alias(f"{name}_key"),
                F.col("id").alias(f"{name}_id"),
                F.col("ts").alias(f"{name}_ts"),
                v.alias(f"{name}_v"),
                # Norms once per row, not once per pair: as good as a user would write it.
                F.sqrt(squares).alias(f"{name}_norm"),
            )
        )
    span = F.expr(f"INTERVAL {window} SECONDS")
    products = F.zip_with("left_v", "right_v", lambda x, y: x * y)
    cosine = F.aggregate(products, F.lit(0.0), lambda total, x: total + x) / (
        F.col("left_norm") * F.col("right_norm")
    )
    condition = (
        (F.col("left_key") == F.col("right_key"))
        & (F.col("left_ts") >= F.col("right_ts") - span)
        & (F.col("left_ts") <= F.col("right_ts") + span)
        & (cosine >= threshold)
    )
    joined = sides[0].join(sides[1], condition)
    return joined.select("left_id", "right_id", cosine.alias("score"))


def growth(screen: Screen, bench: Bench) -> dict[str, Any]:
    """Speed and state while the window grows tenfold."""
    rows, measured = (2000, 5) if bench.quick else (10_000, 8)
    windows = (0.6, 6.0) if bench.quick else (0.6, 1.5, 6.0, 24.0)
    # Up and, in a full run, down again: what changes with time alone cancels out.
    order = windows if bench.quick else (*windows, *reversed(windows))
    whole = Feed.write(bench.room("growing"), int(max(windows)) + _SETTLE + measured, rows)
    runs: dict[float, list[Batch]] = {window: [] for window in windows}
    for window in order:
        screen.step(f"growth: window of {round(window * rows):,} rows a side")
        feed = whole.cut(bench.room("cut"), int(window) + _SETTLE + measured)
        runs[window] += _full(bench.drain(bench.correlated(feed, window)), window)
    points = [_point(round(window * rows), runs[window]) for window in windows]
    for point in points:
        screen.add(
            Row(
                "growth",
                f"end to end, window of {point['window_rows']:,} rows a side",
                point["rate"],
                "/s",
                note=f"workers' step alone {point['worker_rate']:.2e}/s, "
                f"{point['state_rows']:,} copies stored",
            )
        )
    rates = [point["rate"] for point in points]
    inside = [point["worker_rate"] for point in points]
    # Fixed cost weighs less in a larger window, so end to end only a fall would be a fault.
    kept = min(later / max(rates[: n + 1]) for n, later in enumerate(rates[1:]))
    note = "slowest against fastest window, per second of a worker's step"
    screen.add(Row("growth", "workers: level", min(inside) / max(inside), "", 0.7, note=note))
    note = "worst rate against the best of a smaller window"
    screen.add(Row("growth", "end to end: does not fall", kept, "", 0.7, note=note))
    note = "the small windows are fixed cost"
    screen.add(
        Row("growth", "end to end: slowest against fastest", min(rates) / max(rates), note=note)
    )
    per_row = {
        "as reported": points[-1]["state_bytes"] / points[-1]["state_rows"],
        "as encoded": _encoded_bytes_per_row(rows),
    }
    for name, reached in per_row.items():
        what = f"bytes per stored copy, {name}"
        screen.add(Row("growth", what, reached, "bytes", _STATE_TARGET, at_most=True))
    on_disk = points[-1]["rocksdb_bytes"] / points[-1]["state_rows"]
    note = "garbage that is not yet compacted included, what is still in memory not"
    screen.add(Row("growth", "bytes per stored copy, RocksDB files", on_disk, "bytes", note=note))
    return {"points": points, "bytes_per_row": per_row}


def _point(window_rows: int, batches: Sequence[Batch]) -> dict[str, Any]:
    """What the micro-batches with one window say."""
    last = batches[-1]
    return {
        "window_rows": window_rows,
        "rate": median(batch.rate for batch in batches),
        "worker_rate": median(b.comparisons / b.busy for b in batches),
        "trigger": median(batch.trigger for batch in batches),
        "comparisons": median(batch.comparisons for batch in batches),
        "state_rows": sum(load.state_rows for load in last.loads),
        "state_bytes": sum(load.state_bytes for load in last.loads),
        "rocksdb_bytes": int(last.state.get("rocksdbSstFileSize", 0)),
        "rocksdb_memory_bytes": int(last.state.get("memory_bytes", 0)),
    }


def _encoded_bytes_per_row(rows: int) -> float:
    """What a worker writes to the state store for each copy, directory included."""
    job = CorrelateJob(specification({"v": "array<float>"}, ab.cosine("v") >= 0.9))
    arrivals = []
    slices = Slices(job.stays, CorrelateNotes())
    for side in (LEFT, RIGHT):
        vectors = np.random.default_rng(side).standard_normal((rows, WIDTH), dtype=np.float32)
        columns = {"id": np.arange(rows), "s0": vectors, "lead": np.ones(rows, bool)}
        block = Block.of(np.arange(rows) + 10**15, columns)
        block.meta.update(side=side, epoch=0, live=1, plans={}, newest=int(block.t[-1]))
        arrivals.append(block)
    for _ in CorrelateKernel(job, slices).step(arrivals, BEGINNING):
        pass
    stored = sum(len(block.encode()) for _, block in slices.added.values()) + len(slices.head())
    return stored / slices.rows
