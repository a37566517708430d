"""`ab.assemble` with gaps beside Spark's `session_window`, on Spark with two cores.

The events are those of ``benchmarks.assemble``. Both gather the same two columns of the events of a
key until none has come for 8 s. Rates are events per second of trigger time, of the micro-batches
in which windows open and close at the same rate.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import anabranch as ab
from benchmarks.assemble import KEY, Bench, write_feed
from benchmarks.measuring import Row, Screen, ratio
from benchmarks.rivals_vectors import TIMES, winning

__all__ = ["windows"]

_GAP, _SETTLED = 8, 22  # seconds
_RATE = 8000  # events a second


def windows(screen: Screen, quick: bool) -> dict[str, Any]:
    """Micro-batches of several sizes; the windows of both must be the same."""
    found: dict[str, Any] = {}
    gains: dict[int, float] = {}
    rounds = 1 if quick else 3
    for seconds in (4,) if quick else (1, 4, 12):
        steady = -(-_SETTLED // seconds)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            rate = 300 if quick else _RATE
            write_feed(folder / "feed", steady + (2 if quick else 5), rate, seconds)
            bench = Bench(folder)
            try:
                screen.step(f"windows: micro-batches of {rate * seconds:,} events")
                alike = _alike(bench, folder)
                runs: dict[str, list[dict[str, Any]]] = {"ours": [], "Spark": []}
                for _ in range(rounds):
                    for label, query in _queries(bench, folder / "feed").items():
                        runs[label].append(bench.run(query, steady))
            finally:
                bench.spark.stop()
        rates = {label: [run["rate"] for run in of] for label, of in runs.items()}
        gains[rate * seconds] = gain = ratio(rates["ours"], rates["Spark"])
        what = f"assemble against session_window, {rate * seconds:,} events a micro-batch"
        note = f"{alike:,} windows, the same ones"
        screen.add(Row("windows", what, gain, TIMES, note=note))
        found[str(rate * seconds)] = {TIMES: gain, "windows": alike, "rates": rates}
    found["wins"] = {"session_window": winning(screen, "windows", "session_window", gains)}
    return found


def _queries(bench: Bench, feed: Path) -> dict[str, DataFrame]:
    kept = ["service", "response_ms"]
    session = F.session_window("event_ts", f"{_GAP} seconds")
    marked = bench.stream(feed).withWatermark("event_ts", "1 second")
    return {
        "ours": ab.assemble(
            bench.stream(feed),
            key=KEY,
            time="event_ts",
            keep=kept,
            close=ab.close.gap(f"{_GAP} seconds"),
            watermark="1 second",
        ),
        "Spark": marked.groupBy(*KEY, session.alias("session")).agg(
            F.count(F.lit(1)).alias("count"), F.collect_list(F.struct(*kept)).alias("items")
        ),
    }


def _alike(bench: Bench, folder: Path) -> int:
    """How many windows both find; fails if they are not the same."""
    feed = folder / "feed"
    newest = bench.spark.read.parquet(str(feed)).agg(F.max("event_ts")).first()[0]
    # What closes in the last files one may have told and the other not yet.
    settled = F.lit(newest) - F.expr(f"INTERVAL {_SETTLED} SECONDS")
    sets: dict[str, set[tuple[Any, ...]]] = {}
    for label, query in _queries(bench, feed).items():
        first = "first_ts" if label == "ours" else "session.start"
        told = query.select(*KEY, F.col(first).alias("first"), "count", F.size("items").alias("n"))
        writer = told.writeStream.format("memory").queryName(f"told_{label}")
        writer.trigger(availableNow=True).start().awaitTermination()
        rows = bench.spark.table(f"told_{label}").filter(F.col("first") < settled).collect()
        sets[label] = {tuple(row) for row in rows}
        assert len(sets[label]) == len(rows), f"{label}: a window came twice"
    assert sets["ours"] and sets["ours"] == sets["Spark"], "the windows differ"
    return len(sets["ours"])
