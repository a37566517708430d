"""The distance of a query and an object, in float64 and one fixed order of addition.

Eight lanes summed as a fixed tree, as in `anabranch.distances.exact`, so that a pair has the same
score to the last bit whatever algorithm, batch or worker looks at it.
"""

from __future__ import annotations

import math

import numba
import numpy as np

__all__ = ["distances", "score"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@numba.njit(cache=True, nogil=True)
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


@numba.njit(cache=True, nogil=True)
def score(metric, u, v):  # pragma: no cover
    """The distance of two vectors; `metric` is a place in `anabranch.knn.METRICS`."""
    if metric == 0:
        if len(u) == 4:  # the papers' case, without the lanes' bookkeeping
            w, x, y, z = u[0] - v[0], u[1] - v[1], u[2] - v[2], u[3] - v[3]
            return math.sqrt((w * w + x * x) + (y * y + z * z))
        return math.sqrt(_tree(0, u, v))
    if metric == 1:
        return _tree(1, u, v)
    a, b = _tree(2, u, u), _tree(2, v, v)
    product = a * b
    # sqrt(a * b) makes the distance of a vector to itself exactly 0.
    plain = 1e-290 < product < 1e290
    norm = math.sqrt(product) if plain else math.sqrt(a) * math.sqrt(b)
    return 1.0 - min(1.0, max(-1.0, _tree(2, u, v) / norm))


@numba.njit(cache=True, nogil=True)
def _all(metric, queries, points, out):  # pragma: no cover
    for q in range(len(queries)):
        for o in range(len(points)):
            out[q, o] = score(metric, queries[q], points[o])


def distances(metric: int, queries: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The distance of every query to every object, a row for each query.

    Examples
    --------
    >>> distances(0, np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 1.0]]))
    array([[5., 1.]])
    """
    out = np.empty((len(queries), len(points)))
    _all(metric, queries, points, out)
    return out
