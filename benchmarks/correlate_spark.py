"""`correlate` on Spark, two cores: streams of 64-d vectors out of Parquet files.

Every micro-batch takes one file of each side, which covers one second of event time, so a window
of w seconds holds w files. Rates are comparisons (pairs that the window lets join) per second of
trigger time, once windows are full.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.flow.load import Load
from benchmarks.correlate_kernel import cosine_threshold, directions, one_core

__all__ = ["CORES", "Batch", "Bench", "Feed", "batches_of", "multiply_in_two_processes"]

WIDTH = 64
CORES = 2
_SEED = 40
_SECOND = 1_000_000
_START = 1_700_000_000 * _SECOND
_SCHEMA = "id long, ts timestamp, v array<float>"
_MATCH_RATE = 5e-6


@dataclass(frozen=True)
class Feed:
    """Two folders of Parquet files, `rows` rows each, one second of event time apart."""

    folder: Path
    files: int
    rows: int

    @classmethod
    def write(cls, folder: Path, files: int, rows: int) -> Feed:
        """Make the files."""
        for side in ("left", "right"):
            (folder / side).mkdir(parents=True)
        return cls(folder, 0, rows).extend(files, rows)

    def extend(self, files: int, rows: int) -> Feed:
        """The same with so many files more, of so many rows each."""
        for side in ("left", "right"):
            for number in range(self.files, self.files + files):
                path = self.folder / side / f"{number:05d}.parquet"
                pq.write_table(_rows(side, number, rows), path)
                # Spark takes files by age, and knows milliseconds only.
                os.utime(path, (_START / _SECOND + number, _START / _SECOND + number))
        return Feed(self.folder, self.files + files, rows)

    def cut(self, folder: Path, files: int) -> Feed:
        """The first files of this feed as a feed of its own."""
        for side in ("left", "right"):
            (folder / side).mkdir(parents=True)
            for number in range(files):
                name = f"{number:05d}.parquet"
                os.link(self.folder / side / name, folder / side / name)
        return Feed(folder, files, self.rows)

    def streams(self, spark: Any) -> tuple[Any, Any]:
        """Both sides, one file of each per micro-batch."""
        reader = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
        left, right = (reader.parquet(str(self.folder / side)) for side in ("left", "right"))
        return left, right


def _rows(side: str, number: int, rows: int) -> pa.Table:
    seed = _SEED + 2 * number + (side == "right")
    random = np.random.default_rng(seed)
    t = _START + number * _SECOND + np.sort(random.integers(0, _SECOND, rows))
    vectors = directions(rows, WIDTH, seed + 1_000_000)
    return pa.table(
        {
            "id": pa.array(np.arange(rows) + number * rows),
            "ts": pa.array(t, pa.timestamp("us", "UTC")),
            "v": pa.FixedSizeListArray.from_arrays(vectors.ravel(), WIDTH).cast(
                pa.list_(pa.float32())
            ),
        }
    )


@dataclass(frozen=True)
class Batch:
    """One micro-batch: what Spark and the workers reported of it."""

    began: float
    rows: int
    trigger: float
    durations: dict[str, float]
    loads: Sequence[Load]
    state: dict[str, Any]
    stages: Sequence[float] = ()

    @property
    def comparisons(self) -> int:
        """Pairs compared by all workers."""
        return sum(load.comparisons for load in self.loads)

    @property
    def rate(self) -> float:
        """Comparisons per second of trigger time."""
        return self.comparisons / self.trigger

    @property
    def compare(self) -> float:
        """Seconds that the slowest worker spent in the kernel."""
        return max((load.compare_seconds for load in self.loads), default=0.0)

    @property
    def busy(self) -> float:
        """Seconds that the slowest worker spent in its step, without reading and writing state."""
        return max((load.busy_seconds for load in self.loads), default=0.0)


def batches_of(query: Any, stages: Sequence[Sequence[float]] = ()) -> list[Batch]:
    """The micro-batches of a query that had rows."""
    from anabranch.flow.metrics import loads_of

    found: list[Batch] = []
    for progress in query.recentProgress:
        if progress.numInputRows == 0:
            continue
        durations = {name: ms / 1000 for name, ms in dict(progress.durationMs).items()}
        state = {}
        for operator in progress.stateOperators:
            state = {
                "memory_bytes": operator.memoryUsedBytes,
                "commit_ms": operator.commitTimeMs,
                "updates_ms": operator.allUpdatesTimeMs,
                **dict(operator.customMetrics),
            }
        place = len(found)
        found.append(
            Batch(
                datetime.fromisoformat(progress.timestamp).timestamp(),
                progress.numInputRows,
                durations["triggerExecution"],
                durations,
                loads_of(progress),
                state,
                stages[place] if place < len(stages) else (),
            )
        )
    return found


@dataclass
class Bench:
    """A Spark session, room for files, and the runs that several sections look at."""

    folder: Path
    quick: bool
    say: Callable[[str], None]
    settings: Mapping[str, str] = field(default_factory=dict)
    master: str = f"local[{CORES}]"
    _spark: Any = None
    _runs: int = 0
    _kept: dict[str, Any] = field(default_factory=dict)

    @property
    def spark(self) -> Any:
        """The session, begun when it is first needed."""
        if self._spark is None:
            from pyspark.sql import SparkSession

            self.say(f"starting Spark, {self.master}")
            builder: Any = (
                SparkSession.builder.master(self.master)
                .appName("anabranch benchmarks")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.sql.session.timeZone", "UTC")
                .config("spark.driver.memory", "4g")
                .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
                .config("spark.sql.warehouse.dir", str(self.folder / "warehouse"))
                .config("spark.local.dir", str(self.folder / "local"))
            )
            for name, value in self.settings.items():
                builder = builder.config(name, value)
            with _errors_to(self.folder / "spark.log"):
                self._spark = ab.configure(builder, workers=CORES).getOrCreate()
            self._spark.sparkContext.setLogLevel("OFF")
        return self._spark

    def stop(self) -> None:
        """End the session, if there is one."""
        if self._spark is not None:
            self._spark.stop()

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What `make` returns, made once per benchmark run."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def room(self, name: str) -> Path:
        """A new place for files."""
        self._runs += 1
        return self.folder / f"{self._runs:03d}-{name}"

    @property
    def threshold(self) -> float:
        """A cosine that few pairs of a feed reach."""
        return self.reached_by(_MATCH_RATE)

    def reached_by(self, match_rate: float) -> float:
        """The cosine that about this share of the pairs of a feed reaches."""

        def make() -> float:
            left, right = directions(2000, WIDTH, _SEED), directions(12_000, WIDTH, _SEED + 1)
            return cosine_threshold(left, right, match_rate)

        return float(self.once(f"threshold {match_rate}", make))

    def correlated(self, feed: Feed, seconds: float, threshold: float | None = None) -> Any:
        """The query under test: a window of so many files on either side."""
        left, right = feed.streams(self.spark)
        return ab.correlate(
            left,
            right,
            where=ab.cosine("v") >= (self.threshold if threshold is None else threshold),
            window=f"{round(1000 * seconds)} milliseconds",
            watermark="1 second",
        )

    def drain(self, frame: Any, sink: Path | None = None, every: str = "") -> list[Batch]:
        """Run a streaming query over all files, at once or on a trigger; its micro-batches."""
        writer = frame.writeStream.option("checkpointLocation", str(self.room("checkpoint")))
        if every:
            writer = writer.trigger(processingTime=every)
        if sink is None:
            query = writer.format("noop").start()
        else:
            query = writer.format("parquet").option("path", str(sink)).start()
        try:
            query.processAllAvailable()
            return batches_of(query, self._stages(str(query.runId)))
        finally:
            query.stop()

    def _stages(self, run: str) -> list[list[float]]:
        """Seconds of the stages of each job of a query, in order."""
        context = self.spark.sparkContext
        tracker = context.statusTracker()
        store = context._jsc.sc().statusStore()
        found = []
        for job in sorted(tracker.getJobIdsForGroup(run)):
            info = tracker.getJobInfo(job)
            seconds = []
            for stage in sorted(info.stageIds) if info else ():
                data = store.lastStageAttempt(int(stage))
                if data.completionTime().isDefined():
                    span = data.completionTime().get().getTime()
                    span -= data.submissionTime().get().getTime()
                    seconds.append(span / 1000)
            found.append(seconds)
        return found


def multiply_in_two_processes(rows: int, seconds: float) -> float:
    """Comparisons per second of bare float32 products on all cores, a process each at one time."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(CORES), context.Queue()
    workers = [
        context.Process(target=_multiply, args=(n, rows, seconds, barrier, results))
        for n in range(CORES)
    ]
    for worker in workers:
        worker.start()
    rates = [results.get(timeout=60 + 10 * seconds) for _ in workers]
    for worker in workers:
        worker.join()
    return float(sum(rates))


def _multiply(number: int, rows: int, seconds: float, barrier: Any, results: Any) -> None:
    left = directions(rows, WIDTH, _SEED + 10 + number)
    right = np.ascontiguousarray(directions(rows, WIDTH, _SEED + 20 + number).T)
    products = np.empty((rows, rows), np.float32)
    with one_core():
        np.matmul(left, right, out=products)
        barrier.wait()
        began, compared = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            np.matmul(left, right, out=products)
            compared += products.size
        spent = time.perf_counter() - began
    results.put(compared / spent)


def median(values: Iterable[float]) -> float:
    """The median of what there is."""
    return float(statistics.median(values))


@contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """Programs started inside the block write their standard error to a file.

    Spark tells every start of a Python worker there; failures reach us as exceptions anyway.
    """
    sys.stderr.flush()
    mine = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(mine, 2)
        os.close(mine)
