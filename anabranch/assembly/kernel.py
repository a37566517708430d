"""One bucket's step: events in, closed windows out.

In event time an event waits until the clock, which is the watermark, has passed it; then all those
waiting are taken in order of time, key and content, with the timers between them. So the result is
that of the whole stream sorted by time, however it came. An event that comes when the clock has
passed its time already is *late*: it joins the open window of its key, or else is a revision of the
instance that is remembered, or else a row of its own. In processing time the clock is the time of
the micro-batch, and nothing waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.assembly.closing import Closing, Learned
from anabranch.assembly.due import take_in
from anabranch.assembly.learning import Known, in_order, new_knowledge
from anabranch.assembly.loop import flatten, run_loop
from anabranch.assembly.store import ROWS, AssembleNotes, Events
from anabranch.assembly.table import (
    CAUSES,
    EVICTED,
    OPEN,
    REMEMBERED,
    TIMEOUT,
    Column,
    Counter,
    Event,
    Held,
    Settings,
)
from anabranch.flow.blocks import Block, weigh
from anabranch.flow.container import pack, unpack
from anabranch.flow.instants import BEGINNING, FOREVER
from anabranch.flow.lateness import late_until, next_step
from anabranch.flow.load import AssembleLoad
from anabranch.flow.slices import Slice, Slices

__all__ = ["AssembleKernel", "Emitted"]

# What closed windows carry in one piece: Arrow arrays of text hold 2 GB.
_ITEM_BYTES = 64 << 20
_WINDOWS_AT_ONCE = 50_000


@dataclass(frozen=True)
class Emitted:
    """Rows of the result: the windows' table, where each one's items start, and the items."""

    windows: np.ndarray
    starts: np.ndarray
    items: Block | None

    def __len__(self) -> int:
        return len(self.windows)


class AssembleKernel:
    """The windows of one bucket.

    Parameters
    ----------
    closing
        When windows close.
    slices
        The stored rows of the bucket; the step changes them.
    max_open
        Windows that may be open in this bucket.
    by_arrival
        Processing time.
    by_last_step
        Late is what the clock of the last step had passed, not this one's: so for tables, and where
        the inputs have watermarks of their own.
    worker
        The bucket's number.
    result
        Makes the rows of the result out of closed windows.

    Examples
    --------
    >>> from anabranch.assembly import close
    >>> kernel = AssembleKernel(close.count(2, "5 us"), Slices((0, 0), AssembleNotes()))
    >>> rows = Block.of([1, 3, 9], {"w": np.array([[7, 7, 7, 0, 1, 0]] * 3)})
    >>> kernel.advance([rows], clock=0)
    []
    >>> (closed,) = kernel.advance([], clock=20)
    >>> closed.windows[:, [Column.OPENED, Column.CLOSED, Column.COUNT, Column.SEQ]].tolist()
    [[1, 3, 2, 0], [9, 14, 1, 0]]
    """

    late_until: int | None = None  # late events are taken, as revisions

    def __init__(
        self,
        closing: Closing,
        slices: Slices[AssembleNotes],
        max_open: int | None = None,
        *,
        by_arrival: bool = False,
        by_last_step: bool = False,
        worker: int = 0,
        result: Callable[[Emitted], pa.RecordBatch] | None = None,
    ) -> None:
        self.closing = closing
        self.slices = slices
        self.by_arrival = by_arrival
        self.by_last_step = by_last_step
        self.load = AssembleLoad(worker)
        self._settings = _settings(closing, FOREVER if max_open is None else max_open, by_arrival)
        self._result = result
        self._rows = Events(slices)
        self._tables: dict[str, np.ndarray] = {}
        self._changed = False

    def step(
        self, arrivals: Sequence[Block], now: int, last: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Take in arrivals and move the clock; rows of the windows that closed."""
        assert self._result is not None
        for emitted in self.advance(arrivals, now, last):
            yield self._result(emitted)

    def advance(self, arrivals: Sequence[Block], clock: int, flush: bool = False) -> list[Emitted]:
        """Take in arrivals, move the clock, and give what closed, in pieces of a bearable size.

        The clock never runs backwards. With `flush` the windows that remain open are closed.
        """
        began = time.perf_counter()
        notes, load = self.slices.notes, self.load
        before = notes.reached
        clock = max(clock, before)
        load.watermark = clock
        load.rejected += sum(block.meta.get("rejected", 0) for block in arrivals)
        limit = None if self.by_arrival else late_until(self.by_last_step, before, clock)
        due = take_in(self._rows, [b for b in arrivals if len(b)], before, clock, limit)
        load.rows += due.came
        load.late += due.late
        emitted: list[Emitted] = []
        if len(due.refs) or flush or clock >= notes.next:
            emitted = self._advance(due.refs, due.rows, clock, flush)
        notes.reached = clock
        self._report(emitted, clock)
        load.busy_seconds += time.perf_counter() - began
        return emitted

    def due(self) -> int | None:
        """The clock at which the next step has something to do without new rows."""
        notes = self.slices.notes
        step = next_step(self.by_last_step and not self.by_arrival, notes.reached)
        if step is not None:
            return step
        found = notes.next if notes.next > BEGINNING else FOREVER
        if not self.by_arrival:
            for entry in self._rows.marks().values():
                if entry.last > notes.reached:
                    found = min(found, max(entry.first, notes.reached + 1))
        return None if found >= FOREVER else found

    def snapshot(self) -> bytes | None:
        """The table of windows and what is learned; None if they are as before."""
        if not self._changed:
            return None
        self._changed = False
        return pack(self._tables, small=True)

    def restore(self, data: Any) -> None:
        """Take up a snapshot."""
        self._tables = unpack(data)[0]

    def renew(self, fresh: AssembleKernel) -> None:
        """Go on with the slices of a later micro-batch, and with the call, which may be another."""
        self.slices, self._rows, self.load = fresh.slices, fresh._rows, fresh.load
        self.closing, self._settings = fresh.closing, fresh._settings
        self.by_last_step, self._result = fresh.by_last_step, fresh._result

    @property
    def nbytes(self) -> int:
        """Bytes of the tables."""
        return weigh(self._tables)

    def _advance(
        self, refs: np.ndarray, rows: np.ndarray, clock: int, flush: bool
    ) -> list[Emitted]:
        notes, held = self.slices.notes, self._tables
        old = held.get("windows", np.empty((0, Column.WIDTH), np.int64))
        kept = held.get("refs", np.empty(0, np.int64))
        known = len(old)
        meta = np.empty((known + len(rows), Column.WIDTH), np.int64)
        meta[:known] = old
        names = np.concatenate([kept, refs])
        links = np.full(len(names), -1, np.int64)
        _chain(meta[:known], links)
        knowledge = self._knowledge(held, meta[:known], rows)
        kinds = len(held.get("kinds", ()))
        begun = Held(meta, known, links, len(kept), notes.order, notes.learned, kinds)
        out, items, c = run_loop(begun, knowledge, rows, self._settings, clock, flush)
        starts = np.append(out[:, Column.LINK], len(items))
        found = [self._emitted(out, starts, names[items], *part) for part in self._parts(starts)]
        notes.order, notes.learned = int(c[Counter.ORDERS]), int(c[Counter.LEARNED])
        self.load.peak_windows = max(self.load.peak_windows, int(c[Counter.PEAK]))
        learned = {}
        if self.closing.learns:
            learned = in_order(knowledge, int(c[Counter.KINDS]))
        self._keep(meta[: c[Counter.SLOTS]], links, names, clock, learned)
        assert int(c[Counter.EMITTED]) == len(out) and self.load.open_windows == (
            0 if flush else int(c[Counter.OPENS])
        )
        return found

    def _parts(self, starts: np.ndarray) -> Iterator[tuple[int, int]]:
        """Runs of windows whose items together are no burden."""
        each = max(1, self.slices.nbytes // max(1, self.slices.rows))
        most = max(1, _ITEM_BYTES // each)
        first, count = 0, len(starts) - 1
        while first < count:
            full = int(np.searchsorted(starts, starts[first] + most, "right")) - 1
            last = min(max(first + 1, full), first + _WINDOWS_AT_ONCE, count)
            yield first, last
            first = last

    def _emitted(
        self, out: np.ndarray, starts: np.ndarray, names: np.ndarray, first: int, last: int
    ) -> Emitted:
        a, b = int(starts[first]), int(starts[last])
        items = self._rows.gather(names[a:b]) if b > a else None
        return Emitted(out[first:last], starts[first : last + 1] - a, items)

    def _keep(
        self,
        meta: np.ndarray,
        links: np.ndarray,
        names: np.ndarray,
        clock: int,
        learned: dict[str, np.ndarray],
    ) -> None:
        """Store the windows that are open or remembered, the latter in the order they closed."""
        remembered = np.flatnonzero(meta[:, Column.STATE] == REMEMBERED)
        remembered = remembered[np.argsort(meta[remembered, Column.ORDER], kind="stable")]
        is_open = np.flatnonzero(meta[:, Column.STATE] == OPEN)
        meta = meta[np.concatenate([remembered, is_open])]
        rows, starts = flatten(meta, links, len(links))
        meta[:, Column.LINK] = starts[:-1]
        meta[:, Column.LINK_END] = starts[1:] - 1
        meta[: len(remembered), Column.LINK : Column.QUEUED + 1] = -1
        refs = self._rows.clean(names[rows], FOREVER if self.by_arrival else clock)
        self._tables, self._changed = {"windows": meta, "refs": refs, **learned}, True
        due = FOREVER
        if len(is_open):
            due = int(meta[len(remembered) :, Column.DUE].min())
        if len(remembered):
            due = min(due, int(meta[0, Column.CLOSED]) + self.closing.remember)
        self.slices.notes.next = due
        self.load.open_windows, self.load.remembered = len(is_open), len(remembered)

    def _knowledge(self, held: dict[str, np.ndarray], meta: np.ndarray, rows: np.ndarray) -> Known:
        """What is known of kinds, with room for more; as good as nothing unless it is learned."""
        if not self.closing.learns:
            return new_knowledge({}, 1)
        room = len(np.unique(np.concatenate([meta[:, Column.KIND], rows[:, Event.KIND]]))) + 1
        return new_knowledge(held, room)

    def _report(self, emitted: Sequence[Emitted], clock: int) -> None:
        load = self.load
        for piece in emitted:
            revisions = piece.windows[:, Column.REVISION] > 0
            load.revisions += int(revisions.sum())
            load.instances += int((~revisions).sum())
            closed = np.bincount(piece.windows[:, Column.REASON], minlength=len(CAUSES))
            load.timeouts += int(closed[TIMEOUT])
            load.evicted += int(closed[EVICTED])
            for number in np.flatnonzero(closed):
                cause = CAUSES[number]
                load.reasons[cause] = load.reasons.get(cause, 0) + int(closed[number])
        if "windows" in self._tables:
            states = self._tables["windows"][:, Column.STATE]
            load.open_windows = int((states == OPEN).sum())
            load.remembered = len(states) - load.open_windows
        load.state_rows = sum(entry.rows for entry in self.slices.of(ROWS))
        load.state_bytes = self.slices.nbytes + self.nbytes
        if not self.by_arrival:
            held = {n: e for n, e in self._rows.marks().items() if e.last > clock}
            load.waiting_rows = sum(self._waiting(n, e, clock) for n, e in held.items())

    def _waiting(self, number: int, entry: Slice, clock: int) -> int:
        """Rows of a slice that the clock has not passed."""
        if entry.first > clock:
            return entry.rows
        t = self._rows.read_marks(number).t
        return len(t) - int(np.searchsorted(t, clock, "right"))


def _chain(meta: np.ndarray, links: np.ndarray) -> None:
    """Link the stored rows of each open window, which stand one after the other."""
    is_open = meta[:, Column.STATE] == OPEN
    if is_open.any():
        count = int(meta[is_open, Column.LINK_END].max()) + 1
        links[:count] = np.arange(1, count + 1)
        links[meta[is_open, Column.LINK_END]] = -1


def _settings(closing: Closing, max_open: int, by_arrival: bool) -> Settings:
    """How windows close, as compiled code takes it."""
    learning: tuple[float, float, int, int, int] = (0.0, 0.0, 0, 0, 0)
    if isinstance(closing, Learned):
        # By then instances of the very beginning have ended, long ones as well as short ones.
        hold = closing.timeout + 2 * closing.remember
        learning = (closing.risk, closing.coverage, closing.after, closing.max_kinds, hold)
    return Settings(
        by_arrival,
        closing.restarts,
        closing.revises,
        closing.learns,
        closing.size,
        closing.expects,
        closing.timeout,
        closing.remember,
        -1 if closing.marker is None else closing.grace,
        max_open,
        *learning,
    )
