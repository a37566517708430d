"""The stateful operator: one key per worker, a kernel step per micro-batch.

State per key is a directory (one value) and a map of slices. A step reads the directory and those
slices that the process has not cached, and writes what is new. One timer per key, at the expiry of
the oldest slice, frees the state of a worker that no longer gets rows. Where the inputs have
watermarks of their own it is at the next watermark, whatever that will be, so that all workers
have seen the same one last, by which they judge what is late.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from anabranch.correlation.call import Correlation
from anabranch.correlation.kernel import BEGINNING, CorrelateKernel
from anabranch.errors import StateMismatch
from anabranch.flow.blocks import Block
from anabranch.flow.cache import CACHE
from anabranch.flow.process import freeze_imports, single_threaded
from anabranch.flow.slices import Slice, Window
from anabranch.spark.carriage import pack_values

__all__ = ["BatchWorker", "CorrelateProcessor", "decode_arrivals"]


def decode_arrivals(blocks: Sequence[Any]) -> list[tuple[int, Block]]:
    """Packed cells as (side, block)."""
    decoded = [Block.decode(bytes(cell)) for cell in blocks]
    return [(block.meta["side"], block) for block in decoded]


class CorrelateProcessor(StatefulProcessor):
    """Runs `CorrelateKernel` inside ``transformWithStateInPandas``."""

    def __init__(self, correlation: Correlation, schema: pa.Schema) -> None:
        self.correlation = correlation
        self.schema = schema

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._head = handle.getValueState("head", "head binary")
        self._slices = handle.getMapState("slices", "number long", "block binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Any:
        freeze_imports()
        cells = [cell for frame in rows for cell in frame["block"]]
        return self._step(cells, timerValues.getCurrentWatermarkInMs() * 1000)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        return self._step([], timerValues.getCurrentWatermarkInMs() * 1000)

    def close(self) -> None:
        pass

    def _step(self, cells: Sequence[Any], watermark: int) -> Iterator[pd.DataFrame]:
        began = time.perf_counter()
        arrivals = decode_arrivals(cells)
        stored = self._head.get()
        head = bytes(stored[0]) if stored is not None else None
        window = Window.open(self.correlation.window, head, self._fetch)
        if not arrivals and window.notes.get("freed") == watermark:
            return  # a timer of the batch before; this batch's rows have been dealt with
        if arrivals:
            window.notes["worker"] = arrivals[0][1].meta["worker"]
        before = {entry.number: entry.token for entry in window.slices}
        kernel = CorrelateKernel(self.correlation, window, window.notes.get("worker", 0))
        kernel.load.busy_seconds += time.perf_counter() - began
        with single_threaded():
            for batch in kernel.step(arrivals, watermark):
                yield self._frame(_not_before(batch, watermark + 1), None)
        began = time.perf_counter()
        self._keep_timer(window, watermark)
        self._write(window, before)
        kernel.load.busy_seconds += time.perf_counter() - began
        if not arrivals and not window.dropped and not window.added:
            return  # a timer that had nothing to free; merged slices may end later than it thought
        # A load row's time is just past the watermark: Spark refuses older ones.
        empty = pa.RecordBatch.from_pydict({"t": pa.array([max(watermark, 0) + 1])})
        yield self._frame(empty, kernel.load.to_json())

    def _fetch(self, entry: Slice) -> Block:
        block: Block | None = CACHE.get(entry.token)
        if block is None:
            stored = self._slices.getValue((entry.number,))
            if stored is None:
                raise StateMismatch(f"slice {entry.number} is listed but not in the state store")
            block = Block.decode(bytes(stored[0]))
            CACHE.put(entry.token, block)
        return block

    def _keep_timer(self, window: Window, watermark: int) -> None:
        """Make sure that one timer is set, no earlier than there is something to do."""
        due = window.next_expiry() if self.correlation.late is not None else watermark
        if due is not None and window.notes.get("timer", BEGINNING) * 1000 <= watermark:
            timer = -(-due // 1000) + 1
            self._handle.registerTimer(timer)
            window.notes["timer"] = timer

    def _write(self, window: Window, before: dict[int, str]) -> None:
        for number in window.dropped:
            self._slices.removeKey((number,))
            CACHE.forget(before[number])
        for number, (entry, block) in window.added.items():
            self._slices.updateValue((number,), (block.encode(),))
            CACHE.put(entry.token, block)
        self._head.update((window.head(),))

    def _frame(self, batch: pa.RecordBatch, load: str | None) -> pd.DataFrame:
        """The output rows as a frame whose columns Spark converts without loss."""
        n = batch.num_rows
        columns: dict[str, Any] = {}
        for field in self.schema:
            if field.name == "load":
                array = pa.array([load] * n, pa.string())
            elif field.name in batch.schema.names:
                array = batch.column(field.name)
            else:
                array = pa.nulls(n, field.type)
            columns[field.name] = _series(array, field.name == "t")
        return pd.DataFrame(columns)


class BatchWorker:
    """Runs one kernel step over all rows of a worker; the function of ``applyInArrow``."""

    def __init__(self, correlation: Correlation, schema: pa.Schema) -> None:
        self.correlation = correlation
        self.schema = schema

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The pairs of one worker."""
        cells = [cell for batch in batches for cell in batch.column("block").to_pylist()]
        kernel = CorrelateKernel(self.correlation, Window(self.correlation.window))
        with single_threaded():
            for batch in kernel.step(decode_arrivals(cells), BEGINNING):
                arrays = [batch.column(field.name).cast(field.type) for field in self.schema]
                yield pa.RecordBatch.from_arrays(arrays, self.schema.names)


def _not_before(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Pairs none of whose `t` is before a time: Spark refuses those before its watermark.

    There are such only where the inputs have watermarks of their own; what the pairs are told by
    is then made of their rows' times.
    """
    times = batch.column("t").to_numpy()
    if not len(times) or times.min() >= first:
        return batch
    place = batch.schema.get_field_index("t")
    return batch.set_column(place, "t", pa.array(np.maximum(times, first)))


def _series(array: pa.Array, is_time: bool) -> pd.Series:
    if is_time:
        times = array.to_numpy().astype(np.int64).view("datetime64[us]")
        return pd.Series(times).dt.tz_localize("UTC")
    if pa.types.is_nested(array.type):
        array = pack_values(array)
    return pd.Series(pd.arrays.ArrowExtensionArray(array))
