"""The section of the benchmark about one stream, and about rows without a partner, on Spark.

All ways of one comparison run in turns over the same files, so that what changes with time meets
all of them alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anabranch as ab
from benchmarks.correlate_spark import Batch, Bench, Feed, median
from benchmarks.measuring import Row, Screen, ratio

__all__ = ["ways"]

_SETTLE = 3  # micro-batches beyond the window's length that are not counted
_HALF, _ALONE = 0.6, 1.2


def ways(screen: Screen, bench: Bench) -> dict[str, Any]:
    """What one stream saves against itself twice, and what rows without a partner cost."""
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
        "inner": lambda: ab.correlate(stream, other, **call),
        "left": lambda: ab.correlate(stream, other, how="left", **call),
        "anti": lambda: ab.correlate(stream, other, how="anti", **call),
    }
    runs: dict[str, list[list[Batch]]] = {name: [] for name in queries}
    for turn in range(rounds):
        for name, make in queries.items():
            screen.step(f"ways: {name}, round {turn + 1} of {rounds}")
            runs[name].append(bench.drain(make())[window + _SETTLE :])
    found = {name: _figures(of) for name, of in runs.items()}
    for one, base, target in (
        ("one stream", "the stream twice", _HALF),
        ("left", "inner", _ALONE),
        ("anti", "inner", _ALONE),
    ):
        seconds = ratio(found[one]["triggers"], found[base]["triggers"])
        note = f"{found[one]['seconds']:.2f} s a micro-batch against {found[base]['seconds']:.2f} s"
        what = f"{one} against {base}: time"
        screen.add(Row("ways", what, seconds, "times", target, at_most=True, note=note))
    for name in ("comparisons", "state_rows"):
        share = found["one stream"][name] / found["the stream twice"][name]
        screen.add(Row("ways", f"one stream against the stream twice: {name}", share, "times"))
    return {"window_rows": window * rows, "ways": found}


def _figures(runs: list[list[Batch]]) -> dict[str, Any]:
    batches = [batch for run in runs for batch in run]
    return {
        "seconds": median(batch.trigger for batch in batches),
        "triggers": [median(batch.trigger for batch in run) for run in runs],
        "comparisons": median(float(batch.comparisons) for batch in batches),
        "state_rows": sum(load.state_rows for load in runs[-1][-1].loads),
    }
