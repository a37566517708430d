"""The value of a measure for given pairs: float64, in one fixed order, without fast-math.

Filters only propose pairs; these functions decide them. The sums are those of `flow.lanes`, so that
a pair has the same score to the last bit whatever plan, tile or batch brought its rows together.
"""

from __future__ import annotations

import math

import numpy as np

from anabranch.flow.blocks import Block
from anabranch.flow.lanes import PRODUCTS, SIZES, SQUARES, Directions, directions, summed
from anabranch.flow.process import njit

__all__ = ["directed", "measure"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(nogil=True)
def _sums(kind, x, y, i, j, out):  # pragma: no cover
    """``out[p]``: the sum of left row ``i[p]`` and right row ``j[p]``."""
    lanes = np.empty(8)
    for p in range(len(i)):
        out[p] = summed(kind, x[i[p]], y[j[p]], lanes)


@njit(nogil=True)
def _unequal(x, y, i, j, out):  # pragma: no cover
    for p in range(len(i)):
        u, v = x[i[p]], y[j[p]]
        count = 0
        for c in range(x.shape[1]):
            count += u[c] != v[c]
        out[p] = count


@njit(nogil=True)
def _cosines(dots, left, right, i, j):  # pragma: no cover
    """Divide dot products by the lengths, given the squared norms of both blocks."""
    for p in range(len(i)):
        # sqrt(a * b) makes the cosine of a vector with itself exactly 1.
        value = dots[p] / math.sqrt(left[i[p]] * right[j[p]])
        dots[p] = min(1.0, max(-1.0, value))


def directed(block: Block, slot: str) -> Directions:
    """The vectors of a block in a form that has good squared norms, and these; computed once."""
    vectors = block.columns[slot]

    def make(_: Block) -> tuple[np.ndarray | None, np.ndarray]:
        found = directions(vectors)
        # The column itself is not counted a second time among what the block holds.
        return (None if found.vectors is vectors else found.vectors), found.norms

    scaled, norms = block.derive(("directions", slot), make)
    return Directions(vectors if scaled is None else scaled, norms)


def _shrink(x: np.ndarray, y: np.ndarray, i: np.ndarray, j: np.ndarray, out: np.ndarray) -> None:
    """The Euclidean distances whose squares overflow, by way of vectors that are made smaller."""
    far = np.flatnonzero(np.isinf(out))
    unit = 2.0**-64
    u, v = x[i[far]] * unit, y[j[far]] * unit
    for array in (u, v):
        array.flags.writeable = False  # as blocks are, or the loop would be compiled once more
    again, rows = np.empty(len(far)), np.arange(len(far), dtype=i.dtype)
    _sums(SQUARES, u, v, rows, rows, again)
    out[far] = np.sqrt(again) / unit


def measure(
    kind: str, slot: str, left: Block, right: Block, i: np.ndarray, j: np.ndarray
) -> np.ndarray:
    """The measure `kind` of left row ``i[p]`` and right row ``j[p]``, for every p."""
    x, y = left.columns[slot], right.columns[slot]
    out = np.empty(len(i))
    if kind == "cosine":
        a, b = directed(left, slot), directed(right, slot)
        _sums(PRODUCTS, a.vectors, b.vectors, i, j, out)
        _cosines(out, a.norms, b.norms, i, j)
    elif kind == "dot":
        _sums(PRODUCTS, x, y, i, j, out)
    elif kind == "euclidean":
        _sums(SQUARES, x, y, i, j, out)
        np.sqrt(out, out=out)
        if np.isinf(out).any():
            _shrink(x, y, i, j, out)
    elif kind == "manhattan":
        _sums(SIZES, x, y, i, j, out)
    elif x.dtype == np.uint64:
        words: np.ndarray = np.bitwise_count(x[i] ^ y[j])
        out[:] = words.sum(axis=1)
    else:
        _unequal(x, y, i, j, out)
    return out
