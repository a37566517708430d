"""The first compiled loop of the chain: lower bounds over runs of rows, the cheapest filter first.

It looks at every pair in a run and lets few through; see `upper` for what comes next.

Letters of the compiled loops: `a` and `b` are the two sides, `i` and `j` places in them, `u` and
`v` rows of their tables, `c` a column.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.limit import Limit
from anabranch.correlation.emd.methods.normal import crossing, edges_of
from anabranch.correlation.emd.methods.projections import beyond_shadow
from anabranch.correlation.emd.profile import Profile
from anabranch.correlation.emd.runs import Progress, Runs
from anabranch.correlation.filters.tiles import Candidates, Stamps, admit, put, stamp_of
from anabranch.flow.process import njit

__all__ = ["SCANNED", "Cuts", "Scan"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

# In the order in which the scan applies them.
SCANNED = ("centroid", "normal", "potentials", "duals", "projections")
_BLOCK = 8


class Cuts(NamedTuple):
    """Which filters of `SCANNED` cut pairs, and beyond which bound, in float64 and in float32.

    `edges` belong to ``normal``; the number of directions to ``projections``.
    """

    centroid: bool
    normal: bool
    potentials: bool
    duals: bool
    projections: bool
    near: float
    near32: np.float32
    manhattan: bool
    directions: int
    edges: np.ndarray

    @classmethod
    def of(cls, filters: frozenset[str], like: Profile, ground: Ground, limit: Limit) -> Cuts:
        """The cuts of these filters, as far as a profile holds what they need."""
        directions = 0
        if like.shadows.shape[1]:
            directions = like.shadows.shape[1] // (len(ground.costs) - 1)
        near = not limit.upward
        return cls(
            near and "centroid" in filters and like.centres.shape[1] > 0,
            near and "normal" in filters and like.moments.shape[1] > 0,
            near and "potentials" in filters,
            near and "duals" in filters,
            near and "projections" in filters and directions > 0,
            limit.near + ground.epsilon,
            np.float32(limit.near + limit.margin(ground)),
            ground.metric == "manhattan",
            directions,
            edges_of(ground.potential) if like.moments.shape[1] else np.zeros(0),
        )


class _Side(NamedTuple):
    """What the loop reads of one profile; `order` leads from rows to places, or back."""

    order: np.ndarray
    pool: np.ndarray
    centres: np.ndarray
    moments: np.ndarray
    shadows: np.ndarray
    lessons: np.ndarray


@dataclass
class Scan:
    """Goes over two profiles, group by group; left rows in the order of their block, of time.

    A group is of so many left rows and survivors at most.
    """

    a: Profile
    b: Profile
    runs: Runs
    cuts: Cuts
    stamps: Stamps
    rows: int
    survivors: int

    def __post_init__(self) -> None:
        self.progress = Progress.begin(len(self.a.rows), len(SCANNED) + 1)

    def group(self, lessons: tuple[np.ndarray, np.ndarray], learnt: int) -> Candidates:
        """The next survivors, as places, given both sides' keys under so many learnt potentials."""
        out = Candidates(np.empty(self.survivors, np.int32), np.empty(self.survivors, np.int32))
        a, b = self.a, self.b
        one = _Side(a.spot, a.pool, a.centres, a.moments, a.shadows, lessons[0])
        two = _Side(b.rows, b.pool, b.centres, b.moments, b.shadows, lessons[1])
        whole = -(-learnt // _BLOCK) * _BLOCK
        sizes = self.rows, whole
        found = _scan(one, two, self.runs, self.cuts, sizes, self.stamps, self.progress, out)
        return Candidates(out.left[:found], out.right[:found])


@njit(nogil=True)
def _beyond(u, v, count, near):  # pragma: no cover
    """Whether any of the first `count` keys are too far apart, eight at a time."""
    for begin in range(0, count, _BLOCK):
        hit = False
        for c in range(begin, begin + _BLOCK):
            hit |= abs(u[c] - v[c]) > near
        if hit:
            return True
    return False


@njit(nogil=True)
def _between(u, v, manhattan):  # pragma: no cover
    """How far two centres are from each other."""
    apart = 0.0
    for c in range(len(u)):
        e = abs(u[c] - v[c])
        apart += e if manhattan else e * e
    return apart if manhattan else math.sqrt(apart)


@njit(inline="always")
def _cut_by(a, b, i, j, cuts, learnt):  # pragma: no cover
    """The number in `SCANNED`, from 1, of the filter that rules the pair out; 0 if none does."""
    near32 = cuts.near32
    if cuts.centroid and _between(a.centres[i], b.centres[j], cuts.manhattan) > cuts.near:
        return 1
    if cuts.normal and crossing(a.moments[i], b.moments[j], cuts.edges) > cuts.near:
        return 2
    if cuts.potentials and _beyond(a.pool[i], b.pool[j], a.pool.shape[1], near32):
        return 3
    if cuts.duals and _beyond(a.lessons[i], b.lessons[j], learnt, near32):
        return 4
    if cuts.projections and beyond_shadow(
        a.shadows[i], b.shadows[j], cuts.directions, cuts.manhattan, near32
    ):
        return 5
    return 0


@njit(nogil=True)
def _scan(a, b, runs, cuts, sizes, stamps, progress, out):  # pragma: no cover
    """Fill the output from ``progress.at``, which then says where to go on.

    `sizes` are the most left rows and the learnt potentials.
    """
    at, counts, work = progress
    first, last = runs
    most, learnt = sizes
    spot, rows = a.order, b.order
    found, room = 0, len(out.left)
    row, skip = at[0], at[1]
    end = min(row + most, len(spot))
    while row < end:
        i, mine = spot[row], stamp_of(row, stamps)
        for j in range(first[i] + skip, last[i]):
            if not admit(mine, rows[j], stamps):
                continue
            if found == room:
                at[0], at[1] = row, j - first[i]
                return found
            counts[0] += 1
            work[i] += 1
            cut = _cut_by(a, b, i, j, cuts, learnt)
            if cut:
                counts[cut] += 1
            else:
                found = put(out, found, i, j, True)
        row, skip = row + 1, 0
    at[0], at[1] = row, 0
    return found
