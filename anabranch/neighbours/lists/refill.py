"""A list that ran short, filled anew from the window.

Letters: q a query, s a score; the tables are those of `tables`.
"""

from __future__ import annotations

import numpy as np

from anabranch.flow.process import njit
from anabranch.neighbours.lists.admission import admits
from anabranch.neighbours.lists.scoring import FAINT, score
from anabranch.neighbours.lists.stretches import first_above

__all__ = ["insert", "repair_list"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_BLOCK = 128


@njit(boundscheck=False)
def insert(scores, codes, begin, size, s, code):  # pragma: no cover
    """Put an arrival, younger than all there, into a list; its position."""
    at = first_above(scores, s, begin, begin + size)
    # Of unsigned positions in a slice, compiled code knows that none is negative, and so moves many
    # at a time.
    rest, following = scores[at : begin + size + 1], codes[at : begin + size + 1]
    last, one = np.uint64(len(rest) - 1), np.uint64(1)
    for j in range(last):
        to = last - np.uint64(j)
        rest[to] = rest[to - one]
    for j in range(last):
        to = last - np.uint64(j)
        following[to] = following[to - one]
    scores[at] = s
    codes[at] = code
    return at - begin


@njit(boundscheck=False)
def _squares(centre, points, first, last, out):  # pragma: no cover
    """Squares of Euclidean distances of some points, good enough to pass over what is far."""
    if len(centre) == 4:
        c0, c1, c2, c3 = centre[0], centre[1], centre[2], centre[3]
        for j in range(last - first):
            at = np.uint64(first + j)
            a, b = c0 - points[at, 0], c1 - points[at, 1]
            c, d = c2 - points[at, 2], c3 - points[at, 3]
            out[j] = (a * a + b * b) + (c * c + d * d)
        return
    out[: last - first] = 0.0
    for axis in range(len(centre)):
        c0 = centre[axis]
        for j in range(last - first):
            a = c0 - points[np.uint64(first + j), axis]
            out[j] += a * a


@njit(boundscheck=False)
def repair_list(q, size, first, last, asked, lists, held, log, lanes):  # pragma: no cover
    """The best of window positions first..last as the new list of a query; its size."""
    scores, codes, begin, most = lists.scores, lists.codes, lists.start[q], asked.k[q]
    most += lists.spare[q]
    emitted = _emitted(q, size, lists, log)
    measure, centre, points, base = asked.measure, asked.centres[q], held.points, held.base
    bounds, marks = asked.bounds, held.marks
    size = 0
    squares = np.zeros(_BLOCK)
    farthest = np.inf
    for block in range(first, last, _BLOCK):
        stop = min(block + _BLOCK, last)
        if measure == 0:
            _squares(centre, points, block, stop, squares)
        near = 0
        for j in range(_BLOCK):
            near += squares[j] <= farthest
        if near == 0:
            continue
        for pos in range(block, stop):
            if squares[pos - block] > farthest or not admits(bounds, q, marks, pos):
                continue
            s = score(measure, centre, points[pos], lanes)
            if size < most:
                insert(scores, codes, begin, size, s, (base + pos) << 1)
                size += 1
            elif s < scores[begin + size - 1]:
                insert(scores, codes, begin, size - 1, s, (base + pos) << 1)
            if size == most:
                tail = scores[begin + size - 1]
                farthest = tail * tail * 1.000001 + FAINT
    for j in range(begin, begin + size):
        at = first_above(emitted, codes[j] >> 1, 0, len(emitted)) - 1
        if at >= 0 and emitted[at] == codes[j] >> 1:
            codes[j] |= 1
    return size


@njit(boundscheck=False)
def _emitted(q, size, lists, log):  # pragma: no cover
    """The numbers of a query, in the log or its list, that have been reported; sorted."""
    codes, begin, following = lists.codes, lists.start[q], log.following
    known = 0
    at = lists.head[q]
    while at >= 0:
        known += 1
        at = following[at]
    found = np.empty(known + size, np.int64)
    known = 0
    at = lists.head[q]
    while at >= 0:
        found[known] = log.number[at]
        at = following[at]
        known += 1
    for j in range(begin, begin + size):
        if codes[j] & 1:
            found[known] = codes[j] >> 1
            known += 1
    return np.sort(found[:known])
