"""From rows and live plans to copies, each stamped so that a pair is compared exactly once.

Plans are numbered. A row is stamped with the newest plan its router knows (its *epoch*) and sent
wherever *any live plan* sends it; the copy's *mask* says which of them did, and in which roles:
bits ``2 * i`` and ``2 * i + 1`` stand for plan ``epoch - i``. A pair belongs to the older epoch of
its two rows, and a worker compares it iff both copies share a bit of that plan. Under that plan the
two maps meet in one worker, and both rows were routed under it, so exactly one worker owns the
pair, however often plans change.

Rows of one stream that is correlated with itself go through both maps. A copy then has two masks,
and of two rows the earlier one, by time and id, takes the left map's.

Letters of the compiled part: c is a copy, w its worker, k how many workers there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.flow.blocks import Block
from anabranch.flow.hashing import mix
from anabranch.flow.process import njit
from anabranch.flow.sides import HASH, LEAD, WHOLE
from anabranch.plans.plan import LEFT, RIGHT, Plan, Routes, Rows

__all__ = [
    "MAX_LIVE",
    "OTHER",
    "Copies",
    "LivePlans",
    "branch",
    "route",
    "route_both",
]

# A mask is a signed 64-bit integer whose sign bit stays clear, and a plan has two bits of it.
MAX_LIVE = 31
OTHER = "other"
"""The column of the right map's masks, in blocks of a stream that is correlated with itself."""


@dataclass(frozen=True)
class LivePlans:
    """The plans under which rows are sent now, by number; the newest stamps the rows.

    Examples
    --------
    >>> from anabranch.plans.hashed import broadcast, grid
    >>> live = LivePlans({3: broadcast(4), 5: grid(2, 2)})
    >>> live.epoch, bin(live.bits)
    (5, '0b101')
    """

    plans: Mapping[int, Plan]

    def __post_init__(self) -> None:
        if not self.plans:
            raise ValueError("at least one plan must be live")
        if max(self.plans) - min(self.plans) >= MAX_LIVE:
            raise ValueError(
                f"plans {min(self.plans)} and {max(self.plans)} are both live: masks hold "
                f"{MAX_LIVE} plans, so retire the oldest before adding another"
            )

    @property
    def epoch(self) -> int:
        """The newest plan's number."""
        return max(self.plans)

    @property
    def bits(self) -> int:
        """Bit i is set iff plan ``epoch - i`` is live."""
        return sum(1 << (self.epoch - number) for number in self.plans)

    @property
    def workers(self) -> int:
        """How many workers the live plans reach together."""
        return max(plan.workers for plan in self.plans.values())

    def need(self, what: str) -> bool:
        """Whether any of them cannot route without this field of `Rows`."""
        return any(plan.needs == what for plan in self.plans.values())


class Copies(NamedTuple):
    """Row i has copies ``offsets[i]:offsets[i + 1]``; each has a worker and a mask.

    `others` are the masks of the right map, of one stream that goes through both.
    """

    offsets: np.ndarray
    workers: np.ndarray
    masks: np.ndarray
    others: np.ndarray | None = None


def route_both(live: LivePlans, rows: Rows, window: tuple[int, int]) -> Copies:
    """Where each row of a stream that is correlated with itself goes under every live plan.

    Examples
    --------
    >>> from anabranch.flow.hashing import mix
    >>> from anabranch.plans.hashed import broadcast
    >>> live = LivePlans({0: broadcast(2)})
    >>> copies = route_both(live, Rows(np.array([10]), mix(np.array([1]))), (5, 0))
    >>> copies.workers.tolist(), copies.masks.tolist(), copies.others.tolist()
    ([0, 1], [1, 0], [1, 1])
    """
    left, right = (route(live, side, rows, window) for side in (LEFT, RIGHT))
    nothing = [np.zeros_like(copies.masks) for copies in (right, left)]
    (offsets, workers, masks), (_, _, others) = (
        _merge(live.workers, *left[:2], mine, *right[:2], more)
        for mine, more in ((left.masks, nothing[0]), (nothing[1], right.masks))
    )
    return Copies(offsets, workers, masks, others)


