"""The first of two steps of a correlation whose windows count rows: every row gets its numbers.

Which rows are the newest so many is known once the watermark has passed them, and only to one who
sees all of them. So all rows pass one worker. It holds them until the watermark has passed them,
orders them by time, side and id, and gives each its rank in its own side and the number of rows of
the other side that precede it. Whether two rows may join depends on these numbers alone. It then
routes the rows as any plan says; see `ranked` for what happens next. Late and bad rows get no rank.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.correlation.call import Correlation
from anabranch.correlation.lengths import Lengths
from anabranch.correlation.packing import NOTHING, bound, branched, routed_by
from anabranch.flow.blocks import Block
from anabranch.flow.instants import FOREVER
from anabranch.flow.intake import FAR, Intake
from anabranch.flow.kernel import Packed, Task, addressed
from anabranch.flow.lateness import late_until, next_step
from anabranch.flow.load import Load
from anabranch.flow.sides import AT, BEFORE, HASH, ID, KEY, WHOLE
from anabranch.flow.slices import Slices
from anabranch.plans.plan import LEFT, RIGHT, Rows
from anabranch.plans.routing import LivePlans

__all__ = ["FIRST", "OrderJob", "OrderKernel", "OrderPacking"]

FIRST = FAR + 1
"""The first rank. It lies beyond all times, so that no watermark takes a rank for one of them."""

_MOST_MARKS = 64


@dataclass(frozen=True)
class OrderPacking:
    """Packs the rows of one side for the one worker that orders them."""

    correlation: Correlation
    side: int
    streaming: bool = False

    def pack(self, batch: pa.RecordBatch, live: Any) -> Packed:
        """One cell with the good rows of a batch and the hashes that will route them."""
        call = self.correlation
        intake = Intake(call.sides[self.side], call.drop_bad_rows, self.streaming, call.one_stream)
        found = intake.admit(batch, self.side)
        columns = {**found.block.columns, HASH: found.h, KEY: found.key}
        if found.whole is not None and self.streaming:  # nothing is late in a table
            columns[WHOLE] = found.whole
        block = Block.of(found.block.t, columns)
        sizes = found.block.meta["bytes"]
        cell = block.encode(side=self.side, bytes=sizes, rejected=found.rejected)
        return Packed({0: cell}, int(block.t.max(initial=0)), found.rejects)


@dataclass
class OrderNotes(Lengths):
    """What the worker remembers beside the rows that wait.

    Attributes
    ----------
    counts
        How many left and right rows have their rank.
    marks
        Earlier watermarks, oldest first, with what `counts` was after each.
    workers
        How many workers have ever been sent rows.
    """

    counts: list[int] = field(default_factory=lambda: [0, 0])
    marks: list[list[int]] = field(default_factory=list)
    workers: int = 0


@dataclass(frozen=True)
class OrderJob:
    """A call of `correlate` as the worker runs it that orders rows; `plans` are those in force."""

    correlation: Correlation
    plans: Callable[[Task], LivePlans]
    verb: ClassVar[str] = "correlate order"
    small: ClassVar[bool] = False
    notes: ClassVar[type[OrderNotes]] = OrderNotes

    @property
    def settings(self) -> Mapping[str, str]:
        """What must stay the same for stored rows to keep their meaning."""
        return self.correlation.settings

    @property
    def stays(self) -> tuple[int, ...]:
        """Rows stay until the watermark has passed them."""
        return (0, 0)

    def kernel(self, slices: Slices[OrderNotes], task: Task) -> OrderKernel:
        """The one worker."""
        return OrderKernel(self, slices, task)


class OrderKernel:
    """The one worker of the first step.

    It yields cells for the workers of the second. When rows get ranks, every worker also gets a
    cell without rows that says how far ranks go, and up to which time all rows have expired.
    """

    nbytes = 0
    late_until: int | None = None

    def __init__(self, job: OrderJob, slices: Slices[OrderNotes], task: Task) -> None:
        self.correlation = job.correlation
        self.slices = slices
        self.load = Load(task.worker)
        self._job, self._task = job, task

    def step(
        self, arrivals: Sequence[Block], now: int, last: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Take in rows; number and send those that the watermark has passed."""
        began, load = time.perf_counter(), self.load
        now = max(now, self.slices.notes.reached)  # ranks that were given stay
        load.watermark = now
        self.slices.notes.check_call(self.correlation)
        limit = late_until(self.correlation.by_last_step, self.slices.notes.reached, now)
        self.late_until = limit
        for block in arrivals:
            self._take_in(block, limit)
        until = FOREVER if last else now
        ready = [self.slices.take_parts(side, until) for side in (LEFT, RIGHT)]
        if any(ready):
            yield from self._sent(ready, now)
        self.slices.merge_small()
        self.slices.notes.reached = now
        load.state_rows, load.state_bytes = self.slices.rows, self.slices.nbytes
        load.busy_seconds += time.perf_counter() - began

    def due(self) -> int | None:
        """When the first row that waits can be ordered; else as in a plain worker."""
        found = next_step(self.correlation.by_last_step, self.slices.notes.reached)
        if found is not None:
            return found
        return min((entry.first for entry in self.slices.entries.values()), default=None)

    def snapshot(self) -> None:
        """There is nothing beside the slices."""

    def restore(self, data: Any) -> None:
        """There is nothing to restore."""

    def renew(self, fresh: Any) -> None:
        """Nothing is kept from one batch to the next."""

    def _take_in(self, block: Block, limit: int) -> None:
        """Store the rows of a block that are not late; workers count the others as they come."""
        side, load = int(block.meta["side"]), self.load
        load.rejected += int(block.meta["rejected"])
        load.bytes_in += block.nbytes
        if not len(block):
            return
        self.slices.notes.check_rows(self.correlation, side, block)
        late = int((block.t <= limit).sum())
        load.late += late
        if side == LEFT:
            load.rows_left += late
        else:
            load.rows_right += late
        self.slices.append(side, block.in_time_order().slice(late, len(block)))

    def _sent(self, ready: Sequence[Sequence[Block]], now: int) -> Iterator[pa.RecordBatch]:
        """The cells of rows that have their numbers now, and what every worker must hear."""
        call, notes = self.correlation, self.slices.notes
        live = bound(call, self._job.plans(self._task))
        newest = max(int(block.t[-1]) for blocks in ready for block in blocks)
        meta = routed_by(live, bytes=notes.bytes, newest=newest)
        for side, block in self._numbered(ready):
            rows = Rows(block.columns[AT], block.columns[HASH], block.columns[KEY])
            parts = branched(call, side, block.without(HASH, KEY), rows, live)
            yield from addressed([(n, part.encode(**meta, side=side)) for n, part in parts.items()])
        notes.workers = max(notes.workers, live.workers)
        expired = self._expired(now)
        nothing = NOTHING.encode(**meta, side=LEFT, counts=notes.counts, expired=expired)
        yield from addressed([(worker, nothing) for worker in range(notes.workers)])

    def _numbered(self, ready: Sequence[Sequence[Block]]) -> Iterator[tuple[int, Block]]:
        """Rows with rank and event time, and with the number of rows of the other side before."""
        counts = self.slices.notes.counts
        times = [np.sort(_times(blocks)) for blocks in ready]
        for side, blocks in enumerate(ready):
            ranks = _ranks(blocks) + counts[side] + FIRST
            start = 0
            for block in blocks:
                columns = {**block.columns, AT: block.t}
                if not self.correlation.one_stream:
                    # At one time left rows come before right ones.
                    where = np.searchsorted(times[1 - side], block.t, ("left", "right")[side])
                    columns[BEFORE] = where + counts[1 - side] + FIRST
                yield side, Block.of(ranks[start : start + len(block)], columns)
                start += len(block)
        self.slices.notes.counts = [count + len(t) for count, t in zip(counts, times, strict=True)]

    def _expired(self, now: int) -> int:
        """A time up to which all rows have expired, so many newer ones have come."""
        notes, window = self.slices.notes, self.correlation.window

        def over(mark: Sequence[int]) -> bool:
            sides = zip(mark[1:], notes.counts, window, strict=True)
            return all(not then or then + rows <= count for then, count, rows in sides)

        past = [mark for mark in notes.marks if over(mark)]
        kept = [*past[-1:], *notes.marks[len(past) :], [now, *notes.counts]]
        # With fewer marks plans and state are kept somewhat longer, and nothing is lost.
        notes.marks = kept if len(kept) <= _MOST_MARKS else kept[::2]
        return past[-1][0] if past else 0


def _ranks(blocks: Sequence[Block]) -> np.ndarray:
    """The place of each row of some blocks among all of them, by time and id."""
    if not blocks:
        return np.zeros(0, np.int64)
    t, ids = _times(blocks), [block.columns[ID] for block in blocks]
    if isinstance(ids[0], np.ndarray):
        order = np.lexsort((np.concatenate(ids), t))
    else:
        table = pa.table({"t": t, ID: pa.chunked_array(ids)})
        order = pc.sort_indices(table, [("t", "ascending"), (ID, "ascending")]).to_numpy()
    places = np.empty(len(t), np.int64)
    places[order] = np.arange(len(t))
    return places


def _times(blocks: Sequence[Block]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *(block.t for block in blocks)])
