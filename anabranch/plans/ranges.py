"""The plan ``ranges``: rows go where rows with similar keys go, so that few copies are made.

A *key* is one number per row such that rows further apart than `reach` in it cannot match; for the
Earth Mover's Distance it is the mean, or more generally the sum of masses times a potential. The
range of keys is cut into equal *ranges*. Each worker owns a run of neighbouring ranges; *cuts* say
where runs end. A left row goes to the owner of its key, a right row to the owners of all keys
within reach. A *hot* range, too much for one worker, has several: a left row goes to one of them by
hash, each in proportion to its share, a right row to all.

The two maps meet in exactly one worker for every pair that can match: a left row has one worker,
owners rise with keys, and a right row reaches every key that its partners can have. Pairs that
cannot match need not meet.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from anabranch.calls import is_whole
from anabranch.errors import renamed
from anabranch.plans.arguments import refuse, worker_problems
from anabranch.plans.cells import Cells
from anabranch.plans.plan import LEFT, Plan, Routes, Rows, fingerprint_of, loggable

__all__ = ["Ranges", "balance", "even_cuts", "imbalance", "range_of", "ranges"]

COUNT, MOST = 64, 1 << 16  # a worker reports its load by range
# A range gets several workers if one alone would misplace this share of a worker's due.
_MISPLACED = 0.05
# Shares of a hot range are multiples of one in so many times the workers.
_TICKETS = 4


@loggable
@dataclass(frozen=True)
class Ranges(Plan):
    """Workers own runs of ranges of the key; see `ranges`.

    `cuts` are numbers of ranges: worker w owns those from ``cuts[w - 1]`` up to ``cuts[w]``. `hot`
    lists ranges with several workers, each named as often as it has shares. `low`, `high`, `reach`
    and `slot` are known once the plan is bound to a predicate.

    Routers bind every plan to the predicate of their own run, also one from a log. Rows routed
    under two reaches still meet once at most, since a left row has one worker whatever the reach;
    they are sure to meet where the reach of the right row's router lets them.
    """

    workers: int
    ranges: int = COUNT
    low: float | None = None
    high: float | None = None
    reach: float | None = None
    cuts: tuple[int, ...] = ()
    hot: tuple[tuple[int, tuple[int, ...]], ...] = ()
    slot: str | None = field(default=None, compare=False)
    name: ClassVar[str] = "ranges"
    needs: ClassVar[str] = "value"
    _owner: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.cuts) != self.workers - 1:
            object.__setattr__(self, "cuts", even_cuts(self.workers, self.ranges))
        owner = np.searchsorted(np.array(self.cuts, np.int64), np.arange(self.ranges), "right")
        object.__setattr__(self, "_owner", owner.astype(np.int32))

    @classmethod
    def of_fields(cls, **fields: Any) -> Ranges:
        plan = ranges(fields["workers"], count=fields.get("ranges", COUNT))
        cuts, hot = fields.get("cuts", ()), fields.get("hot", ())
        ends = [fields.get(name) for name in ("low", "high", "reach")]
        problems = []
        # A reach may be infinite: every row is within it.
        if not all(end is None or (isinstance(end, float | int) and end == end) for end in ends):
            problems.append(f"low, high and reach must be numbers, got {ends!r}")
        if not isinstance(fields.get("slot"), str | None):
            problems.append(f"slot must be a text, got {fields['slot']!r}")
        if cuts and (len(cuts) != plan.workers - 1 or list(cuts) != sorted(cuts)):
            problems.append(f"cuts must rise, one fewer than workers, got {cuts!r}")
        if not all(is_whole(cut, 0) and cut <= plan.ranges for cut in cuts):
            problems.append(f"cuts must be numbers of ranges, got {cuts!r}")
        for part, several in hot:
            known = several and all(is_whole(one, 0) and one < plan.workers for one in several)
            if not (known and is_whole(part, 0) and part < plan.ranges):
                problems.append(f"hot must name ranges and their workers, got {hot!r}")
        refuse("ranges", problems)
        return cls(**fields)

    def bind(self, slot: str, key_range: tuple[float, float], reach: float) -> Ranges:
        """The same plan for the keys of a predicate."""
        low, high = key_range
        return replace(self, low=low, high=high, reach=reach, slot=slot)

    @property
    def fingerprint(self) -> str:
        """Tells this plan from others; the reach is left out, for the threshold may change.

        Where keys come from is in it: stored rows that went by another column are of no use.
        """
        return fingerprint_of({**self.to_dict(), "reach": None})

    def route(self, side: int, rows: Rows, window: tuple[int, int]) -> Routes:
        low, high, reach = self._bounds()
        values = rows.value
        if values is None:
            raise ValueError(f"{self} routes rows by value, and these have none")
        if side == LEFT:
            at = range_of(values, low, high, self.ranges)
            workers = self._owner[at]
            for part, several in self.hot:
                here = np.flatnonzero(at == part)
                share = (rows.h[here].view(np.uint64) >> np.uint64(33)) % np.uint64(len(several))
                workers[here] = np.array(several, np.int32)[share.astype(np.int64)]
            return Routes(np.arange(len(values) + 1), workers)
        first = range_of(values - reach, low, high, self.ranges)
        last = range_of(values + reach, low, high, self.ranges)
        # A row of `reached` says which workers own something between the first and the last range.
        lines = np.arange(self.workers)
        reached = (lines >= self._owner[first][:, None]) & (lines <= self._owner[last][:, None])
        reached &= self._owning()[None, :]
        for part, several in self.hot:
            met = np.flatnonzero((first <= part) & (part <= last))
            reached[np.ix_(met, np.array(several))] = True
        offsets = np.zeros(len(values) + 1, np.int64)
        np.cumsum(reached.sum(axis=1), out=offsets[1:])
        return Routes(offsets, np.nonzero(reached)[1].astype(np.int32))

    def once(self, side: int) -> bool:
        return self.workers == 1 or side == LEFT

    def may_match(self, left: Rows, right: Rows) -> np.ndarray:
        assert left.value is not None and right.value is not None
        # A pair at the very end of the reach may be rounded to either side of it.
        near = self._bounds()[2] * (1 - 1e-12)
        found: np.ndarray = np.abs(left.value[:, None] - right.value[None, :]) <= near
        return found

    def _bounds(self) -> tuple[float, float, float]:
        """The range of keys and the reach."""
        if self.low is None or self.high is None or self.reach is None:
            raise ValueError(
                f"{self} does not know its keys yet: correlate binds it to its predicate; without "
                "one, call bind(slot, (low, high), reach)"
            )
        return self.low, self.high, self.reach

    def _owning(self) -> np.ndarray:
        """Which workers own a range that is not hot."""
        cold = np.ones(self.ranges, bool)
        cold[[part for part, _ in self.hot]] = False
        return np.bincount(self._owner[cold], minlength=self.workers) > 0

    def shares(self, load: np.ndarray) -> np.ndarray:
        """The load of each worker if ranges have this load."""
        cold = load.astype(np.float64).copy()
        for part, _ in self.hot:
            cold[part] = 0.0
        workers = np.bincount(self._owner, cold, self.workers)
        for part, several in self.hot:
            np.add.at(workers, list(several), load[part] / len(several))
        return workers

    def cells(self) -> Cells:
        across = f"ranges of {self.slot or 'the value'}; widths are their shares"
        widths = np.diff([0, *self.cuts, self.ranges]).tolist()
        return Cells.in_a_line(self.workers, across)._replace(widths=widths)

    def __str__(self) -> str:
        parts = [str(self.workers), f"count={self.ranges}"]
        if self.cuts != even_cuts(self.workers, self.ranges):
            parts.append("cuts " + " ".join(map(str, self.cuts)))
        if self.hot:
            parts.append("hot " + " ".join(str(part) for part, _ in self.hot))
        return f"ranges({', '.join(parts)})"


@renamed()
def ranges(workers: int, *, count: int = COUNT) -> Ranges:
    """Cut the keys of an Earth Mover's Distance into ranges; neighbours share a worker.

    Needs ``ab.emd(...) <= x`` in the predicate, with a known number of bins. Cuts are even at
    first; ``ab.adaptive(workers, start=ab.ranges(workers))`` moves them with the load.

    Parameters
    ----------
    workers
        How many workers.
    count
        How many ranges: the grain of cuts and of load reports.

    Examples
    --------
    >>> print(ranges(4), ranges(4).cuts)
    ranges(4, count=64) (16, 32, 48)
    """
    problems = worker_problems("workers", workers)
    if not is_whole(count) or int(count) > MOST:
        problems.append(f"count must be a whole number from 1 to {MOST:,}, got {count!r}")
    elif not problems and count < workers:
        problems.append(f"count={count} ranges are too few for {workers} workers")
    refuse("ranges", problems)
    return Ranges(int(workers), int(count))


def even_cuts(workers: int, count: int) -> tuple[int, ...]:
    """Cuts that give every worker as many ranges."""
    return tuple(round(count * worker / workers) for worker in range(1, workers))


def balance(
    load: np.ndarray, workers: int, waiting: np.ndarray | None = None
) -> tuple[tuple[int, ...], tuple[tuple[int, tuple[int, ...]], ...]]:
    """Cuts and hot ranges that even out a load by range (EMD-DDSJ, algorithm 2, repaired).

    Every worker is due the mean, less what is already `waiting` for it. The load of all ranges is
    laid end to end and assigned in that order, so that each worker gets one stretch of it. A range
    that a stretch ends in goes to whoever gets most of it; if that would misplace too much it is
    hot, and its workers are named as often as they get a share of it. The paper's own pass starts
    again at the first range for every worker and so cuts near the beginning only, and it gives any
    hot range evenly to two workers; its other slips are listed in the documentation.

    Examples
    --------
    >>> balance(np.array([1, 1, 1, 1, 4, 4]), 3)
    ((4, 5), ())
    >>> balance(np.array([1, 1, 10, 1, 1]), 2)
    ((2,), ((2, (0, 0, 0, 0, 1, 1, 1, 1)),))
    """
    count = len(load)
    load = np.maximum(np.asarray(load, np.float64), 0.0)
    waiting = np.zeros(workers) if waiting is None else np.asarray(waiting, np.float64)
    total = float(load.sum())
    if workers == 1 or not total > 0:
        return even_cuts(workers, count), ()
    due = np.maximum((total + waiting.sum()) / workers - waiting, 0.0)
    due = due / due.sum() if due.sum() > 0 else np.full(workers, 1 / workers)
    running = np.concatenate([[0.0], np.cumsum(load / total)])
    ends = np.concatenate([[0.0], np.cumsum(due)])
    # How much of each range (a row) lies in the stretch of each worker (a column).
    shared = np.minimum(running[1:, None], ends[None, 1:]) - np.maximum(
        running[:-1, None], ends[None, :-1]
    )
    shared = np.maximum(shared, 0.0)
    owner = np.where(
        load > 0,
        shared.argmax(axis=1),
        np.clip(np.searchsorted(ends, running[:-1], "right") - 1, 0, workers - 1),
    )
    owner = np.maximum.accumulate(owner)
    misplaced = load / total - shared.max(axis=1)
    hot = []
    for part in np.flatnonzero(misplaced > _MISPLACED / workers):
        tickets = _TICKETS * workers * shared[part] / shared[part].sum()
        named = np.diff(np.round(np.concatenate([[0.0], np.cumsum(tickets)]))).astype(int)
        if np.count_nonzero(named) > 1:
            hot.append((int(part), tuple(np.repeat(np.arange(workers), named).tolist())))
    cuts = np.searchsorted(owner, np.arange(1, workers), "left")
    return tuple(int(cut) for cut in cuts), tuple(hot)


def imbalance(shares: np.ndarray) -> float:
    """How far the most loaded worker is above the mean, as a share of it.

    Examples
    --------
    >>> imbalance(np.array([3.0, 1.0]))
    0.5
    """
    mean = float(np.mean(shares))
    return float(np.max(shares)) / mean - 1 if mean > 0 else 0.0


def range_of(keys: np.ndarray, low: float, high: float, count: int) -> np.ndarray:
    """The number of the range that each key falls into; keys outside belong to the ends.

    Examples
    --------
    >>> range_of(np.array([-1.0, 0.0, 4.9, 5.0, 10.0]), 0.0, 10.0, 2).tolist()
    [0, 0, 0, 1, 1]
    """
    width = (high - low) / count
    if not width > 0:
        return np.zeros(len(keys), np.int64)
    with np.errstate(over="ignore"):  # infinity belongs to an end too
        places = np.clip(np.floor((keys - low) / width), 0, count - 1)
    found: np.ndarray = places.astype(np.int64)
    return found
