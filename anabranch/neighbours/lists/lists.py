"""The lists of all queries carried through a batch: compiled, one query after the other.

A query's list holds, sorted by (score, arrival), *all* objects of its window up to its threshold
`tau`. Arrivals beyond it are ignored. A list that grows too long is cut and `tau` lowered to its
last entry; one that runs short is repaired by a scan of the window.

Letters: q a query, k how many it wants, n objects of the window; c a candidate (a new object below
the threshold when the batch began), d a new object looked at directly, x an entry that expires in
this batch, s a score. ``ci``, ``di`` and ``xi`` are the next of each, ``nx`` how many expire.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.flow.instants import BEGINNING, FOREVER
from anabranch.flow.lending import lent
from anabranch.flow.process import njit
from anabranch.neighbours.lists.admission import admits
from anabranch.neighbours.lists.candidates import beyond
from anabranch.neighbours.lists.log import longer, remember_emitted
from anabranch.neighbours.lists.refill import insert, repair_list
from anabranch.neighbours.lists.scoring import FAINT, score
from anabranch.neighbours.lists.stretches import (
    MORE,
    OTHER,
    Changes,
    first_above,
    room_for_changes,
    stretch,
)
from anabranch.neighbours.lists.tables import Log, One, Source

__all__ = ["run"]

_FEW = 4

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


class Reported(NamedTuple):
    """Rows of query, number, instant and rank; and scores. There must be room."""

    rows: np.ndarray
    scores: np.ndarray


class Scratch(NamedTuple):
    """Numbers and scores of entries that expire, eight numbers for one sum, and a stretch's."""

    number: np.ndarray
    score: np.ndarray
    lanes: np.ndarray
    changes: Changes


@njit(boundscheck=False)
def run(asked, lists, held, near, log, by_stretches, upto):  # pragma: no cover
    """Carry every list through the new objects, and all expiries up to `upto`.

    Long lists are carried `by_stretches`. Returns the reports (query, number, instant and rank;
    scores), the log's parts, and how many repairs there were.
    """
    scratch = _scratch(asked.k, lists.spare, len(held.clock) - held.fresh)
    out, reports = Reported(np.empty((1024, 4), np.int64), np.empty(1024)), 0
    q, di, repairs = 0, -1, 0
    while q < len(asked.k):
        room = _room(q, asked.k, lists, held)
        if room > len(out.scores) - reports:
            out = _wider(out, reports, reports + room)
        if room > len(log.number) - log.used:
            log = longer(log, room)
        q, di, reports, used = _carry(
            (q, di), asked, lists, held, near, log, scratch, by_stretches, upto, (out, reports)
        )
        log = Log(log.number, log.following, used)
        repairs += di >= 0
    # Arrays of their own, for a tuple with names takes long to hand over to Python.
    return out.rows[:reports], out.scores[:reports], log.number, log.following, log.used, repairs


@njit(inline="always")
def _room(q, ks, lists, held):  # pragma: no cover
    """More reports than a query has until it was repaired, and more than go into its log."""
    return lists.size[q] + ks[q] + 2 * lists.spare[q] + 2 + len(held.clock) - held.fresh


# The loop over instants stays in one function with the loop over queries, and what it is handed is
# lent: for short lists, to count references takes as long as the work itself.


