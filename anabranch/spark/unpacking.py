"""Cells as rows again: where workers have sent them, or after a step that keeps nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from anabranch.flow.blocks import Block, decode_batch, narrowed
from anabranch.flow.process import freeze_imports, single_threaded
from anabranch.plans.plan import SIDES
from anabranch.spark.settings import has_large_types
from anabranch.spark.versions import arrow_schema

__all__ = [
    "ROWS_PER_CELL",
    "Posted",
    "Unpacker",
    "arrow_of",
    "conform",
    "parts_of",
    "report_of_alone",
]

# What one cell of a result holds at most: enough to be fast, little enough to be no burden.
ROWS_PER_CELL = 50_000
BYTES_PER_CELL = 64 << 20


@dataclass(frozen=True)
class Unpacker:
    """Turns cells into the rows they hold; the function of a ``mapInArrow``."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of each cell; reports of load have none."""
        freeze_imports()
        for batch in batches:
            for cell in batch.column("block").drop_null():
                yield conform(decode_batch(cell.as_buffer()), self.schema)


@dataclass(frozen=True)
class Posted:
    """Cells that workers send to `tasks` tasks, by address, and what is made of them there.

    `step` gets all cells of a task in one micro-batch and yields rows of these `fields`. It has no
    state, so that all it costs is a shuffle.
    """

    fields: StructType
    tasks: int
    step: Callable[[Iterable[Block]], Iterator[pa.RecordBatch]]

    def over(self, cells: DataFrame) -> DataFrame:
        """The rows."""
        unposted = _Unposted(self.step, arrow_of(self.fields, cells))
        return cells.repartition(self.tasks, "worker").mapInArrow(unposted, self.fields)


@dataclass(frozen=True)
class _Unposted:
    """The function of a ``mapInArrow`` over the cells of a task."""

    step: Callable[[Iterable[Block]], Iterator[pa.RecordBatch]]
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        cells = (
            Block.decode(cell.as_py())
            for batch in batches
            for cell in batch.column("block").drop_null()
        )
        with single_threaded():
            for found in self.step(cells):
                for part in parts_of(found):
                    yield conform(part, self.schema)


def arrow_of(fields: StructType, frame: DataFrame) -> pa.Schema:
    """The same columns for Arrow, as the session of a frame has them."""
    return arrow_schema(fields, has_large_types(frame.sparkSession))


def parts_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A result in pieces that travel well."""
    most = max(1, int(batch.num_rows * BYTES_PER_CELL / max(batch.nbytes, 1)))
    step = min(ROWS_PER_CELL, most)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns by the names and in the types of `schema`."""
    columns = []
    for field in schema:
        column = batch.column(field.name)
        columns.append(column if column.type == field.type else narrowed(column, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def report_of_alone(sides: Iterable[int]) -> Column:
    """A report of how many rows of these sides come out without a partner.

    Workers have counted them as matched until then.
    """
    others = (F.col(f"{SIDES[1 - side]}_t") for side in sides)
    alone = F.count(F.coalesce(*(F.when(other.isNull(), F.lit(1)) for other in others)))
    zero = [F.lit(0).alias(name) for name in ("worker", "late", "rejected")]
    report = F.struct(*zero, alone.alias("unmatched"), (-alone).alias("matched"))
    return F.array(F.to_json(report)).alias("load")
