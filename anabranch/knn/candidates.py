"""Pairs of queries and new objects that are close enough to matter, with their exact scores."""

from __future__ import annotations

import numba
import numpy as np

from anabranch.knn.scoring import score

__all__ = ["beyond", "group", "look_up", "rescore"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@numba.njit(cache=True, boundscheck=False)
def beyond(measure, centre, points, at, limit):  # pragma: no cover
    """Whether a point is surely farther than the limit; cheaper than its exact score."""
    if measure != 0:
        return False
    total = 0.0
    for a in range(len(centre)):
        gap = centre[a] - points[at, a]
        total += gap * gap
    return total > limit * limit * 1.000001


@numba.njit(cache=True, boundscheck=False)
def look_up(
    measure, points, units, centres, tau, low, scale, per_axis, starts, listed, room
):  # pragma: no cover
    """Candidates (query, object, score) of a grid: what each object finds in its cell."""
    n, dim = points.shape
    out_q = np.empty(room, np.int32)
    out_i = np.empty(room, np.int32)
    out_s = np.empty(room, np.float64)
    found = 0
    for i in range(n):
        cell = 0
        for a in range(dim):
            at = (units[i, a] - low[a]) * scale[a]
            step = 0 if at < 0.0 else (per_axis - 1 if at >= per_axis else int(at))
            cell = cell * per_axis + step
        begin, end = starts[cell], starts[cell + 1]
        if found + end - begin > len(out_q):
            more = max(2 * len(out_q), found + end - begin)
            wide_q, wide_i, wide_s = (
                np.empty(more, np.int32),
                np.empty(more, np.int32),
                np.empty(more),
            )
            wide_q[:found], wide_i[:found], wide_s[:found] = (
                out_q[:found],
                out_i[:found],
                out_s[:found],
            )
            out_q, out_i, out_s = wide_q, wide_i, wide_s
        for e in range(begin, end):
            q = listed[e]
            if beyond(measure, centres[q], points, i, tau[q]):
                continue
            s = score(measure, centres[q], points[i])
            if s < tau[q]:
                out_q[found] = q
                out_i[found] = i
                out_s[found] = s
                found += 1
    return out_q[:found], out_i[:found], out_s[:found]


@numba.njit(cache=True, boundscheck=False)
def rescore(measure, centres, points, q, i):  # pragma: no cover
    """Exact scores of pairs that a filter proposed."""
    out = np.empty(len(q))
    for n in range(len(q)):
        out[n] = score(measure, centres[q[n]], points[i[n]])
    return out


@numba.njit(cache=True, boundscheck=False)
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
