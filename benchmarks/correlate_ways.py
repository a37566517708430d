"""Sections of the benchmark on Spark: one stream, no partner, rejected rows, windows of rows.

All ways of one comparison run in turns over the same files, so that what changes with time meets
all of them alike.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

import anabranch as ab
from benchmarks.correlate_spark import CORES, WIDTH, Batch, Bench, Feed, median
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

    Without a plan log the workers that compare decide if they can; a plan that may change, two
    sides that wait and many workers need homes. What has a log is compared with pairs that have
    one too.
    """
    window, rows, measured, rounds = (3, 1500, 2, 1) if bench.quick else (6, 8000, 6, 3)
    feed = Feed.write(bench.room("partners"), window + 1 + measured, rows)
    found = {
        f"{workers} workers": _partners(screen, bench, feed, workers, (window, rounds))
        for workers in (4, 16)
    }
    ab.configure(bench.spark, workers=CORES)
    return {"window_rows": window * rows, **found}


def _partners(
    screen: Screen, bench: Bench, feed: Feed, workers: int, length: tuple[int, int]
) -> dict[str, Any]:
    window, rounds = length
    ab.configure(bench.spark, workers=workers)
    streams = feed.streams(bench.spark)
    call: dict[str, Any] = {
        "where": ab.cosine("v") >= bench.threshold,
        "window": f"{window} seconds",
        "watermark": "1 second",
    }
    queries: dict[str, Callable[[], Any]] = {}
    bases = {}
    for name, how, log in (
        ("inner", "inner", False),
        *((how, how, False) for how in ("left", "right", "full", "anti")),
        ("inner, plan log", "inner", True),
        *((f"{how}, plan log", how, True) for how in ("left", "full", "anti")),
    ):
        bases[name] = "inner, plan log" if log else "inner"
        queries[name] = lambda how=how, log=log: ab.correlate(  # type: ignore[misc]
            *streams, how=how, control=str(bench.room("log")) if log else None, **call
        )
    found = _in_turns(screen, bench, queries, rounds, window + 1)
    for name, base in bases.items():
        if name == base:
            continue
        one, other = found[name]["triggers"], found[base]["triggers"]
        note = f"least {min(one):.2f} s a micro-batch against {min(other):.2f} s; processor "
        note += f"{ratio(found[name]['processor'], found[base]['processor']):.2f} times"
        what = f"{name} against {base}, {workers} workers: time"
        row = Row("partners", what, ratio(one, other), "times", _ALONE, at_most=True, note=note)
        screen.add(row)
    return found


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
    spent: dict[str, list[float]] = {name: [] for name in queries}
    for turn in range(rounds):
        for name, make in queries.items():
            screen.step(f"{name}, round {turn + 1} of {rounds}")
            began = _processor_seconds()
            runs[name].append(bench.drain(make())[skipped:])
            spent[name].append(_processor_seconds() - began)
    return {name: {**_figures(of), "processor": spent[name]} for name, of in runs.items()}


def _processor_seconds() -> float:
    """What this process and all below it have used so far: Spark, and its Python workers."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        # Its own time, and that of children that have ended.
        parents[int(path.parent.name)] = int(fields[1])
        used[int(path.parent.name)] = sum(map(int, fields[11:15]))
    mine = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(used.get(process, 0) for process in mine) / os.sysconf("SC_CLK_TCK")


def _figures(runs: list[list[Batch]]) -> dict[str, Any]:
    batches = [batch for run in runs for batch in run]
    return {
        "seconds": median(batch.trigger for batch in batches),
        "triggers": [median(batch.trigger for batch in run) for run in runs],
        "comparisons": median(float(batch.comparisons) for batch in batches),
        "state_rows": sum(load.state_rows for load in runs[-1][-1].loads),
    }
