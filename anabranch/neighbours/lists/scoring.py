"""The distance of a query and an object, in float64 and one fixed order of addition.

Eight lanes summed as a fixed tree, as in `correlation.filters.exact`, so that a pair has the same
score to the last bit whatever algorithm, batch or worker looks at it.
"""

from __future__ import annotations

import math

import numpy as np

from anabranch.flow.process import njit

__all__ = ["CHUNK", "beyond", "distances", "fill", "root", "score"]

CHUNK = 256

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(nogil=True)
def _tree(kind, u, v):  # pragma: no cover
    """Sum of the terms of `kind`: 0 squares of differences, 1 their sizes, 2 products."""
    d = len(u)
    whole = d - d % 8
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
    for c in range(d):
        if kind == 2:
            term = u[c] * v[c]
        else:
            e = u[c] - v[c]
            term = e * e if kind == 0 else abs(e)
        lane = c % 8 if c < whole else c - whole
        if lane == 0:
            a0 += term
        elif lane == 1:
            a1 += term
        elif lane == 2:
            a2 += term
        elif lane == 3:
            a3 += term
        elif lane == 4:
            a4 += term
        elif lane == 5:
            a5 += term
        elif lane == 6:
            a6 += term
        else:
            a7 += term
    return ((a0 + a1) + (a2 + a3)) + ((a4 + a5) + (a6 + a7))


@njit(nogil=True)
def score(metric, u, v):  # pragma: no cover
    """The distance of two vectors; `metric` is a place in `METRICS`."""
    if metric == 0:
        return math.sqrt(_tree(0, u, v))
    if metric == 1:
        return _tree(1, u, v)
    a, b = _tree(2, u, u), _tree(2, v, v)
    product = a * b
    # sqrt(a * b) makes the distance of a vector to itself exactly 0.
    plain = 1e-290 < product < 1e290
    norm = math.sqrt(product) if plain else math.sqrt(a) * math.sqrt(b)
    return 1.0 - min(1.0, max(-1.0, _tree(2, u, v) / norm))


@njit(nogil=True)
def fill(metric, centre, points, columns, begin, end, out, lanes):  # pragma: no cover
    """`out[i]` of the objects from `begin` to `end`: scores, or Euclidean ones squared.

    `columns` is `points` turned, so that all objects of a chunk are added up side by side; `lanes`
    is scratch of 8 by a chunk. `root` makes the score of an entry, the same as `score` gives.
    """
    d = len(centre)
    if metric == 2:
        for i in range(begin, end):
            out[i] = score(metric, centre, points[i])
        return
    whole = d - d % 8
    used = min(d, 8)
    for low in range(begin, end, CHUNK):
        n = min(CHUNK, end - low)
        lanes[:used, :n] = 0.0
        for c in range(d):
            lane = lanes[c % 8 if c < whole else c - whole]
            column, here = columns[c, low : low + n], centre[c]
            if metric == 0:
                for i in range(n):
                    e = here - column[i]
                    lane[i] += e * e
            else:
                for i in range(n):
                    lane[i] += abs(here - column[i])
        part = out[low : low + n]
        if used <= 2:
            part[:] = lanes[0, :n]
            if used == 2:
                for i in range(n):
                    part[i] += lanes[1, i]
        else:
            lanes[used:, :n] = 0.0
            for i in range(n):
                a = (lanes[0, i] + lanes[1, i]) + (lanes[2, i] + lanes[3, i])
                part[i] = a
            if used > 4:
                for i in range(n):
                    b = (lanes[4, i] + lanes[5, i]) + (lanes[6, i] + lanes[7, i])
                    part[i] += b


@njit(nogil=True, inline="always")
def root(metric, filled):  # pragma: no cover
    """The score of an entry that `fill` has made."""
    return math.sqrt(filled) if metric == 0 else filled


@njit(nogil=True, inline="always")
def beyond(metric, tail):  # pragma: no cover
    """An entry of `fill` at least as great surely has a score of at least `tail`."""
    return tail * tail * (1 + 1e-15) + 1e-300 if metric == 0 else tail


@njit(nogil=True)
def _all(metric, queries, points, columns, out):  # pragma: no cover
    lanes = np.empty((8, CHUNK))
    for q in range(len(queries)):
        fill(metric, queries[q], points, columns, 0, len(points), out[q], lanes)
        for o in range(len(points)):
            out[q, o] = root(metric, out[q, o])


def distances(metric: int, queries: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The distance of every query to every object, a row for each query.

    Examples
    --------
    >>> distances(0, np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 1.0]]))
    array([[5., 1.]])
    """
    out = np.empty((len(queries), len(points)))
    _all(metric, queries, points, np.ascontiguousarray(points.T), out)
    return out
