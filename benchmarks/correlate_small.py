"""Small micro-batches of `correlate` on Spark, beside a trivial stateful query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.correlate_spark import Batch, Bench, Feed, median
from benchmarks.correlate_streams import parts
from benchmarks.measuring import Row, Screen, ratio

__all__ = ["FEW", "counted", "fixed"]

FEW = 400  # rows a side


def fixed(screen: Screen, bench: Bench) -> dict[str, Any]:
    """What a micro-batch costs that has next to nothing to do."""
    rounds, files, settle = (1, 8, 4) if bench.quick else (8, 30, 10)
    screen.step(f"fixed: {rounds} rounds of {files} micro-batches of {2 * FEW} rows")
    feed = Feed.write(bench.room("drops"), files, FEW)
    frames: dict[str, Callable[[], Any]] = {
        "counting rows": lambda: counted(bench, feed),
        "correlate": lambda: bench.correlated(feed, 6),
    }
    triggers: dict[str, list[float]] = {name: [] for name in frames}  # a median for each round
    measured: list[Batch] = []
    for turn in range(rounds + 2):
        for name, make in frames.items():
            batches = bench.drain(make())[settle:]
            if turn < 2 and not bench.quick:  # Java compiles while these run, whichever they are
                continue
            triggers[name].append(median(batch.trigger for batch in batches))
            if name == "correlate":
                measured += batches
    medians = {name: median(values) for name, values in triggers.items()}
    screen.add(
        Row(
            "fixed",
            "small micro-batch against one that counts rows in a state value",
            ratio(triggers["correlate"], triggers["counting rows"]),
            "times",
            1.1,
            at_most=True,
            note=f"{medians['correlate']:.2f} s against {medians['counting rows']:.2f} s",
        )
    )
    for name, seconds in parts(measured).items():
        if not name.startswith("... "):
            screen.add(Row("fixed", f"seconds: {name}", seconds, "s"))
    return {"medians": medians, "triggers": triggers, "parts": parts(measured)}


def counted(bench: Bench, feed: Feed) -> Any:
    """The least that a stateful Python operator can do with the same rows and partitions."""
    import pandas as pd
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    # A class inside a function travels to Spark's workers by value; they cannot import this file.
    class Counter(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._count = handle.getValueState("count", "count long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            stored = self._count.get()
            count = (stored[0] if stored is not None else 0) + sum(len(frame) for frame in rows)
            self._count.update((count,))
            yield pd.DataFrame({"worker": [key[0]], "count": [count]})

        def close(self) -> None:
            pass

    left, right = feed.streams(bench.spark)
    return (
        left.union(right)
        .select((F.col("id") % 2).cast("int").alias("worker"), "id")
        .groupBy("worker")
        .transformWithStateInPandas(
            Counter(),
            outputStructType="worker int, count long",
            outputMode="Append",
            timeMode="None",
        )
    )
