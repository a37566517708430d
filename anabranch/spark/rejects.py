"""Rejected rows: what verbs are told to do with them, and `ab.rejects`, which reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, FloatType, IntegralType

from anabranch.errors import InvalidCall, renamed
from anabranch.flow.folders import absolute, path_problems
from anabranch.flow.metrics import has_rejects
from anabranch.flow.rejects import Rejecting, commit, counted_files
from anabranch.flow.sides import WHOLE
from anabranch.spark.frames import JSON_FORM, by_name
from anabranch.spark.keeper import shared_path_problems
from anabranch.spark.listening import hearer_of
from anabranch.spark.settings import session_problems

__all__ = ["Rejection", "begun", "columns_of", "rejection_of", "rejection_problems", "rejects"]

_COLUMNS = (
    "verb string, side string, reason string, watermark timestamp, batch bigint, row string, "
    "query string"
)


@renamed()
def rejects(spark: SparkSession, path: str | os.PathLike[str]) -> DataFrame:
    """The rows that queries with this ``rejects=`` have rejected, each once.

    Parameters
    ----------
    spark
        The session.
    path
        The directory that ``rejects=`` named.

    Returns
    -------
    DataFrame
        ``verb, side, reason, watermark, batch, row, query``: `row` is the rejected row as JSON
        text, and `query` the id of the streaming query. Of a stream, only what committed
        micro-batches have rejected; of a batch, where `watermark` and `batch` are null, what was
        rejected when its result was computed.

    Raises
    ------
    InvalidCall
        If `path` is no path.

    Examples
    --------
    >>> import anabranch as ab, tempfile
    >>> path = tempfile.mkdtemp()
    >>> table = spark.sql('''SELECT id, timestamp_seconds(1700000000 + id) AS ts,
    ...                             nullif(id, 2) AS x FROM range(4)''')
    >>> pairs = ab.correlate(table, where=ab.within("x", 1), window="1 second", bad_rows="drop",
    ...                      rejects=path)
    >>> pairs.count()
    1
    >>> ab.rejects(spark, path).select("side", "reason", "row").first()
    Row(side='stream', reason="'x' is null", \
row='{"id":2,"ts":"2023-11-14T22:13:22.000000Z","x":null}')
    """
    problems = session_problems(spark) + path_problems("path", path)
    if problems:
        raise InvalidCall("rejects", problems)
    root = absolute(path)
    files = [f"{root.rstrip('/')}/{name}" for name in counted_files(root)]
    if not files:
        return spark.createDataFrame([], _COLUMNS)
    # A path without a scheme would be taken for one of the cluster's file system.
    scheme = "" if "://" in root else "file://"
    reader = spark.read.schema(_COLUMNS).option("basePath", scheme + root)
    return reader.parquet(*(scheme + name for name in files))


@dataclass(frozen=True)
class Rejection:
    """What a call does with rejected rows: where they go, and how rows of its inputs travel.

    `vectors` are the compared columns of each input, which rows leave out since cells have them.
    `beforehand` are rows that it has already rejected, as a cell.
    """

    path: str
    verb: str
    rows: Mapping[str, Column]
    vectors: tuple[Mapping[str, str], ...]
    beforehand: bytes | None = None


def rejection_problems(path: Any, inputs: Mapping[str, DataFrame]) -> list[str]:
    """What stands in the way of keeping the rejected rows of these inputs."""
    if path is None:
        return []
    problems: list[str] = []
    for label, frame in inputs.items():
        lower = [name.lower() for name in frame.columns]
        twice = [name for name in frame.columns if lower.count(name.lower()) > 1]
        if twice:
            problems.append(
                f"rejects= writes rows of {label} whole, and it has several columns {twice[0]!r}: "
                "rename one"
            )
    for frame in list(inputs.values())[:1]:
        problems += shared_path_problems(frame.sparkSession, "rejects", path)
    return problems


def rejection_of(
    verb: str,
    path: Any,
    inputs: Mapping[str, DataFrame],
    vectors: Sequence[Mapping[str, str]] | None = None,
) -> Rejection | None:
    """What a checked call does with rejected rows of its inputs; None if it keeps none.

    `vectors` are the names inside of the vectors that are read of each input.
    """
    if path is None:
        return None
    known = tuple(vectors) if vectors is not None else ({},) * len(inputs)
    named = zip(inputs.items(), known, strict=False)
    rows = {name: _whole(frame, of) for (name, frame), of in named}
    return Rejection(absolute(path), verb, rows, known)


def begun(rejection: Rejection | None, frame: DataFrame, name: str) -> Rejecting | None:
    """What tasks need of it; commits of a stream that is observed by this name are noted."""
    if rejection is None:
        return None
    if frame.isStreaming:
        hearer_of(frame.sparkSession, Commits).paths[name] = rejection.path
    sides = tuple(rejection.rows)
    return Rejecting(
        rejection.path, rejection.verb, sides, name, rejection.beforehand, rejection.vectors
    )


def columns_of(rejection: Rejection | None, side: int) -> list[Column]:
    """What the packer of an input reads beside what the verb asks for."""
    return [] if rejection is None else [list(rejection.rows.values())[side].alias(WHOLE)]


def _whole(frame: DataFrame, vectors: Mapping[str, str]) -> Column:
    """Rows as `as_json` takes them: a text, and arrays of numbers, whose text would be long.

    To bring an array to Python costs more than all the rest, so that compared ones, which come
    anyway, do not come twice.
    """
    numbers = (IntegralType, FloatType, DoubleType)
    bulky = [
        field.name
        for field in frame.schema
        if isinstance(field.dataType, ArrayType) and isinstance(field.dataType.elementType, numbers)
    ]
    others = [by_name(name) for name in frame.columns if name not in bulky]
    text = F.to_json(F.struct(*others), JSON_FORM) if others else F.lit("{}")
    comes = F.lit(None).cast("boolean")
    arrays = [comes.alias(name) if name in vectors else by_name(name) for name in bulky]
    return F.struct(text.alias("{}"), *arrays)


class Commits:
    """Notes which micro-batches with rejected rows are committed, for the calls of a session."""

    def __init__(self) -> None:
        self.paths: dict[str, str] = {}  # of calls, by the names of their metrics

    def progressed(self, progress: Any) -> None:
        """Spark tells of a micro-batch once it is committed."""
        for name, row in (progress.observedMetrics or {}).items():
            if name in self.paths and has_rejects(row):
                query, run = str(progress.id), str(progress.runId)
                commit(self.paths[name], query, run, int(progress.batchId))

    def ended(self, event: Any) -> None:
        """Nothing to do: the same DataFrame may be started again."""
