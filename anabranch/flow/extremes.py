"""Euclidean distances whose squares overflow or vanish, by way of differences near one.

Where a sum of squares has lost digits, or all of them, the differences are first multiplied by a
power of two, which changes no digit: a distance is right whatever the scale of the vectors.

Letters: u, v two vectors; c a coordinate. ``lanes`` is scratch for eight numbers.
"""

from __future__ import annotations

import math

import numpy as np

from anabranch.flow.lanes import PRODUCTS, summed
from anabranch.flow.process import njit

__all__ = ["exponent", "extreme_distance", "out_of_range"]

_LEAST_SQUARE = 2.0**-960

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(nogil=True, inline="always")
def out_of_range(square):  # pragma: no cover
    """Whether a sum of squares has lost digits, or all."""
    return (square <= _LEAST_SQUARE) | (square == np.inf)


@njit(nogil=True)
def extreme_distance(u, v, lanes):  # pragma: no cover
    """The Euclidean distance of two vectors whose sum of squares is out of range."""
    apart = u - v
    largest = np.abs(apart).max()
    if largest == 0:
        return 0.0
    scale = exponent(largest)
    for c in range(len(apart)):
        apart[c] = math.ldexp(apart[c], -scale)
    return math.ldexp(math.sqrt(summed(PRODUCTS, apart, apart, lanes)), scale)


@njit(nogil=True)
def exponent(value):  # pragma: no cover
    """The power of two that makes a value lie between a half and one."""
    _, found = math.frexp(value)
    return found
