"""What a product of rounded rows must reach: the bounds of all filters that multiply, in one place.

A filter multiplies rows in fewer bits than decide, so its bound is the threshold less all that this
may get wrong. Then it proposes every match, and few others. docs/gpu.md has the proof.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from anabranch.flow.lanes import squared_norms

__all__ = ["Goal", "Operand", "Scale", "goal_of", "operand_of", "unit_scale"]

_EPSILON = 2.0**-24
_UNDERFLOW = 2.0**-1074  # at most so much is lost where float64 rounds a product towards zero
_EXTREME = 450


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
    low: Any  # a float32, or one for each left row
    row: np.ndarray | None = None
    col: np.ndarray | None = None


def goal_of(
    kind: str,
    a: Scale,
    b: Scale,
    upward: bool,
    threshold: float | np.ndarray,
    unit: float = _EPSILON,
) -> Goal:
    """What the product of two rows must reach to be proposed.

    With a threshold for each row of `a` there is a `low` for each. `unit` is the rounding unit of
    sums: that of float32, or a coarser one. Where rows have an `error`, it is the rows less their
    errors that are multiplied; docs/gpu.md has the proof.
    """
    aim = _distance_goal if kind == "euclidean" else _product_goal
    return aim(a, b, upward, threshold, unit)


def _product_goal(a: Scale, b: Scale, upward: bool, threshold: Any, unit: float) -> Goal:
    """What a cosine or a dot product must reach."""
    sign, exponent = (1.0 if upward else -1.0), a.exponent + b.exponent
    scale = (a.largest + a.error) * (b.largest + b.error)
    lost = a.error * b.largest + (a.largest + a.error) * b.error
    goal = sign * _bounded(_scaled(threshold, exponent), scale) - lost
    return Goal(sign, _low(goal, exponent, scale, a.width, unit))


def _distance_goal(a: Scale, b: Scale, upward: bool, threshold: Any, unit: float) -> Goal:
    """Near pairs have ``2ab - aa - bb >= -threshold**2``; far ones turn every sign."""
    sign, exponent = (-1.0 if upward else 1.0), max(a.exponent, b.exponent)
    shift_a, shift_b = 2.0 ** (a.exponent - exponent), 2.0 ** (b.exponent - exponent)
    lost = shift_a * a.error + shift_b * b.error
    scale = (shift_a * a.largest + shift_b * b.largest + lost) ** 2
    # No two rows come nearer to each other, or further apart, by more than both have lost.
    limit = _bounded(_scaled(threshold, exponent), math.sqrt(scale)) + sign * lost
    goal = -sign * np.maximum(0.0, limit) ** 2
    return Goal(
        2 * sign * shift_a * shift_b,
        _low(goal, 2 * exponent, scale, a.width, unit),
        (-sign * shift_a**2 * a.norms).astype(np.float32),
        (-sign * shift_b**2 * b.norms).astype(np.float32),
    )


def _low(goal: Any, exponent: int, scale: float, d: int, unit: float) -> Any:
    """The goal less what sums may get wrong; `scale` is the greatest value of the measure."""
    # What float64 itself loses below its range counts where all vectors are that small.
    goal -= _bounded(_scaled(d * _UNDERFLOW, exponent), scale)
    margin = 2 * (d + 4) * unit * scale + abs(goal) * 4 * unit
    return np.float32(np.nextafter(np.float32(goal - margin), np.float32(-np.inf)))


def _scaled(value: Any, exponent: int) -> Any:
    """``value * 2**-exponent``, infinite where that is too large."""
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(value, -exponent)


def _bounded(value: Any, scale: float) -> Any:
    """The value, but beyond what measures of this scale can reach not larger than float32 holds."""
    most = max(1.0, 4 * scale)
    return np.clip(value, -most, most)


def unit_scale(rows: int, width: int) -> Scale:
    """That of vectors of length 1, as float32 holds them."""
    return Scale(0, np.ones(rows), 1.0 + 1e-6, width)


def operand_of(vectors: np.ndarray) -> Operand:
    """Vectors as float32, of which there is one at least, at a scale at which it holds them."""
    # A power of two brings the largest element to about 1, unless it is not far from that: float32
    # neither overflows nor loses what counts beside the largest.
    exponent = int(np.frexp(max(vectors.max(), -vectors.min()))[1])
    if -40 < exponent < 40:
        exponent = 0
    matrix = np.ldexp(vectors, -exponent) if exponent else vectors
    if abs(exponent) < _EXTREME:
        norms = squared_norms(vectors) * 4.0**-exponent
    else:  # float64 does not hold the squares of such numbers; it does those of the scaled ones
        norms = np.square(matrix, dtype=np.float64).sum(axis=1)
    scale = Scale(exponent, norms, float(np.sqrt(norms.max())), vectors.shape[1])
    return Operand(np.ascontiguousarray(matrix, np.float32), scale)
