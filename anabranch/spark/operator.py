"""The one operator under every streaming verb: packed rows in, kernels with state, results out.

Rows are checked, routed and packed where they are read: Spark hands rows to a stateful Python
operator one by one, while a block of thousands of rows in a single binary cell passes at the speed
of memory, with its types untouched. Cells are grouped by worker. A worker is one key, whose state
is a directory (one value) and a map of pieces: the slices of its rows, and a snapshot of whatever
else its kernel holds. One timer per key wakes a worker that gets no rows when it has something to
do. Results leave as Arrow cells too and are unpacked in a narrow stage.

Kernels know no Spark, and this knows no verb.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from anabranch.flow.blocks import Block, encode_batch
from anabranch.flow.cache import CACHE
from anabranch.flow.forms import in_stored_form
from anabranch.flow.hashing import worker_of
from anabranch.flow.instants import BEGINNING, FOREVER
from anabranch.flow.intake import FAR
from anabranch.flow.kernel import (
    Job,
    Kernel,
    Packing,
    Task,
    addressed,
    check_settings,
    owner_of,
)
from anabranch.flow.pieces import Pieces
from anabranch.flow.process import freeze_imports, single_threaded
from anabranch.flow.rejects import Rejecting, accepted
from anabranch.flow.slices import Slice, Slices
from anabranch.flow.stored import restored, stored
from anabranch.plans.current import CurrentPlans
from anabranch.plans.routing import LivePlans
from anabranch.spark.job_progress import show_jobs
from anabranch.spark.processor import Processor, said_first
from anabranch.spark.quiet import hush_server
from anabranch.spark.settings import partitions
from anabranch.spark.tasks import gpus, local_property, place
from anabranch.spark.totals import follow
from anabranch.spark.unpacking import Posted, Unpacker, arrow_of, conform, parts_of

__all__ = [
    "CELLS",
    "PACKED",
    "Packer",
    "StreamWorker",
    "over_batch",
    "over_stream",
]

# What an operator sends to another one that follows it.
CELLS = StructType().add("worker", IntegerType()).add("block", BinaryType())
# worker: the key of the worker; newest: greatest event time, for the watermark. Types, not text: in
# text a timestamp is one with or without a zone as the session says.
PACKED = StructType().add("worker", IntegerType()).add("newest", TimestampType())
PACKED.add("block", BinaryType())
_CELLS = StructType().add("t", TimestampType()).add("block", BinaryType())
_CELLS.add("load", StringType())
_POSTED = StructType([*_CELLS, StructField("worker", IntegerType())])
_SNAPSHOT = -1  # the number under which a snapshot is stored among the slices


@dataclass(frozen=True)
class Packer:
    """Packs the rows of one input; the function of a ``mapInArrow``."""

    packing: Packing
    plans: CurrentPlans | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One output row per worker that gets rows, for each input batch."""
        freeze_imports()
        with said_first():
            live = None if self.plans is None else self._live(self.plans)
        for batch in batches:
            if batch.num_rows == 0:
                continue
            with said_first():
                packed = self.packing.pack(in_stored_form(batch), live)
            yield from addressed(packed.cells.items(), packed.newest)
            if packed.rejects is not None:
                yield from addressed([(0, packed.rejects)], packed.newest)

    def _live(self, plans: CurrentPlans) -> LivePlans:
        if plans.control is not None and local_property("streaming.sql.batchId") is None:
            raise RuntimeError("a plan log is read by micro-batch, and this is not one")
        return plans(Task(0, *place()))


class _Cells(NamedTuple):
    """Cells of a result, with the addresses of those that have some."""

    cells: list[bytes]
    workers: list[int] | None = None


