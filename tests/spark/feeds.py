"""Streams whose micro-batches are known: one Parquet file per side and batch, a Parquet sink."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from tests.correlation.twin import Batch, Pairs, Row

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
SIDES = ("left", "right")
PATIENCE = 600  # seconds until a query that does not end counts as hung

ROW = pa.schema(
    {
        "id": pa.int64(),
        "ts": pa.timestamp("us", "UTC"),
        "v": pa.list_(pa.float32()),
        "x": pa.int64(),
        "bits": pa.int64(),
        "room": pa.string(),
        "name": pa.string(),
    }
)

# Vectors of length 5 or 10 at many angles: cosines and distances hit round thresholds exactly.
_VECTORS = [[3, 4], [4, 3], [5, 0], [0, 5], [-3, 4], [-4, 3], [-5, 0], [6, 8], [8, 6], [0, -10]]


def scripted(
    batches: int, rows: tuple[int, int] = (20, 20), disorder: float = 1.5, seed: int = 1
) -> list[Batch]:
    """Micro-batches of a second each, whose rows come up to `disorder` seconds early or late."""
    random = np.random.default_rng(seed)
    script: list[Batch] = []
    for number in range(batches):
        sides: list[list[Row]] = []
        for side in (0, 1):
            made = []
            for n in range(rows[side]):
                shift = random.uniform(-disorder, disorder) if disorder else random.uniform(0, 1)
                t = START + int((number + shift) * SECOND)
                if random.random() < 0.3:  # whole seconds, so that window ends are hit exactly
                    t -= t % SECOND
                ident = (number * 1000 + n) * 2 + side
                made.append(row(ident, t, random))
            sides.append(made)
        script.append((sides[0], sides[1]))
    return script


def stragglers() -> list[Batch]:
    """A script in which a fifth of the rows lag by two to four seconds."""
    random = np.random.default_rng(3)

    def lag(r: Row) -> Row:
        return {**r, "t": r["t"] - int(random.uniform(2, 4) * SECOND * (random.random() < 0.2))}

    script = scripted(9, rows=(15, 15), disorder=0.5, seed=2)
    return [([lag(r) for r in left], [lag(r) for r in right]) for left, right in script]


def row(ident: int, t: int, random: np.random.Generator | None = None) -> dict[str, Any]:
    """A row of the schema `ROW`; without `random` one that matches any other such row."""
    pick = (lambda n: int(random.integers(n))) if random is not None else (lambda n: 0)
    return {
        "id": ident,
        "t": t,
        "v": [float(x) for x in _VECTORS[pick(len(_VECTORS))]],
        "x": pick(40),
        "bits": pick(256) << 50,
        "room": "ABC"[pick(3)],
        "name": f"row {ident}" if ident % 5 else None,
    }


def at(seconds: float) -> int:
    """So many seconds after the start, in microseconds."""
    return START + round(seconds * SECOND)


def table_of(rows: Iterable[Row], schema: pa.Schema = ROW) -> pa.Table:
    """Rows as an Arrow table; `t` becomes the timestamp `ts`."""
    rows = list(rows)
    columns = {
        name: [r["t"] if name == "ts" and "ts" not in r else r[name] for r in rows]
        for name in schema.names
    }
    return pa.table(columns, schema=schema)


@dataclass
class Feed:
    """Two input folders, a sink and a checkpoint under one folder.

    `idle` queries go on without rows once the watermark has moved, which those need in which
    something waits for it. The first result for which `hold` holds waits to be killed. `spoil` is
    done to tasks that read and to those that write. A micro-batch reads so many `files` of a side.
    """

    folder: Path
    schemas: tuple[pa.Schema, pa.Schema] = (ROW, ROW)
    written: int = field(default=0)
    idle: bool = False
    hold: str | None = None
    checkpoints: str | None = None  # where they are, if not under the folder
    spoil: str | None = None
    files: int = 1

    def add(self, batches: Sequence[Batch]) -> Feed:
        """One more file per side for every batch; Spark takes them in order of their age."""
        for batch in batches:
            for side, rows, schema in zip(SIDES, batch, self.schemas, strict=True):
                path = self.input(side) / f"{self.written:05d}.parquet"
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_name("." + path.name)
                pq.write_table(table_of(rows, schema), partial)
                os.utime(partial, (1_700_000_000 + self.written,) * 2)
                partial.rename(path)
            self.written += 1
        return self

    def input(self, side: str) -> Path:
        return self.folder / side

    def streams(self, spark: Any) -> tuple[Any, Any]:
        """Both sides as streams of a file or so per micro-batch."""
        if self.written:  # no need to look
            schemas = [from_arrow_schema(schema) for schema in self.schemas]
        else:
            schemas = [frame.schema for frame in self.tables(spark)]
        return tuple(
            self.spoiled(
                spark.readStream.schema(schema)
                .option("maxFilesPerTrigger", self.files)
                .parquet(str(self.input(side)))
            )
            for side, schema in zip(SIDES, schemas, strict=True)
        )

    def spoiled(self, frame: Any) -> Any:
        """The frame with what is done to its tasks."""
        return spoiled(frame, self.folder, self.spoil) if self.spoil else frame

    def tables(self, spark: Any) -> tuple[Any, Any]:
        """Both sides as tables of all files so far."""
        return tuple(spark.read.parquet(str(self.input(side))) for side in SIDES)

    def run(self, result: Any, name: str = "out") -> Any:
        """Process all files there are and append the result to a sink; the ended query."""
        query = self.start(result, name)
        assert query.awaitTermination(PATIENCE), "the query hangs"
        return query

    def start(self, result: Any, name: str = "out") -> Any:
        """A query over the files that are there now, into the sink of this name."""
        result = self.spoiled(result)
        if self.hold:
            result = held(result, self.folder / "reached", self.hold)
        with settings(result.sparkSession, streaming__noDataMicroBatches__enabled=self.idle):
            return (
                result.writeStream.format("parquet")
                .option("path", str(self.folder / name))
                .option(
                    "checkpointLocation", f"{self.checkpoints or self.folder}/{name}.checkpoint"
                )
                .outputMode("append")
                .trigger(availableNow=True)
                .start()
            )

    def taken(
        self, batches: Sequence[Batch], name: str = "out", alone: str = "right"
    ) -> list[Batch]:
        """The batches as the query took them, by its own log; a query of one side took `alone`.

        A driver killed after a source noted a file, and before the batch was noted, takes that
        file together with the next one: one side is then ahead, and so is the watermark.
        """
        taken: list[Batch] = []
        before = [-1, -1]
        log = self.folder / f"{name}.checkpoint" / "offsets"
        for number in sorted(int(path.name) for path in log.iterdir() if path.name.isdigit()):
            lines = (log / str(number)).read_text().splitlines()[2:]
            if len(lines) == 1:
                lines = [*lines, "-"] if alone == "left" else ["-", *lines]
            ends = [
                json.loads(line)["logOffset"] if line != "-" else last
                for line, last in zip(lines, before, strict=True)
            ]
            files = [range(last + 1, end + 1) for last, end in zip(before, ends, strict=True)]
            left, right = (
                [row for file in run for row in batches[file][side]]
                for side, run in enumerate(files)
            )
            taken.append((left, right))
            before = ends
        return taken

    def output(self, spark: Any, name: str = "out") -> Any:
        """What the sink holds."""
        return spark.read.parquet(str(self.folder / name))


def held(result: Any, reached: Path, when: str) -> Any:
    """A result whose first row for which `when` holds leaves a file, and waits to be killed."""
    from pyspark.sql import functions as F

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if any(batch.column("_hold").to_pylist()):
                reached.touch()
                threading.Event().wait(PATIENCE)
                raise TimeoutError(f"nobody came after {reached}")
            yield batch.drop_columns(["_hold"])

    return result.withColumn("_hold", F.expr(when)).mapInArrow(wait, result.schema)


def spoiled(frame: Any, folder: Path, how: str) -> Any:
    """A frame whose tasks go wrong at their first attempt, when part of their rows are out.

    They ``fail``, take long (``slow``), or fail ``once`` and never again. A file tells of each
    second attempt.
    """

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        again = task.attemptNumber() > 0
        if again:
            (folder / f"again-{task.taskAttemptId()}").touch()
        for batch in batches:
            yield batch
            if how == "slow" and not again:
                time.sleep(3)
            elif how == "fail" and not again:
                raise RuntimeError("spoiled")
            elif how == "once" and not (folder / "spoiled").exists():
                (folder / "spoiled").touch()
                raise RuntimeError("spoiled")

    return frame.mapInArrow(pass_on, frame.schema)


def happens(holds: Callable[[], Any]) -> None:
    """Wait until another process or thread has done something; fail if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def heard(spark: Any) -> None:
    """Wait until every listener of a session has heard of all that has happened."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()


def found(frame: Any, left: str = "left_id", right: str = "right_id") -> Pairs:
    """The pairs of a result with their scores; fails if a pair came twice."""
    rows = frame.select(left, right, "score").collect()
    twice = [pair for pair, n in Counter((a, b) for a, b, _ in rows).items() if n > 1]
    assert not twice, f"{len(twice)} pairs came more than once, such as {twice[:3]}"
    return {(a, b): score for a, b, score in rows}


def agree(got: Pairs, want: Pairs) -> None:
    """Fail, with a few examples, unless pairs and scores are the same."""
    lost, extra = want.keys() - got.keys(), got.keys() - want.keys()
    assert not lost and not extra, (
        f"{len(lost)} of {len(want)} pairs lost, such as {sorted(lost)[:3]}; "
        f"{len(extra)} should not be, such as {sorted(extra)[:3]}"
    )
    wrong = [(pair, got[pair], want[pair]) for pair in want if got[pair] != want[pair]]
    assert not wrong, f"{len(wrong)} scores differ, such as {wrong[:3]}"
    assert want, "a test in which nothing joins shows nothing"


def flat(batches: Sequence[Batch]) -> tuple[list[Row], list[Row]]:
    """All left rows and all right rows."""
    return [r for b in batches for r in b[0]], [r for b in batches for r in b[1]]


@contextmanager
def settings(spark: Any, **values: Any) -> Iterator[None]:
    """Session settings for the length of a block; ``a__b`` stands for ``spark.sql.a.b``."""
    names = {"spark.sql." + name.replace("__", "."): str(value) for name, value in values.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def figures(query: Any) -> list[dict[str, Any]]:
    """What the workers reported, batch by batch."""
    from anabranch.flow.metrics import batch_metrics, loads_of

    state: dict[int, Any] = {}
    return [
        batch_metrics(progress, loads, state)
        for progress in query.recentProgress
        if (loads := loads_of(progress))
    ]
