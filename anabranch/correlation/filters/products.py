"""Cosine, dot product and Euclidean distance as float32 matrix products with a safe margin.

One tile at a time: a matrix product, then one scan that looks for values at or above a bound. The
bound is the threshold less the worst rounding error of the float32 product, so that the scan
proposes every match and few others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numba
import numpy as np

from anabranch.correlation.filters.exact import directed
from anabranch.correlation.filters.tiles import Candidates, Pair, admit, scratch, tiles
from anabranch.flow.blocks import Block
from anabranch.flow.lanes import squared_norms

__all__ = ["product_candidates"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_EPSILON = 2.0**-24
_UNDERFLOW = 2.0**-1074  # at most so much is lost where float64 rounds a product towards zero
_TINY = -450
_SEGMENT = 256


class _Operand(NamedTuple):
    """A float32 form of a block's vectors: ``matrix * 2**exponent`` is about the vector."""

    matrix: np.ndarray
    exponent: int
    norms: np.ndarray  # squared, of the rows of `matrix`
    largest: float  # norm of a row of `matrix`


def product_candidates(
    pair: Pair, slot: str, kind: str, upward: bool, threshold: float
) -> Iterator[Candidates]:
    """Every pair whose measure may reach the threshold (from below it if not `upward`)."""
    a, b = _operand(pair.left, slot, kind), _operand(pair.right, slot, kind)
    d = a.matrix.shape[1]
    sign = 1.0 if upward else -1.0
    row: np.ndarray | None = None
    col: np.ndarray | None = None
    if kind == "euclidean":
        # Matches are near: 2ab - aa - bb >= -r^2; far ones turn every sign.
        exponent = max(a.exponent, b.exponent)
        shift_a, shift_b = 2.0 ** (a.exponent - exponent), 2.0 ** (b.exponent - exponent)
        sign = -sign
        factor = 2 * sign * shift_a * shift_b
        row = (-sign * shift_a**2 * a.norms).astype(np.float32)
        col = (-sign * shift_b**2 * b.norms).astype(np.float32)
        scale = (shift_a * a.largest + shift_b * b.largest) ** 2
        goal = -sign * _bounded(_scaled(threshold, exponent), math.sqrt(scale)) ** 2
        lost = _scaled(d * _UNDERFLOW, 2 * exponent)
    else:
        factor = sign
        scale = a.largest * b.largest
        goal = sign * _bounded(_scaled(threshold, a.exponent + b.exponent), scale)
        lost = _scaled(d * _UNDERFLOW, a.exponent + b.exponent)
    # What float64 itself loses below its range counts where all vectors are that small.
    goal -= _bounded(lost, scale)
    margin = 2 * (d + 4) * _EPSILON * scale + abs(goal) * 4 * _EPSILON
    low = np.nextafter(np.float32(goal - margin), np.float32(-np.inf))

    buffer, out_i, out_j = scratch()
    stamps = pair.stamps
    scaled, scaled_top = a.matrix[:0], -1
    for top, bottom, start, stop in tiles(pair):
        if top != scaled_top:
            # Factors are powers of two, so this rounds nothing.
            scaled = a.matrix[top:bottom] * np.float32(factor)
            scaled_top = top
        values = buffer[: (bottom - top) * (stop - start)].reshape(bottom - top, stop - start)
        np.dot(scaled, b.matrix[start:stop].T, out=values)
        if row is None or col is None:
            count = _scan(values, low, top, start, stamps, out_i, out_j)
        else:
            count = _scan_norms(
                values, row[top:bottom], col[start:stop], low, top, start, stamps, out_i, out_j
            )
        if count:
            yield Candidates(out_i[:count].copy(), out_j[:count].copy())


def _scaled(value: float, exponent: int) -> float:
    """``value * 2**-exponent``, infinite where that is too large."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.ldexp(value, -exponent))


def _bounded(value: float, scale: float) -> float:
    """The value, but beyond what measures of this scale can reach not larger than float32 holds."""
    most = max(1.0, 4 * scale)
    return float(np.clip(value, -most, most))


def _operand(block: Block, slot: str, kind: str) -> _Operand:
    """The float32 operand of a block; computed once."""

    def make(of: Block) -> _Operand:
        vectors = of.columns[slot]
        if len(vectors) == 0:
            return _Operand(np.zeros(vectors.shape, np.float32), 0, np.zeros(0), 0.0)
        if kind == "cosine":
            matrix = np.empty(vectors.shape, np.float32)
            _normalise(*directed(of, slot), matrix)
            return _Operand(matrix, 0, np.ones(len(vectors)), 1.0 + 1e-6)
        # A power of two brings the largest element to about 1: float32 neither overflows nor
        # loses what float64 input held.
        exponent = int(np.frexp(np.abs(vectors).max())[1])
        if -40 < exponent < 40 and vectors.dtype == np.float32:
            exponent = 0
        matrix = np.ldexp(vectors, -exponent) if exponent else vectors
        if exponent > _TINY:
            scaled = squared_norms(vectors) * 4.0**-exponent
        else:  # the squares of such numbers vanish in float64; those of the scaled ones do not
            scaled = np.square(matrix, dtype=np.float64).sum(axis=1)
        return _Operand(
            np.ascontiguousarray(matrix, np.float32), exponent, scaled, float(np.sqrt(scaled.max()))
        )

    return block.derive(("product operand", slot, kind == "cosine"), make)


@numba.njit(cache=True, nogil=True)
def _normalise(vectors, norms, out):  # pragma: no cover
    """Vectors of length 1, rounded once: no float64 copy of the block in between."""
    for r in range(len(vectors)):
        inverse = 1.0 / math.sqrt(norms[r])
        for c in range(vectors.shape[1]):
            out[r, c] = np.float32(np.float64(vectors[r, c]) * inverse)


@numba.njit(cache=True, nogil=True)
def _scan(values, low, top, start, stamps, out_i, out_j):  # pragma: no cover
    t, s, w_left, w_right, epoch, mask, right_epoch, right_mask = stamps
    found = 0
    n = values.shape[1]
    for r in range(values.shape[0]):
        line = values[r]
        for begin in range(0, n, _SEGMENT):
            segment = line[begin : min(begin + _SEGMENT, n)]
            hit = False
            for c in range(len(segment)):
                hit |= segment[c] >= low
            if hit:
                for c in range(len(segment)):
                    i, j = top + r, start + begin + c
                    if segment[c] >= low and admit(
                        i, j, t, s, w_left, w_right, epoch, mask, right_epoch, right_mask
                    ):
                        out_i[found] = i
                        out_j[found] = j
                        found += 1
    return found


@numba.njit(cache=True, nogil=True)
def _scan_norms(values, row, col, low, top, start, stamps, out_i, out_j):  # pragma: no cover
    t, s, w_left, w_right, epoch, mask, right_epoch, right_mask = stamps
    found = 0
    n = values.shape[1]
    for r in range(values.shape[0]):
        line = values[r]
        bound = low - row[r]
        for begin in range(0, n, _SEGMENT):
            end = min(begin + _SEGMENT, n)
            segment, norms = line[begin:end], col[begin:end]
            hit = False
            for c in range(len(segment)):
                hit |= segment[c] + norms[c] >= bound
            if hit:
                for c in range(len(segment)):
                    i, j = top + r, start + begin + c
                    if segment[c] + norms[c] >= bound and admit(
                        i, j, t, s, w_left, w_right, epoch, mask, right_epoch, right_mask
                    ):
                        out_i[found] = i
                        out_j[found] = j
                        found += 1
    return found
