"""Sums over two vectors in eight lanes and one fixed tree: the same to the last bit everywhere.

A pair of rows has one score, whatever plan, tile, batch or algorithm brings it together. So every
sum that decides is made here, in float64 and without fast-math: element c goes into lane ``c % 8``,
and the lanes are added as a tree of fixed shape.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.flow.process import njit

__all__ = [
    "PRODUCTS",
    "SIZES",
    "SQUARES",
    "Directions",
    "directions",
    "squared_norms",
    "summed",
    "tree",
]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

# What is added up: squares of differences, their sizes, or products.
SQUARES, SIZES, PRODUCTS = 0, 1, 2
# Squared norms inside these bounds, their products and their quotients are far from float64's ends.
_LEAST, _MOST = 2.0**-450, 2.0**450


@njit(inline="always")
def tree(lanes):  # pragma: no cover
    """The sum of eight lanes."""
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + (
        (lanes[4] + lanes[5]) + (lanes[6] + lanes[7])
    )


@njit(inline="always")
def _term(kind, u, v):  # pragma: no cover
    a, b = np.float64(u), np.float64(v)
    if kind == PRODUCTS:
        return a * b
    e = a - b
    return e * e if kind == SQUARES else abs(e)


@njit(inline="always")
def summed(kind, u, v, lanes):  # pragma: no cover
    """The sum of the terms of `kind` over two vectors; `lanes` is scratch for eight numbers.

    The test of `kind` is the same in every turn, so the compiler takes it out of the loop.
    """
    d = len(u)
    whole = d - d % 8
    lanes[:] = 0.0
    for c in range(0, whole, 8):
        for lane in range(8):
            lanes[lane] += _term(kind, u[c + lane], v[c + lane])
    for c in range(whole, d):
        lanes[c - whole] += _term(kind, u[c], v[c])
    return tree(lanes)


def squared_norms(vectors: np.ndarray) -> np.ndarray:
    """The squared norm of each vector, summed as dot products are.

    Examples
    --------
    >>> squared_norms(np.array([[3.0, 4.0]])).tolist()
    [25.0]
    """
    out = np.empty(len(vectors))
    _norms(vectors, out)
    return out


class Directions(NamedTuple):
    """Vectors for a cosine, which does not ask for their lengths, and their squared norms."""

    vectors: np.ndarray
    norms: np.ndarray


def directions(vectors: np.ndarray) -> Directions:
    """The vectors, those of extreme length multiplied by a power of two, with squared norms.

    A squared norm near the ends of float64 has lost digits, or all of them. A power of two changes
    no digit, and depends on the row alone, so a row has the same cosines in whatever block it
    travels. If no row is extreme, the vectors are returned as they are.

    Examples
    --------
    >>> found = directions(np.array([[3e-162, 4e-162], [3.0, 4.0]]))
    >>> float(found.vectors[0, 0] / found.vectors[0, 1]), float(found.norms[1])
    (0.75, 25.0)
    >>> bool(2.0**-450 < found.norms[0] < 2.0**450)
    True
    """
    norms = squared_norms(vectors)
    extreme = np.flatnonzero(~((norms >= _LEAST) & (norms <= _MOST)))
    if vectors.dtype != np.float64 or not len(extreme):  # squares of float32 are never extreme
        return Directions(vectors, norms)
    scaled = vectors.copy()
    largest = np.abs(scaled[extreme]).max(axis=1, initial=0.0)
    scaled[extreme] = np.ldexp(scaled[extreme], -np.frexp(largest)[1][:, None])
    scaled.flags.writeable = False  # as blocks are, or the loops would be compiled once more
    return Directions(scaled, squared_norms(scaled))


@njit(nogil=True)
def _norms(x, out):  # pragma: no cover
    lanes = np.empty(8)
    for p in range(len(x)):
        out[p] = summed(PRODUCTS, x[p], x[p], lanes)
