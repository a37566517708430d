"""Which objects may enter the list of which query: compiled.

An object has *marks*, whole numbers, and a query two bounds for each. An object is admitted if all
its marks lie between the bounds, or outside of them where a test is `inverted`. A mark that is
`UNKNOWN` is never admitted: the object lacks what is compared. A long number has several marks, of
which all but the first are `further` ones: they count where those before are a bound's own.

Letters: q a query, i an object, m one of the marks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.flow.process import njit
from anabranch.flow.sides import UNKNOWN

__all__ = ["Bounds", "admits", "allowed", "bar"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


class Bounds(NamedTuple):
    """Row q of `low` and `high` are the bounds of query q, a column for each mark."""

    low: np.ndarray
    high: np.ndarray
    inverted: np.ndarray
    further: np.ndarray


@njit(boundscheck=False)
def admits(bounds, q, marks, i):  # pragma: no cover
    """Whether an object may enter the list of a query."""
    low, high, inverted, further = bounds
    lowest = highest = False
    for m in range(len(inverted)):
        mark, least, most = marks[i, m], low[q, m], high[q, m]
        if further[m]:
            if (lowest and mark < least) or (highest and mark > most):
                return False
            lowest, highest = lowest and mark == least, highest and mark == most
        else:
            inside = (least <= mark) & (mark <= most)
            if mark == UNKNOWN or inside == inverted[m]:
                return False
            lowest, highest = mark == least, mark == most
    return True


@njit(boundscheck=False)
def allowed(bounds, q, marks, i):  # pragma: no cover
    """Which of these pairs of queries and objects may meet.

    Examples
    --------
    >>> no = np.array([False])
    >>> bounds = Bounds(np.array([[3]]), np.array([[5]]), inverted=no, further=no)
    >>> marks, zero = np.array([[2], [5], [UNKNOWN]]), np.zeros(3, np.int32)
    >>> allowed(bounds, zero, marks, np.arange(3, dtype=np.int32)).tolist()
    [False, True, False]
    """
    out = np.empty(len(q), np.bool_)
    for n in range(len(q)):
        out[n] = admits(bounds, q[n], marks, i[n])
    return out


@njit(boundscheck=False)
def bar(bounds, q, marks, first, last, filled):  # pragma: no cover
    """Put infinity, the score of no object, where objects may not enter the list of a query."""
    if len(bounds.inverted) > 0:
        for i in range(first, last):
            if not admits(bounds, q, marks, i):
                filled[i] = np.inf
