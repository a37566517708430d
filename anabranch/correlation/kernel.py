"""The worker of a correlation: compares what arrives with what is stored, then stores it.

One step takes the copies that reached this worker in one micro-batch. Order matters: late rows are
dropped, then everything is compared, then stored, and then expired state is freed, by the watermark
that was in force when the batch began. With `watermark=` that watermark also says which rows are
late. Where the inputs have watermarks of their own it cannot: an aggregate or an outer join
upstream emits its rows when the watermark has passed them. Late is then what lies at or before the
watermark of the last step, by which state was freed; all partners of later rows are still here. All
workers step at every watermark, so that the answer does not depend on who had rows before.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from anabranch.correlation.call import Correlation
from anabranch.correlation.emd.tally import Tally
from anabranch.correlation.filters.ties import by_time_and_id
from anabranch.correlation.filters.tiles import Pair, may_meet
from anabranch.correlation.gathering import Gathering, times_of
from anabranch.correlation.lengths import Lengths
from anabranch.correlation.matching import Matcher, Matches
from anabranch.flow.blocks import Block, concat, together
from anabranch.flow.gpu.choice import Choice
from anabranch.flow.gpu.device import Device
from anabranch.flow.kernel import Task, owner_of
from anabranch.flow.lateness import check_heard, late_until, next_step
from anabranch.flow.load import Load
from anabranch.flow.sides import LEAD, right_role
from anabranch.flow.slices import Slices
from anabranch.plans.memory import PlanMemory, check_newest
from anabranch.plans.plan import LEFT, RIGHT
from anabranch.plans.routing import OTHER

__all__ = ["CorrelateJob", "CorrelateKernel", "CorrelateNotes"]


_PARTS = 3  # see `_parts`


@dataclass
class CorrelateNotes(Lengths):
    """What a worker remembers beside its rows.

    Attributes
    ----------
    plans
        What a `PlanMemory` holds of the plans under which stored rows were routed.
    highest
        The highest number of a plan that was ever heard of.
    heard
        Of the first worker: how many workers have had a step, where that tells what is late.
    """

    plans: dict[str, Any] = field(default_factory=lambda: PlanMemory().to_dict())
    highest: int = -1
    heard: int = 0


@dataclass(frozen=True)
class CorrelateJob:
    """A call of `correlate` as tasks run it."""

    correlation: Correlation
    verb: ClassVar[str] = "correlate"
    small: ClassVar[bool] = False
    notes: ClassVar[type[CorrelateNotes]] = CorrelateNotes

    @property
    def settings(self) -> Mapping[str, str]:
        """What must stay the same for stored rows to keep their meaning.

        The length of vectors is not part of it: to name it is a way out when one of another length
        has come. State knows the length of its own. Numbers count as what they are stored as, so
        that a column may become wider.
        """
        return self.correlation.settings

    @property
    def stays(self) -> tuple[int, ...]:
        """How long rows of either side wait for partners, or of each part of one stream."""
        ahead, _ = self.correlation.window
        return (ahead,) * _PARTS if self.correlation.one_stream else self.correlation.window

    def kernel(self, slices: Slices[CorrelateNotes], task: Task) -> CorrelateKernel:
        """One worker."""
        return CorrelateKernel(self, slices, task, self.device(task))

    def device(self, task: Task) -> Device | None:
        """The GPU on which a task multiplies vectors; None for the CPU."""
        return Choice(self.verb, self.correlation.device, task.gpus, task.worker).open()


class CorrelateKernel:
    """One worker of one correlation.

    `step` yields the Arrow batches of a `Gathering`. `load` reports the step once it is exhausted.
    """

    nbytes = 0
    late_until: int | None = None

    def __init__(
        self,
        job: CorrelateJob,
        slices: Slices[CorrelateNotes],
        task: Task | None = None,
        device: Device | None = None,
    ) -> None:
        task = task or Task(0)
        correlation = job.correlation
        self.correlation = correlation
        self.slices = slices
        self.load = Load(task.worker)
        self._matcher = Matcher(correlation, device)
        for search in self._matcher.searches:
            search.owner = owner_of(job, task.query), task.worker
        self._gathering = Gathering(*correlation.sides)

    def step(
        self, arrivals: Sequence[Block], now: int, last: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Compare and store the copies that arrived; free what has expired by the watermark."""
        load, clock = self.load, time.perf_counter
        began = clock()
        load.watermark = now
        limit = late_until(self.correlation.by_last_step, self.slices.notes.reached, now)
        self.late_until = limit
        self._check_state(arrivals, limit)
        for search in self._matcher.searches:
            search.tally = Tally(ranges=_measured(self.correlation, search.slot, arrivals))
        fresh = [self._take_in(side, arrivals, limit) for side in (LEFT, RIGHT)]
        pairings = self._pairings(fresh[LEFT], fresh[RIGHT])
        if self.correlation.one_stream:
            fresh = _parts(fresh[LEFT])
            pairings = self._pairings_of_one([block for part in fresh for block in part])
        load.compare_seconds -= clock()
        for pair, found in self._matcher.over(self._counted(pairings)):
            self._matched(pair.left, pair.right, found)
            for batch in self._gathering.add(pair.left, pair.right, found):
                load.pairs += batch.num_rows
                load.compare_seconds += clock()
                load.busy_seconds += clock() - began
                yield batch
                began = clock()
                load.compare_seconds -= began
        load.compare_seconds += clock()
        for batch in self._gathering.rest():
            load.pairs += batch.num_rows
            load.busy_seconds += clock() - began
            yield batch
            began = clock()
        for side, blocks in enumerate(fresh):
            for block in blocks:
                start = 0
                for part in self.slices.append(side, block):
                    self._matcher.inherit(block, start, part)
                    start += len(part)
        self._expire(now)
        self.slices.merge_small()
        self.slices.notes.reached = max(self.slices.notes.reached, now)
        load.state_rows, load.state_bytes = self.slices.rows, self.slices.nbytes
        load.newest = dict(self.slices.notes.plans["newest"])
        self._report_searches()
        load.busy_seconds += clock() - began

    def due(self) -> int | None:
        """When the oldest slice expires; at every watermark where that says what is late."""
        found = next_step(self.correlation.by_last_step, self.slices.notes.reached)
        return self.slices.next_expiry() if found is None else found

    def snapshot(self) -> None:
        """There is nothing beside the slices."""

    def restore(self, data: Any) -> None:
        """There is nothing to restore."""

    def renew(self, fresh: Any) -> None:
        """Nothing is kept from one batch to the next."""

    def _marks(self, side: int) -> bool:
        """Whether rows of a side are stored with which of them lead."""
        return False

    def _matched(self, left: Block, right: Block, found: Matches) -> None:
        """Told of matches before they are sent."""

    def _expire(self, watermark: int) -> None:
        """Free what no row can meet any more."""
        self.slices.expire(watermark)

    def _report_searches(self) -> None:
        for search in self._matcher.searches:
            tally = search.tally
            for name, pairs in tally.pruned.items():
                self.load.pruned[name] = self.load.pruned.get(name, 0) + pairs
            self.load.accepted += tally.accepted
            self.load.solved += tally.solved
            if len(tally.work):
                self.load.ranges = [round(float(work), 1) for work in tally.work]

    def _counted(self, pairings: Iterable[Pair]) -> Iterator[Pair]:
        """The same pairs, their comparisons counted; to read rows is not to compare them."""
        load, clock, ahead = self.load, time.perf_counter, iter(pairings)
        while True:
            load.compare_seconds += clock()
            pair = next(ahead, None)
            load.compare_seconds -= clock()
            if pair is None:
                return
            load.comparisons += self._matcher.comparisons(pair)
            yield pair

    def _pairings(self, lefts: Sequence[Block], rights: Sequence[Block]) -> Iterator[Pair]:
        """Fresh against stored on either side, and fresh against fresh."""
        w_left, w_right = self.correlation.window
        for left in lefts:
            first, last = int(left.t[0]) - w_right, int(left.t[-1]) + w_left
            for stored in self.slices.reach(RIGHT, first, last):
                yield Pair(left, stored, self.correlation.window)
        for right in rights:
            first, last = int(right.t[0]) - w_left, int(right.t[-1]) + w_right
            for stored in self.slices.reach(LEFT, first, last):
                yield Pair(stored, right, self.correlation.window)
        for left, right in product(lefts, rights):
            yield Pair(left, right, self.correlation.window)

    def _pairings_of_one(self, fresh: Sequence[Block]) -> Iterator[Pair]:
        """The same of one stream: any block may hold the earlier rows and take the left's place."""
        ahead, _ = self.correlation.window

        def both() -> Iterator[tuple[Block, Block]]:
            yield from product(fresh, fresh)
            for block in fresh:
                first, last = int(block.t[0]), int(block.t[-1])
                for part in range(_PARTS):
                    for stored in self.slices.reach(part, first - ahead, last):
                        yield stored, block
                    for stored in self.slices.reach(part, first, last + ahead):
                        yield block, stored

        for left, right in both():
            pair = Pair(left, right_role(right), self.correlation.window, ordered=True)
            if may_meet(pair):
                yield pair

    def _take_in(self, side: int, arrivals: Sequence[Block], limit: int) -> list[Block]:
        """This side's rows later than a limit, in time order; the others are counted.

        In one block, or in several where one would exceed what Arrow's arrays hold.
        """
        load, good = self.load, []
        rows = copies = newest = 0
        for block in arrivals:
            if block.meta["side"] != side:
                continue
            load.rejected += int(block.meta.get("rejected", 0))
            lead = block.columns[LEAD]
            block = block if self._marks(side) else block.without(LEAD)
            load.bytes_in += block.nbytes
            if not len(block):
                continue
            self.slices.notes.check_rows(self.correlation, side, block)
            copies += len(block)
            rows += int(lead.sum())
            newest = max(newest, int(times_of(block).max()))
            if int(block.t.min()) <= limit:
                in_time = block.t > limit
                load.late += int((lead & ~in_time).sum())
                block = block.take(np.flatnonzero(in_time))
            if len(block):
                good.append(block)
        if side == LEFT:
            load.rows_left, load.copies_left, load.newest_left = rows, copies, newest
        else:
            load.rows_right, load.copies_right, load.newest_right = rows, copies, newest
        found = [concat(group).in_time_order() for group in together(good)]
        return list(map(by_time_and_id, found)) if self.correlation.one_stream else found

    def _check_state(self, arrivals: Sequence[Block], limit: int) -> None:
        """Refuse to go on if state and rows were made by different calls or plans."""
        notes = self.slices.notes
        notes.check_call(self.correlation)
        memory = PlanMemory.from_dict(notes.plans)
        memory.forget(limit - max(self.correlation.window))
        if arrivals:
            epochs = [int(block.meta["epoch"]) for block in arrivals]
            check_newest([notes.highest], epochs)
            notes.highest = max(notes.highest, *epochs)
        for block in arrivals:
            memory.observe(block.meta)
        notes.plans = memory.to_dict()
        if self.load.worker == 0:
            sizes = [block.meta for block in arrivals if "heard" in block.meta]
            check_heard(notes.heard, max((int(meta["workers"]) for meta in sizes), default=0))
            notes.heard = max(notes.heard, *(int(meta["heard"]) for meta in sizes), 0)