@njit(boundscheck=False)
def _carry(
    at, asked, lists, held, near, log, scratch, by_stretches, upto, reporting
):  # pragma: no cover
    """`run` from a query on, to the first that there may be no room for, or that was repaired.

    Returns that query, from which new object on it has to look at all (or -1), the reports, and
    what is used of the log.
    """
    asked, lists, held, near = lent(asked), lent(lists), lent(held), lent(near)
    log, (out, reports) = lent(log), lent(reporting)
    x_number, x_score, lanes, changes = lent(scratch)
    _, _, ks, spans, sinces, untils, counted, _ = asked
    start, size, spare, tau, oldest, _, changed, scores, codes = lists
    clock, times, points, base, fresh, _ = held
    starts, c_place, c_score, direct = near
    source = Source(c_place, c_score, clock, points, base, fresh)
    n, used, (first, again) = len(clock), log.used, at
    known_edge, known_before = -2 * FOREVER, 0  # many queries have the same window
    for q in range(first, len(ks)):
        ends, over = min(upto, untils[q]), untils[q] < upto  # at its end it still has a top-k
        end = _last_number(clock, times, ends) if counted else ends
        if end - spans[q] != known_edge:
            known_edge = end - spans[q]
            known_before = base + first_above(clock, known_edge, 0, n)
        ci, c_end, by_hand = starts[q], starts[q + 1], direct[q] or again >= 0
        if not by_hand and ci == c_end and known_before <= oldest[q]:
            if over:
                size[q], tau[q], oldest[q] = 0, -1.0, FOREVER
            continue
        if min(len(out.scores) - reports, len(log.number) - used) < _room(q, ks, lists, held):
            return q, again, reports, used
        k, keep, most = ks[q], ks[q] + spare[q], ks[q] + 2 * spare[q]
        one = One(q, k, most, spans[q], start[q], end, known_before, c_end)
        begin, length, limit, left = start[q], size[q], tau[q], OTHER
        if by_stretches and not by_hand:
            left = MORE
        while left == MORE:
            length, ci, reports, new_top, left = stretch(
                one, length, limit, ci, (scores, codes), source, changes, out, reports
            )
            changed[q] |= new_top
            if length > most:
                used = remember_emitted(lists, q, begin + keep, begin + length, log, used)
                length, limit = keep, scores[begin + keep - 1]
        di, nx, xi, pos, s = fresh, 0, 0, -1, 0.0
        if left == OTHER:
            nx = _expiring(scores, codes, begin, length, one.before, x_number, x_score)
            if by_hand:
                di = max(fresh, again, first_above(times, sinces[q], 0, n))
                di, pos, s = _next_of_all(one, di, limit, asked, held, lanes)
            else:
                ci, pos, s = _next(one, ci, limit, source)
        again = -1
        while True:
            instant = FOREVER
            if pos >= 0:
                instant = clock[pos]
            if xi < nx:
                instant = min(instant, clock[x_number[xi] - base] + one.span)
            if instant == FOREVER:
                break
            # All that happens at this instant, expiries first, is one event.
            events, where, removed = 0, k, 0
            while xi < nx and clock[x_number[xi] - base] + one.span == instant:
                at_rank = _expire(scores, codes, begin, length, x_score[xi], x_number[xi])
                xi += 1
                if at_rank >= 0:
                    length -= 1
                    events += 1
                    removed += at_rank < k
            while pos >= 0 and clock[pos] == instant:
                if s < limit:
                    where = insert(scores, codes, begin, length, s, (base + pos) << 1)
                    length += 1
                    events += 1
                    if instant + one.span <= end:
                        x_number[nx] = base + pos
                        x_score[nx] = s
                        nx += 1
                    if length > most:
                        used = remember_emitted(lists, q, begin + keep, begin + length, log, used)
                        length, limit = keep, scores[begin + keep - 1]
                if by_hand:
                    di, pos, s = _next_of_all(one, di, limit, asked, held, lanes)
                else:
                    ci, pos, s = _next(one, ci, limit, source)
            if length < k and limit < np.inf:
                # The window holds all up to this instant; what comes later is looked at by hand.
                length, limit, again = _refill(one, length, instant, asked, lists, held, log, lanes)
                events = 2
            if events > 1 or removed > 0 or where < k:
                changed[q] = True
                low, top = _among(k, length, events, where, removed)
                reports = _report(q, begin, low, top, instant, scores, codes, out, reports)
            if again >= 0:
                size[q], tau[q] = length, limit
                return q, again, reports, used
        size[q], tau[q] = length, limit
        # All older ones have expired. Long lists lose some in most batches: a bound will do.
        oldest[q] = one.before if by_stretches else _least(codes, begin, length)
        if over:
            size[q], tau[q], oldest[q] = 0, -1.0, FOREVER
    return len(ks), -1, reports, used


@njit(boundscheck=False)
def _scratch(k, spare, fresh):  # pragma: no cover
    """Room for the longest list."""
    longest = 0
    for q in range(len(k)):
        longest = max(longest, k[q] + 2 * spare[q] + 2)
    rows = longest + fresh + 1
    return Scratch(np.empty(rows, np.int64), np.empty(rows), np.empty(8), room_for_changes(longest))


@njit(boundscheck=False, inline="always")
def _last_number(clock, times, ends):  # pragma: no cover
    """The number of the last object up to a time."""
    n = len(clock)
    # Most queries go on, and then it is the newest.
    last = n if n > 0 and times[n - 1] <= ends else first_above(times, ends, 0, n)
    return clock[last - 1] if last > 0 else BEGINNING


@njit(boundscheck=False, inline="always")
def _least(codes, begin, length):  # pragma: no cover
    """The least number in a list."""
    least = FOREVER
    for code in codes[begin : begin + length]:
        least = min(least, code >> 1)
    return least


@njit
def _wider(out, reports, room):  # pragma: no cover
    """The same reports with room for more."""
    rows, scores = np.empty((2 * room, 4), np.int64), np.empty(2 * room)
    rows[:reports], scores[:reports] = out.rows[:reports], out.scores[:reports]
    return Reported(rows, scores)


# The stages of an instant


