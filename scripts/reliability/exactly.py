"""What measures are worth in exact arithmetic, and how near a threshold rounding may decide.

Floats are fractions, so sums and products of them can be had exactly. A comparison has a *set* of
possible outcomes: both where the exact value is so near the threshold that rounding decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

__all__ = [
    "EITHER",
    "cosine",
    "dot",
    "emd_circle",
    "emd_line",
    "euclidean",
    "hamming",
    "manhattan",
    "outcome",
]

Vector = Sequence[float]
EITHER = frozenset({True, False})
_ROUNDING = 1e-12
_LEAST = 1e-290  # what underflows on the way is off by less than this


def outcome(value: float, size: float, op: str, threshold: float) -> frozenset[bool | None]:
    """Whether ``value op threshold`` holds; `size` is that of the numbers that were added.

    Examples
    --------
    >>> outcome(2.0, 2.0, ">=", 1.0) == {True}, outcome(1.0 + 1e-15, 1.0, ">", 1.0) == EITHER
    (True, True)
    """
    if abs(value - threshold) <= _ROUNDING * max(size, abs(threshold)) + _LEAST:
        return EITHER
    return frozenset({value > threshold if op in (">", ">=") else value < threshold})


def dot(u: Vector, v: Vector) -> tuple[float, float]:
    """The dot product, and the sum of the sizes of its terms."""
    terms = [Fraction(a) * Fraction(b) for a, b in zip(u, v, strict=True)]
    return float(sum(terms)), _float(sum(map(abs, terms)))


def cosine(u: Vector, v: Vector) -> tuple[float, float]:
    """The cosine; its size is 1."""
    product = sum(Fraction(a) * Fraction(b) for a, b in zip(u, v, strict=True))
    norms = [sum(Fraction(a) ** 2 for a in x) for x in (u, v)]
    value = _root(Fraction(product) ** 2 / (norms[0] * norms[1]))
    return math.copysign(value, product), 1.0


def euclidean(u: Vector, v: Vector) -> tuple[float, float]:
    """The length of the difference."""
    value = _root(
        Fraction(sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(u, v, strict=True)))
    )
    return value, value


def manhattan(u: Vector, v: Vector) -> tuple[float, float]:
    """The sum of the differences' sizes."""
    value = _float(sum(abs(Fraction(a) - Fraction(b)) for a, b in zip(u, v, strict=True)))
    return value, value


def hamming(u: Vector, v: Vector) -> tuple[float, float]:
    """How many elements differ, exactly."""
    return float(sum(a != b for a, b in zip(u, v, strict=True))), 0.0


def emd_line(u: Vector, v: Vector) -> tuple[float, float]:
    """The Earth Mover's Distance of histograms on a line, one step a bin."""
    total = [sum(map(Fraction, x)) for x in (u, v)]
    carried, moved = Fraction(0), Fraction(0)
    for a, b in zip(u, v, strict=True):
        carried += Fraction(a) / total[0] - Fraction(b) / total[1]
        moved += abs(carried)
    return float(moved), float(len(u)) * 1000  # masses of very different size lose digits


def emd_circle(u: Vector, v: Vector) -> tuple[float, float]:
    """The same on a circle: what is carried all the way round may be any amount."""
    total = [sum(map(Fraction, x)) for x in (u, v)]
    carried = [Fraction(0)]
    for a, b in zip(u, v, strict=True):
        carried.append(carried[-1] + Fraction(a) / total[0] - Fraction(b) / total[1])
    moved = min(sum(abs(c - round_) for c in carried[1:]) for round_ in carried[1:])
    return float(moved), float(len(u)) * 1000


def _root(square: Fraction) -> float:
    """The square root, also of what no float holds."""
    if square == 0:
        return 0.0
    shift = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    near = square / 4**shift if shift >= 0 else square * 4**-shift
    return _float(Fraction(math.sqrt(float(near))) * Fraction(2) ** shift)


def _float(value: Fraction | int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
