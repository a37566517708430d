"""Whether arrivals are what an algorithm may be fed: one pass over them, compiled."""

from __future__ import annotations

import math

from anabranch.flow.process import njit

__all__ = ["examine"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(boundscheck=False)
def examine(t, seq, points):  # pragma: no cover
    """What is wrong, each as a bool.

    Times descend; numbers do not ascend; or not by one; values are not finite; a point is at the
    origin.
    """
    n, dim = points.shape
    unsorted = back = gap = 0
    for i in range(1, n):
        unsorted += t[i] < t[i - 1]
        back += seq[i] <= seq[i - 1]
        gap += seq[i] != seq[i - 1] + 1
    bad = 0
    origin = 0
    for i in range(n):
        zeros = 0
        for a in range(dim):
            bad += not math.isfinite(points[i, a])
            zeros += points[i, a] == 0.0
        origin += zeros == dim
    return unsorted > 0, back > 0, gap > 0, bad > 0, origin > 0