@dataclass
class StreamWorker:
    """Runs the kernels of a job over the state that Spark keeps for them.

    `by_clock` steps go by processing time, others by the watermark. Of one that `posts`, kernels
    yield cells with addresses. `name` tells it from others of the same job in a query.
    """

    job: Job
    by_clock: bool = False
    rejecting: Rejecting | None = None
    posts: bool = False
    name: str = ""

    def begin(self, handle: StatefulProcessorHandle, head: Any, pieces: Any) -> None:
        """Take up the state of a task."""
        freeze_imports()
        self._handle, self._head, self._pieces = handle, head, Pieces(pieces)
        self._settings = dict(self.job.settings)
        self._task = place()
        self._owner = owner_of(self.job, self._task[0])

    def take(self, key: Any, rows: Iterator[pd.DataFrame], values: Any) -> Iterator[pd.DataFrame]:
        """The results of a worker's new cells."""
        cells = [cell for frame in rows for cell in frame["block"] if cell is not None]
        return self._step(key, cells, values, None)

    def wake(self, key: Any, values: Any, fired: int) -> Iterator[pd.DataFrame]:
        """The results of a worker whose timer has fired."""
        return self._step(key, [], values, fired)

    def _step(
        self, key: Any, cells: Sequence[Any], values: Any, fired: int | None
    ) -> Iterator[pd.DataFrame]:
        began = time.perf_counter()
        clock = values.getCurrentProcessingTimeInMs if self.by_clock else None
        now = clock() if clock is not None else values.getCurrentWatermarkInMs()
        blocks = [Block.decode(bytes(cell)) for cell in cells]
        arrivals = accepted(blocks)
        task = Task(worker_of(int(key[0])), *self._task)
        self._worker = self.name, task.worker
        slices = self._open()
        kernel = self._kernel(slices, task)
        opening = time.perf_counter() - began
        emitted = 0
        last: _Cells | None = None
        with single_threaded():
            for batch in kernel.step(arrivals, now * 1000):
                emitted += batch.num_rows
                for part in self._parts(batch):
                    if last is not None:
                        yield _frame(now, last.cells, workers=last.workers)
                    last = part
        began = time.perf_counter()
        if self.rejecting is not None:
            mark = None if self.by_clock else now * 1000
            self.rejecting.keep(blocks, kernel.late_until, mark, task, first=self._new)
        self._keep_timer(kernel, now, fired)
        changed = bool(slices.dropped or slices.added)
        self._write(kernel, now)
        kernel.load.busy_seconds += opening + time.perf_counter() - began
        # One that never had a row, and runs for the watermark alone, has nothing to report.
        idle = task.worker and not slices.next_number and not any(map(len, arrivals))
        if (arrivals and not idle) or emitted or changed:
            # In one frame with the last cell: every frame makes its way to Spark by itself.
            last = last or _Cells([], [] if self.posts else None)
            yield _frame(now, last.cells, kernel.load.to_json(), last.workers)

    def _parts(self, batch: pa.RecordBatch) -> Iterator[_Cells]:
        """What a kernel yields, in parts that each make a frame."""
        if self.posts:
            yield _Cells(batch["block"].to_pylist(), batch["worker"].to_pylist())
            return
        for part in parts_of(batch):
            yield _Cells([encode_batch(part).to_pybytes()])

    def _open(self) -> Slices[Any]:
        found = self._head.get()
        head = bytes(found[0]) if found is not None else None
        slices = Slices.open(self.job.stays, self.job.notes, head, self._fetch)
        self._new = head is None
        if head is None:
            slices.notes.settings = self._settings
        else:
            check_settings(slices.notes.settings, self._settings)
        return slices

    def _kernel(self, slices: Slices[Any], task: Task) -> Kernel:
        """The kernel as the state has it: the very one that wrote it, if it is in this process."""
        kernel = self.job.kernel(slices, task)
        token = slices.notes.token
        cached: Kernel | None = CACHE.take(token) if token else None
        if cached is not None:
            cached.renew(kernel)
            return cached
        if token:
            kernel.restore(self._pieces.read(_SNAPSHOT, name="a snapshot"))
        return kernel

    def _fetch(self, entry: Slice) -> Block:
        block: Block | None = CACHE.get(entry.token)
        if block is None:
            data = self._pieces.read(entry.number, entry.parts, f"slice {entry.number}")
            block = Block.decode(restored(data))
            self._remember(entry, block)
        return block

    def _remember(self, entry: Slice, block: Block) -> None:
        expires = entry.last + self.job.stays[entry.side]
        if expires > FAR:  # no watermark comes there: it is a rank, or goes by arrival
            expires = FOREVER
        CACHE.put(entry.token, block, self._owner, expires=expires, worker=self._worker)

    def _keep_timer(self, kernel: Kernel, now: int, fired: int | None) -> None:
        """Make sure that one timer is set, for when there is next something to do."""
        notes, due = kernel.slices.notes, kernel.due()
        timer = None if due is None else max(-(-due // 1000), now + 1)
        before = None if notes.timer == fired else notes.timer  # Spark has removed what fired
        notes.timer = timer
        if before == timer:
            return
        if before is not None:
            self._handle.deleteTimer(before)
        if timer is not None:
            self._handle.registerTimer(timer)

    def _write(self, kernel: Kernel, now: int) -> None:
        slices, batch = kernel.slices, self._task[1]
        for entry in slices.dropped:
            self._pieces.remove(entry.number, range(entry.parts))
            CACHE.forget(entry.token)
        for entry, block in slices.added.values():
            data = stored(block.encode(small=self.job.small))
            slices.laid(entry.number, self._pieces.write(entry.number, data))
            self._remember(entry, block)
        snapshot = kernel.snapshot()
        if snapshot is not None:
            self._pieces.put(_SNAPSHOT, snapshot)
            slices.notes.token = secrets.token_hex(8)
        self._head.update((slices.head(),))
        slices.written()
        token = slices.notes.token
        if token:
            CACHE.put(token, kernel, self._owner, last_batch=batch + 1, worker=self._worker)
        listed = {token, *(entry.token for entry in slices.entries.values())}
        CACHE.hear(self._owner, now * 1000, batch, self._worker, listed)


@dataclass(frozen=True)
class BatchWorker:
    """Runs one kernel over all rows of a worker; the function of ``applyInArrow``."""

    job: Job
    now: int
    schema: pa.Schema
    rejecting: Rejecting | None = None

    def run(self, key: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The results of one worker."""
        freeze_imports()
        cells = [cell for batch in batches for cell in batch.column("block").to_pylist()]
        slices = Slices(self.job.stays, self.job.notes())
        task = Task(worker_of(key), gpus=gpus())
        kernel = self.job.kernel(slices, task)
        blocks = [Block.decode(cell) for cell in cells]
        with single_threaded():
            for batch in kernel.step(accepted(blocks), self.now, last=True):
                for part in parts_of(batch):
                    yield conform(part, self.schema)
        if self.rejecting is not None:
            self.rejecting.keep(blocks, None, None, task, first=True)


def over_stream(
    job: Job,
    blocks: DataFrame,
    fields: StructType | Posted,
    metrics: str,
    *,
    carries: bool = True,
    by_clock: bool = False,
    timed: bool = True,
    rejecting: Rejecting | None = None,
) -> DataFrame:
    """The results of a job over packed streams, with load rows in the metrics of this name.

    `carries` says that results are no older than the watermark, which may go on through them. One
    that is not `timed` needs no watermark: its kernels do nothing but for rows.
    """
    follow(blocks.sparkSession)
    hush_server(blocks.sparkSession)
    mode = "ProcessingTime" if by_clock else "EventTime" if timed else "None"
    timing: dict[str, Any] = {"timeMode": mode}
    if carries and mode == "EventTime":
        timing["eventTimeColumnName"] = "t"
    # Without a timestamp among its inputs Spark drops no late cells; kernels drop rows.
    cells = (
        blocks.select("worker", "block")
        .groupBy("worker")
        .transformWithStateInPandas(
            Processor(StreamWorker(job, by_clock, rejecting, isinstance(fields, Posted), metrics)),
            outputStructType=_POSTED if isinstance(fields, Posted) else _CELLS,
            outputMode="Append",
            **timing,
        )
    )
    cells = cells.observe(metrics, F.collect_list("load").alias("load"))
    if isinstance(fields, Posted):
        return fields.over(cells)
    # As they are: to filter and select first costs two more pieces of compiled code a micro-batch.
    return cells.mapInArrow(Unpacker(arrow_of(fields, blocks)), fields)


def over_batch(
    job: Job,
    blocks: DataFrame,
    fields: StructType | Posted,
    now: int = BEGINNING,
    rejecting: Rejecting | None = None,
) -> DataFrame:
    """The results of a job over packed tables, which end at the time `now`."""
    if isinstance(fields, Posted):
        return fields.over(over_batch(job, blocks, CELLS, now, rejecting))
    worker = BatchWorker(job, now, arrow_of(fields, blocks), rejecting)

    def run(
        key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        return worker.run(key[0].as_py(), batches)

    # The annotations, which Spark reads to tell an iterator function, must be objects.
    run.__annotations__ = {
        "key": tuple[pa.Scalar, ...],
        "batches": Iterator[pa.RecordBatch],
        "return": Iterator[pa.RecordBatch],
    }
    show_jobs(blocks.sparkSession)
    # A number given by hand keeps adaptive execution from merging the few, heavy tasks.
    tasks = partitions(blocks.sparkSession)
    return blocks.repartition(tasks, "worker").groupBy("worker").applyInArrow(run, fields)


def _frame(
    now: int, cells: Sequence[bytes], load: str | None = None, workers: list[int] | None = None
) -> pd.DataFrame:
    """Output rows; their time is just past the watermark, for Spark refuses older ones."""
    blocks: list[bytes | None] = [*cells]
    loads: list[str | None] = [None] * len(cells)
    if load is not None:
        blocks.append(None)
        loads.append(load)
    times = np.full(len(blocks), (max(now, 0) + 1) * 1000, "datetime64[us]")
    moments = pd.DatetimeIndex(times, tz="UTC")
    frame = pd.DataFrame({"t": moments, "block": blocks, "load": loads})
    if workers is not None:  # a report has no address, and is dropped wherever it comes to
        frame["worker"] = np.array([*workers, 0][: len(frame)], np.int32)
    return frame
