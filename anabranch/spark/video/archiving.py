"""`ab.video.archive`: rows that are also written to a folder while they pass through a query."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame

from anabranch.calls import Check
from anabranch.errors import renamed
from anabranch.flow.folders import Folder, absolute, path_problems
from anabranch.spark.frames import refuse_others
from anabranch.spark.keeper import shared_path_problems
from anabranch.spark.tasks import place

__all__ = ["archive"]


@renamed()
def archive(keys: DataFrame, path: str | os.PathLike[str]) -> DataFrame:
    """The same rows, which are also written to a folder of Parquet files while they pass.

    A query that finds topics may so keep its key frames too: a stream with two sinks would be
    decoded twice, and a table that a second query reads costs the time of two micro-batches more.

    Parameters
    ----------
    keys
        A stream, such as the result of `ab.video.shots` or `ab.video.describe`.
    path
        A folder that driver and executors share, or an address that pyarrow opens.

    Returns
    -------
    DataFrame
        The rows as they are. In the folder each is there once, also after a restart: a micro-batch
        that is repeated writes the same files again. Rows are there before their micro-batch is
        committed.

    Raises
    ------
    InvalidCall
        With every problem of the call.

    Examples
    --------
    >>> import anabranch as ab
    >>> frames = ab.video.frames(spark, "channels", start="2024-05-01T12:00:00")
    >>> keys = ab.video.archive(ab.video.shots(frames), "keyframes")
    >>> keys.columns[:3]
    ['id', 'channel', 'ts']
    """
    refuse_others("video.archive", {"keys": keys})
    check = Check()
    if not keys.isStreaming:
        check.say("keys is a table: write it with keys.write.parquet(path)")
    for problem in path_problems("path", path) or shared_path_problems(
        keys.sparkSession, "path", path
    ):
        check.say(problem)
    check.refuse("video.archive")
    return keys.mapInArrow(_Archiver(absolute(path)), keys.schema)


@dataclass(frozen=True)
class _Archiver:
    """Writes the rows of a task and gives them on; the function of a ``mapInArrow``."""

    path: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        passed = []
        for batch in batches:
            if batch.num_rows:
                passed.append(batch)
            yield batch
        if passed:
            task = TaskContext.get()
            assert task is not None
            query, number, _, _ = place()
            # A repeated task has the same rows and the same name; another checkpoint has another.
            name = f"{query}-{number:08d}-{task.partitionId():05d}.parquet"
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_batches(passed), sink, compression="zstd")
            Folder(self.path).write(name, sink.getvalue().to_pybytes())
