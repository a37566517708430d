"""Pairs of queries and new objects that are close enough to matter, with their exact scores.

Letters: q a query, i an object, s their score; e an entry of a cell; a an axis (and a, b, c, d the
differences along four of them).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.flow.extremes import out_of_range
from anabranch.flow.lending import lent
from anabranch.flow.process import njit
from anabranch.neighbours.lists.scoring import FAINT, root, score

__all__ = ["beyond", "group", "look_up", "rescore"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


_FEW = 4
_LINE = 8
_BLOCK = 128


class Pairs(NamedTuple):
    """Queries and objects that may matter, with scores; more rows than are used."""

    q: np.ndarray
    i: np.ndarray
    s: np.ndarray


@njit(boundscheck=False)
def beyond(measure, centre, points, at, limit):  # pragma: no cover
    """Whether a point is surely farther than the limit; cheaper than its exact score."""
    if measure != 0:
        return False
    total = 0.0
    for a in range(len(centre)):
        gap = centre[a] - points[at, a]
        total += gap * gap
    return total > limit * limit * 1.000001 + FAINT


@njit(boundscheck=False)
def look_up(measure, points, units, parts, centres, tau, grid, room):  # pragma: no cover
    """Candidates (query, object, score) of a grid: what each object finds in its cell."""
    cells = _cells(units, parts, grid)
    if measure != 2 and points.shape[1] <= _FEW:
        return _meet_few(measure, points, centres, tau, cells, grid, room)
    starts, listed = grid.starts, grid.queries
    out = Pairs(np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room))
    lanes = np.empty(8)
    found = 0
    for i in range(len(points)):
        begin, end = starts[cells[i]], starts[cells[i] + 1]
        if found + end - begin > len(out.s):
            out = _wider(out, found, 2 * (found + end - begin))
        for e in range(begin, end):
            q = listed[e]
            if beyond(measure, centres[q], points, i, tau[q]):
                continue
            s = score(measure, centres[q], points[i], lanes)
            if s < tau[q]:
                out.q[found] = q
                out.i[found] = i
                out.s[found] = s
                found += 1
    return out.q[:found], out.i[:found], out.s[:found]


@njit(boundscheck=False)
def _cells(units, parts, grid):  # pragma: no cover
    """The cell of each object; what lies outside belongs to the border.

    Objects of a part that no query is in go to the last cell, which is empty.
    """
    low, scale, per_axis = grid.low, grid.scale, grid.per_axis
    nowhere = len(grid.starts) - 2
    each = per_axis ** units.shape[1]
    cells = np.empty(len(units), np.int64)
    for i in range(len(units)):
        if parts[i] < 0 or parts[i] * each >= nowhere:
            cells[i] = nowhere
            continue
        cell = parts[i]
        for a in range(units.shape[1]):
            at = min(max((units[i, a] - low[a]) * scale[a], 0.0), per_axis - 1.0)
            cell = cell * per_axis + np.int64(at)
        cells[i] = cell
    return cells


@njit(boundscheck=False)
def _meet_few(measure, points, centres, tau, cells, grid, room):  # pragma: no cover
    """`look_up` where vectors are short: nothing hangs on a comparison hard to foresee.

    Scores are added up in the order of `flow.lanes`.
    """
    n, dim = points.shape
    city = measure == 1
    starts = grid.starts
    # A line of the processor's cache for each query: its point and its limit. Columns that are
    # missing are zero for queries and objects alike, and add nothing.
    lines = np.zeros(_LINE * len(centres))
    for q in range(len(centres)):
        for a in range(dim):
            lines[_LINE * q + a] = centres[q, a]
        far = tau[q] if city or tau[q] < 0 else tau[q] * tau[q] * 1.000001 + FAINT
        lines[_LINE * q + _FEW] = far
    out = Pairs(np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room))
    found = 0
    for first in range(0, n, _BLOCK):
        last = min(first + _BLOCK, n)
        most = found
        for i in range(first, last):
            most += starts[cells[i] + 1] - starts[cells[i]]
        if most > len(out.s):
            out = _wider(out, found, 2 * most)
        found = _meet_block(city, points, lines, cells, grid, first, last, out, found)
    if not city:
        _mend(points, centres, out, found)
    kept = 0
    out_q, out_i, out_s = out
    for c in range(found):
        s = root(measure, out_s[c])
        out_q[kept], out_i[kept], out_s[kept] = out_q[c], out_i[c], s
        kept += s < tau[out_q[c]]
    return out_q[:kept], out_i[:kept], out_s[:kept]


@njit(boundscheck=False)
def _meet_block(city, points, lines, cells, grid, first, last, out, found):  # pragma: no cover
    """Objects first..last; scores are squared unless `city`."""
    points, lines, cells, grid = lent(points), lent(lines), lent(cells), lent(grid)
    out_q, out_i, out_s = lent(out)
    starts, listed = grid.starts, grid.queries
    dim = points.shape[1]
    # Of unsigned positions compiled code knows that none counts from the end.
    free = np.uint64(found)
    for i in range(first, last):
        p0 = points[i, 0]
        p1 = points[i, 1] if dim > 1 else 0.0
        p2 = points[i, 2] if dim > 2 else 0.0
        p3 = points[i, 3] if dim > 3 else 0.0
        cell = cells[i]
        for e in range(np.uint64(starts[cell]), np.uint64(starts[cell + 1])):
            q = listed[e]
            line = np.uint64(q) * np.uint64(_LINE)
            a, b = lines[line] - p0, lines[line + np.uint64(1)] - p1
            c, d = lines[line + np.uint64(2)] - p2, lines[line + np.uint64(3)] - p3
            square = (a * a + b * b) + (c * c + d * d)
            total = (abs(a) + abs(b)) + (abs(c) + abs(d)) if city else square
            out_q[free] = q
            out_i[free] = i
            out_s[free] = total
            free += np.uint64(total <= lines[line + np.uint64(_FEW)])
    return np.int64(free)


@njit(boundscheck=False)
def _mend(points, centres, out, found):  # pragma: no cover
    """Put distances, negated, where squares are out of range."""
    out_q, out_i, out_s = out
    extreme = 0
    for c in range(found):
        extreme += out_of_range(out_s[c])
    if extreme == 0:
        return
    lanes = np.empty(8)
    for c in range(found):
        if out_of_range(out_s[c]):
            out_s[c] = -score(0, centres[out_q[c]], points[out_i[c]], lanes)


@njit
def _wider(out, used, room):  # pragma: no cover
    """The same pairs with room for more."""
    q, i, s = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room)
    q[:used], i[:used], s[:used] = out.q[:used], out.i[:used], out.s[:used]
    return Pairs(q, i, s)


@njit(boundscheck=False)
def rescore(measure, centres, points, q, i):  # pragma: no cover
    """Exact scores of pairs that a filter proposed."""
    out = np.empty(len(q))
    lanes = np.empty(8)
    for n in range(len(q)):
        out[n] = score(measure, centres[q[n]], points[i[n]], lanes)
    return out


@njit(boundscheck=False)
def group(count, q, i, s):  # pragma: no cover
    """Candidates by query, in the order in which they were found."""
    starts = np.zeros(count + 1, np.int64)
    for n in range(len(q)):
        starts[q[n] + 1] += 1
    for n in range(count):
        starts[n + 1] += starts[n]
    at = starts[:-1].copy()
    by_i = np.empty(len(q), np.int32)
    by_s = np.empty(len(q), np.float64)
    for n in range(len(q)):
        by_i[at[q[n]]] = i[n]
        by_s[at[q[n]]] = s[n]
        at[q[n]] += 1
    return starts, by_i, by_s
