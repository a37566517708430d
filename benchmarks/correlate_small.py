"""Small micro-batches and cold starts of `correlate` on Spark, beside a trivial stateful query."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.correlate_spark import Batch, Bench, Feed, median
from benchmarks.correlate_streams import parts
from benchmarks.measuring import Row, Screen, ratio

__all__ = ["first", "fixed"]

_FEW = 400  # rows a side
_QUERIES = ("counting rows", "correlate")


def first(screen: Screen, bench: Bench) -> dict[str, Any]:
    """From the call to the end of the first micro-batch, in processes that have just started.

    Compiled code is on disk, as it is after the first run on a machine; Spark's own process is up.
    """
    rounds = 1 if bench.quick else 3
    feed = Feed.write(bench.room("first"), 3, _FEW)
    screen.step(f"first: {rounds} new processes for each query")
    took: dict[str, list[float]] = {name: [] for name in _QUERIES}
    for turn in range(rounds + 1):
        for name in _QUERIES:
            command = [sys.executable, "-m", "benchmarks.correlate_small", str(feed.folder), name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"a new process failed:\n{done.stderr[-2000:]}")
            if turn:  # the first ones compile what is not on disk yet
                took[name].append(json.loads(done.stdout.splitlines()[-1]))
    what = "seconds to the end of the first micro-batch of a new process"
    note = f"{median(took['counting rows']):.1f} s to count rows in a state value"
    screen.add(Row("first", what, median(took["correlate"]), "s", 4.0, at_most=True, note=note))
    return {"seconds": took}


def _time_first(folder: str, name: str) -> float:
    """What `first` starts."""
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as room:
        bench = Bench(Path(room), True, lambda text: None)
        feed = Feed(Path(folder), 3, _FEW)
        assert bench.spark is not None
        began = time.perf_counter()
        frame = counted(bench, feed) if name == "counting rows" else bench.correlated(feed, 6, 0.6)
        writer = frame.writeStream.option("checkpointLocation", str(bench.room("checkpoint")))
        query = writer.format("noop").start()
        while query.lastProgress is None and query.isActive:
            time.sleep(0.01)
        took = time.perf_counter() - began
        assert query.lastProgress is not None, query.exception()
        query.stop()
        bench.stop()
    return took


def fixed(screen: Screen, bench: Bench) -> dict[str, Any]:
    """What a micro-batch costs that has next to nothing to do."""
    rounds, files, settle = (1, 8, 4) if bench.quick else (4, 30, 10)
    screen.step(f"fixed: {rounds} rounds of {files} micro-batches of {2 * _FEW} rows")
    feed = Feed.write(bench.room("drops"), files, _FEW)
    frames: dict[str, Callable[[], Any]] = {
        "counting rows": lambda: counted(bench, feed),
        "correlate": lambda: bench.correlated(feed, 6),
    }
    triggers: dict[str, list[float]] = {name: [] for name in frames}  # a median for each round
    measured: list[Batch] = []
    for _ in range(rounds):
        for name, make in frames.items():
            batches = bench.drain(make())[settle:]
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


if __name__ == "__main__":
    print(json.dumps(_time_first(*sys.argv[1:])))
