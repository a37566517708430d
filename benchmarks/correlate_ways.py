"""Sections of the benchmark on Spark: one stream, no partner, rejected rows, windows of rows.

All ways of one comparison run in turns over the same files, so that what changes with time meets
all of them alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import functions as F

import anabranch as ab
from benchmarks.correlate_spark import WIDTH, Batch, Bench, Feed, median
from benchmarks.measuring import Row, Screen, ratio

__all__ = ["partners", "rows", "ways"]

_SETTLE = 3  # micro-batches beyond the window's length that are not counted
_HALF, _ALONE, _COUNTED = 0.6, 1.2, 3.0


def ways(screen: Screen, bench: Bench) -> dict[str, Any]:
    """What one stream saves against itself twice; what rejected rows cost."""
    window, rows, measured, rounds = (4, 1500, 3, 1) if bench.quick else (6, 8000, 8, 3)
    feed = Feed.write(bench.room("ways"), window + _SETTLE + measured, rows)
    stream, other = feed.streams(bench.spark)
    call: dict[str, Any] = {
        "where": ab.cosine("v") >= bench.threshold,
        "window": f"{window} seconds",
        "watermark": "1 second",
    }
    queries: dict[str, Callable[[], Any]] = {
        "one stream": lambda: ab.correlate(stream, **call),
        "the stream twice": lambda: ab.correlate(stream, stream, **call),
    }
    # One row of a hundred is bad, and dropped in both cases.
    spoilt = [
        frame.withColumn("v", F.expr("if(id % 100 = 0, null, v)")) for frame in (stream, other)
    ]
    dropping = {**call, "where": ab.cosine("v", dim=WIDTH) >= bench.threshold, "bad_rows": "drop"}
    path = str(bench.room("rejects"))
    queries["1 % dropped"] = lambda: ab.correlate(*spoilt, **dropping)
    queries["1 % kept"] = lambda: ab.correlate(*spoilt, rejects=path, **dropping)
    found = _in_turns(screen, bench, queries, rounds, window + _SETTLE)
    for one, base, target in (
        ("one stream", "the stream twice", _HALF),
        ("1 % kept", "1 % dropped", None),
    ):
        seconds = ratio(found[one]["triggers"], found[base]["triggers"])
        note = f"{found[one]['seconds']:.2f} s a micro-batch against {found[base]['seconds']:.2f} s"
        what = f"{one} against {base}: time"
        screen.add(Row("ways", what, seconds, "times", target, at_most=True, note=note))
    for name in ("comparisons", "state_rows"):
        share = found["one stream"][name] / found["the stream twice"][name]
        screen.add(Row("ways", f"one stream against the stream twice: {name}", share, "times"))
    return {"window_rows": window * rows, "ways": found}


def partners(screen: Screen, bench: Bench) -> dict[str, Any]:
    """What rows without a partner cost beside the pairs, where few rows have one.

    Without a plan log the workers that compare decide; a plan that may change, or two sides that
    wait, need a second step.
    """
    window, rows, measured, rounds = (4, 1500, 3, 1) if bench.quick else (6, 8000, 5, 2)
    feed = Feed.write(bench.room("partners"), window + _SETTLE + measured, rows)
    streams = feed.streams(bench.spark)
    call: dict[str, Any] = {
        "where": ab.cosine("v") >= bench.threshold,
        "window": f"{window} seconds",
        "watermark": "1 second",
    }
    queries: dict[str, Callable[[], Any]] = {"inner": lambda: ab.correlate(*streams, **call)}
    for how in ("left", "anti"):
        queries[how] = lambda how=how: ab.correlate(*streams, how=how, **call)  # type: ignore[misc]
    queries["left, plan log"] = lambda: ab.correlate(
        *streams, how="left", control=str(bench.room("log")), **call
    )
    found = _in_turns(screen, bench, queries, rounds, window + _SETTLE)
    for name in list(queries)[1:]:
        one, base = found[name], found["inner"]
        note = f"{one['seconds']:.2f} s a micro-batch against {base['seconds']:.2f} s"
        what, seconds = f"{name} against inner: time", ratio(one["triggers"], base["triggers"])
        screen.add(Row("partners", what, seconds, "times", _ALONE, at_most=True, note=note))
    return {"window_rows": window * rows, "partners": found}


def rows(screen: Screen, bench: Bench) -> dict[str, Any]:
    """What a window of rows costs against a window of time that holds as many."""
    files, rows, measured, rounds = (4, 1500, 3, 1) if bench.quick else (4, 4000, 4, 2)
    feed = Feed.write(bench.room("rows"), files + _SETTLE + measured, rows)
    streams = feed.streams(bench.spark)
    call: dict[str, Any] = {
        "where": ab.cosine("v") >= bench.threshold,
        "watermark": "1 second",
    }
    sizes = {f"{files * rows:,} rows": files * rows, f"{rows // 8:,} rows": rows // 8}
    queries: dict[str, Callable[[], Any]] = {}
    for name, count in sizes.items():
        span = f"{1000 * count // rows} milliseconds"
        queries[name] = lambda n=count: ab.correlate(*streams, window=n, **call)  # type: ignore[misc]
        queries[f"time of {name}"] = lambda w=span: ab.correlate(*streams, window=w, **call)  # type: ignore[misc]
    found = _in_turns(screen, bench, queries, rounds, files + _SETTLE)
    for name in sizes:
        one, other = found[name], found[f"time of {name}"]
        seconds = ratio(one["triggers"], other["triggers"])
        note = f"{one['seconds']:.2f} s a micro-batch against {other['seconds']:.2f} s"
        what = f"a window of {name} against one of time: time"
        screen.add(Row("rows", what, seconds, "times", _COUNTED, at_most=True, note=note))
    return found


def _in_turns(
    screen: Screen,
    bench: Bench,
    queries: dict[str, Callable[[], Any]],
    rounds: int,
    skipped: int,
) -> dict[str, Any]:
    """The figures of each query, without the first micro-batches of its runs."""
    runs: dict[str, list[list[Batch]]] = {name: [] for name in queries}
    for turn in range(rounds):
        for name, make in queries.items():
            screen.step(f"{name}, round {turn + 1} of {rounds}")
            runs[name].append(bench.drain(make())[skipped:])
    return {name: _figures(of) for name, of in runs.items()}


def _figures(runs: list[list[Batch]]) -> dict[str, Any]:
    batches = [batch for run in runs for batch in run]
    return {
        "seconds": median(batch.trigger for batch in batches),
        "triggers": [median(batch.trigger for batch in run) for run in runs],
        "comparisons": median(float(batch.comparisons) for batch in batches),
        "state_rows": sum(load.state_rows for load in runs[-1][-1].loads),
    }
