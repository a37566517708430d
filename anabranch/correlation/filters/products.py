"""Cosine, dot product and Euclidean distance as float32 matrix products with a safe margin.

One tile at a time: a matrix product, then one scan that looks for values at or above a bound. The
bound is the threshold less the worst rounding error of the float32 product, so that the scan
proposes every match and few others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from anabranch.correlation.filters.exact import directed
from anabranch.correlation.filters.tiles import (
    Candidates,
    Pair,
    admit,
    put,
    scratch,
    stamp_of,
    tiles,
)
from anabranch.flow.blocks import Block
from anabranch.flow.goals import Operand, Scale, goal_of, operand_of, unit_scale
from anabranch.flow.process import njit

__all__ = ["make_operand", "operand", "product_candidates"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_SEGMENT = 256


def product_candidates(
    pair: Pair,
    slot: str,
    kind: str,
    upward: bool,
    threshold: float,
    between: tuple[int, int] | None = None,
) -> Iterator[Candidates]:
    """Every pair whose measure may reach the threshold (from below it if not `upward`).

    `between` are positions in the right block; without it all its rows are compared.
    """
    a, b = operand(pair.left, slot, kind), operand(pair.right, slot, kind)
    factor, low, row, col = goal_of(kind, a.scale, b.scale, upward, threshold)
    buffer, out = scratch()
    scaled, scaled_top = a.matrix[:0], -1
    for top, bottom, start, stop in tiles(pair, between=between):
        if top != scaled_top:
            # Factors are powers of two, so this rounds nothing.
            scaled = a.matrix[top:bottom] * np.float32(factor)
            scaled_top = top
        values = buffer[: (bottom - top) * (stop - start)].reshape(bottom - top, stop - start)
        np.dot(scaled, b.matrix[start:stop].T, out=values)
        if row is None or col is None:
            count = _scan(values, low, top, start, pair.stamps, out)
        else:
            bounds = low - row[top:bottom]
            count = _scan_norms(values, bounds, col[start:stop], top, start, pair.stamps, out)
        if count:
            yield out.first(count)


def operand(block: Block, slot: str, kind: str) -> Operand:
    """The float32 operand of a block; computed once."""
    key = ("product operand", slot, kind == "cosine")
    return block.derive(key, lambda of: make_operand(of, slot, kind))


def make_operand(block: Block, slot: str, kind: str) -> Operand:
    """The same, which is not kept if it was not there."""
    vectors = block.columns[slot]
    width = vectors.shape[1]
    if len(vectors) == 0:
        return Operand(np.zeros(vectors.shape, np.float32), Scale(0, np.zeros(0), 0.0, width))
    if kind == "cosine":
        matrix = np.empty(vectors.shape, np.float32)
        _normalise(*directed(block, slot), matrix)
        return Operand(matrix, unit_scale(len(vectors), width))
    return operand_of(vectors)


@njit(nogil=True)
def _normalise(vectors, norms, out):  # pragma: no cover
    """Vectors of length 1, rounded once: no float64 copy of the block in between."""
    for r in range(len(vectors)):
        inverse = 1.0 / math.sqrt(norms[r])
        for c in range(vectors.shape[1]):
            out[r, c] = np.float32(np.float64(vectors[r, c]) * inverse)


@njit(nogil=True)
def _scan(values, low, top, start, stamps, out):  # pragma: no cover
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
                mine = stamp_of(top + r, stamps)
                for c in range(len(segment)):
                    if segment[c] >= low:
                        j = start + begin + c
                        found = put(out, found, top + r, j, admit(mine, j, stamps))
    return found


@njit(nogil=True)
def _scan_norms(values, bounds, col, top, start, stamps, out):  # pragma: no cover
    found = 0
    n = values.shape[1]
    for r in range(values.shape[0]):
        line, bound = values[r], bounds[r]
        for begin in range(0, n, _SEGMENT):
            end = min(begin + _SEGMENT, n)
            segment, norms = line[begin:end], col[begin:end]
            hit = False
            for c in range(len(segment)):
                hit |= segment[c] + norms[c] >= bound
            if hit:
                mine = stamp_of(top + r, stamps)
                for c in range(len(segment)):
                    if segment[c] + norms[c] >= bound:
                        j = start + begin + c
                        found = put(out, found, top + r, j, admit(mine, j, stamps))
    return found