def _parts(blocks: Sequence[Block]) -> list[list[Block]]:
    """Rows of one stream in parts, such that under the newest plan whole parts meet or do not.

    Under a plan of two maps rows of the first part meet all, those of the second only such as come
    later and those of the third only such as came earlier. Under a triangle two parts hold two
    groups, which meet each other or each itself. Stored apart, they are not compared in vain.
    """
    parts: list[list[Block]] = [[] for _ in range(_PARTS)]
    for block in blocks:
        left, right = block.mask & 3, block.columns[OTHER] & 3
        third = (right == 2) | (left == 0)
        which = np.where((left == 2) | (right == 0), 1, np.where(third, 2, 0))
        for number, part in enumerate(parts):
            rows = which == number
            if rows.all():
                part.append(block)
            elif rows.any():
                part.append(block.take(np.flatnonzero(rows)))
    return parts


def _measured(
    correlation: Correlation, slot: str, arrivals: Sequence[Block]
) -> tuple[float, float, int] | None:
    """The range and number of the ranges whose work is reported; None if nobody asks for it.

    They are those of the newest plan under which rows arrive, whatever the query began with.
    """
    newest = max((block.meta for block in arrivals), key=lambda m: int(m["epoch"]), default={})
    locality, count = correlation.locality, int(newest.get("ranges", 0))
    if not count or locality is None or locality.slot != slot:
        return None
    return (*locality.ground.key_range, count)
