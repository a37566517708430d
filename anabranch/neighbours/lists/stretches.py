"""A stretch of events carried through one list: first decided, then carried out in one go.

Most lists see a few arrivals and a few expiries in a batch. To move a list's tail for each of them
costs more than to lay old entries and arrivals in one order beforehand, and keep of each *place* in
it one bit: whether it is occupied. An event sets or clears a bit, ranks are numbers of bits below,
and in the end every entry moves once, or not at all where as many left as came.

Letters: c a candidate, x an entry that expires, s a score; ``ci``, ``ai`` and ``xi`` are the next
of all candidates, of those of this stretch, and of the expiries; p a place, w a word of a set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.flow.bits import highest, lowest, ones
from anabranch.flow.instants import FOREVER
from anabranch.flow.lending import lent, moved
from anabranch.flow.process import njit

__all__ = [
    "DONE",
    "LONG",
    "MORE",
    "OTHER",
    "Changes",
    "first_above",
    "room_for_changes",
    "stretch",
]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

LONG = 48
"""From this length on, a list is carried by stretches sooner than event by event."""

DONE, MORE, OTHER = 0, 1, 2

_MOST = 32  # arrivals of one stretch
_TOGETHER = 16
_COUNTED = 256  # so many entries are counted sooner than halved again


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
    """What a stretch decides: scratch for its arrivals, expiries, places and entries.

    Of each arrival: its place among all candidates (`at`), instant, score, the old entries before
    it (`before`), its place, whether it was `reported`, and in `order` who is next by place.
    Of each expiry its instant and place. A bit for each place says whether it is occupied, and
    whether it is an arrival's. `scores` and `codes` are entries on their way.
    """

    at: np.ndarray
    instant: np.ndarray
    score: np.ndarray
    before: np.ndarray
    place: np.ndarray
    reported: np.ndarray
    order: np.ndarray
    x_instant: np.ndarray
    x_place: np.ndarray
    occupied: np.ndarray
    arrived: np.ndarray
    scores: np.ndarray
    codes: np.ndarray


@njit(inline="always")
def _whole(rows):  # pragma: no cover
    return np.empty(rows, np.int64)


@njit
def room_for_changes(longest):  # pragma: no cover
    """Scratch for lists of at most so many entries."""
    few, many, words = _MOST + 1, longest + 1, (longest + _MOST) // 64 + 2
    at, instant, before, place = _whole(few), _whole(few), _whole(few), _whole(few)
    reported, order = _whole(few), _whole(few)
    x_instant, x_place, codes = _whole(many), _whole(many), _whole(many)
    occupied, arrived = np.empty(words, np.uint64), np.empty(words, np.uint64)
    score, scores = np.empty(few), np.empty(many)
    return Changes(
        at, instant, score, before, place, reported, order, x_instant, x_place, occupied, arrived,
        scores, codes
    )  # fmt: skip


@njit(boundscheck=False)
def stretch(one, length, limit, ci, entries, source, changes, out, reports):  # pragma: no cover
    """Carry one list through its next candidates, and the expiries up to the last of them.

    It stops before what it does not know: a list about to run short, an arrival that expires again
    by then, more arrivals at one instant than there is room for; and after what ends a stretch: a
    list too long, or no room for more arrivals. Returns the length, the next candidate, the
    reports, whether the top has changed, and `DONE`, `MORE` of the same, or `OTHER` that it does
    not know.
    """
    one, entries, source = lent(one), lent(entries), lent(source)
    changes, out = lent(changes), lent(out)
    at, instants, places = changes.at, changes.instant, changes.place
    x_instant, x_place, occupied = changes.x_instant, changes.x_place, changes.occupied
    n, end = _coming(one, ci, limit, source, changes)
    if n == 0 and end < one.end:
        return length, ci, reports, False, OTHER
    _laid(one.begin, length, n, entries[0], changes)
    _leaving(one, length, n, end, entries[1], source, changes)
    last = one.k - 1 + _before(changes, n, one.k - 1)  # the place of the last of the top
    ai = xi = 0
    now, changed, left = length, False, MORE
    while now <= one.most:
        arrival, expiry = instants[ai], x_instant[xi]
        instant = min(arrival, expiry)
        if instant == FOREVER:
            left = DONE if end == one.end else MORE
            break
        leaves, comes = np.int64(expiry == instant), np.int64(arrival == instant)
        while x_instant[xi + leaves] == instant:
            leaves += leaves > 0
        while comes > 0 and instants[ai + comes] == instant:
            comes += 1
        if (leaves > 0 and now - leaves < one.k) or now + comes - leaves > one.most + 1:
            left = OTHER
            break
        if comes > 0 and instant + one.span <= end:
            left = OTHER
            break
        now += comes - leaves
        events = leaves + comes
        top = False
        for _ in range(leaves):
            p = x_place[xi]
            occupied[p >> 6] &= ~_bit(p)
            top |= p <= last
            if p <= last:
                last = _next_above(occupied, last)
            xi += 1
        for _ in range(comes):
            p = places[ai]
            occupied[p >> 6] |= _bit(p)
            top |= p < last
            if p < last:
                last = _next_below(occupied, last)
            ai += 1
        if events == 1 and not top:
            continue
        changed = True
        if events > 1:
            reports = _report_all(one, instant, last, entries, source, changes, out, reports)
            continue
        p = places[ai - 1] if comes > 0 else last
        reports = _report(one, instant, p, entries, source, changes, out, reports)
    _carry_out(one.begin, length, n, entries, source, changes)
    return now, at[ai], reports, changed, left


# What is to come


@njit(boundscheck=False, inline="always")
def _coming(one, ci, limit, source, changes):  # pragma: no cover
    """The arrivals of a stretch: how many, and the last instant of the stretch."""
    c_place, c_score, clock, _, _, fresh = source
    at, instants, scores = changes.at, changes.instant, changes.score
    found, end = 0, one.end
    while ci < one.c_end:
        if c_score[ci] < limit:
            instant = clock[fresh + c_place[ci]]
            if found == _MOST or instant > end:
                # Up to the instant before the arrival that is too many.
                end = min(end, instant - 1)
                break
            at[found], instants[found], scores[found] = ci, instant, c_score[ci]
            found += 1
        ci += 1
    at[found] = ci
    while found > 0 and instants[found - 1] > end:
        found -= 1
    instants[found] = FOREVER
    return found, end


@njit(boundscheck=False, inline="always")
def _laid(begin, length, n, scores, changes):  # pragma: no cover
    """Lay `n` arrivals among the old entries: their places and their order."""
    score, before, place = changes.score, changes.before, changes.place
    order, reported = changes.order, changes.reported
    occupied, arrived = changes.occupied, changes.arrived
    for i in range(n):
        s, better = score[i], 0
        before[i] = _up_to(scores, s, begin, length)
        for j in range(np.uint64(i)):
            worse = score[j] > s
            place[j] += worse
            better += not worse
        place[i] = better
    for w in range(((length + n) >> 6) + 1):
        occupied[w] = ~np.uint64(0)
        arrived[w] = np.uint64(0)
    for i in range(n):
        order[place[i]] = i
        reported[i] = 0
        p = place[i] + before[i]
        place[i] = p
        occupied[p >> 6] &= ~_bit(p)
        arrived[p >> 6] |= _bit(p)


@njit(boundscheck=False, inline="always")
def _up_to(scores, s, begin, length):  # pragma: no cover
    """How many of the entries have at most a score."""
    if length > _COUNTED:
        return first_above(scores, s, begin, begin + length) - begin
    count = 0
    for j in range(np.uint64(begin), np.uint64(begin + length)):
        count += scores[j] <= s
    return count


@njit(boundscheck=False, inline="always")
def _before(changes, n, j):  # pragma: no cover
    """How many arrivals have their place before an old entry."""
    before = changes.before
    count = 0
    for i in range(np.uint64(n)):
        count += before[i] <= j
    return count


@njit(boundscheck=False, inline="always")
def _leaving(one, length, n, end, codes, source, changes):  # pragma: no cover
    """The expiries of a stretch, by number."""
    clock, base = source.clock, source.base
    places, instants = changes.x_place, changes.x_instant
    before = one.before
    if end < one.end:
        before = base + first_above(clock, end - one.span, 0, len(clock))
    found, limit, begin = 0, before << 1, np.uint64(one.begin)
    # Few expire: codes that lie side by side are compared together, and again where any is low.
    for group in range(0, length, _TOGETHER):
        stop = min(group + _TOGETHER, length)
        some = stop - group < _TOGETHER
        if not some:
            for j in range(_TOGETHER):
                some |= codes[begin + np.uint64(group + j)] < limit
        if some:
            for j in range(group, stop):
                places[found] = j
                found += codes[begin + np.uint64(j)] < limit
    for i in range(1, found):
        p = places[i]
        code = codes[one.begin + p]
        at = i
        while at > 0 and codes[one.begin + places[at - 1]] > code:
            places[at] = places[at - 1]
            at -= 1
        places[at] = p
    for i in range(found):
        j = places[i]
        instants[i] = clock[(codes[one.begin + j] >> 1) - base] + one.span
        places[i] = j + _before(changes, n, j)
    instants[found] = FOREVER


# Places


@njit(boundscheck=False, inline="always")
def _bit(p):  # pragma: no cover
    return np.uint64(1) << np.uint64(p & 63)


@njit(boundscheck=False, inline="always")
def _below(words, p):  # pragma: no cover
    """How many places below one are in a set."""
    count = ones(words[p >> 6] & (_bit(p) - np.uint64(1)))
    for w in range(p >> 6):
        count += ones(words[w])
    return count


@njit(boundscheck=False, inline="always")
def _next_above(words, p):  # pragma: no cover
    """The next place of a set above one; there must be one."""
    w = p >> 6
    rest = words[w] & ~(_bit(p) | (_bit(p) - np.uint64(1)))
    while rest == 0:
        w += 1
        rest = words[w]
    return (w << 6) + lowest(rest)


@njit(boundscheck=False, inline="always")
def _next_below(words, p):  # pragma: no cover
    """The next place of a set below one; there must be one."""
    w = p >> 6
    rest = words[w] & (_bit(p) - np.uint64(1))
    while rest == 0:
        w -= 1
        rest = words[w]
    return (w << 6) + highest(rest)


# What comes of it


@njit(boundscheck=False, inline="always")
def _report(one, instant, p, entries, source, changes, out, reports):  # pragma: no cover
    """Report who has a place, unless that has been done; the number of reports."""
    scores, codes = entries
    rows, row_scores = out
    if changes.arrived[p >> 6] & _bit(p):
        i = 0
        while changes.place[i] != p:
            i += 1
        code = (source.base + source.fresh + source.place[changes.at[i]]) << 1 | changes.reported[i]
        s = changes.score[i]
        changes.reported[i] = 1
    else:
        j = one.begin + p - _below(changes.arrived, p)
        code, s = codes[j], scores[j]
        codes[j] = code | 1
    rows[reports, 0] = one.q
    rows[reports, 1] = code >> 1
    rows[reports, 2] = instant
    rows[reports, 3] = _below(changes.occupied, p) + 1
    row_scores[reports] = s
    return reports + 1 - (code & 1)


@njit(boundscheck=False)
def _report_all(one, instant, last, entries, source, changes, out, reports):  # pragma: no cover
    """Report whoever of the top has not been, after several events at one instant."""
    one, entries, source = lent(one), lent(entries), lent(source)
    changes, out = lent(changes), lent(out)
    for p in range(last + 1):
        if changes.occupied[p >> 6] & _bit(p):
            reports = _report(one, instant, p, entries, source, changes, out, reports)
    return reports


@njit(boundscheck=False, inline="always")
def _carry_out(begin, length, n, entries, source, changes):  # pragma: no cover
    """Put every entry where it belongs now."""
    scores, codes = entries
    occupied, arrived, order = changes.occupied, changes.arrived, changes.order
    old, behind, arrivals, first = 0, 0, 0, -1
    for w in range(((length + n) >> 6) + 1):
        rest = arrived[w] | ~occupied[w]
        while rest != 0:
            p = (w << 6) + lowest(rest)
            mine = arrived[w] & rest & (~rest + np.uint64(1)) != 0
            here = occupied[w] & rest & (~rest + np.uint64(1)) != 0
            rest &= rest - np.uint64(1)
            stop = p - arrivals  # old entries up to here stay as they are, side by side
            if first < 0:
                first = old = behind = stop
                moved(scores, begin + first, begin + length, changes.scores, 0)
                moved(codes, begin + first, begin + length, changes.codes, 0)
            if old != behind and stop > old:
                moved(changes.scores, old - first, stop - first, scores, begin + behind)
                moved(changes.codes, old - first, stop - first, codes, begin + behind)
            behind += stop - old
            old = stop
            if mine:
                i = order[arrivals]
                arrivals += 1
                if here:
                    scores[begin + behind] = changes.score[i]
                    number = source.base + source.fresh + source.place[changes.at[i]]
                    codes[begin + behind] = number << 1 | changes.reported[i]
                    behind += 1
            else:
                old += 1
    if old != behind:
        moved(changes.scores, old - first, length - first, scores, begin + behind)
        moved(changes.codes, old - first, length - first, codes, begin + behind)
