"""A grid over the space in which each cell lists the queries whose ball reaches it.

Where queries are in parts, each part has a grid of its own, one after the other.

An object looks into one cell and meets only queries that may want it. Cells at the border reach to
infinity, so objects outside the grid's box are found as well. Balls are registered larger than
needed, so that a query whose radius grows a little stays findable; one that outgrows its ball, or
is new, has to be looked after elsewhere until it is registered.

Letters: q a query, r its reach, c a cell, a an axis.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from anabranch.flow.process import njit
from anabranch.neighbours.lists.scoring import FAINT

__all__ = ["GRID_DIMENSIONS", "Grid", "cells_per_axis", "covered", "drift"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

GRID_DIMENSIONS = 4  # beyond, a ball meets far more cells than its share of the space
ROOM = 1.3  # on the squared radius
_CELLS = 1 << 16
_ENTRIES = 40_000_000
_NARROW = 1e-290  # cells of a narrower box would be too small to count


def cells_per_axis(dim: int) -> int:
    """How finely to divide each axis.

    Examples
    --------
    >>> [cells_per_axis(dim) for dim in (1, 2, 3, 4)]
    [1024, 128, 28, 10]
    """
    return {1: 1024, 2: 128, 3: 28, 4: 10}.get(dim, max(1, int(_CELLS ** (1 / dim))))


class Grid(NamedTuple):
    """Queries by cell: those of cell c are ``queries[starts[c] : starts[c + 1]]``; the last cell
    is empty.

    Axis a is divided into `per_axis` cells of ``1 / scale[a]``, from ``low[a]`` on. `limit` is the
    radius up to which a query is sure to be found; 0 for one that is not here.
    """

    low: np.ndarray
    scale: np.ndarray
    per_axis: int
    starts: np.ndarray
    queries: np.ndarray
    limit: np.ndarray

    @classmethod
    def of(
        cls,
        measure: int,
        centres: np.ndarray,
        radii: np.ndarray,
        which: np.ndarray,
        sample: np.ndarray,
        parts: np.ndarray,
    ) -> Grid:
        """The grid of the queries `which`, over the box of `sample`, which are typical objects.

        `parts` are those of all queries; one below 0 is nowhere.
        """
        which = which[parts[which] >= 0]
        count = int(parts[which].max(initial=0)) + 1
        dim = centres.shape[1]
        low, high = sample.min(axis=0), sample.max(axis=0)
        extent = np.where(high - low > _NARROW, high - low, 1.0)
        limit = np.zeros(len(centres))
        limit[which] = radii[which] * math.sqrt(ROOM)
        reach = limit[which] + _slack(low, extent)
        per_axis = max(1, int(cells_per_axis(dim) / count ** (1 / dim)))
        while True:
            scale = per_axis / extent
            if _most(reach, scale, per_axis) <= _ENTRIES or per_axis <= 2:
                break
            per_axis = max(2, int(per_axis * 0.8))
        none = np.empty(0, np.int64), np.empty(0, np.int32)
        empty = cls(low, scale, per_axis, *none, limit)
        starts, queries = _register(
            measure == 1, centres, which, reach, parts, empty, count * per_axis**dim + 1
        )
        return empty._replace(starts=starts, queries=queries)

    def registering(
        self,
        measure: int,
        centres: np.ndarray,
        radii: np.ndarray,
        which: np.ndarray,
        parts: np.ndarray,
    ) -> Grid | None:
        """The same with the queries `which` registered anew, others as they are.

        None where they need parts or room that are not here.

        Examples
        --------
        >>> point, one = np.array([[0.0], [1.0], [5.0]]), np.ones(3)
        >>> parts = np.zeros(3, np.int64)
        >>> grid = Grid.of(0, point, one, np.arange(2), point, parts)
        >>> more = grid.registering(0, point, one, np.array([1, 2]), parts)
        >>> both = Grid.of(0, point, one, np.arange(3), point, parts)
        >>> np.array_equal(more.starts, both.starts), np.array_equal(more.limit, both.limit)
        (True, True)
        """
        which = which[parts[which] >= 0]
        cells = len(self.starts) - 1
        each = self.per_axis ** len(self.low)
        if (int(parts[which].max(initial=0)) + 1) * each >= cells:
            return None
        limit = self.limit.copy()
        limit[which] = radii[which] * math.sqrt(ROOM)
        reach = limit[which] + _slack(self.low, self.per_axis / self.scale)
        if len(self.queries) + _most(reach, self.scale, self.per_axis) > _ENTRIES:
            return None
        few = _register(measure == 1, centres, which, reach, parts, self, cells)
        stays = np.ones(len(limit), bool)
        stays[which] = False
        starts, queries = _joined(self.starts, self.queries, stays, *few)
        return self._replace(starts=starts, queries=queries, limit=limit)

    def with_more(self, count: int) -> Grid:
        """The same after so many queries more, which are not here."""
        return self._replace(limit=np.concatenate([self.limit, np.zeros(count)]))

    def only(self, places: np.ndarray) -> Grid:
        """The same of some queries, by their new numbers.

        Examples
        --------
        >>> point, one = np.array([[0.0], [1.0], [5.0]]), np.ones(3)
        >>> grid = Grid.of(0, point, one, np.arange(3), point, np.zeros(3, np.int64))
        >>> fewer = grid.only(np.array([0, 2]))
        >>> np.unique(grid.queries).tolist(), np.unique(fewer.queries).tolist()
        ([0, 1, 2], [0, 1])
        """
        number = np.full(len(self.limit), -1, np.int32)
        number[places] = np.arange(len(places))
        starts, queries = _only(self.starts, self.queries, number)
        return self._replace(starts=starts, queries=queries, limit=self.limit[places])


def _slack(low: np.ndarray, extent: np.ndarray) -> float:
    """How much larger balls are: rounding may put an object into a cell beside its own."""
    return 1e-9 * float(np.abs(low).max() + np.abs(low + extent).max() + extent.max())


def _most(reach: np.ndarray, scale: np.ndarray, per_axis: int) -> float:
    """At most so many entries have balls of this reach."""
    boxes = np.minimum(2 * reach[:, None] * scale[None, :] + 2, per_axis).prod(axis=1)
    return float(boxes.sum())


@njit(boundscheck=False)
def _register(city, centres, which, reach, parts, grid, cells):  # pragma: no cover
    """For each cell, the queries whose ball meets it; counted first, then filled in."""
    low, scale, per_axis = grid.low, grid.scale, grid.per_axis
    dim = centres.shape[1]
    starts = np.zeros(cells + 1, np.int64)
    queries = np.empty(0, np.int32)
    first = np.empty(dim, np.int64)
    last = np.empty(dim, np.int64)
    cell = np.empty(dim, np.int64)
    # Distance to the cell along each axis, summed up to that axis.
    apart = np.zeros(dim + 1)
    for turn in range(2):
        if turn == 1:
            total = 0
            for c in range(cells + 1):
                count = starts[c]
                starts[c] = total
                total += count
            queries = np.empty(total, np.int32)
        for n in range(len(which)):
            q = which[n]
            r = reach[n]
            most = r if city else r * r + FAINT
            for a in range(dim):
                below = (centres[q, a] - r - low[a]) * scale[a]
                above = (centres[q, a] + r - low[a]) * scale[a]
                first[a] = min(
                    max(math.floor(min(max(below, -1.0), per_axis + 1.0)), 0), per_axis - 1
                )
                last[a] = min(
                    max(math.floor(min(max(above, -1.0), per_axis + 1.0)), 0), per_axis - 1
                )
                cell[a] = first[a]
            axis = 0
            # Depth-first over the axes: a partial distance that is too great ends the branch.
            while axis >= 0:
                if cell[axis] > last[axis]:
                    cell[axis] = first[axis]
                    axis -= 1
                    if axis >= 0:
                        cell[axis] += 1
                    continue
                at = centres[q, axis]
                gap = 0.0
                if cell[axis] > 0:
                    gap = max(gap, low[axis] + cell[axis] / scale[axis] - at)
                if cell[axis] < per_axis - 1:
                    gap = max(gap, at - low[axis] - (cell[axis] + 1) / scale[axis])
                far = apart[axis] + (gap if city else gap * gap)
                if far > most:
                    cell[axis] += 1
                    continue
                if axis < dim - 1:
                    apart[axis + 1] = far
                    axis += 1
                    continue
                c = parts[q]
                for a in range(dim):
                    c = c * per_axis + cell[a]
                if turn == 0:
                    starts[c] += 1
                else:
                    queries[starts[c]] = q
                    starts[c] += 1
                cell[axis] += 1
    # Filling moved every start to the next cell's.
    for c in range(cells, 0, -1):
        starts[c] = starts[c - 1]
    starts[0] = 0
    return starts, queries


@njit(boundscheck=False)
def _only(starts, queries, number):  # pragma: no cover
    """Cells with the new numbers of queries; those of number -1 are left out."""
    fewer, kept, count = np.empty_like(starts), np.empty_like(queries), 0
    for c in range(len(starts) - 1):
        fewer[c] = count
        for e in range(starts[c], starts[c + 1]):
            q = number[queries[e]]
            kept[count] = q
            count += q >= 0
    fewer[-1] = count
    return fewer, kept[:count].copy()


@njit(boundscheck=False)
def _joined(starts, queries, stays, more_starts, more_queries):  # pragma: no cover
    """Cells with the queries that stay, and then more of the same cells."""
    joined = np.empty_like(starts)
    found, count = np.empty(len(queries) + len(more_queries), np.int32), 0
    for c in range(len(starts) - 1):
        joined[c] = count
        for e in range(starts[c], starts[c + 1]):
            q = queries[e]
            found[count] = q
            count += stays[q]
        for e in range(more_starts[c], more_starts[c + 1]):
            found[count] = more_queries[e]
            count += 1
    joined[-1] = count
    return joined, found[:count].copy()


# One pass each in place of many over whole arrays, which would be most of a small batch's time.


@njit
def drift(reach, limit, built):  # pragma: no cover
    """How many queries have outgrown a grid, and how many shrank since it was `built`.

    Examples
    --------
    >>> drift(np.array([1.0, 3.0, np.inf]), np.full(3, 2.0), np.array([2.0, 3.0, 0.0]))
    (1, 1)
    """
    strays = shrunk = 0
    for q in range(len(reach)):
        strays += limit[q] < reach[q] < np.inf
        shrunk += reach[q] < 0.55 * built[q]
    return strays, shrunk


@njit
def covered(tau, reach, limit, direct):  # pragma: no cover
    """Thresholds for a look into the grid: -1 for queries that it lacks, which become `direct`.

    Examples
    --------
    >>> direct = np.array([False, False, True])
    >>> covered(np.array([5.0, 6.0, 7.0]), np.ones(3), np.array([1.0, 0.0, 1.0]), direct).tolist()
    [5.0, -1.0, -1.0]
    >>> direct.tolist()
    [False, True, True]
    """
    found = np.empty(len(tau))
    for q in range(len(tau)):
        direct[q] |= reach[q] > limit[q]
        found[q] = -1.0 if direct[q] else tau[q]
    return found
