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
bounds accept them; the rest is solved. Which filters run changes the cost, never the pairs. Those
that no default chain runs are in `methods`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from anabranch.correlation.emd.bounds import routes_of
from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.limit import Limit
from anabranch.correlation.emd.methods.latest import LATEST
from anabranch.correlation.emd.methods.reference import References
from anabranch.correlation.emd.methods.triangle import triangle
from anabranch.correlation.emd.potentials import WIDE, Learning, Learnt, standing
from anabranch.correlation.emd.profile import Profile, profile
from anabranch.correlation.emd.runs import Found, Runs
from anabranch.correlation.emd.scan import SCANNED, Cuts, Scan
from anabranch.correlation.emd.solve import Solution, solve
from anabranch.correlation.emd.survivors import IN, OPEN, OUT, Survivors
from anabranch.correlation.emd.tally import Tally
from anabranch.correlation.emd.upper import try_bounds
from anabranch.correlation.filters.tiles import Pair, comparisons
from anabranch.flow.blocks import Block

__all__ = ["Chain"]

# mypy: disable-error-code="no-untyped-call"

_SURVIVORS = 512  # pairs that are decided together
_MANY = 96  # pairs ruled out by expensive bounds that are worth a solution


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
        self._references = References()
        # A solution costs about as much as looking at so many pairs.
        self.weight = max(100.0, 0.7 * len(ground.costs) ** 2)

    @property
    def nbytes(self) -> int:
        """Bytes of what it has learnt and of its ground distance."""
        pool = 0 if self._pool is None else self._pool.nbytes
        return self._learnt.nbytes + pool + self._references.nbytes + self.ground.nbytes

    def matches(self, pair: Pair, tally: Tally) -> Iterator[Found]:
        """Every pair of the two blocks that joins here."""
        if not len(pair.left) or not len(pair.right):
            return
        self.tally = tally
        a, b = self._profile(pair.left), self._profile(pair.right)
        names = self.filters | {"duals"} if self._learns else self.filters
        cuts = Cuts.of(names, a, self.ground, self.limit)
        scan = Scan(a, b, self._runs(a, b), cuts, pair.stamps, self._how.rows, _SURVIVORS)
        progress = scan.progress
        while not progress.done:
            lessons = self._lessons(a), self._lessons(b)
            left, right = scan.group(lessons, self._learnt.count)
            if not len(left):
                continue
            group = Survivors(a, b, left, right, self.exact_scores)
            self._decide(group, progress.work)
            i, j, value = group.matches
            if len(i):
                yield Found(a.rows[i], b.rows[j], value)
        tally.cut("key", comparisons(pair) - int(progress.counts[0]))
        for name, cut in zip(SCANNED, progress.counts[1:], strict=True):
            tally.cut(name, int(cut))
        tally.spend(a.keys, progress.work)

    def decide(
        self, left: Block, right: Block, i: np.ndarray, j: np.ndarray, tally: Tally
    ) -> tuple[np.ndarray, np.ndarray]:
        """The distance of given pairs as far as it is needed, and whether they match."""
        value, good = np.full(len(i), np.nan), np.zeros(len(i), bool)
        if not len(i):
            return value, good
        self.tally = tally
        a, b = self._profile(left), self._profile(right)
        order = np.argsort(i, kind="stable")
        work = np.zeros(len(a.rows))
        for start in range(0, len(order), _SURVIVORS):
            part = order[start : start + _SURVIVORS]
            group = Survivors(a, b, a.spot[i[part]], b.spot[j[part]], self.exact_scores)
            self._decide(group, work)
            found = group.state == IN
            value[part[found]], good[part[found]] = group.value[found], True
        tally.spend(a.keys, work)
        return value, good

    def _profile(self, block: Block) -> Profile:
        return profile(block, self.slot, self.ground, self._pool, self.filters)

    def _lessons(self, of: Profile) -> np.ndarray:
        return of.lessons(self._learnt) if self._learns else np.zeros((len(of.rows), 0), "f4")

    def _runs(self, a: Profile, b: Profile) -> Runs:
        if "key" not in self.filters or self.limit.upward:
            return Runs.everything(len(a.rows), len(b.rows))
        return Runs.within(a.keys, b.keys, self.limit.near + self.ground.epsilon)

    def _decide(self, of: Survivors, work: np.ndarray) -> None:
        """Decide every survivor: by bounds, or by its distance."""
        full = self._learnt.total + self._how.lessons
        routes = routes_of(self.ground)
        if "reference" in self.filters and not self.limit.upward:
            around = self._references.around(of, routes)
            sure = np.flatnonzero(around <= self.limit.high)
            of.accept(sure, around[sure])
        for name, pairs in try_bounds(of, routes, self.limit, self.filters).items():
            self.tally.cut(name, pairs)
        taken = of.state == IN
        if self.exact_scores and not self.limit.upward:
            of.state[taken] = OPEN  # they match, but their distance is wanted
        else:
            self.tally.accepted += int(taken.sum())
        self._solve(of, np.flatnonzero(of.state == OPEN), work, full)
        if self._learns and self._how.invests and not self.limit.upward:
            self._invest(of, np.flatnonzero(of.state == OUT), work, full)

    def _solve(self, of: Survivors, pairs: np.ndarray, work: np.ndarray, full: int) -> None:
        """Solve open pairs, row by row; each solution in vain may rule out others."""
        learn = self._learns and not self.limit.upward
        by_triangle = "triangle" in self.filters and not self.limit.upward
        near = self.limit.near + self.ground.epsilon
        apart = of.apart(pairs) if learn and len(pairs) else None
        row = -1
        for n, pair in enumerate(pairs):
            if of.left[pair] != row:
                row = int(of.left[pair])
                if by_triangle:
                    mine = pairs[n:][of.left[pairs[n:]] == row]
                    triangle(of, row, mine, self.ground, self.limit, self.tally)
            if of.state[pair] != OPEN:
                continue
            found = self._solution(of, pair)
            self.tally.solved += 1
            work[row] += self.weight
            matches = self.limit.low <= found.value <= self.limit.high
            of.state[pair], of.value[pair] = (IN if matches else OUT), found.value
            if by_triangle and of.b.before is not None:
                of.b.before.know(of.right[pair], found.value, found.value)
            if matches or apart is None or found.potential is None:
                continue
            self._learn(found.potential, full)
            rest = np.flatnonzero(of.state[pairs[n + 1 :]] == OPEN) + n + 1
            if len(rest) and self._how.at_once:
                gone = rest[np.abs(apart[rest] @ found.potential) > near]
                of.rule_out(pairs[gone])
                self.tally.cut("duals", len(gone))

    def _invest(self, of: Survivors, gone: np.ndarray, work: np.ndarray, full: int) -> None:
        """Solve a few pairs that expensive bounds ruled out, for potentials that do the same."""
        while len(gone) >= _MANY and self._learnt.total < full:
            pair = gone[len(gone) // 2]
            found = self._solution(of, pair)
            self.tally.lessons += 1
            work[of.left[pair]] += self.weight
            if found.potential is None:
                return
            self._learn(found.potential, full)
            gone = gone[np.abs(of.apart(gone) @ found.potential) <= self.limit.near]

    def _solution(self, of: Survivors, pair: int) -> Solution:
        p, q = of.a.masses[of.left[pair]], of.b.masses[of.right[pair]]
        return solve(p, q, self.ground.costs)

    def _learn(self, potential: np.ndarray, full: int) -> None:
        if self._learnt.total < full:
            self._learnt.add(potential)
