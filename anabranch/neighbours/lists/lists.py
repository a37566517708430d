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

from anabranch.flow.process import njit
from anabranch.neighbours.lists.candidates import beyond
from anabranch.neighbours.lists.refill import insert, repair_list
from anabranch.neighbours.lists.scoring import score
from anabranch.neighbours.lists.stretches import DONE, MORE, MOST, OTHER, first_above, stretch
from anabranch.neighbours.lists.tables import NEVER, Log

__all__ = ["remember_emitted", "run", "still_remembered"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


class One(NamedTuple):
    """One list on its way through a batch: its query, its place, and how far it goes."""

    q: int
    k: int
    keep: int  # entries left by a cut or a repair
    most: int  # entries beyond which it is cut
    span: int
    begin: int
    end: int  # the last instant
    before: int  # entries with lower numbers expire by then


class Scratch(NamedTuple):
    """Room for entries that expire, and for one sum."""

    number: np.ndarray
    score: np.ndarray
    lanes: np.ndarray


class Reported(NamedTuple):
    """Rows of query, number, instant and rank; and scores. There must be room."""

    rows: np.ndarray
    scores: np.ndarray


@njit(boundscheck=False)
def run(asked, lists, held, near, log, changes, upto):  # pragma: no cover
    """Carry every list through the new objects, and all expiries up to `upto`.

    `changes` is scratch for stretches, or None where all lists are short. Returns the reports
    (query, number, instant and rank; scores), the log, and how many repairs there were.
    """
    clock, times, size, tau, oldest = held.clock, held.times, lists.size, lists.tau, lists.oldest
    n, fresh = len(clock), len(clock) - held.fresh
    longest = 0
    for q in range(len(asked.k)):
        longest = max(longest, asked.k[q] + 2 * asked.spare[q] + 2)
    expiring = np.empty(longest + fresh + 1, np.int64), np.empty(longest + fresh + 1)
    scratch = Scratch(expiring[0], expiring[1], np.empty(8))
    out = Reported(np.empty((1024, 4), np.int64), np.empty(1024))
    reports = repairs = 0
    known_edge, known_before = -2 * NEVER, 0  # many queries have the same window
    for q in range(len(asked.k)):
        ends = min(upto, asked.until[q])
        over = asked.until[q] < upto  # at that very time it still has a top-k
        end = ends
        if asked.counted:
            # Most queries go on, and then the newest object is the last.
            last = n if n > 0 and times[n - 1] <= ends else first_above(times, ends, 0, n)
            end = clock[last - 1] if last > 0 else -NEVER
        if end - asked.span[q] != known_edge:
            known_edge = end - asked.span[q]
            known_before = held.base + first_above(clock, known_edge, 0, n)
        ci, by_hand = near.starts[q], near.direct[q]
        if by_hand or ci < near.starts[q + 1] or known_before > oldest[q]:
            k, spare = asked.k[q], asked.spare[q]
            one = One(
                q, k, k + spare, k + 2 * spare, asked.span[q], lists.start[q], end, known_before
            )
            most = size[q] + 2 * MOST + (fresh if by_hand else near.starts[q + 1] - ci)
            if reports + most > len(out.scores):
                out = _wider(out, reports, most)
            left = OTHER
            if changes is not None and not by_hand:
                ci, reports, left, log = _by_stretches(
                    one, ci, lists, held, near, scratch, changes, log, out, reports
                )
            if left == OTHER:
                reports, more, log, out = _by_events(
                    one, ci, asked, lists, held, near, scratch, log, out, reports
                )
                repairs += more
            # All older ones have expired. Long lists lose some in most batches: a bound will do.
            oldest[q] = one.before if changes is not None else _least(lists, q)
        if over:
            size[q], tau[q], oldest[q] = 0, -1.0, NEVER
    return out.rows[:reports], out.scores[:reports], log, repairs


@njit(boundscheck=False, inline="always")
def _least(lists, q):  # pragma: no cover
    """The least number in a list."""
    least = NEVER
    for code in lists.codes[lists.start[q] : lists.start[q] + lists.size[q]]:
        least = min(least, code >> 1)
    return least


@njit
def _wider(out, reports, more):  # pragma: no cover
    """The same reports with room for more."""
    room = 2 * (reports + more)
    rows, scores = np.empty((room, 4), np.int64), np.empty(room)
    rows[:reports], scores[:reports] = out.rows[:reports], out.scores[:reports]
    return Reported(rows, scores)


# A list by stretches


@njit(boundscheck=False)
def _by_stretches(
    one, ci, lists, held, near, scratch, changes, log, out, reports
):  # pragma: no cover
    """Carry a list as far as stretches go; the next candidate, the reports, and what is left."""
    clock, place = held.clock, near.place
    c_end = near.starts[one.q + 1]
    length, limit = lists.size[one.q], lists.tau[one.q]
    left = MORE
    while left == MORE:
        # Up to the instant before the candidate that is too many.
        c_stop, stop, before = c_end, one.end, one.before
        if c_end - ci > MOST:
            c_stop = ci + MOST
            stop = min(one.end, clock[held.fresh + place[c_stop]] - 1)
            before = held.base + first_above(clock, stop - one.span, 0, len(clock))
        while c_stop > ci and clock[held.fresh + place[c_stop - 1]] > stop:
            c_stop -= 1
        if stop < one.end and c_stop == ci:
            left = OTHER
            break
        length, ci, reports, new_top, left = stretch(
            one, length, limit, stop, before, ci, c_stop, lists, held, near, scratch.number,
            changes, out, reports,
        )  # fmt: skip
        lists.changed[one.q] |= new_top
        if length > one.most:
            log = _cut(one, length, lists, log)
            length, limit = one.keep, lists.scores[one.begin + one.keep - 1]
        if left == DONE and stop < one.end:
            left = MORE
    lists.size[one.q], lists.tau[one.q] = length, limit
    return ci, reports, left, log


@njit(boundscheck=False)
def _cut(one, length, lists, log):  # pragma: no cover
    """Drop the entries of a list beyond `keep`, but remember those that were reported."""
    return remember_emitted(lists, one.q, one.begin + one.keep, one.begin + length, log)


@njit(boundscheck=False)
def remember_emitted(lists, q, begin, end, log):  # pragma: no cover
    """Add the entries from begin to end that have been reported to the query's log."""
    codes, head = lists.codes, lists.head
    number, following, used = log.number, log.following, log.used
    for j in range(begin, end):
        if codes[j] & 1:
            if used == len(number):
                wide = np.empty(2 * used + 1024, np.int64)
                wide[:used] = number
                number = wide
                wide = np.empty(2 * used + 1024, np.int64)
                wide[:used] = following
                following = wide
            number[used] = codes[j] >> 1
            following[used] = head[q]
            head[q] = used
            used += 1
    return Log(number, following, used)


# A list event by event


@njit(boundscheck=False)
def _by_events(one, ci, asked, lists, held, near, scratch, log, out, reports):  # pragma: no cover
    """Carry a list through the rest of the batch, instant by instant, expiries first."""
    clock, x_number, base, n = held.clock, scratch.number, held.base, len(held.clock)
    length, limit, by_hand, repairs = lists.size[one.q], lists.tau[one.q], near.direct[one.q], 0
    di = held.fresh
    if by_hand:
        di = max(di, first_above(held.times, asked.since[one.q], 0, n))
    nx, xi = _expiring(one, length, lists, scratch), 0
    ci, di, pos, s = _next(by_hand, one, ci, di, limit, asked, held, near, scratch)
    while True:
        instant = NEVER
        if pos >= 0:
            instant = clock[pos]
        if xi < nx:
            instant = min(instant, clock[x_number[xi] - base] + one.span)
        if instant == NEVER:
            break
        # All that happens at this instant is one event.
        events, where, removed = 0, one.k, 0
        while xi < nx and clock[x_number[xi] - base] + one.span == instant:
            at = _expire(one, length, xi, lists, scratch)
            xi += 1
            if at >= 0:
                length -= 1
                events += 1
                removed += at < one.k
        while pos >= 0 and clock[pos] == instant:
            if s < limit:
                where = insert(lists, one.begin, length, s, (base + pos) << 1)
                length += 1
                events += 1
                if instant + one.span <= one.end:
                    x_number[nx] = base + pos
                    scratch.score[nx] = s
                    nx += 1
                if length > one.most:
                    log = _cut(one, length, lists, log)
                    length, limit = one.keep, lists.scores[one.begin + one.keep - 1]
            ci, di, pos, s = _next(by_hand, one, ci, di, limit, asked, held, near, scratch)
        if length < one.k and limit < np.inf:
            # The window holds all up to this instant; what comes later is looked at by hand.
            length, limit, di = _refill(one, length, instant, asked, lists, held, log, scratch)
            nx, xi, by_hand = _expiring(one, length, lists, scratch), 0, True
            ci, di, pos, s = _next(by_hand, one, ci, di, limit, asked, held, near, scratch)
            if reports + one.most + n - di > len(out.scores):
                out = _wider(out, reports, one.most + n - di)
            events, removed, repairs = 2, removed + 1, repairs + 1
        if events > 1 or removed > 0 or where < one.k:
            lists.changed[one.q] = True
            low, top = _among(one, length, events, where, removed)
            reports = _report(one, low, top, instant, lists, out, reports)
    lists.size[one.q], lists.tau[one.q] = length, limit
    return reports, repairs, log, out


@njit(boundscheck=False)
def _expiring(one, length, lists, scratch):  # pragma: no cover
    """Entries with a number below `before`, sorted by it; how many."""
    x_number, x_score, scores = scratch.number, scratch.score, lists.scores
    found = 0
    entries = lists.codes[one.begin : one.begin + length]
    for j in range(len(entries)):
        number = entries[j] >> 1
        if number < one.before:
            at = found
            while at > 0 and x_number[at - 1] > number:
                x_number[at] = x_number[at - 1]
                x_score[at] = x_score[at - 1]
                at -= 1
            x_number[at] = number
            x_score[at] = scores[one.begin + j]
            found += 1
    return found


@njit(boundscheck=False)
def _next(by_hand, one, ci, di, limit, asked, held, near, scratch):  # pragma: no cover
    """The next arrival below the limit: from the candidates or, by hand, from all new objects."""
    clock = held.clock
    if by_hand:
        n, centre, points = len(clock), asked.centres[one.q], held.points
        while di < n:
            if clock[di] > one.end:
                return ci, n, -1, 0.0
            if not beyond(asked.measure, centre, points, di, limit):
                s = score(asked.measure, centre, points[di], scratch.lanes)
                if s < limit:
                    return ci, di + 1, di, s
            di += 1
        return ci, di, -1, 0.0
    c_end, c_score = near.starts[one.q + 1], near.score
    while ci < c_end:
        if c_score[ci] < limit:
            pos = held.fresh + near.place[ci]
            if clock[pos] > one.end:
                return c_end, di, -1, 0.0
            return ci + 1, di, pos, c_score[ci]
        ci += 1
    return ci, di, -1, 0.0


@njit(boundscheck=False)
def _expire(one, length, xi, lists, scratch):  # pragma: no cover
    """Take an arrival out of a list if it is there; its position or -1."""
    scores, codes, begin = lists.scores, lists.codes, one.begin
    s, number = scratch.score[xi], scratch.number[xi]
    at = first_above(scores, s, begin, begin + length) - 1
    while at >= begin and scores[at] == s and codes[at] >> 1 != number:
        at -= 1
    if at < begin or scores[at] != s:
        return -1
    rest, following = scores[at : begin + length], codes[at : begin + length]
    for j in range(len(rest) - 1):
        rest[j] = rest[j + 1]
    for j in range(len(following) - 1):
        following[j] = following[j + 1]
    return at - begin


@njit(boundscheck=False)
def _refill(one, length, instant, asked, lists, held, log, scratch):  # pragma: no cover
    """Repair a list as of an instant; its length, its threshold, and where later objects begin."""
    clock, n = held.clock, len(held.clock)
    last = first_above(clock, instant, 0, n)
    first = max(
        first_above(clock, instant - one.span, 0, n),
        first_above(held.times, asked.since[one.q], 0, n),
    )
    length = repair_list(one.q, length, first, last, asked, lists, held, log, scratch.lanes)
    return length, lists.scores[one.begin + length - 1] if length == one.keep else np.inf, last


@njit(inline="always")
def _among(one, length, events, where, removed):  # pragma: no cover
    """Ranks that may not have been reported: before the instant all of the first k had been."""
    top = min(one.k, length)
    if events > 1:
        return 0, top
    if removed > 0:
        return max(0, top - 1), top
    return where, where + 1


@njit(boundscheck=False)
def _report(one, low, top, instant, lists, out, reports):  # pragma: no cover
    """Report the entries from low to top that have not been; the number of reports."""
    codes, scores, rows = lists.codes, lists.scores, out.rows
    for j in range(low, top):
        code = codes[one.begin + j]
        if code & 1:
            continue
        codes[one.begin + j] = code | 1
        rows[reports, 0] = one.q
        rows[reports, 1] = code >> 1
        rows[reports, 2] = instant
        rows[reports, 3] = j + 1
        out.scores[reports] = scores[one.begin + j]
        reports += 1
    return reports


# The log


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
