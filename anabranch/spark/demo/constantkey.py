"""The way round that Spark users take today: a stream-stream join on a constant key.

Spark refuses a join of two streams without an equality, so people add one that always holds. It
works, in one task and row by row, and is what `correlate` is measured against.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.spark.demo.broadcast import SECOND, Broadcast, Newsroom, pairs_in_window
from anabranch.spark.demo.verdict import Measured
from anabranch.spark.demo.writer import write_rows

__all__ = ["constant_key_join", "measure_constant_key_join"]

_NAME = "constant_key_join"


def constant_key_join(
    left: DataFrame, right: DataFrame, *, threshold: float, window: float, late: float
) -> DataFrame:
    """Pairs of ids whose vectors `v` have at least this cosine and times at most `window` apart.

    Vectors are normalised once per row, before the join, as a careful user would.
    """
    sides = [
        frame.withWatermark("ts", f"{int(late * 1000)} milliseconds")
        .withColumn("norm", F.expr("sqrt(aggregate(v, 0D, (sum, x) -> sum + double(x) * x))"))
        .select(
            # A literal would be folded away, and the join then refused; this is not.
            F.expr("pmod(id, 1L)").alias(f"{name}_key"),
            F.col("id").alias(f"{name}_id"),
            F.col("ts").alias(f"{name}_ts"),
            F.expr("transform(v, x -> x / norm)").alias(f"{name}_v"),
        )
        for name, frame in (("l", left), ("r", right))
    ]
    span = f"INTERVAL {int(window * 1000)} MILLISECONDS"
    condition = F.expr(
        f"""l_key = r_key
        AND l_ts >= r_ts - {span} AND l_ts <= r_ts + {span}
        AND aggregate(zip_with(l_v, r_v, (x, y) -> x * y), 0D, (sum, x) -> sum + x)
            >= {threshold!r}D"""
    )
    return sides[0].join(sides[1], condition).select("l_id", "r_id")


def measure_constant_key_join(
    spark: SparkSession,
    newsroom: Newsroom,
    broadcast: Broadcast,
    folder: Path,
    *,
    rows: int,
    seconds: float,
    idle: Callable[[], None],
) -> Measured:
    """Run the join on a slice of what was broadcast, for at most `seconds`.

    Parameters
    ----------
    spark
        A session; the join runs in a new one beside it, with Spark's own default state store.
    newsroom
        Says what to find: cosine, window and lateness.
    broadcast
        Where the slice, of about `rows` rows a channel, is taken from.
    folder
        An empty folder for files and checkpoint.
    rows
        The size of the slice.
    seconds
        When to stop it; only batches that finished count.
    idle
        Called some times a second while it runs; may raise to end it.
    """
    parts = _write_slice(broadcast, rows, folder)
    # Everything has one key, so that more partitions than one would only cost it time.
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    left, right = (
        session.readStream.schema("id long, ts timestamp, title string, v array<float>")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / str(side)))
        for side in (0, 1)
    )
    query = (
        constant_key_join(
            left,
            right,
            threshold=newsroom.threshold,
            window=newsroom.window,
            late=newsroom.late,
        )
        .writeStream.format("memory")
        .queryName(_NAME)
        .outputMode("append")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    until = time.monotonic() + seconds
    try:
        while query.isActive and time.monotonic() < until:
            idle()
            time.sleep(0.1)
        complete = not query.isActive
    finally:
        query.stop()
    if (error := query.exception()) is not None:
        raise error
    # Batches without input only move the watermark; the k-th one with input read the k-th files.
    done = [progress for progress in query.recentProgress if progress.numInputRows]
    none = np.zeros(0, np.int64)
    seen = [np.concatenate([none, *(part[side] for part in parts[: len(done)])]) for side in (0, 1)]
    frames = broadcast.channels
    return Measured(
        rows=sum(len(positions) for positions in seen),
        comparisons=pairs_in_window(
            frames[0].t[seen[0]], frames[1].t[seen[1]], int(newsroom.window * SECOND)
        ),
        seconds=sum(dict(progress.durationMs)["triggerExecution"] for progress in done) / 1000,
        pairs={(row["l_id"], row["r_id"]) for row in session.table(_NAME).collect()},
        ids=(
            frozenset(frames[0].id[seen[0]].tolist()),
            frozenset(frames[1].id[seen[1]].tolist()),
        ),
        complete=complete,
    )


def _write_slice(
    broadcast: Broadcast, rows: int, folder: Path, files: int = 6
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Write the slice as `files` parquet files a side, in time order; return their positions."""
    positions = broadcast.slice(rows)
    times = [frames.t[of] for frames, of in zip(broadcast.channels, positions, strict=True)]
    ends = [t for t in times if len(t)]
    edges = np.linspace(min(t[0] for t in ends), max(t[-1] for t in ends) + 1, files + 1)
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    for side in (0, 1):
        (folder / str(side)).mkdir(parents=True)
    for number in range(files):
        part = []
        for side, frames in enumerate(broadcast.channels):
            t = times[side]
            inside = positions[side][(t >= edges[number]) & (t < edges[number + 1])]
            path = write_rows(frames.table(inside), folder / str(side), number)
            # Spark reads files in order of modification, which a fast disk may not tell apart.
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
            part.append(inside)
        parts.append((part[0], part[1]))
    return parts