def route(live: LivePlans, side: int, rows: Rows, window: tuple[int, int]) -> Copies:
    """Where each row goes under every live plan.

    Examples
    --------
    >>> from anabranch.flow.hashing import mix
    >>> from anabranch.plans.hashed import broadcast
    >>> live = LivePlans({0: broadcast(2, "right"), 1: broadcast(2, "left")})
    >>> copies = route(live, 0, Rows(np.array([10]), mix(np.array([1]))), (5, 5))
    >>> copies.workers.tolist(), copies.masks.tolist()
    ([0, 1], [5, 1])
    """
    epoch = live.epoch
    first = live.plans[epoch].route(side, rows, window)
    offsets, workers, masks = first.offsets, first.workers, _bits(first, 0)
    for number, plan in sorted(live.plans.items()):
        if number != epoch:
            more = plan.route(side, rows, window)
            offsets, workers, masks = _merge(
                live.workers,
                offsets,
                workers,
                masks,
                more.offsets,
                more.workers,
                _bits(more, epoch - number),
            )
    return Copies(offsets, workers, masks)


def _bits(routes: Routes, age: int) -> np.ndarray:
    """What copies that one plan makes have in their masks."""
    roles = np.ones(len(routes.workers), np.int64) if routes.roles is None else routes.roles
    return roles.astype(np.int64) << 2 * age


def branch(
    block: Block, copies: Copies, epoch: int, whole: pa.Array | None = None
) -> Iterator[tuple[int, Block]]:
    """The rows of `block` that each worker gets, stamped, with a column `lead`.

    `lead` marks one copy of each row, so that a thing counted on leads is counted once per row. By
    the hash of the row: what waits where its row leads does not all wait at the first workers.
    `whole` are the rows as they came, if they go along: in the copy that leads, and null elsewhere.
    """
    counts = np.diff(copies.offsets)
    rows = np.repeat(np.arange(len(block)), counts)
    lead = np.zeros(len(rows), bool)
    lead[_leading(block, copies.offsets[:-1], counts)] = True
    order = np.argsort(copies.workers, kind="stable")
    sizes = np.bincount(copies.workers)
    stop = 0
    for worker in np.flatnonzero(sizes):
        start, stop = stop, stop + sizes[worker]
        mine = order[start:stop]
        # Copies are in row order, so a worker that gets every row gets the block as it is.
        part = block if len(mine) == len(block) else block.take(rows[mine])
        columns = {**part.columns, LEAD: lead[mine]}
        if whole is not None:
            columns[WHOLE] = whole.take(pa.array(rows[mine], mask=~lead[mine]))
        if copies.others is not None:
            columns[OTHER] = copies.others[mine]
        stamps = np.full(len(mine), epoch, np.int64)
        yield int(worker), Block(part.t, stamps, copies.masks[mine], columns)


def _leading(block: Block, first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Which copies lead, of rows whose copies begin at `first`."""
    if HASH in block.columns and counts.max(initial=0) > 1:
        # Mixed, for by the hash itself plans have chosen among the workers already.
        spread = mix(block.columns[HASH]).view(np.uint64)
        first = first + (spread % np.maximum(counts, 1).astype(np.uint64)).astype(np.int64)
    return first[counts > 0]


@njit
def _merge(k, offsets, workers, masks, more_offsets, more_workers, bits):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add the copies of one more plan: a new copy, or more bits on a copy that is there."""
    n = len(offsets) - 1
    at = np.full(k, -1, np.int64)
    out_offsets = np.empty(n + 1, np.int64)
    out_workers = np.empty(len(workers) + len(more_workers), np.int32)
    out_masks = np.empty(len(workers) + len(more_workers), np.int64)
    out = 0
    for row in range(n):
        start = out
        out_offsets[row] = start
        for c in range(offsets[row], offsets[row + 1]):
            at[workers[c]] = out
            out_workers[out] = workers[c]
            out_masks[out] = masks[c]
            out += 1
        for c in range(more_offsets[row], more_offsets[row + 1]):
            w = more_workers[c]
            if at[w] >= start:
                out_masks[at[w]] |= bits[c]
            else:
                at[w] = out
                out_workers[out] = w
                out_masks[out] = bits[c]
                out += 1
    out_offsets[n] = out
    return out_offsets, out_workers[:out], out_masks[:out]
