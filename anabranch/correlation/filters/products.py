"""Cosine, dot product and Euclidean distance as float32 matrix products with a safe margin.

One tile at a time: a matrix product, then one scan that looks for values at or above a bound. The
bound is the threshold less the worst rounding error of the float32 product, so that the scan
proposes every match and few others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

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
from anabranch.flow.lanes import squared_norms
from anabranch.flow.process import njit

__all__ = [
    "Goal",
    "Operand",
    "Scale",
    "goal_of",
    "make_operand",
    "operand",
    "product_candidates",
    "unit_scale",
]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_EPSILON = 2.0**-24
_UNDERFLOW = 2.0**-1074  # at most so much is lost where float64 rounds a product towards zero
_TINY = -450
_SEGMENT = 256


class Scale(NamedTuple):
    """What is known of a float32 form of a block's vectors: times ``2**exponent`` it is them."""

    exponent: int
    norms: np.ndarray  # squared, of the rows
    largest: float  # norm of a row
    width: int
    error: float = 0.0  # norm of what a row loses where fewer bits of it are multiplied


class Operand(NamedTuple):
    """A float32 form of a block's vectors."""

    matrix: np.ndarray
    scale: Scale


class Goal(NamedTuple):
    """Pairs are proposed where ``factor * product + row + col >= low``."""

    factor: float
    low: np.float32
    row: np.ndarray | None = None
    col: np.ndarray | None = None


def product_candidates(
    pair: Pair, slot: str, kind: str, upward: bool, threshold: float
) -> Iterator[Candidates]:
    """Every pair whose measure may reach the threshold (from below it if not `upward`)."""
    a, b = operand(pair.left, slot, kind), operand(pair.right, slot, kind)
    factor, low, row, col = goal_of(kind, a.scale, b.scale, upward, threshold)
    buffer, out = scratch()
    scaled, scaled_top = a.matrix[:0], -1
    for top, bottom, start, stop in tiles(pair):
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


def goal_of(
    kind: str, a: Scale, b: Scale, upward: bool, threshold: float, unit: float = _EPSILON
) -> Goal:
    """What the product of two rows must reach to be proposed.

    `unit` is the rounding unit of its sums: that of float32, or a coarser one. Where rows have an
    `error`, it is the rows less their errors that are multiplied; docs/gpu.md has the proof.
    """
    aim = _distance_goal if kind == "euclidean" else _product_goal
    return aim(a, b, upward, threshold, unit)


def _product_goal(a: Scale, b: Scale, upward: bool, threshold: float, unit: float) -> Goal:
    """What a cosine or a dot product must reach."""
    sign, exponent = (1.0 if upward else -1.0), a.exponent + b.exponent
    scale = (a.largest + a.error) * (b.largest + b.error)
    lost = a.error * b.largest + (a.largest + a.error) * b.error
    goal = sign * _bounded(_scaled(threshold, exponent), scale) - lost
    return Goal(sign, _low(goal, exponent, scale, a.width, unit))


def _distance_goal(a: Scale, b: Scale, upward: bool, threshold: float, unit: float) -> Goal:
    """Near pairs have ``2ab - aa - bb >= -threshold**2``; far ones turn every sign."""
    sign, exponent = (-1.0 if upward else 1.0), max(a.exponent, b.exponent)
    shift_a, shift_b = 2.0 ** (a.exponent - exponent), 2.0 ** (b.exponent - exponent)
    lost = shift_a * a.error + shift_b * b.error
    scale = (shift_a * a.largest + shift_b * b.largest + lost) ** 2
    # No two rows come nearer to each other, or further apart, by more than both have lost.
    limit = _bounded(_scaled(threshold, exponent), math.sqrt(scale)) + sign * lost
    goal = -sign * max(0.0, limit) ** 2
    return Goal(
        2 * sign * shift_a * shift_b,
        _low(goal, 2 * exponent, scale, a.width, unit),
        (-sign * shift_a**2 * a.norms).astype(np.float32),
        (-sign * shift_b**2 * b.norms).astype(np.float32),
    )


def _low(goal: float, exponent: int, scale: float, d: int, unit: float) -> np.float32:
    """The goal less what sums may get wrong; `scale` is the greatest value of the measure."""
    # What float64 itself loses below its range counts where all vectors are that small.
    goal -= _bounded(_scaled(d * _UNDERFLOW, exponent), scale)
    margin = 2 * (d + 4) * unit * scale + abs(goal) * 4 * unit
    return np.float32(np.nextafter(np.float32(goal - margin), np.float32(-np.inf)))


def _scaled(value: float, exponent: int) -> float:
    """``value * 2**-exponent``, infinite where that is too large."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.ldexp(value, -exponent))


def _bounded(value: float, scale: float) -> float:
    """The value, but beyond what measures of this scale can reach not larger than float32 holds."""
    most = max(1.0, 4 * scale)
    return float(np.clip(value, -most, most))


def operand(block: Block, slot: str, kind: str) -> Operand:
    """The float32 operand of a block; computed once."""
    key = ("product operand", slot, kind == "cosine")
    return block.derive(key, lambda of: make_operand(of, slot, kind))


def unit_scale(rows: int, width: int) -> Scale:
    """That of vectors of length 1, as float32 holds them."""
    return Scale(0, np.ones(rows), 1.0 + 1e-6, width)


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
    # A power of two brings the largest element to about 1: float32 neither overflows nor
    # loses what float64 input held.
    exponent = int(np.frexp(np.abs(vectors).max())[1])
    if -40 < exponent < 40 and vectors.dtype == np.float32:
        exponent = 0
    matrix = np.ldexp(vectors, -exponent) if exponent else vectors
    if exponent > _TINY:
        norms = squared_norms(vectors) * 4.0**-exponent
    else:  # the squares of such numbers vanish in float64; those of the scaled ones do not
        norms = np.square(matrix, dtype=np.float64).sum(axis=1)
    scale = Scale(exponent, norms, float(np.sqrt(norms.max())), width)
    return Operand(np.ascontiguousarray(matrix, np.float32), scale)


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
