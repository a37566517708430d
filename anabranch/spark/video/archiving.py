"""`ab.video.archive`: rows that are also written to a folder while they pass through a query."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from anabranch.calls import IDS, Check
from anabranch.errors import renamed
from anabranch.flow.folders import Folder, absolute, path_problems
from anabranch.spark.frames import column_types, refuse_others
from anabranch.spark.keeper import shared_path_problems
from anabranch.spark.tasks import place

__all__ = ["archive"]

# Where Spark looks for its own schema in a file, with the metadata of columns.
_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_cleared: set[tuple[str, str, str]] = set()  # folders, queries and runs of this process


@renamed()
def archive(keys: DataFrame, path: str | os.PathLike[str]) -> DataFrame:
    """The same rows, which are also written to a folder of Parquet files while they pass.

    A query that finds topics may so keep its key frames too: a stream with two sinks would be
    decoded twice, and a table that a second query reads costs the time of two micro-batches more.

    Parameters
    ----------
    keys
        A stream with a unique ``id``, such as the result of `ab.video.shots` or
        `ab.video.describe`.
    path
        A folder that driver and executors share, or an address that pyarrow opens.

    Returns
    -------
    DataFrame
        The rows as they are. In the folder each is there once, also after a restart, and where one
        query uses the result twice: files are named by the ids in them, and a micro-batch that is
        repeated replaces what it had left. Rows are there before their micro-batch is committed.

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
    check = Check(keys=column_types(keys))
    check.column("keys", "id", "video.archive", IDS)
    if not keys.isStreaming:
        check.say("keys is a table: write it with keys.write.parquet(path)")
    for problem in path_problems("path", path) or shared_path_problems(
        keys.sparkSession, "path", path
    ):
        check.say(problem)
    check.refuse("video.archive")
    return keys.mapInArrow(_Archiver(absolute(path), keys.schema.json()), keys.schema)


@dataclass(frozen=True)
class _Archiver:
    """Writes the rows of a task and gives them on; the function of a ``mapInArrow``."""

    path: str
    schema: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        passed = []
        for batch in batches:
            if batch.num_rows:
                passed.append(batch)
            yield batch
        if passed:
            # Shuffled rows come in another order when they are asked for again.
            rows = pa.Table.from_batches(passed).sort_by("id")
            metadata = {**(rows.schema.metadata or {}), _SCHEMA: self.schema.encode()}
            sink = pa.BufferOutputStream()
            pq.write_table(rows.replace_schema_metadata(metadata), sink, compression="zstd")
            self._write(rows, sink.getvalue().to_pybytes())

    def _write(self, rows: pa.Table, content: bytes) -> None:
        """Write the file of some rows, in the place of what another run has left of them.

        A query that uses a stream twice has these rows in two tasks of different numbers, but the
        same ids. After a restart rows may be split among tasks in another way.
        """
        folder, (query, number, run, _) = Folder(self.path), place()
        batch = f"{query}-{number:08d}-"
        if (self.path, query, run) not in _cleared:
            # Only the first micro-batch of a run may have been begun by another.
            for name in folder.names("", ".parquet"):
                if name.startswith(batch) and not name.startswith(f"{batch}{run[:8]}-"):
                    folder.delete(name)
            _cleared.add((self.path, query, run))
        ids = hashlib.sha256("\n".join(map(str, rows.column("id").to_pylist())).encode())
        folder.write(f"{batch}{run[:8]}-{ids.hexdigest()[:16]}.parquet", content)
