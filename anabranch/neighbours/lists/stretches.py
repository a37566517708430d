"""A stretch of events carried through one list: first decided, then carried out in one go.

Most lists see a few arrivals and a few expiries in a batch. To move a list's tail for each of them
costs more than to remember which places fall free and which arrivals go where: ranks follow from
those few, and in the end every entry moves once, or not at all where as many left as came.

Letters: c a candidate, x an entry that expires, s a score; ``ci`` and ``xi`` are the next of each;
g a place that fell free, p an arrival that was put in. A *place* counts entries as they lay before
the stretch, a *rank* as they are by now.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.flow.instants import FOREVER
from anabranch.flow.process import njit

__all__ = [
    "DONE",
    "LONG",
    "MORE",
    "MOST",
    "OTHER",
    "Changes",
    "first_above",
    "room_for_changes",
    "stretch",
]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

MOST = 8
"""Arrivals, and likewise expiries, of one stretch."""

LONG = 48
"""From this length on, a list is carried by stretches sooner than event by event."""

DONE, MORE, OTHER = 0, 1, 2


@njit(inline="always")
def first_above(values, limit, begin, end):  # pragma: no cover
    """The first position between begin and end whose value exceeds the limit."""
    # Without a branch on the values, which no processor could foresee.
    left = end - begin
    while left > 0:
        half = (left + 1) >> 1
        begin += half * (values[begin + half - 1] <= limit)
        left -= half
    return begin


class Changes(NamedTuple):
    """What a stretch has decided: places that fall free, in order, and arrivals, best first.

    An arrival has the `place` of the old entry that it comes before, a `rank` in the list as it is
    by then, a `code` and a `score`. Unused rows lie beyond everything.
    """

    gone: np.ndarray
    place: np.ndarray
    rank: np.ndarray
    code: np.ndarray
    score: np.ndarray


def room_for_changes() -> Changes:
    """Scratch for `stretch`."""
    gone, place, rank, code = np.empty((4, MOST), np.int64)
    return Changes(gone, place, rank, code, np.empty(MOST))


@njit(boundscheck=False, inline="always")
def _expiring(codes, begin, length, before, x_place):  # pragma: no cover
    """Places of entries with a number below `before`, by number; how many."""
    found = 0
    limit = before << 1
    for j in range(length):
        x_place[found] = j
        found += codes[begin + j] < limit
    for j in range(1, found):
        place = x_place[j]
        code = codes[begin + place]
        at = j
        while at > 0 and codes[begin + x_place[at - 1]] > code:
            x_place[at] = x_place[at - 1]
            at -= 1
        x_place[at] = place
    return found


@njit(boundscheck=False)
def stretch(
    one, length, limit, ci, entries, source, x_place, changes, out, reports
):  # pragma: no cover
    """Carry one list through its next candidates, and the expiries up to the last of them.

    It stops before what it does not know: several events at one instant, a list about to run short,
    an arrival that expires again by then; and after what ends a stretch: a list too long, or too
    many changes. Returns the length, the next candidate, the reports, whether the top has changed,
    and `DONE`, `MORE` of the same, or `OTHER` that it does not know.
    """
    scores, codes = entries
    c_place, c_score, clock, _, base, fresh = source
    gone, put_place, put_rank, put_code, put_score = changes
    rows, row_scores = out
    begin, span = one.begin, one.span
    # Up to the instant before the candidate that is too many.
    c_stop, end, before = one.c_end, one.end, one.before
    if one.c_end - ci > MOST:
        c_stop = ci + MOST
        end = min(one.end, clock[fresh + c_place[c_stop]] - 1)
        before = base + first_above(clock, end - span, 0, len(clock))
    while c_stop > ci and clock[fresh + c_place[c_stop - 1]] > end:
        c_stop -= 1
    if end < one.end and c_stop == ci:
        return length, ci, reports, False, OTHER
    nx = _expiring(codes, begin, length, before, x_place)
    xi = n_gone = n_put = 0
    # Loops over what has changed always go over all places, and so never end unforeseen.
    for j in range(MOST):
        gone[j] = put_place[j] = put_rank[j] = FOREVER
        put_score[j] = np.inf
    now = length
    changed = False
    left = MORE
    while now <= one.most:
        while ci < c_stop and c_score[ci] >= limit:
            ci += 1
        arrival = expiry = FOREVER
        if ci < c_stop:
            arrival = clock[fresh + c_place[ci]]
        if xi < nx:
            expiry = clock[(codes[begin + x_place[xi]] >> 1) - base] + span
        if arrival == expiry:
            if arrival < FOREVER:
                left = OTHER
            elif end == one.end:
                left = DONE
            break
        if expiry < arrival:
            again = xi + 1 < nx and (
                clock[(codes[begin + x_place[xi + 1]] >> 1) - base] + span == expiry
            )
            if now <= one.k or again:
                left = OTHER
                break
            if n_gone == MOST:
                break
            rank = _leave(x_place[xi], gone, put_place, put_rank)
            xi += 1
            now -= 1
            n_gone += 1
            if rank >= one.k:
                continue
            rank, instant = one.k - 1, expiry
            code, s = _last_of_top(rank, begin, scores, codes, changes, n_put)
        else:
            again = ci + 1 < c_stop and clock[fresh + c_place[ci + 1]] == arrival
            if arrival + span <= end or again:
                left = OTHER
                break
            if n_put == MOST:
                break
            s, code, instant = c_score[ci], (base + fresh + c_place[ci]) << 1, arrival
            place = first_above(scores, s, begin, begin + length) - begin
            rank = _come(place, s, code, one.k, changes)
            ci += 1
            now += 1
            n_put += 1
            if rank >= one.k:
                continue
        changed = True
        rows[reports, 0] = one.q
        rows[reports, 1] = code >> 1
        rows[reports, 2] = instant
        rows[reports, 3] = rank + 1
        row_scores[reports] = s
        reports += 1 - (code & 1)
    _carry_out(scores, codes, begin, length, gone, n_gone, put_place, n_put)
    for j in range(n_put):
        scores[begin + put_rank[j]] = put_score[j]
        codes[begin + put_rank[j]] = put_code[j]
    return now, ci, reports, changed, left


@njit(boundscheck=False, inline="always")
def _leave(place, gone, put_place, put_rank):  # pragma: no cover
    """Let the entry at a place go; the rank that it had."""
    rank = place
    at = 0
    for j in range(MOST):
        at += gone[j] < place
    for j in range(MOST):
        rank += put_place[j] <= place
        put_rank[j] -= put_place[j] > place
    for j in range(MOST - 1, 0, -1):
        gone[j] = gone[j - 1] if j > at else gone[j]
    gone[at] = place
    return rank - at


@njit(boundscheck=False, inline="always")
def _last_of_top(rank, begin, scores, codes, changes, n_put):  # pragma: no cover
    """Code and score of who has a rank now, which is then marked as reported."""
    gone, _, put_rank, put_code, put_score = changes
    ahead = 0
    for j in range(MOST):
        ahead += put_rank[j] < rank
    if ahead < n_put and put_rank[ahead] == rank:
        code, s = put_code[ahead], put_score[ahead]
        put_code[ahead] = code | 1
    else:
        last = rank - ahead
        for j in range(MOST):
            last += gone[j] <= last
        code, s = codes[begin + last], scores[begin + last]
        codes[begin + last] = code | 1
    return code, s


@njit(boundscheck=False, inline="always")
def _come(place, s, code, k, changes):  # pragma: no cover
    """Let an arrival come before the entry at a place; its rank."""
    gone, put_place, put_rank, put_code, put_score = changes
    rank = place
    at = 0
    for j in range(MOST):
        rank -= gone[j] < place
        at += put_score[j] <= s
    rank += at
    for j in range(MOST - 1, 0, -1):
        later = j > at
        put_place[j] = put_place[j - 1] if later else put_place[j]
        put_rank[j] = put_rank[j - 1] + 1 if later else put_rank[j]
        put_score[j] = put_score[j - 1] if later else put_score[j]
        put_code[j] = put_code[j - 1] if later else put_code[j]
    put_place[at], put_rank[at], put_score[at] = place, rank, s
    put_code[at] = code | (rank < k)
    return rank


@njit(boundscheck=False, inline="always")
def _left(values, begin, end, by):  # pragma: no cover
    # Unsigned positions need no look whether they count from the end, and so many move at a time.
    for j in range(np.uint64(begin), np.uint64(end)):
        values[j - by] = values[j]


@njit(boundscheck=False, inline="always")
def _right(values, begin, end, by):  # pragma: no cover
    last, one = np.uint64(end), np.uint64(1)
    for j in range(np.uint64(end - begin)):
        at = last - j - one
        values[at + by] = values[at]


@njit(boundscheck=False, inline="always")
def _carry_out(scores, codes, begin, length, gone, n_gone, put_place, n_put):  # pragma: no cover
    """Move what stays to where it belongs; places for arrivals are left open."""
    # What moves left is moved from left to right, and then what moves right from right to left; a
    # part that moves left never reaches one that moves right, nor the other way round.
    at = g = p = shift = 0
    while at < length:
        free = gone[g] if g < n_gone else length
        come = put_place[p] if p < n_put else length + 1
        stop = min(free, come)
        if shift < 0:
            _left(scores, begin + at, begin + stop, np.uint64(-shift))
            _left(codes, begin + at, begin + stop, np.uint64(-shift))
        at = stop
        if come <= free:
            shift += 1
            p += 1
        elif free < length:
            shift -= 1
            g += 1
            at += 1
    shift += n_put - p
    g, p = n_gone, n_put
    stop = length
    while g > 0 or p > 0:
        free = gone[g - 1] if g > 0 else -1
        come = put_place[p - 1] if p > 0 else -1
        at = max(come, free + 1)
        if shift > 0:
            _right(scores, begin + at, begin + stop, np.uint64(shift))
            _right(codes, begin + at, begin + stop, np.uint64(shift))
        stop = at
        if come > free:
            shift -= 1
            p -= 1
        else:
            shift += 1
            g -= 1
            stop -= 1
