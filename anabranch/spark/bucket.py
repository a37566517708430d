"""The stateful operator of `assemble`: one key per bucket, a kernel step per micro-batch.

State per key is a directory (one value) and a map of slices and tables, as for `correlate`. Closed
windows leave the operator packed, many in one binary cell, and are unpacked by a narrow stage.
One timer per key, at the next deadline or the next row that waits, wakes buckets without new rows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from anabranch.assembly.call import Assembly
from anabranch.assembly.kernel import AssembleKernel
from anabranch.assembly.packing import pack_invocations, result_batch
from anabranch.assembly.store import (
    BEGINNING,
    TABLES,
    Entry,
    Store,
    pack_piece,
    unpack_piece,
)
from anabranch.errors import StateMismatch
from anabranch.flow.blocks import Block
from anabranch.flow.cache import CACHE
from anabranch.flow.hashing import worker_keys
from anabranch.flow.process import freeze_imports

__all__ = ["AssembleProcessor", "BatchBucket", "InvocationPacker", "Unpacker"]

# Rows of a result that travel in one cell: enough to be fast, few enough to be no burden.
_ROWS_PER_CELL = 20_000


@dataclass(frozen=True)
class InvocationPacker:
    """Packs the rows of one input; the function of a ``mapInArrow``."""

    call: Assembly
    stream: int
    buckets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One output row per bucket that gets rows, for each input batch."""
        freeze_imports()
        keys = worker_keys(self.buckets)
        for batch in batches:
            if batch.num_rows == 0:
                continue
            packed = pack_invocations(self.call, self.stream, self.buckets, batch)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([keys[bucket] for bucket in packed.blocks], pa.int32()),
                    pa.array([packed.newest] * len(packed.blocks), pa.int64()),
                    pa.array(packed.blocks.values(), pa.binary()),
                ],
                ["worker", "newest", "block"],
            )


class AssembleProcessor(StatefulProcessor):
    """Runs `AssembleKernel` inside ``transformWithStateInPandas``."""

    def __init__(self, call: Assembly, buckets: int) -> None:
        self.call = call
        self.buckets = buckets

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._head = handle.getValueState("head", "head binary")
        self._slices = handle.getMapState("slices", "number long", "block binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Any:
        freeze_imports()
        cells = [bytes(cell) for frame in rows for cell in frame["block"] if cell is not None]
        return self._step(key, [Block.decode(cell) for cell in cells if cell], timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        return self._step(key, [], timerValues, expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        pass

    def _step(
        self, key: Any, arrivals: list[Block], values: Any, fired: int | None = None
    ) -> Iterator[pd.DataFrame]:
        arrived = self.call.by_arrival
        now = values.getCurrentProcessingTimeInMs() if arrived else values.getCurrentWatermarkInMs()
        stored = self._head.get()
        store = Store.open(bytes(stored[0]) if stored is not None else None, self._fetch)
        made_for = [self.buckets, list(self.call.key), list(self.call.collect)]
        if store.notes.setdefault("call", made_for) != made_for:
            raise StateMismatch(
                "the checkpoint was begun with (buckets, key, collected columns) "
                f"{store.notes['call']}, the query now has {made_for}: restart with the old ones, "
                "or begin a new checkpoint"
            )
        kernel = AssembleKernel(
            self.call.closing,
            store,
            self.call.open_per_bucket(self.buckets),
            arrived,
            _place(self.buckets, int(key[0])),
        )
        emitted = kernel.step(arrivals, now * 1000)
        # Spark refuses rows that are older than its watermark; their own times come in the cell.
        moment = pd.Timestamp(max(now, 0) * 1_000_000 + 1_000_000, unit="ns", tz="UTC")
        if len(emitted):
            batch = result_batch(self.call, emitted)
            for start in range(0, batch.num_rows, _ROWS_PER_CELL):
                yield _frame(moment, _encode(batch.slice(start, _ROWS_PER_CELL)), None)
        self._keep_timer(kernel, now, fired)
        self._write(store)
        if arrivals or len(emitted):
            yield _frame(moment, None, kernel.load.to_json())

    def _fetch(self, entry: Entry) -> Any:
        found = CACHE.get(entry.token)
        if found is None:
            stored = self._slices.getValue((entry.number,))
            if stored is None:
                raise StateMismatch(f"slice {entry.number} is listed but not in the state store")
            found = unpack_piece(entry.number, bytes(stored[0]))
            CACHE.put(entry.token, found)
        return found

    def _keep_timer(self, kernel: AssembleKernel, now: int, fired: int | None) -> None:
        """Make sure that one timer is set, when there is next something to do."""
        notes, due = kernel.store.notes, kernel.next_due()
        timer = None if due is None else max(-(-due // 1000), now + 1)
        before = notes.get("timer")
        if before == fired:
            before = None  # Spark has removed it
        if before == timer:
            return
        if before is not None:
            self._handle.deleteTimer(before)
        if timer is not None:
            self._handle.registerTimer(timer)
        notes["timer"] = timer

    def _write(self, store: Store) -> None:
        for number in store.dropped:
            self._slices.removeKey((number,))
        for token in store.forgotten:
            CACHE.forget(token)
        for number, (entry, block) in store.added.items():
            self._slices.updateValue((number,), (pack_piece(block),))
            CACHE.put(entry.token, block)
        if store.written is not None:
            entry, tables = store.written
            self._slices.updateValue((TABLES,), (pack_piece(tables),))
            CACHE.put(entry.token, tables)
        self._head.update((store.head(),))


@dataclass(frozen=True)
class Unpacker:
    """Turns cells into the rows they hold; the function of a ``mapInArrow``."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of each cell."""
        freeze_imports()
        for batch in batches:
            for cell in batch.column("block"):
                yield _cast(pa.ipc.open_stream(cell.as_buffer()).read_next_batch(), self.schema)


class BatchBucket:
    """Runs one kernel over all rows of a bucket; the function of ``applyInArrow``."""

    def __init__(self, call: Assembly, buckets: int, newest: int, schema: pa.Schema) -> None:
        self.call = call
        self.buckets = buckets
        self.newest = newest
        self.schema = schema

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The instances of one bucket."""
        cells = [cell for batch in batches for cell in batch.column("block").to_pylist()]
        share = self.call.open_per_bucket(self.buckets)
        kernel = AssembleKernel(self.call.closing, Store(), share)
        kernel.step([Block.decode(cell) for cell in cells], BEGINNING)
        emitted = kernel.step([], self.newest, flush=True)
        if len(emitted):
            batch = result_batch(self.call, emitted)
            for start in range(0, batch.num_rows, _ROWS_PER_CELL):
                yield _cast(batch.slice(start, _ROWS_PER_CELL), self.schema)


@functools.cache
def _places(buckets: int) -> dict[int, int]:
    return {key: place for place, key in enumerate(worker_keys(buckets))}


def _place(buckets: int, key: int) -> int:
    return _places(buckets).get(key, -1)


def _frame(moment: pd.Timestamp, block: bytes | None, load: str | None) -> pd.DataFrame:
    times = pd.Series([moment]).astype("datetime64[us, UTC]")
    return pd.DataFrame({"t": times, "block": [block], "load": [load]})


def _encode(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns in the types of `schema`; times are microseconds until here."""
    columns: Sequence[pa.Array] = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
