"""Any ground distance: a chain of filters, from a sorted search to the exact solution.

===================  =====  =================================================================
filter               kind   what it compares
===================  =====  =================================================================
``key``              lower  one potential, as a sorted search
``centroid``         lower  the mean places of the mass (bins with places)
``normal``           lower  where two fitted normal distributions cross (bins with places)
``potentials``       lower  32 potentials of the ground distance
``duals``            lower  up to 64 potentials learnt from pairs that were solved in vain
``latest-duals``     lower  the newest 8, for the left rows that follow, as in the EMD-DDSJ paper
``projections``      lower  one-dimensional distances along some directions (bins with places)
``reference``        upper  the way round by one of a few fixed histograms
``im``               lower  every source as if it were alone
``source-greedy``    upper  every source fills its nearest bins in turn
``im-cancelled``     lower  every source as if it were alone, after cancelling
``greedy``           upper  the cheapest way left, again and again, after cancelling
``exchange``         upper  the same flow, mended by swapping targets
``regret``           upper  the way whose alternative costs most goes first; mended too
``triangle``         both   what is known of the left row before, and how far away that is
===================  =====  =================================================================

Filters run in this order, whatever order they are named in. Lower bounds rule pairs out, upper
bounds accept them; the rest is solved. Which filters run changes the cost, never the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from anabranch.correlation.emd.bounds import routes_of
from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.line import Found
from anabranch.correlation.emd.potentials import LATEST, WIDE, Learning, Learnt, standing
from anabranch.correlation.emd.profile import Known, Profile, profile
from anabranch.correlation.emd.scan import SCANNED, scan, settle
from anabranch.correlation.emd.solve import solve
from anabranch.correlation.emd.tally import Tally
from anabranch.correlation.emd.verdict import Limit
from anabranch.correlation.filters.tiles import Pair, comparisons
from anabranch.flow.blocks import Block

__all__ = ["Chain"]

# mypy: disable-error-code="no-untyped-call"

_SURVIVORS = 512  # pairs that are settled together
_MANY = 96  # pairs ruled out by dear bounds that are worth a solution
_WORTHWHILE = 4  # pairs of one left row for which a triangle pays
_REFERENCES = 8


class Chain:
    """Searches blocks under one ground distance; remembers what it has learnt between blocks.

    What it has learnt changes which pairs must be solved, never which pairs match.
    """

    def __init__(
        self,
        slot: str,
        ground: Ground,
        limit: Limit,
        filters: tuple[str, ...],
        exact_scores: bool,
        learning: Learning | None = None,
    ) -> None:
        self.slot, self.ground, self.limit = slot, ground, limit
        self.filters = frozenset(filters)
        self.exact_scores = exact_scores
        self.tally = Tally()
        self._learns = bool(self.filters & {"duals", "latest-duals"})
        self._how = learning or (LATEST if "latest-duals" in self.filters else WIDE)
        self._learnt = Learnt(len(ground.costs), self._how.room)
        self._pool = standing(ground) if "potentials" in self.filters else None
        self._routes = routes_of(ground)
        self._references: np.ndarray | None = None
        # A solution costs about as much as looking at so many pairs.
        self.weight = max(100.0, 0.7 * len(ground.costs) ** 2)

    def matches(self, pair: Pair, tally: Tally) -> Iterator[Found]:
        """Every pair of the two blocks that joins here."""
        if not len(pair.left) or not len(pair.right):
            return
        self.tally = tally
        a, b = self._profiles(pair.left), self._profiles(pair.right)
        first, last = self._runs(a, b)
        counts = np.zeros(len(SCANNED) + 1, np.int64)
        work = np.zeros(len(a.rows))
        at = np.zeros(2, np.int64)
        while at[0] < len(a.rows):
            lessons = self._lessons(a), self._lessons(b)
            left, right = scan(
                a, b, lessons, self._learnt.count, first, last, self._flags(), self.limit,
                self.ground, pair.stamps, at, self._how.rows, _SURVIVORS, counts, work,
            )  # fmt: skip
            if not len(left):
                continue
            i, j, value = self._settle(a, b, left, right, work)
            if len(i):
                yield Found(a.rows[i], b.rows[j], value)
        self._count(counts, comparisons(pair))
        tally.spend(a.keys, work)

    def decide(
        self, left: Block, right: Block, i: np.ndarray, j: np.ndarray, tally: Tally
    ) -> tuple[np.ndarray, np.ndarray]:
        """The distance of given pairs as far as it is needed, and whether they match."""
        value, good = np.full(len(i), np.nan), np.zeros(len(i), bool)
        if not len(i):
            return value, good
        self.tally = tally
        a, b = self._profiles(left), self._profiles(right)
        order = np.argsort(i, kind="stable")
        work = np.zeros(len(a.rows))
        for start in range(0, len(order), _SURVIVORS):
            part = order[start : start + _SURVIVORS]
            x, y = a.spot[i[part]], b.spot[j[part]]
            got_x, got_y, values = self._settle(a, b, x, y, work)
            codes = x.astype(np.int64) * len(b.rows) + y
            ranks = np.argsort(codes, kind="stable")
            found = ranks[
                np.searchsorted(codes[ranks], got_x.astype(np.int64) * len(b.rows) + got_y)
            ]
            value[part[found]], good[part[found]] = values, True
        tally.spend(a.keys, work)
        return value, good

    def _profiles(self, block: Block) -> Profile:
        return profile(block, self.slot, self.ground, self._pool, self.filters)

    def _lessons(self, of: Profile) -> np.ndarray:
        return of.lessons(self._learnt) if self._learns else np.zeros((len(of.rows), 0), "f4")

    def _runs(self, a: Profile, b: Profile) -> tuple[np.ndarray, np.ndarray]:
        if "key" not in self.filters or self.limit.upward:
            return np.zeros(len(a.rows), np.int64), np.full(len(a.rows), len(b.rows))
        reach = self.limit.near + self.ground.epsilon
        first = np.searchsorted(b.keys, a.keys - reach, "left")
        return first, np.searchsorted(b.keys, a.keys + reach, "right")

    def _flags(self) -> np.ndarray:
        names = self.filters | {"duals"} if self._learns else self.filters
        return np.array([name in names and not self.limit.upward for name in SCANNED])

    def _count(self, counts: np.ndarray, joinable: int) -> None:
        self.tally.cut("key", joinable - int(counts[0]))
        for name, cut in zip(SCANNED, counts[1:], strict=True):
            self.tally.cut(name, int(cut))

    def _settle(
        self,
        a: Profile,
        b: Profile,
        left: np.ndarray,
        right: np.ndarray,
        work: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Matches among the survivors, as places in the profiles, and their distances."""
        full = self._learnt.total + self._how.lessons
        around = self._around(a, b, left, right) if "reference" in self.filters else None
        value, state, cut = settle(
            a.masses, b.masses, left, right, self._routes, self.limit, self.filters, around
        )
        for name, pairs in cut.items():
            self.tally.cut(name, pairs)
        taken = state == 1
        if self.exact_scores and not self.limit.upward:
            state[taken] = 0  # they match, but their distance is wanted
            taken[:] = False
        open_ = np.flatnonzero(state == 0)
        self.tally.accepted += int(taken.sum())
        if len(open_):
            self._refine(a, b, left, right, open_, value, state, work, full)
        if self._learns and self._how.invests and not self.limit.upward:
            self._invest(a, b, left, right, np.flatnonzero(state == 2), work, full)
        good = np.flatnonzero(state == 1)
        return left[good], right[good], value[good]

    def _refine(
        self,
        a: Profile,
        b: Profile,
        left: np.ndarray,
        right: np.ndarray,
        open_: np.ndarray,
        value: np.ndarray,
        state: np.ndarray,
        work: np.ndarray,
        full: int,
    ) -> None:
        """Solve what is open, row by row; each solution in vain may rule out others."""
        learn = self._learns and not self.limit.upward
        triangle = "triangle" in self.filters and not self.limit.upward
        costs, near = self.ground.costs, self.limit.near + self.ground.epsilon
        low, high = self.limit.low, self.limit.high
        apart = a.masses[left[open_]] - b.masses[right[open_]] if learn else None
        alive = np.ones(len(open_), bool)
        row = -1
        for n, pair in enumerate(open_):
            if left[pair] != row:
                row = int(left[pair])
                if triangle:
                    mine = n + np.flatnonzero(left[open_[n:]] == row)
                    self._triangle(a, b, row, right, open_[mine], value, state)
                    alive[mine] &= state[open_[mine]] == 0
                    sure = np.flatnonzero((left == row) & (state == 1))
                    assert b.before is not None
                    b.before.know(right[sure], 0.0, value[sure])
            if not alive[n]:
                continue
            found = solve(a.masses[row], b.masses[right[pair]], costs)
            self.tally.solved += 1
            work[row] += self.weight
            matches = low <= found.value <= high
            state[pair], value[pair] = (1, found.value) if matches else (2, found.value)
            alive[n] = False
            if triangle and b.before is not None:
                b.before.know(right[pair], found.value, found.value)
            if matches or apart is None or found.potential is None:
                continue
            self._learn(found.potential, full)
            rest = np.flatnonzero(alive[n + 1 :]) + n + 1
            if len(rest) and self._how.at_once:
                beyond = np.abs(apart[rest] @ found.potential) > near
                gone = rest[beyond]
                alive[gone] = False
                state[open_[gone]] = 2
                self.tally.cut("duals", len(gone))

    def _invest(
        self,
        a: Profile,
        b: Profile,
        left: np.ndarray,
        right: np.ndarray,
        gone: np.ndarray,
        work: np.ndarray,
        full: int,
    ) -> None:
        """Solve a few pairs that dear bounds ruled out: potentials will rule out their like."""
        while len(gone) >= _MANY and self._learnt.total < full:
            pair = gone[len(gone) // 2]
            p, q = a.masses[left[pair]], b.masses[right[pair]]
            found = solve(p, q, self.ground.costs)
            self.tally.lessons += 1
            work[left[pair]] += self.weight
            if found.potential is None:
                return
            self._learn(found.potential, full)
            apart = (a.masses[left[gone]] - b.masses[right[gone]]) @ found.potential
            gone = gone[np.abs(apart) <= self.limit.near]

    def _learn(self, potential: np.ndarray, full: int) -> None:
        if self._learnt.total < full:
            self._learnt.add(potential)

    def _triangle(
        self,
        a: Profile,
        b: Profile,
        row: int,
        right: np.ndarray,
        pairs: np.ndarray,
        value: np.ndarray,
        state: np.ndarray,
    ) -> None:
        """Decide pairs of this left row by what is known of the row before it."""
        before, limit, mine = b.before, self.limit, a.masses[row]
        if before is not None and np.array_equal(before.masses, mine):
            return  # the same row goes on, in another group of survivors
        b.before = Known(mine, len(b.rows))
        if before is None:
            return
        known = np.flatnonzero(np.isfinite(before.high[right[pairs]]))
        if len(known) < _WORTHWHILE:
            return
        step = solve(before.masses, mine, self.ground.costs).value
        self.tally.solved += 1
        at = right[pairs[known]]
        low = np.maximum(before.low[at] - step, step - before.high[at])
        high = before.high[at] + step
        cut = pairs[known[low > limit.near + self.ground.epsilon]]
        state[cut] = 2
        self.tally.cut("triangle", len(cut))
        if not self.exact_scores:
            sure = high <= limit.high
            state[pairs[known[sure]]], value[pairs[known[sure]]] = 1, high[sure]
            self.tally.accepted += int(sure.sum())
        b.before.know(at, np.maximum(low, 0.0), high)

    def _around(self, a: Profile, b: Profile, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Upper bounds by way of the references."""
        if self._references is None:
            spread = np.linspace(0, len(a.rows) - 1, min(_REFERENCES, len(a.rows))).astype(int)
            self._references = a.masses[spread].copy()
        legs = [of.to_references(self._references, self._routes) for of in (a, b)]
        ways: np.ndarray = (legs[0][left] + legs[1][right]).min(axis=1)
        return ways
