"""The log: which objects were reported for a query, and then cut from its list; compiled.

Each query's part is a chain that begins at its `head`, the latest first.

Letters: q a query, j an entry of its list.
"""

from __future__ import annotations

import numpy as np

from anabranch.flow.process import njit
from anabranch.neighbours.lists.tables import Log

__all__ = ["longer", "remember_emitted", "still_remembered"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(boundscheck=False)
def remember_emitted(lists, q, begin, end, log, used):  # pragma: no cover
    """Add the entries from begin to end that have been reported to the query's log; its length."""
    codes, head = lists.codes, lists.head
    for j in range(begin, end):
        if codes[j] & 1:
            log.number[used] = codes[j] >> 1
            log.following[used] = head[q]
            head[q] = used
            used += 1
    return used


@njit(boundscheck=False)
def longer(log, room):  # pragma: no cover
    """The same log with room for more, if there is none."""
    number, following, used = log
    if len(number) - used >= room:
        return log
    size = 2 * (used + room)
    more, links = np.empty(size, np.int64), np.empty(size, np.int64)
    more[:used], links[:used] = number[:used], following[:used]
    return Log(more, links, used)


@njit(boundscheck=False)
def still_remembered(head, log, first):  # pragma: no cover
    """The log without numbers below each query's `first`, made afresh."""
    kept = 0
    for q in range(len(head)):
        at = head[q]
        while at >= 0:
            kept += log.number[at] >= first[q]
            at = log.following[at]
    number = np.empty(2 * kept + 1024, np.int64)
    following = np.empty(2 * kept + 1024, np.int64)
    used = 0
    for q in range(len(head)):
        at = head[q]
        new = -1
        while at >= 0:
            if log.number[at] >= first[q]:
                number[used] = log.number[at]
                following[used] = new
                new = used
                used += 1
            at = log.following[at]
        head[q] = new
    return Log(number, following, used)
