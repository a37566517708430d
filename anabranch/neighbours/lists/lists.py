"""The lists of all queries carried through a batch: compiled, one query after the other.

A query's list holds, sorted by (score, arrival), *all* objects of its window up to its threshold
`tau`. Arrivals beyond it are ignored. A list that grows too long is cut and `tau` lowered to its
last entry; one that runs short is repaired by a scan of the window. An entry is a score and a
code, ``2 * number + told``: the arrival's number, and whether it has been reported.
"""

from __future__ import annotations

import numpy as np

from anabranch.flow.process import njit
from anabranch.neighbours.lists.candidates import beyond
from anabranch.neighbours.lists.refill import insert, repair_list
from anabranch.neighbours.lists.scoring import score
from anabranch.neighbours.lists.stretches import DONE, MORE, MOST, OTHER, first_above, stretch

__all__ = ["NEVER", "remember_told", "run", "still_remembered"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

NEVER = int(np.iinfo(np.int64).max) // 4


@njit(boundscheck=False)
def _delete(scores, codes, begin, size, s, number):  # pragma: no cover
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
def _next(
    direct, ci, c_end, di, n, end, limit, c_pos, c_score, offset, clock, points, centre, measure
):  # pragma: no cover
    """The next arrival below the limit: from the candidates or, directly, from the batch."""
    if direct:
        while di < n:
            if clock[di] > end:
                return ci, n, -1, 0.0
            if not beyond(measure, centre, points, di, limit):
                s = score(measure, centre, points[di])
                if s < limit:
                    return ci, di + 1, di, s
            di += 1
        return ci, di, -1, 0.0
    while ci < c_end:
        if c_score[ci] < limit:
            pos = offset + c_pos[ci]
            if clock[pos] > end:
                return c_end, di, -1, 0.0
            return ci + 1, di, pos, c_score[ci]
        ci += 1
    return ci, di, -1, 0.0


@njit(boundscheck=False)
def remember_told(codes, begin, end, head, q, log_number, log_next, log_used):  # pragma: no cover
    """Add the entries of a list that have been told to the query's log."""
    for j in range(begin, end):
        if codes[j] & 1:
            if log_used == len(log_number):
                wide = np.empty(2 * log_used + 1024, np.int64)
                wide[:log_used] = log_number
                log_number = wide
                wide = np.empty(2 * log_used + 1024, np.int64)
                wide[:log_used] = log_next
                log_next = wide
            log_number[log_used] = codes[j] >> 1
            log_next[log_used] = head[q]
            head[q] = log_used
            log_used += 1
    return log_number, log_next, log_used


@njit(boundscheck=False)
def run(  # pragma: no cover
    measure, centres, k, spare, span, since, until, start, size, tau, oldest, changed,
    scores, codes, clock, times, points, base, offset, upto, counted, direct,
    c_starts, c_pos, c_score, head, log_number, log_next, log_used, changes,
):  # fmt: skip
    """Carry every list through the arrivals from `offset` on, and all expiries up to `upto`.

    `clock` is what windows are measured on: times or, if `counted`, numbers. `changes` is scratch
    for stretches, or None where all lists are short. Returns the reports (query, number, instant
    and rank; scores), the log of what was told and then cut, and how many repairs there were.
    """
    n = len(clock)
    longest = 0
    for q in range(len(k)):
        longest = max(longest, k[q] + 2 * spare[q] + 2)
    x_number = np.empty(longest + n - offset + 1, np.int64)
    x_score = np.empty(longest + n - offset + 1, np.float64)
    room = 1024
    told, t_score = np.empty((room, 4), np.int64), np.empty(room)
    reports = 0
    repairs = 0
    known_edge, known_before = -2 * NEVER, 0  # many queries have the same window
    for q in range(len(k)):
        ends = min(upto, until[q])
        over = until[q] < upto  # at that very time it still has a top-k
        end = ends
        if counted:
            # Most queries go on, and then the newest object is the last.
            last = n if n > 0 and times[n - 1] <= ends else first_above(times, ends, 0, n)
            end = clock[last - 1] if last > 0 else -NEVER
        ci, c_end = c_starts[q], c_starts[q + 1]
        by_hand = direct[q]
        if end - span[q] != known_edge:
            known_edge = end - span[q]
            known_before = base + first_above(clock, known_edge, 0, n)
        before = known_before
        if not by_hand and ci == c_end and before <= oldest[q]:
            if over:
                size[q], tau[q], oldest[q] = 0, -1.0, NEVER
            continue
        centre = centres[q]
        begin, length, kq, limit = start[q], size[q], k[q], tau[q]
        most = kq + 2 * spare[q]
        left = OTHER
        if changes is not None and not by_hand:
            left = MORE
        while changes is not None and left == MORE:
            # Up to the instant before the candidate that is too many.
            c_stop, stop, gone_before = c_end, end, before
            if c_end - ci > MOST:
                c_stop = ci + MOST
                stop = min(end, clock[offset + c_pos[c_stop]] - 1)
                gone_before = base + first_above(clock, stop - span[q], 0, n)
            while c_stop > ci and clock[offset + c_pos[c_stop - 1]] > stop:
                c_stop -= 1
            if stop < end and c_stop == ci:
                left = OTHER
                break
            if reports + 2 * MOST > room:
                room *= 2
                told, t_score = _wider(told, t_score, reports, room)
            length, ci, reports, new_top, left = stretch(
                q, kq, most, limit, span[q], stop, gone_before, begin, length, scores, codes, clock,
                base, offset, ci, c_stop, c_pos, c_score, x_number, changes, told, t_score, reports,
            )  # fmt: skip
            changed[q] |= new_top
            if length > most:
                keep = kq + spare[q]
                log_number, log_next, log_used = remember_told(
                    codes, begin + keep, begin + length, head, q, log_number, log_next, log_used
                )
                length = keep
                limit = scores[begin + keep - 1]
            if left == DONE and stop < end:
                left = MORE
        nx, pos, s = 0, -1, 0.0
        if left == OTHER:
            nx = _expiring(scores, codes, begin, length, before, x_number, x_score)
        xi = 0
        di = offset
        if by_hand:
            di = max(offset, first_above(times, since[q], 0, n))
        if left == OTHER:
            ci, di, pos, s = _next(
                by_hand, ci, c_end, di, n, end, limit, c_pos, c_score, offset, clock, points,
                centre, measure,
            )  # fmt: skip
        while True:
            instant = NEVER
            if pos >= 0:
                instant = clock[pos]
            if xi < nx:
                instant = min(instant, clock[x_number[xi] - base] + span[q])
            if instant == NEVER:
                break
            # All that happens at this instant, expiries first, is one event.
            events = 0
            where = kq
            removed = 0
            while xi < nx and clock[x_number[xi] - base] + span[q] == instant:
                at = _delete(scores, codes, begin, length, x_score[xi], x_number[xi])
                xi += 1
                if at >= 0:
                    length -= 1
                    events += 1
                    if at < kq:
                        removed += 1
            while pos >= 0 and clock[pos] == instant:
                if s < limit:
                    number = base + pos
                    where = insert(scores, codes, begin, length, s, number << 1)
                    length += 1
                    events += 1
                    if instant + span[q] <= end:
                        x_number[nx] = number
                        x_score[nx] = s
                        nx += 1
                    if length > most:
                        keep = kq + spare[q]
                        log_number, log_next, log_used = remember_told(
                            codes, begin + keep, begin + length, head, q, log_number, log_next,
                            log_used,
                        )  # fmt: skip
                        length = keep
                        limit = scores[begin + keep - 1]
                ci, di, pos, s = _next(
                    by_hand, ci, c_end, di, n, end, limit, c_pos, c_score, offset, clock, points,
                    centre, measure,
                )  # fmt: skip
            if length < kq and limit < np.inf:
                # The window holds all up to this instant; what comes later is looked at by hand.
                last = first_above(clock, instant, 0, n)
                first = max(
                    first_above(clock, instant - span[q], 0, n),
                    first_above(times, since[q], 0, n),
                )
                length = repair_list(
                    measure, centre, clock, points, base, first, last, kq + spare[q], scores, codes,
                    begin, length, head[q], log_number, log_next,
                )  # fmt: skip
                limit = scores[begin + length - 1] if length == kq + spare[q] else np.inf
                nx = _expiring(scores, codes, begin, length, before, x_number, x_score)
                xi = 0
                repairs += 1
                events = 2
                removed += 1
                by_hand = True
                ci, di, pos, s = _next(
                    True, ci, c_end, last, n, end, limit, c_pos, c_score, offset, clock, points,
                    centre, measure,
                )  # fmt: skip
            if events == 0 or (where >= kq and removed == 0 and events == 1):
                continue
            # Before the instant all of the first k had been told.
            top = min(kq, length)
            low = 0
            if events == 1:
                low = where if removed == 0 else max(0, top - 1)
                if removed == 0:
                    top = where + 1
            changed[q] = True
            for j in range(low, top):
                if codes[begin + j] & 1:
                    continue
                codes[begin + j] |= 1
                if reports == room:
                    room *= 2
                    told, t_score = _wider(told, t_score, reports, room)
                told[reports, 0] = q
                told[reports, 1] = codes[begin + j] >> 1
                told[reports, 2] = instant
                told[reports, 3] = j + 1
                t_score[reports] = scores[begin + j]
                reports += 1
        size[q], tau[q] = length, limit
        # All older ones have expired. Long lists lose some in most batches: a bound will do.
        least = before
        if changes is None:
            least = NEVER
            for code in codes[begin : begin + length]:
                least = min(least, code >> 1)
        oldest[q] = least
        if over:
            size[q], tau[q], oldest[q] = 0, -1.0, NEVER
    return told[:reports], t_score[:reports], log_number, log_next, log_used, repairs


@njit(inline="always")
def _wider(told, t_score, reports, room):  # pragma: no cover
    wide, w_score = np.empty((room, 4), np.int64), np.empty(room)
    wide[:reports], w_score[:reports] = told[:reports], t_score[:reports]
    return wide, w_score


@njit(boundscheck=False)
def still_remembered(head, log_number, log_next, first):  # pragma: no cover
    """The log without numbers below each query's `first`, made afresh."""
    kept = 0
    for q in range(len(head)):
        at = head[q]
        while at >= 0:
            kept += log_number[at] >= first[q]
            at = log_next[at]
    number = np.empty(2 * kept + 1024, np.int64)
    following = np.empty(2 * kept + 1024, np.int64)
    used = 0
    for q in range(len(head)):
        at = head[q]
        new = -1
        while at >= 0:
            if log_number[at] >= first[q]:
                number[used] = log_number[at]
                following[used] = new
                new = used
                used += 1
            at = log_next[at]
        head[q] = new
    return number, following, used
