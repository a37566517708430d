"""`nearest` under interest routing: two stateful operators, homes of objects and owners of queries.

In a micro-batch homes look first, and what they send reaches the owners through a shuffle in the
same batch; both see the same watermark. What owners can promise goes back to the homes through
files in the control directory, believed only by homes that remember the batch.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from anabranch.flow.blas import single_threaded
from anabranch.flow.blocks import Block
from anabranch.flow.hashing import worker_keys
from anabranch.flow.heap import settle
from anabranch.flow.slices import Window
from anabranch.neighbours.call import Nearest
from anabranch.neighbours.interest.homes import HomeKernel, Owners
from anabranch.neighbours.interest.mergers import Mergers
from anabranch.neighbours.interest.owners import OwnerKernel
from anabranch.neighbours.interest.routing import Interest
from anabranch.neighbours.kernel import NearestKernel
from anabranch.plans.plan import LEFT, RIGHT
from anabranch.spark.nearest_worker import NearestProcessor, packed_rows, worker_of
from anabranch.spark.processor import decode_arrivals

__all__ = ["HomePacker", "through_homes"]


@dataclass(frozen=True)
class HomePacker:
    """Packs objects for their homes; the function of a ``mapInArrow``."""

    nearest: Nearest
    plan: Interest

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One output row per home for each input batch: a home that gets nothing is called too."""
        settle()
        keys = worker_keys(self.plan.workers)
        for batch in batches:
            if batch.num_rows == 0:
                continue
            admitted = self.nearest.intake.admit(batch)
            block, h, rejected = admitted.block, admitted.h, admitted.rejected
            newest = int(block.t.max()) if len(block) else 0
            homes = self.plan.route(LEFT, block.t, h, (0, 0)).workers
            cells = [
                block.take(np.flatnonzero(homes == home)).encode(
                    side=RIGHT, rejected=0 if home else rejected
                )
                for home in range(len(keys))
            ]
            yield packed_rows(keys, [newest] * len(keys), cells)


def through_homes(
    call: Nearest,
    plan: Interest,
    blocks: DataFrame,
    queries: bytes,
    fields: StructType,
    name: str,
    control: str,
) -> DataFrame:
    """Packed objects through homes and owners; hits, and load rows in the metrics `name`."""
    sent = StructType().add("worker", IntegerType()).add("block", BinaryType())
    sent.add("load", StringType())
    homes = HomeProcessor(call, queries, to_arrow_schema(sent), plan.workers, control)
    looked = _observed(_stateful(blocks, homes, sent), name + "_homes")
    schema = StructType([*fields.fields]).add("load", StringType())
    arrow = to_arrow_schema(schema, timezone="UTC")
    owners = OwnerProcessor(call, queries, arrow, control)
    return _observed(_stateful(looked, owners, schema), name)


def _stateful(blocks: DataFrame, processor: Any, schema: StructType) -> DataFrame:
    return (
        blocks.select("worker", "block")
        .groupBy("worker")
        .transformWithStateInPandas(
            processor, outputStructType=schema, outputMode="Append", timeMode="EventTime"
        )
    )


def _observed(frame: DataFrame, name: str) -> DataFrame:
    return frame.observe(name, F.collect_list("load").alias("load")).filter(F.col("load").isNull())


class HomeProcessor(NearestProcessor):
    """Runs `HomeKernel` inside ``transformWithStateInPandas``."""

    def __init__(
        self, nearest: Nearest, queries: bytes, schema: pa.Schema, workers: int, control: str
    ) -> None:
        super().__init__(nearest, queries, schema)
        self.workers = workers
        self.control = control

    def _work(self, key: Any, cells: Sequence[Any], watermark: int) -> Iterator[pd.DataFrame]:
        began = time.perf_counter()
        arrivals = [block for _, block in decode_arrivals(cells)]
        window, before = self._window()
        assert self.queries is not None
        owners = _owners(self.queries, self.workers, self.nearest.measure)
        kernel = HomeKernel(owners, window, worker_of(int(key[0])), self.fingerprint)
        mergers = _mergers(self.control, self.fingerprint).newest(kernel.believes)
        opening = time.perf_counter() - began
        chosen, sent = [], []
        with single_threaded():
            for owner, block, notes in kernel.step(arrivals, watermark, mergers):
                chosen.append(worker_keys(self.workers)[owner])
                sent.append(block.encode(side=RIGHT, **notes))
        if sent:
            columns = {"worker": pa.array(chosen, pa.int32()), "block": pa.array(sent, pa.binary())}
            yield self._frame(pa.RecordBatch.from_pydict(columns), None)
        began = time.perf_counter()
        self._set_timer(kernel, watermark)
        self._write(window, before)
        kernel.load.busy_seconds += opening + time.perf_counter() - began
        if sent:
            nobody = pa.RecordBatch.from_pydict({"worker": pa.array([0], pa.int32())})
            yield self._frame(nobody, kernel.load.to_json())


class OwnerProcessor(NearestProcessor):
    """Runs `OwnerKernel` inside ``transformWithStateInPandas``, and publishes its mergers."""

    def __init__(self, nearest: Nearest, queries: bytes, schema: pa.Schema, control: str) -> None:
        super().__init__(nearest, queries, schema)
        self.control = control

    def _make(self, queries: Block | None, window: Window, worker: int) -> NearestKernel:
        return OwnerKernel(self.nearest, queries, window, worker, self.fingerprint)

    def _after(self, kernel: NearestKernel) -> None:
        assert isinstance(kernel, OwnerKernel)
        merger = kernel.merger()
        if merger is not None:
            mergers, notes = _mergers(self.control, self.fingerprint), kernel.window.notes
            kept = notes.get("mergers", [])
            notes["mergers"] = mergers.publish(kernel.worker, _batch(), merger, kept)


@functools.lru_cache(maxsize=4)
def _owners(queries: bytes, workers: int, metric: str) -> Owners:
    return Owners.of(Block.decode(queries), workers, metric)


def _mergers(control: str, operator: str) -> Mergers:
    """The mergers of this task's query."""
    return _opened(control, _property("sql.streaming.queryId"), operator)


def _batch() -> int:
    """The number of this task's micro-batch."""
    return int(_property("streaming.sql.batchId"))


def _property(name: str) -> str:
    task = TaskContext.get()
    found = task.getLocalProperty(name) if task is not None else None
    if found is None:
        raise RuntimeError("mergers belong to a micro-batch, and this is not one")
    return found


@functools.lru_cache(maxsize=8)
def _opened(control: str, query: str, operator: str) -> Mergers:
    """One for the life of the process, which remembers what it has read."""
    return Mergers(control, query, operator)
