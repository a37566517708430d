"""A stretch of events carried through one list: first decided, then carried out in one go.

Most lists see a few arrivals and a few expiries in a batch. To move a list's tail for each of them
costs more than to remember which places fall free and which arrivals go where: ranks follow from
those few, and in the end every entry moves once, or not at all where as many left as came.
"""

from __future__ import annotations

import numpy as np

from anabranch.flow.process import njit

__all__ = ["DONE", "LONG", "MORE", "MOST", "OTHER", "first_above", "room_for_changes", "stretch"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

MOST = 8
"""Arrivals, and likewise expiries, of one stretch."""

LONG = 48
"""From this length on, a list is carried by stretches sooner than event by event."""

DONE, MORE, OTHER = 0, 1, 2

_NEVER = int(np.iinfo(np.int64).max) // 4


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


def room_for_changes() -> tuple[np.ndarray, ...]:
    """Scratch for `stretch`: places that fall free; places, ranks, codes, scores of arrivals."""
    whole = np.empty((4, MOST), np.int64)
    return (*whole, np.empty(MOST))


@njit(boundscheck=False)
def stretch(
    q, kq, most, limit, span, end, before, begin, length, scores, codes, clock, base, offset,
    ci, c_stop, c_pos, c_score, x_place, changes, told, t_score, reports,
):  # pragma: no cover # fmt: skip
    """Carry one list through candidates ci..c_stop and the expiries up to `end`.

    It stops before what it does not know: several events at one instant, a list about to run short,
    an arrival that expires again by `end`; and after what ends a stretch: a list too long, or too
    many changes. Returns the length, the next candidate, the reports, whether the top has changed,
    and `DONE`, `MORE` of the same, or `OTHER` that it does not know.
    """
    nx = _expiring(codes, begin, length, before, x_place)
    xi = n_gone = n_put = 0
    gone, put_place, put_rank, put_code, put_score = changes
    # Loops over what has changed always go over all places, and so never end unforeseen.
    for j in range(MOST):
        gone[j] = put_place[j] = put_rank[j] = _NEVER
        put_score[j] = np.inf
    now = length
    changed = False
    left = MORE
    while now <= most:
        while ci < c_stop and c_score[ci] >= limit:
            ci += 1
        arrival = expiry = _NEVER
        if ci < c_stop:
            arrival = clock[offset + c_pos[ci]]
        if xi < nx:
            expiry = clock[(codes[begin + x_place[xi]] >> 1) - base] + span
        if arrival == expiry:
            left = DONE if arrival == _NEVER else OTHER
            break
        if expiry < arrival:
            again = xi + 1 < nx and (
                clock[(codes[begin + x_place[xi + 1]] >> 1) - base] + span == expiry
            )
            if now <= kq or again:
                left = OTHER
                break
            if n_gone == MOST:
                break
            place = x_place[xi]
            xi += 1
            now -= 1
            rank = place
            at = 0
            for j in range(MOST):
                at += gone[j] < place
            for j in range(MOST):
                rank += put_place[j] <= place
                put_rank[j] -= put_place[j] > place
            rank -= at
            for j in range(MOST - 1, 0, -1):
                gone[j] = gone[j - 1] if j > at else gone[j]
            gone[at] = place
            n_gone += 1
            if rank >= kq:
                continue
            changed = True
            # Who is the last of the top now?
            rank = kq - 1
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
            instant = expiry
        else:
            again = ci + 1 < c_stop and clock[offset + c_pos[ci + 1]] == arrival
            if arrival + span <= end or again:
                left = OTHER
                break
            if n_put == MOST:
                break
            s = c_score[ci]
            code = (base + offset + c_pos[ci]) << 1
            ci += 1
            now += 1
            place = first_above(scores, s, begin, begin + length) - begin
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
            put_code[at] = code | (rank < kq)
            n_put += 1
            instant = arrival
            if rank >= kq:
                continue
            changed = True
        told[reports, 0] = q
        told[reports, 1] = code >> 1
        told[reports, 2] = instant
        told[reports, 3] = rank + 1
        t_score[reports] = s
        reports += 1 - (code & 1)
    _carry_out(scores, codes, begin, length, gone, n_gone, put_place, n_put)
    for j in range(n_put):
        scores[begin + put_rank[j]] = put_score[j]
        codes[begin + put_rank[j]] = put_code[j]
    return now, ci, reports, changed, left


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
