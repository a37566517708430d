"""The paper's headline on Spark: two streams of grey histograms, 1000 a second each, window 5 s.

Files of one second of both films are read one per micro-batch. The real-time factor is the event
time of a micro-batch over its trigger time once windows are full, on ``local[2]``. ShuffleJ spreads
left rows at random and sends right rows everywhere, under the paper's chain of filters and its
solver; Head-SJ has its own chain and static ranges; ours is the closed form under
`ranges`, in micro-batches of one and of four seconds. The same query over one row a second and side
goes first, twice: it warms the virtual machine up, and what the second run takes is what Spark
charges for a micro-batch.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from benchmarks.measuring import Row, Screen
from papers.emd.streams import film, grey

__all__ = ["on_spark"]

_SECOND = 1_000_000
_START = 1_700_000_000 * _SECOND
_SCHEMA = "id long, ts timestamp, h array<float>"
_WINDOW = 5
_PATIENCE = 75  # seconds that a method may take
_LONG = 4  # seconds of stream in a long micro-batch
_PHASES = ("latestOffset", "walCommit", "queryPlanning", "getBatch", "addBatch", "commitOffsets")


def on_spark(screen: Screen, folder: Path, quick: bool) -> dict[str, Any]:
    """Real-time factors of three methods on the same files, in one session."""
    from pyspark.sql import SparkSession

    rows, files = (200, 12) if quick else (1000, 28)
    sides = [grey(film(rows * files, 1)).table, grey(film(rows * files, 2, again=1)).table]
    threshold = _threshold(*sides)
    for name, table in zip(("left", "right"), sides, strict=True):
        _write(folder / name, table, rows)
        _write(folder / f"{name} alone", table[::rows], 1)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("anabranch benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    spark = ab.configure(session, workers=2)
    # The slow ones get just enough files for full windows and one batch after that.
    few = _WINDOW + 2
    methods = {
        "warm-up": Run(ab.ranges(2), "default", files, source=" alone"),
        "one row": Run(ab.ranges(2), "default", files, source=" alone"),
        "ours": Run(ab.ranges(2), "default", files),
        "ours, long": Run(ab.ranges(2), "default", files, _LONG),
        "ShuffleJ": Run(ab.broadcast(2), "paper", few),
        "Head-SJ": Run(ab.ranges(2), "head-sj", few),
    }
    found: dict[str, Any] = {"rows_per_second": rows, "window": _WINDOW, "threshold": threshold}
    factors: dict[str, float] = {}
    try:
        for name, how in methods.items():
            screen.step(f"spark: {name}, {rows} rows a second and side, window {_WINDOW} s")
            factors[name], found[name] = _run(spark, folder, name, how, threshold)
    finally:
        spark.stop()
    note = f"{rows} rows/s a side"
    screen.add(Row("spark", "real-time factor, ours", factors["ours"], "x", 1.0, note=note))
    note = f"micro-batches of {_LONG} s"
    screen.add(Row("spark", "real-time factor, ours", factors["ours, long"], "x", note=note))
    note = "the same query over one row a second"
    screen.add(Row("spark", "real-time factor of nothing", factors["one row"], "x", note=note))
    for name in ("ShuffleJ", "Head-SJ"):
        done = found[name]["batches"]
        note = "" if done > _WINDOW + 1 else f"at most: only {done} batches in {_PATIENCE} s"
        screen.add(Row("spark", f"real-time factor, {name}", factors[name], "x", note=note))
        screen.add(Row("spark", f"times {name}", factors["ours"] / factors[name], "x"))
    whole = [n for n in ("ours", "ShuffleJ", "Head-SJ") if found[n]["batches"] > _WINDOW + 1]
    counts = {name: found[name]["pairs_of_full_batches"][0] for name in whole}
    assert len(set(counts.values())) <= 1, f"methods disagree: {counts}"
    return found


def _threshold(left: np.ndarray, right: np.ndarray) -> float:
    random = np.random.default_rng(5)
    i, j = random.integers(0, len(left), 200_000), random.integers(0, len(right), 200_000)
    total = left[0].sum(dtype=float)
    values = np.abs(np.cumsum((left[i] - right[j]) / total, axis=1)).sum(axis=1)
    return float(np.quantile(values, 0.001))


def _write(folder: Path, table: np.ndarray, rows: int) -> None:
    folder.mkdir(parents=True)
    for number in range(len(table) // rows):
        part = table[number * rows : (number + 1) * rows]
        t = _START + number * _SECOND + np.arange(rows) * (_SECOND // rows)
        path = folder / f"{number:05d}.parquet"
        cells = pa.FixedSizeListArray.from_arrays(part.ravel(), part.shape[1])
        columns = {
            "id": pa.array(np.arange(rows) + number * rows),
            "ts": pa.array(t, pa.timestamp("us", "UTC")),
            "h": cells.cast(pa.list_(pa.float32())),
        }
        pq.write_table(pa.table(columns), path)
        os.utime(path, (_START / _SECOND + number,) * 2)


@dataclass(frozen=True)
class Run:
    """A plan and a chain of filters over so many files, some of them per micro-batch."""

    plan: Any
    chain: str
    files: int
    per_batch: int = 1
    source: str = ""


def _run(
    spark: Any, folder: Path, name: str, how: Run, threshold: float
) -> tuple[float, dict[str, Any]]:
    cut = folder / name.replace(" ", "-")
    for side in ("left", "right"):
        (cut / side).mkdir(parents=True)
        for path in sorted((folder / f"{side}{how.source}").glob("*.parquet"))[: how.files]:
            os.link(path, cut / side / path.name)
    streams = [
        spark.readStream.schema(_SCHEMA)
        .option("maxFilesPerTrigger", how.per_batch)
        .parquet(str(cut / side))
        for side in ("left", "right")
    ]
    result = ab.correlate(
        *streams,
        where=ab.emd("h", dim=256, filters=how.chain) <= threshold,
        window=f"{_WINDOW} seconds",
        watermark="0 seconds",
        plan=how.plan,
    )
    query = (
        result.writeStream.format("noop")
        .option("checkpointLocation", str(cut / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(_PATIENCE):
        query.stop()
    from anabranch.flow.metrics import batch_metrics, loads_of

    state: dict[Any, Any] = {}
    progress = [p for p in query.recentProgress if p.numInputRows > 0]
    batches = [batch_metrics(p, loads_of(p), state) for p in progress]
    # Without a full window in time, the last batch that ended flatters the method.
    filled = -(-_WINDOW // how.per_batch) + 1
    full, reports = batches[filled:] or batches[-1:], progress[filled:] or progress[-1:]
    loads = [loads_of(p) for p in reports]
    seconds = statistics.median(batch["seconds"] for batch in full)
    return how.per_batch / seconds, {
        "batches": len(batches),
        "seconds_of_full_batches": [batch["seconds"] for batch in full],
        "pairs_of_full_batches": [batch["pairs"] for batch in full],
        "comparisons_of_full_batches": [batch["comparisons"] for batch in full],
        "solved": [batch["solved"] for batch in full],
        "accepted": [batch["accepted_by_bound"] for batch in full],
        "copies_per_row": statistics.mean(batch["copies_per_row"] for batch in full),
        "median_seconds": {
            "micro-batch": seconds,
            **{
                n: statistics.median(p.durationMs.get(n, 0) for p in reports) / 1e3 for n in _PHASES
            },
            "slowest worker": statistics.median(max(x.busy_seconds for x in of) for of in loads),
            "its comparing": statistics.median(max(x.compare_seconds for x in of) for of in loads),
        },
    }