@njit(boundscheck=False)
def _expiring(scores, codes, begin, size, before, x_number, x_score):  # pragma: no cover
    """Entries with a number below `before`, sorted by it; how many."""
    found = 0
    entries = codes[begin : begin + size]
    for j in range(len(entries)):
        number = entries[j] >> 1
        if number < before:
            at = found
            while at > 0 and x_number[at - 1] > number:
                x_number[at] = x_number[at - 1]
                x_score[at] = x_score[at - 1]
                at -= 1
            x_number[at] = number
            x_score[at] = scores[begin + j]
            found += 1
    return found


@njit(boundscheck=False)
def _next(one, ci, limit, source):  # pragma: no cover
    """The next candidate below the limit."""
    c_place, c_score, clock, _, _, fresh = source
    while ci < one.c_end:
        if c_score[ci] < limit:
            pos = fresh + c_place[ci]
            if clock[pos] > one.end:
                return one.c_end, -1, 0.0
            return ci + 1, pos, c_score[ci]
        ci += 1
    return ci, -1, 0.0


@njit(boundscheck=False)
def _next_of_all(one, di, limit, asked, held, lanes):  # pragma: no cover
    """The next new object below the limit that may enter: by hand, of all that there are."""
    measure, centre, bounds = asked.measure, asked.centres[one.q], asked.bounds
    clock, points, marks = held.clock, held.points, held.marks
    n = len(clock)
    while di < n:
        if measure == 0:
            di = _not_beyond(centre, points, di, limit)
        if di == n or clock[di] > one.end:
            return n, -1, 0.0
        if admits(bounds, one.q, marks, di):
            s = score(measure, centre, points[di], lanes)
            if s < limit:
                return di + 1, di, s
        di += 1
    return di, -1, 0.0


@njit(boundscheck=False)
def _not_beyond(centre, points, di, limit):  # pragma: no cover
    """The next point that is not surely farther than the limit."""
    n, dim, most = len(points), points.shape[1], limit * limit * 1.000001 + FAINT
    if dim > _FEW:
        while di < n and beyond(0, centre, points, di, limit):
            di += 1
        return di
    # Most of a new query's time; coordinates that are missing repeat the last, and count nothing.
    one, two, three = min(1, dim - 1), min(2, dim - 1), min(3, dim - 1)
    x, y, z, w = centre[0], centre[one], centre[two], centre[three]
    u, v, t = np.float64(dim > 1), np.float64(dim > 2), np.float64(dim > 3)
    while di < n:
        a, b = x - points[di, 0], u * (y - points[di, one])
        c, d = v * (z - points[di, two]), t * (w - points[di, three])
        far = (a * a + b * b) + (c * c + d * d) > most  # no, if a difference is out of range
        if not far:
            break
        di += 1
    return di


@njit(boundscheck=False)
def _expire(scores, codes, begin, size, s, number):  # pragma: no cover
    """Take an arrival out of a list if it is there; its position or -1."""
    at = first_above(scores, s, begin, begin + size) - 1
    while at >= begin and scores[at] == s and codes[at] >> 1 != number:
        at -= 1
    if at < begin or scores[at] != s:
        return -1
    rest, following = scores[at : begin + size], codes[at : begin + size]
    for j in range(len(rest) - 1):
        rest[j] = rest[j + 1]
    for j in range(len(following) - 1):
        following[j] = following[j + 1]
    return at - begin


@njit(boundscheck=False)
def _refill(one, length, instant, asked, lists, held, log, lanes):  # pragma: no cover
    """Repair a list as of an instant; its length, its threshold, and where later objects begin."""
    clock, n = held.clock, len(held.clock)
    last = first_above(clock, instant, 0, n)
    first = max(
        first_above(clock, instant - one.span, 0, n),
        first_above(held.times, asked.since[one.q], 0, n),
    )
    length = repair_list(one.q, length, first, last, asked, lists, held, log, lanes)
    full = length == one.k + lists.spare[one.q]
    return length, lists.scores[one.begin + length - 1] if full else np.inf, last


@njit(inline="always")
def _among(k, length, events, where, removed):  # pragma: no cover
    """Ranks that may not have been reported: before the instant all of the first k had been."""
    low, top = 0, min(k, length)
    if events == 1:
        low = where if removed == 0 else max(0, top - 1)
        if removed == 0:
            top = where + 1
    return low, top


@njit(boundscheck=False)
def _report(q, begin, low, top, instant, scores, codes, out, reports):  # pragma: no cover
    """Report the entries from low to top that have not been; the number of reports."""
    rows, row_scores = out
    for j in range(low, top):
        code = codes[begin + j]
        if code & 1:
            continue
        codes[begin + j] = code | 1
        rows[reports, 0] = q
        rows[reports, 1] = code >> 1
        rows[reports, 2] = instant
        rows[reports, 3] = j + 1
        row_scores[reports] = scores[begin + j]
        reports += 1
    return reports
