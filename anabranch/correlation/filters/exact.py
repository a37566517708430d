"""The value of a measure for given pairs: float64, in one fixed order, without fast-math.

Filters only propose pairs; these functions decide them. Each adds in eight lanes that are summed
as a fixed tree, so that a pair has the same score to the last bit whatever plan, tile or batch
brought its rows together.
"""

from __future__ import annotations

import math

import numpy as np

from anabranch.flow.blocks import Block
from anabranch.flow.process import njit

__all__ = ["measure", "squared_norms"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(inline="always")
def _tree(a):  # pragma: no cover
    return ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]))


@njit(nogil=True)
def _dots(x, y, i, j, out):  # pragma: no cover
    d = x.shape[1]
    whole = d - d % 8
    lanes = np.empty(8)
    for p in range(len(i)):
        u, v = x[i[p]], y[j[p]]
        lanes[:] = 0.0
        for c in range(0, whole, 8):
            for lane in range(8):
                lanes[lane] += np.float64(u[c + lane]) * np.float64(v[c + lane])
        for c in range(whole, d):
            lanes[c - whole] += np.float64(u[c]) * np.float64(v[c])
        out[p] = _tree(lanes)


@njit(nogil=True)
def _squares(x, y, i, j, out):  # pragma: no cover
    d = x.shape[1]
    whole = d - d % 8
    lanes = np.empty(8)
    for p in range(len(i)):
        u, v = x[i[p]], y[j[p]]
        lanes[:] = 0.0
        for c in range(0, whole, 8):
            for lane in range(8):
                e = np.float64(u[c + lane]) - np.float64(v[c + lane])
                lanes[lane] += e * e
        for c in range(whole, d):
            e = np.float64(u[c]) - np.float64(v[c])
            lanes[c - whole] += e * e
        out[p] = _tree(lanes)


@njit(nogil=True)
def _absolutes(x, y, i, j, out):  # pragma: no cover
    d = x.shape[1]
    whole = d - d % 8
    lanes = np.empty(8)
    for p in range(len(i)):
        u, v = x[i[p]], y[j[p]]
        lanes[:] = 0.0
        for c in range(0, whole, 8):
            for lane in range(8):
                lanes[lane] += abs(np.float64(u[c + lane]) - np.float64(v[c + lane]))
        for c in range(whole, d):
            lanes[c - whole] += abs(np.float64(u[c]) - np.float64(v[c]))
        out[p] = _tree(lanes)


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
    for p in range(len(i)):
        a, b = left[i[p]], right[j[p]]
        product = a * b
        # sqrt(a * b) makes the cosine of a vector with itself exactly 1.
        if 1e-290 < product < 1e290:
            value = dots[p] / math.sqrt(product)
        else:  # the same, with the powers of two apart
            (a, e), (b, f) = math.frexp(a), math.frexp(b)
            both = e + f
            root = math.sqrt(a * b * (1 + both % 2))
            value = math.ldexp(dots[p], -(both // 2)) / root
        dots[p] = min(1.0, max(-1.0, value))


@njit(nogil=True)
def _norms(x, out):  # pragma: no cover
    d = x.shape[1]
    whole = d - d % 8
    lanes = np.empty(8)
    for p in range(len(x)):
        u = x[p]
        lanes[:] = 0.0
        for c in range(0, whole, 8):
            for lane in range(8):
                lanes[lane] += np.float64(u[c + lane]) * np.float64(u[c + lane])
        for c in range(whole, d):
            lanes[c - whole] += np.float64(u[c]) * np.float64(u[c])
        out[p] = _tree(lanes)


def squared_norms(block: Block, slot: str) -> np.ndarray:
    """The squared norm of each vector, summed as the dot products are."""

    def make(of: Block) -> np.ndarray:
        out = np.empty(len(of))
        _norms(of.columns[slot], out)
        return out

    return block.derive(("squared norms", slot), make)


def _shrink(x: np.ndarray, y: np.ndarray, i: np.ndarray, j: np.ndarray, out: np.ndarray) -> None:
    """The Euclidean distances whose squares overflow, by way of vectors that are made smaller."""
    far = np.flatnonzero(np.isinf(out))
    unit = 2.0**-64
    u, v = x[i[far]] * unit, y[j[far]] * unit
    for array in (u, v):
        array.flags.writeable = False  # as blocks are, or the loop would be compiled once more
    again, rows = np.empty(len(far)), np.arange(len(far), dtype=i.dtype)
    _squares(u, v, rows, rows, again)
    out[far] = np.sqrt(again) / unit


def measure(
    kind: str, slot: str, left: Block, right: Block, i: np.ndarray, j: np.ndarray
) -> np.ndarray:
    """The measure `kind` of left row ``i[p]`` and right row ``j[p]``, for every p."""
    x, y = left.columns[slot], right.columns[slot]
    out = np.empty(len(i))
    if kind == "hamming":
        if x.dtype == np.uint64:
            words: np.ndarray = np.bitwise_count(x[i] ^ y[j])
            out[:] = words.sum(axis=1)
            return out
        _unequal(x, y, i, j, out)
    elif kind == "manhattan":
        _absolutes(x, y, i, j, out)
    elif kind == "euclidean":
        _squares(x, y, i, j, out)
        np.sqrt(out, out=out)
        if np.isinf(out).any():
            _shrink(x, y, i, j, out)
    else:
        _dots(x, y, i, j, out)
        if kind == "cosine":
            _cosines(out, squared_norms(left, slot), squared_norms(right, slot), i, j)
    return out
