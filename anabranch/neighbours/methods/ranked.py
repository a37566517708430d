"""Lists of objects in the order (score, arrival number), and room for what comes out: compiled.

Arrays that are assigned anew inside a loop cost an atomic count of references in every round; so
room is made outside, for a whole query, and the inner loops only write.

A list is two arrays, of which the first `n` rows count: the scores, and the integers of each
object, its arrival number, its clock and whether it has been reported.
"""

from __future__ import annotations

import numpy as np

from anabranch.flow.process import njit

__all__ = ["better", "oldest", "place", "take_out", "emit", "whole_reports", "whole_rows"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(nogil=True, inline="always")
def better(score, seq, other, other_seq):  # pragma: no cover
    """Whether the first of two objects ranks before the second."""
    return score < other or (score == other and seq < other_seq)


@njit(nogil=True)
def place(scores, ints, n, score, seq, clock, emitted):  # pragma: no cover
    """Put an object where it belongs in a list of n with room for one more."""
    at = n
    while at > 0 and better(score, seq, scores[at - 1], ints[at - 1, 0]):
        scores[at] = scores[at - 1]
        ints[at, 0] = ints[at - 1, 0]
        ints[at, 1] = ints[at - 1, 1]
        ints[at, 2] = ints[at - 1, 2]
        at -= 1
    scores[at] = score
    ints[at, 0] = seq
    ints[at, 1] = clock
    ints[at, 2] = emitted
    return at


@njit(nogil=True)
def take_out(scores, ints, n, last):  # pragma: no cover
    """Drop the objects whose clock is at most `last`; returns how many remain."""
    kept = 0
    for i in range(n):
        if ints[i, 1] > last:
            if kept < i:
                scores[kept] = scores[i]
                ints[kept, 0] = ints[i, 0]
                ints[kept, 1] = ints[i, 1]
                ints[kept, 2] = ints[i, 2]
            kept += 1
    return kept


@njit(nogil=True)
def oldest(ints, n, forever):  # pragma: no cover
    """The least clock of a list; `forever` if it is empty."""
    least = forever
    for i in range(n):
        least = min(least, ints[i, 1])
    return least


@njit(nogil=True)
def emit(scores, ints, n, k, out, far, count, query, time):  # pragma: no cover
    """Report what is among the first k for the first time; returns the new count of reports.

    There must be room: a query has at most one report for each object it held or that came.
    """
    for rank in range(min(n, k)):
        if ints[rank, 2] == 0:
            ints[rank, 2] = 1
            out[count, 0] = query
            out[count, 1] = ints[rank, 0]
            out[count, 2] = time
            out[count, 3] = rank + 1
            far[count] = scores[rank]
            count += 1
    return count


@njit(nogil=True)
def whole_reports(out, far, count, extra):  # pragma: no cover
    """The same two arrays with room for `extra` reports after the first `count`."""
    if count + extra <= len(far):
        return out, far
    room = max(2 * len(far), count + extra)
    more, further = np.empty((room, 4), np.int64), np.empty(room)
    more[:count] = out[:count]
    further[:count] = far[:count]
    return more, further


@njit(nogil=True)
def whole_rows(kept, kept_ints, at, extra):  # pragma: no cover
    """The same two arrays with room for `extra` rows after the first `at`."""
    if at + extra <= len(kept):
        return kept, kept_ints
    room = max(2 * len(kept), at + extra)
    more, more_ints = np.empty(room), np.empty((room, 3), np.int64)
    more[:at] = kept[:at]
    more_ints[:at] = kept_ints[:at]
    return more, more_ints
