"""Candidates by a matrix product on the CPU: every object against every query, in float32.

From five dimensions on a product takes a half to a tenth of the time of `scan`, which adds squares
of differences. Its bound is that of all filters that multiply (`flow.goals`), with the distance to
each query's threshold; what is proposed is scored again in float64. Where float32 cannot tell
objects apart nearly all pairs reach the bound: a few tiles show that, and no more are looked at.

Letters: q a query, j an object of a tile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.flow.goals import Operand, goal_of, operand_of
from anabranch.flow.process import njit
from anabranch.neighbours.lists.resting import Resting

__all__ = ["Matrix"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_MANHATTAN = 1
_OBJECTS = 512  # of a tile
_WORTHWHILE = 50_000  # multiplications; fewer are scanned sooner than tiles are laid out
_TILE = 1 << 16  # float32 numbers, which stay in the processor's cache
# To score one proposed pair costs more than to scan sixteen. A few tiles may be of queries alike.
_TOO_MANY, _ANYWAY = 1 / 16, 2 * _TILE
_MOST = 1 << 23  # pairs proposed; with what scoring them takes, 200 MB


class Matrix:
    """Proposes pairs of queries and new objects for one list with repair, as `Products` does.

    Unless it is to do so `always`, little work is left to a scan.
    """

    __slots__ = ("_asked", "_centres", "_least", "resting")

    def __init__(self, always: bool = False) -> None:
        self.resting = Resting()
        self._least = 0 if always else _WORTHWHILE
        self._centres: np.ndarray | None = None
        self._asked: Operand | None = None

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return 0 if self._asked is None else self._asked.matrix.nbytes

    def near(
        self, measure: int, centres: np.ndarray, units: np.ndarray, reach: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Queries and objects that may be closer than `reach`; None where they are to be scanned.

        Queries with a `reach` of minus infinity take no part. Pairs are in the order of tiles of
        objects, and of objects for each query. After too many of them it rests.
        """
        which = np.flatnonzero(reach > 0)
        little = len(which) * units.size < max(self._least, 1)
        if measure == _MANHATTAN or little or self.resting.now():
            return None
        if self._asked is None or self._centres is not centres:
            self._asked, self._centres = operand_of(centres), centres
        asked, fresh = self._asked, operand_of(units)
        rows, scale = asked.matrix, asked.scale
        if len(which) < len(centres):
            rows, scale = rows[which], scale._replace(norms=scale.norms[which])
        goal = goal_of("euclidean", scale, fresh.scale, False, reach[which])
        assert goal.row is not None and goal.col is not None
        found = _tiled(
            rows,
            fresh.matrix,
            (np.float32(goal.factor), goal.row, goal.col, goal.low),
            which.astype(np.int32),
        )
        if found is None:
            self.resting.begin()
        return found


def _tiled(
    rows: np.ndarray,
    objects: np.ndarray,
    goal: tuple[Any, np.ndarray, np.ndarray, np.ndarray],
    ids: np.ndarray,
) -> tuple[np.ndarray, np.ndarray] | None:
    """The pairs that reach the goal, tile by tile; None if they are too many."""
    factor, row, col, low = goal
    high = max(1, _TILE // min(_OBJECTS, len(objects)))
    room = np.empty(min(_TILE, high * _OBJECTS), np.float32)
    out_q, out_i, found = np.empty(2 * _TILE, np.int32), np.empty(2 * _TILE, np.int32), 0
    looked_at = 0
    for start in range(0, len(objects), _OBJECTS):
        wide = objects[start : start + _OBJECTS].T
        for at in range(0, len(ids), high):
            part = slice(at, at + high)
            left = rows[part]
            size = len(left) * wide.shape[1]
            tile = np.matmul(left, wide, out=room[:size].reshape(len(left), wide.shape[1]))
            if found + size > len(out_q):
                out_q, out_i = (np.concatenate([out[:found], out]) for out in (out_q, out_i))
            about = factor, row[part], col[start : start + _OBJECTS], low[part], ids[part]
            found = _reaching(tile, *about, start, out_q, out_i, found)
            looked_at += size
            if found > min(_MOST, _ANYWAY + _TOO_MANY * looked_at):
                return None
    return out_q[:found].copy(), out_i[:found].copy()


@njit(boundscheck=False)
def _reaching(tile, factor, row, col, low, ids, start, out_q, out_i, found):  # pragma: no cover
    """Add the pairs of a tile that reach the goal; how many there are then."""
    n = tile.shape[1]
    for q in range(len(ids)):
        largest = np.float32(-np.inf)
        for j in range(n):
            largest = max(largest, factor * tile[q, j] + row[q] + col[j])
        if largest >= low[q]:
            for j in range(n):
                if factor * tile[q, j] + row[q] + col[j] >= low[q]:
                    out_q[found] = ids[q]
                    out_i[found] = start + j
                    found += 1
    return found
