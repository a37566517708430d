"""The distance of a query and an object, in float64 and one fixed order of addition.

Sums are those of `flow.lanes`, so that a pair has the same score to the last bit whatever
algorithm, batch or worker looks at it. Where squares would overflow or vanish a power of two helps
(`flow.extremes`): a score is right whatever the scale.

Letters: u, v two vectors; d their length; c a coordinate, i an object, s a score; e a difference,
`a` and `b` sums of four lanes each. ``lanes`` is scratch: eight numbers for one sum, or eight rows
of `CHUNK` for many side by side.
"""

from __future__ import annotations

import math

import numpy as np

from anabranch.flow.extremes import exponent, extreme_distance, out_of_range
from anabranch.flow.lanes import PRODUCTS, SIZES, SQUARES, summed
from anabranch.flow.process import njit

__all__ = ["CHUNK", "FAINT", "beyond", "fill", "root", "score"]

CHUNK = 256
FAINT = 1e-300
"""More than squares can be wrong by that are near the least number."""

_LEAST, _MOST = 2.0**-450, 2.0**450  # squared norms, as in `flow.lanes`

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(nogil=True)
def score(metric, u, v, lanes):  # pragma: no cover
    """The distance of two vectors; `metric` is a place in `METRICS`."""
    if metric == 0:
        square = summed(SQUARES, u, v, lanes)
        return extreme_distance(u, v, lanes) if out_of_range(square) else math.sqrt(square)
    if metric == 1:
        return summed(SIZES, u, v, lanes)
    a, b = summed(PRODUCTS, u, u, lanes), summed(PRODUCTS, v, v, lanes)
    dot = summed(PRODUCTS, u, v, lanes)
    if not (_LEAST <= a <= _MOST and _LEAST <= b <= _MOST):
        return _extreme_cosine(u, v, a, b, lanes)
    # sqrt(a * b) makes the distance of a vector to itself exactly 0.
    return 1.0 - min(1.0, max(-1.0, dot / math.sqrt(a * b)))


@njit(nogil=True)
def _extreme_cosine(u, v, a, b, lanes):  # pragma: no cover
    """The cosine distance, with vectors of extreme length (squared: a, b) brought near 1."""
    if not _LEAST <= a <= _MOST:
        u = _near_one(u)
    if not _LEAST <= b <= _MOST:
        v = _near_one(v)
    a, b = summed(PRODUCTS, u, u, lanes), summed(PRODUCTS, v, v, lanes)
    dot = summed(PRODUCTS, u, v, lanes)
    return 1.0 - min(1.0, max(-1.0, dot / math.sqrt(a * b)))


@njit(nogil=True)
def _near_one(u):  # pragma: no cover
    near = u.copy()
    scale = exponent(np.abs(u).max())
    for c in range(len(near)):
        near[c] = math.ldexp(near[c], -scale)
    return near


@njit(nogil=True)
def fill(metric, centre, points, columns, begin, end, out, lanes):  # pragma: no cover
    """`out[i]` of the objects from `begin` to `end`: scores, or Euclidean ones squared.

    Euclidean ones whose squares are out of range are there themselves, negated. `columns` is
    `points` turned, so that all objects of a chunk are added up side by side. `root` makes the
    score of an entry, the same as `score` gives.
    """
    d = len(centre)
    if metric == 2:
        for i in range(begin, end):
            out[i] = score(metric, centre, points[i], lanes[0, :8])
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
        if metric == 0:
            _mend(centre, points, low, part, lanes[0, :8])


@njit(nogil=True)
def _mend(centre, points, low, part, lanes):  # pragma: no cover
    """Put distances, negated, where squares are out of range."""
    extreme = 0
    for i in range(len(part)):
        extreme += out_of_range(part[i])
    if extreme == 0:
        return
    for i in range(len(part)):
        if out_of_range(part[i]):
            part[i] = -extreme_distance(centre, points[low + i], lanes)


@njit(nogil=True, inline="always")
def root(metric, filled):  # pragma: no cover
    """The score of an entry that `fill` has made."""
    return math.sqrt(filled) if metric == 0 and filled > 0 else abs(filled)


@njit(nogil=True, inline="always")
def beyond(metric, tail):  # pragma: no cover
    """An entry of `fill` at least as great surely has a score of at least `tail`."""
    return tail * tail * (1 + 1e-15) + FAINT if metric == 0 else tail
