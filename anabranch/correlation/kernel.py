"""The worker of a correlation: compares what arrives with what is stored, then stores it.

One step takes the copies that reached this worker in one micro-batch. Order matters: late rows are
dropped, then everything is compared, then stored, and then expired state is freed, by the watermark
that was in force when the batch began. With `late` that watermark also says which rows are late.
Where the inputs have watermarks of their own it cannot: an aggregate or an outer join upstream
tells its rows when the watermark has passed them. Late is then what lies at or before the watermark
of this worker's last step, by which its state was freed; all partners of later rows are still here.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.correlation.call import Correlation, Side, Slot
from anabranch.correlation.emd.tally import Tally
from anabranch.correlation.filters.tiles import Pair, comparisons
from anabranch.correlation.gathering import Gathering, together
from anabranch.correlation.matching import Matcher
from anabranch.errors import BadRow, StateMismatch
from anabranch.flow.blocks import Block, concat
from anabranch.flow.load import Load
from anabranch.flow.slices import Window
from anabranch.plans.plan import LEFT, RIGHT, SIDES
from anabranch.plans.spans import Spans

__all__ = ["BEGINNING", "CorrelateKernel", "former_fingerprint", "query_fingerprint"]

# The watermark of a batch query: nothing is late, nothing expires.
BEGINNING = int(np.iinfo(np.int64).min) // 2


class CorrelateKernel:
    """One worker of one correlation.

    `step` yields the Arrow batches of a `Gathering`. `load` reports the step once it is exhausted.
    """

    def __init__(self, correlation: Correlation, window: Window, worker: int = 0) -> None:
        self.correlation = correlation
        self.window = window
        self.load = Load(worker)
        self._matcher = Matcher(correlation)
        for search in self._matcher.searches:
            search.tally = Tally(spans=_measured(correlation, search.slot))
            search.owner = query_fingerprint(correlation), worker
        self._gathering = Gathering(*correlation.sides)

    def step(
        self, arrivals: Sequence[tuple[int, Block]], watermark: int
    ) -> Iterator[pa.RecordBatch]:
        """Compare and store the copies that arrived, as (side, block); free what has expired."""
        load, clock = self.load, time.perf_counter
        began = clock()
        load.watermark = watermark
        limit = self._lateness(watermark)
        self._check_state(arrivals, limit)
        fresh = [self._take_in(side, arrivals, limit) for side in (LEFT, RIGHT)]
        for pair in self._pairings(fresh[LEFT], fresh[RIGHT]):
            compared = clock()
            load.comparisons += comparisons(pair)
            for found in self._matcher.matches(pair):
                for batch in self._gathering.add(pair.left, pair.right, found):
                    load.pairs += batch.num_rows
                    load.compare_seconds += clock() - compared
                    load.busy_seconds += clock() - began
                    yield batch
                    began = compared = clock()
            load.compare_seconds += clock() - compared
        for batch in self._gathering.rest():
            load.pairs += batch.num_rows
            load.busy_seconds += clock() - began
            yield batch
            began = clock()
        for side in (LEFT, RIGHT):
            for block in fresh[side]:
                self.window.append(side, block)
        self.window.expire(watermark)
        self.window.merge_small()
        self.window.notes["freed"] = watermark
        load.state_rows, load.state_bytes = self.window.rows, self.window.nbytes
        load.newest = dict(self.window.notes["newest"])
        self._report_searches()
        load.busy_seconds += clock() - began

    def _lateness(self, watermark: int) -> int:
        """The time up to which rows are late."""
        notes = self.window.notes
        if self.correlation.late is not None:
            return watermark
        if "query" not in notes:  # the first step; Spark's first watermark is 0
            return min(watermark, 0)
        # State of a version that did not note it was freed by some watermark up to this one.
        return min(watermark, int(notes.get("freed", watermark)))

    def _report_searches(self) -> None:
        for search in self._matcher.searches:
            tally = search.tally
            for name, pairs in tally.pruned.items():
                self.load.pruned[name] = self.load.pruned.get(name, 0) + pairs
            self.load.accepted += tally.accepted
            self.load.solved += tally.solved
            if len(tally.work):
                self.load.spans = [round(float(work), 1) for work in tally.work]

    def _pairings(self, lefts: Sequence[Block], rights: Sequence[Block]) -> Iterator[Pair]:
        """Fresh against stored on either side, and fresh against fresh."""
        w_left, w_right = self.correlation.window
        for left in lefts:
            first, last = int(left.t[0]) - w_right, int(left.t[-1]) + w_left
            for stored in self.window.reach(RIGHT, first, last):
                yield Pair(left, stored, self.correlation.window)
        for right in rights:
            first, last = int(right.t[0]) - w_left, int(right.t[-1]) + w_right
            for stored in self.window.reach(LEFT, first, last):
                yield Pair(stored, right, self.correlation.window)
        for left, right in product(lefts, rights):
            yield Pair(left, right, self.correlation.window)

    def _take_in(self, side: int, arrivals: Sequence[tuple[int, Block]], limit: int) -> list[Block]:
        """This side's rows later than a limit, in time order; the others are counted.

        In one block, or in several where one would exceed what Arrow's arrays hold.
        """
        load, good = self.load, []
        rows = copies = 0
        for of, block in arrivals:
            if of != side:
                continue
            load.rejected += int(block.meta.get("rejected", 0))
            lead = block.columns["lead"]
            block = block.without("lead")
            load.bytes_in += block.nbytes
            if not len(block):
                continue
            self._check_lengths(side, block)
            copies += len(block)
            rows += int(lead.sum())
            if int(block.t.min()) <= limit:
                in_time = block.t > limit
                load.late += int((lead & ~in_time).sum())
                block = block.take(np.flatnonzero(in_time))
            if len(block):
                good.append(block)
        if side == LEFT:
            load.rows_left, load.copies_left = rows, copies
        else:
            load.rows_right, load.copies_right = rows, copies
        return [concat(group).in_time_order() for group in together(good)]

    def _check_lengths(self, side: int, block: Block) -> None:
        """Vectors must be as long as those before; within a block they already are."""
        lengths = self.window.notes.setdefault("lengths", {})
        sizes = self.window.notes.setdefault("bytes", {})  # absent from earlier checkpoints
        for slot in self.correlation.sides[side].slots:
            if slot.kind not in ("vector", "bits"):
                continue
            width = block.columns[slot.name].shape[1]
            expected: Any = lengths.setdefault(slot.name, width)
            size = block.meta.get("bytes", {}).get(slot.name)
            if size is not None:  # words alone would take a short value for a padded one
                same = width == expected
                expected = sizes.setdefault(slot.name, size) if same else _in_units(slot, expected)
                width = size
            if width == expected:
                continue
            ident = pa.array(block.columns["id"][:1])[0].as_py()
            raise BadRow(
                f"{SIDES[side]} row with id {ident!r} cannot be compared: {slot.column!r} has "
                f"length {width} where earlier rows, of either side, have {expected}; repair the "
                "input, or fix the length with dim= and pass bad_rows='drop'"
            )

    def _check_kept(self, stored: Sequence[Sequence[str]]) -> None:
        """Refuse kept columns of another type than those of stored rows: bytes would be misread."""
        for side, olds, news in zip(
            self.correlation.sides, stored, self.correlation.kept_types, strict=True
        ):
            for name, old, new in zip(side.keep, olds, news, strict=True):
                if old != new:
                    raise StateMismatch(
                        f"this checkpoint holds the kept column {name!r} of the {side.label} side "
                        f"as {old}, and now it is {new}: cast it to {old} before correlate, or "
                        "begin a new checkpoint"
                    )

    def _check_state(self, arrivals: Sequence[tuple[int, Block]], limit: int) -> None:
        """Refuse to go on if state and rows were made by different queries or plans."""
        notes = self.window.notes
        mine = query_fingerprint(self.correlation)
        begun = notes.setdefault("query", mine)
        if begun not in (mine, former_fingerprint(self.correlation)):
            raise StateMismatch(
                "this checkpoint was begun by a correlate with another window, other compared or "
                "other kept columns; restart that one, or begin a new checkpoint"
            )
        notes["query"] = mine
        for slot in self.correlation.left.slots:
            known = notes.get("lengths", {}).get(slot.name)
            size = notes.get("bytes", {}).get(slot.name)
            if known is not None and (
                _width(slot) not in (None, known) or (size and slot.dim not in (None, size))
            ):
                held = f"{size} bytes" if size is not None else _in_units(slot, known)
                raise StateMismatch(
                    f"this checkpoint holds {slot.column!r} of {held}, and the "
                    f"call says dim={slot.dim}: name the length that it was begun with, or begin "
                    "a new checkpoint"
                )
        self._check_kept(notes.setdefault("kept", [list(of) for of in self.correlation.kept_types]))
        longest = max(self.correlation.window)
        newest: dict[str, int] = notes.setdefault("newest", {})
        plans: dict[str, str] = notes.setdefault("plans", {})
        bits: dict[str, int] = notes.setdefault("live", {})
        for number in [n for n, last in newest.items() if last + longest <= limit]:
            for memory in (newest, plans, bits):
                memory.pop(number, None)
        for _, block in arrivals:
            _check_plans(block.meta, newest, plans, bits)
        for _, block in arrivals:
            last = block.meta.get("newest")
            if last is not None:
                number, live = str(block.meta["epoch"]), int(block.meta["live"])
                newest[number] = max(newest.get(number, BEGINNING), last)
                bits[number] = bits.get(number, live) & live


def _measured(correlation: Correlation, slot: str) -> tuple[float, float, int] | None:
    """The range and number of the spans whose work is reported; None if nobody asks for it."""
    plan, locality = correlation.plan, correlation.locality
    if not isinstance(plan, Spans) or locality is None or locality.slot != slot:
        return None
    return (*locality.ground.key_range, plan.spans)


def query_fingerprint(correlation: Correlation) -> str:
    """What must stay the same for stored rows to keep their meaning.

    The length of vectors is not part of it: to name it is a way out when one of another length has
    come. State knows the length of its own. Numbers count as what they are stored as, so that a
    column may become wider; the types of kept columns are notes of their own.
    """
    return _fingerprint(
        correlation.window,
        [
            replace(
                side,
                keep_types=(),
                slots=tuple(replace(slot, dim=None, type=slot.stored_type) for slot in side.slots),
            )
            for side in correlation.sides
        ],
    )


def former_fingerprint(correlation: Correlation) -> str:
    """What checkpoints begun by earlier versions hold: with the length if named, and all types."""
    return _fingerprint(correlation.window, correlation.sides)


def _fingerprint(window: tuple[int, int], sides: Sequence[Side]) -> str:
    parts = [repr(window)] + [repr(side) for side in sides]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _width(slot: Slot) -> int | None:
    """How many elements, or words of bits, a value has by `dim`; None if it does not say."""
    if slot.dim is None or slot.kind == "vector":
        return slot.dim
    return -(-slot.dim // 8) if slot.kind == "bits" and slot.type == "binary" else None


def _in_units(slot: Slot, width: int) -> str:
    return f"length {width}" if slot.kind == "vector" else f"{8 * width - 7} to {8 * width} bytes"


def _check_plans(
    meta: dict[str, Any], newest: dict[str, int], plans: dict[str, str], bits: dict[str, int]
) -> None:
    """Rows that may meet must have been routed under the older of their plans, and the same one.

    `newest`, `plans` and `bits` are of the rows stored here, by plan number: their newest time, the
    plan's fingerprint, and which plans were live when they were routed.
    """
    epoch, live = int(meta["epoch"]), int(meta["live"])
    for number in newest:
        behind = epoch - int(number)
        known = live >> behind if behind >= 0 else bits.get(number, 0) >> -behind
        if not known & 1:
            raise StateMismatch(
                f"rows of plan {number} are still in the window and rows of plan {epoch} arrive, "
                "but they were not routed under a common plan, so pairs would be lost: the plan "
                "log does not belong to this checkpoint, or a plan was retired too early"
            )
    former = meta.get("former", {})
    for number, fingerprint in meta["plans"].items():
        if plans.get(number, fingerprint) not in (fingerprint, former.get(number)):
            raise StateMismatch(
                f"plan {number} is not the one that this checkpoint was begun with: restart with "
                "the same plan=, partitions and plan log (ab.spans also needs that the first "
                "ab.emd(...) <= x with known bins compares the same columns), or begin a new "
                "checkpoint"
            )
        plans[number] = fingerprint
