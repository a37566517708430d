"""The compiled loop: events in order of time, and the timers between them.

All windows of a bucket are rows of one table of integers (`WIDTH` columns, named below), found by a
hash table over both key hashes. Deadlines of open windows sit in a binary heap, remembered
instances in a queue (they linger equally long, so they leave in the order they closed). Before an
event of time t every timer due at or before t fires, in the order of time and key: what comes
out then depends on the events alone, not on how they were batched.
"""

from __future__ import annotations

import numpy as np

from anabranch.assembly.learning import (
    C_FIRST,
    HEAD_WIDTH,
    L_DEGREE,
    L_HASH,
    L_N,
    L_SEEN,
    L_ZERO,
    UNSET,
    learn,
    patience,
)
from anabranch.flow.process import njit

__all__ = ["CAUSES", "NEVER", "Column", "flatten", "run_loop"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg, misc"

NEVER = np.int64(1) << np.int64(62)

# Columns of the table of windows.
H1, H2, HEAD, STATE, DUE, OPENED, CLOSED, REASON, COUNT, EXPECTED = range(10)
SEQ, REVISION, FIRST, LAST, END, STREAMS, ORDER, LINK, LINK_END, QUEUED = range(10, 20)
GAP, LAST_GAP, SEEN = 20, 21, 22
WIDTH = 23


class Column:
    """Names of the columns, for those who read the table."""

    H1, H2, HEAD, STATE, DUE, OPENED, CLOSED, REASON, COUNT, EXPECTED = range(10)
    SEQ, REVISION, FIRST, LAST, END, STREAMS, ORDER, LINK, LINK_END, QUEUED = range(10, 20)
    GAP, LAST_GAP, SEEN = 20, 21, 22
    WIDTH = 23


FREE, OPEN, LINGERING = 0, 1, 2
CAUSES = ("full", "complete", "timeout", "evicted", "flush", "late", "gap")
FULL, COMPLETE, TIMEOUT, EVICTED, FLUSH, LATE, QUIET = range(7)

# Columns of a row: both key hashes, the kind's hash, event time, end, stream bit, late or not.
R_H1, R_H2, R_HEAD, R_T, R_END, R_STREAM, R_LATE = range(7)

# Counters that the loop's parts share.
SLOTS, HEAP, FIRST_OUT, LAST_IN, EMITTED, ITEMS, OPENS, ORDERS, PEAK = range(9)
HEADS, LIVE_HEADS, HEAD_OUT, HEAD_IN, LEARNED = range(9, 14)
COUNTERS = 14


@njit
def _find(keys, table, count, h1, h2):
    """The slot of a key, or -1 and where it would stand in the hash table."""
    mask = len(table) - 1
    at = (h1 ^ (h2 >> 17)) & mask
    while table[at] >= 0:
        slot = table[at]
        if keys[slot, 0] == h1 and keys[slot, 1] == h2:
            return slot, at
        at = (at + 1) & mask
    return -1, at


@njit
def _before(meta, heap, times, i, j):
    """Whether entry i of the heap is due before entry j; ties by key, never by slot."""
    if times[i] != times[j]:
        return times[i] < times[j]
    a, b = heap[i], heap[j]
    if meta[a, H1] != meta[b, H1]:
        return meta[a, H1] < meta[b, H1]
    return meta[a, H2] < meta[b, H2]


@njit
def _swap(heap, times, i, j):
    heap[i], heap[j] = heap[j], heap[i]
    times[i], times[j] = times[j], times[i]


@njit
def _push(meta, heap, times, c, slot, time):
    at = c[HEAP]
    c[HEAP] += 1
    heap[at], times[at] = slot, time
    meta[slot, QUEUED] = time
    while at > 0:
        up = (at - 1) >> 1
        if not _before(meta, heap, times, at, up):
            break
        _swap(heap, times, at, up)
        at = up


@njit
def _pop(meta, heap, times, c):
    slot = heap[0]
    c[HEAP] -= 1
    last = c[HEAP]
    heap[0], times[0] = heap[last], times[last]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= last:
            break
        if child + 1 < last and _before(meta, heap, times, child + 1, child):
            child += 1
        if not _before(meta, heap, times, child, at):
            break
        _swap(heap, times, at, child)
        at = child
    return slot


@njit
def _settle(meta, heap, times, c):
    """Make the heap's top a window that is open and due then; its deadline, or NEVER."""
    while c[HEAP] > 0:
        slot, time = heap[0], times[0]
        if meta[slot, STATE] != OPEN or meta[slot, QUEUED] != time:
            _pop(meta, heap, times, c)  # closed meanwhile
        elif meta[slot, DUE] != time:
            _pop(meta, heap, times, c)  # the session went on
            _push(meta, heap, times, c, slot, meta[slot, DUE])
        else:
            return time
    return NEVER


@njit
def _emit(meta, c, slot, out, starts, items, links):
    """A row of the result: the window as it is, and its events since the last one."""
    e = c[EMITTED]
    out[e, :] = meta[slot, :]
    starts[e] = c[ITEMS]
    at = meta[slot, LINK]
    while at >= 0:
        items[c[ITEMS]] = at
        c[ITEMS] += 1
        at = links[at]
    meta[slot, LINK] = -1
    meta[slot, LINK_END] = -1
    c[EMITTED] += 1


@njit
def _close(meta, c, slot, reason, at, out, starts, items, links, queue, orders):
    meta[slot, STATE] = LINGERING
    meta[slot, REASON] = reason
    meta[slot, CLOSED] = at
    meta[slot, ORDER] = c[ORDERS]
    c[ORDERS] += 1
    c[OPENS] -= 1
    _emit(meta, c, slot, out, starts, items, links)
    queue[c[LAST_IN]], orders[c[LAST_IN]] = slot, meta[slot, ORDER]
    c[LAST_IN] += 1


@njit
def _settled(
    meta, c, slot, kinds, sizes, silences, ordered, common, table, hqueue, hseen, coverage, most
):
    """Learn from an instance of which nothing more will be heard."""
    kind = meta[slot, HEAD]
    known, at = _find(kinds, table, c[HEADS], kind, np.int64(0))
    if known < 0:
        known = c[HEADS]
        c[HEADS] += 1
        table[at] = known
        kinds[known, L_HASH], kinds[known, L_ZERO] = kind, 0
        kinds[known, L_SEEN] = -1
    if kinds[known, L_SEEN] < 0:
        kinds[known, L_N:] = 0
        c[LIVE_HEADS] += 1
    learn(
        kinds[known], sizes[known], silences[known], ordered[known], common,
        meta[slot, COUNT], meta[slot, GAP], meta[slot, LAST_GAP], coverage,
    )  # fmt: skip
    kinds[known, L_SEEN] = c[LEARNED]
    hqueue[c[HEAD_IN]], hseen[c[HEAD_IN]] = known, c[LEARNED]
    c[HEAD_IN] += 1
    c[LEARNED] += 1
    while c[LIVE_HEADS] > most:  # forget the kind that was learned about longest ago
        old, seen = hqueue[c[HEAD_OUT]], hseen[c[HEAD_OUT]]
        c[HEAD_OUT] += 1
        if kinds[old, L_SEEN] == seen:
            kinds[old, L_SEEN] = -1
            c[LIVE_HEADS] -= 1


@njit
def run_loop(
    meta, known, links, rows, offset, clock, by_arrival, flush, restarts, revises, learns, size,
    expects, timeout, linger, max_open, order, learned_before, kinds, n_heads, sizes, silences,
    ordered, common, risk, coverage, after, max_kinds, hold,
):  # fmt: skip
    """Take in `rows` in their order, fire what is due at `clock`, and tell what closed.

    `meta` has room for `known` windows and one per row. Row i of `rows` is the event
    ``offset + i``, as `links`, the chains of events of open windows, number them. A late row
    is of time `clock`; `by_arrival` every row is. Nothing that is learned is believed before `hold`
    has passed since the first row. Returns emitted windows, where each one's items start, the
    items, and counters.
    """
    n = len(rows)
    stranger = np.zeros(HEAD_WIDTH, np.int64)
    c = np.zeros(COUNTERS, np.int64)
    c[SLOTS], c[ORDERS], c[LEARNED] = known, order, learned_before
    bound = known + 2 * n + 1
    out = np.empty((bound, WIDTH), np.int64)
    starts = np.empty(bound + 1, np.int64)
    items = np.empty(len(links), np.int64)
    heap, times = (
        np.empty(2 * known + 3 * n + 1, np.int64),
        np.empty(2 * known + 3 * n + 1, np.int64),
    )
    queue, orders = np.empty(bound, np.int64), np.empty(bound, np.int64)
    capacity = 16
    while capacity < 2 * (known + n + 1):
        capacity *= 2
    table = np.full(capacity, -1, np.int64)
    # Kinds of this step, and the order in which they were learned about.
    kind_capacity = 16
    while kind_capacity < 2 * (len(kinds) + 1):
        kind_capacity *= 2
    kind_table = np.full(kind_capacity if learns else 1, -1, np.int64)
    hqueue, hseen = np.empty(n_heads + bound, np.int64), np.empty(n_heads + bound, np.int64)
    c[HEADS] = n_heads
    c[LIVE_HEADS] = n_heads
    if learns:
        for h in range(n_heads):
            _, at = _find(kinds, kind_table, n_heads, kinds[h, L_HASH], np.int64(0))
            kind_table[at] = h
            hqueue[h], hseen[h] = h, kinds[h, L_SEEN]
        c[HEAD_IN] = n_heads
    for slot in range(known):  # lingering ones come in the order they closed
        _, at = _find(meta, table, known, meta[slot, H1], meta[slot, H2])
        table[at] = slot
        if meta[slot, STATE] == OPEN:
            c[OPENS] += 1
            _push(meta, heap, times, c, slot, meta[slot, DUE])
        else:
            queue[c[LAST_IN]], orders[c[LAST_IN]] = slot, meta[slot, ORDER]
            c[LAST_IN] += 1
    c[PEAK] = c[OPENS]

    for i in range(n + 1):
        now = clock if i == n or by_arrival or rows[i, R_LATE] else rows[i, R_T]
        # Timers due by now.
        while True:
            deadline = _settle(meta, heap, times, c)
            leaves = NEVER
            while c[FIRST_OUT] < c[LAST_IN]:
                slot = queue[c[FIRST_OUT]]
                if meta[slot, STATE] == LINGERING and meta[slot, ORDER] == orders[c[FIRST_OUT]]:
                    leaves = meta[slot, CLOSED] + linger
                    break
                c[FIRST_OUT] += 1  # it has a second window by now
            if min(deadline, leaves) > now or min(deadline, leaves) == NEVER:
                break
            if deadline <= leaves:
                slot = _pop(meta, heap, times, c)
                # A silence as it ends sessions, or shorter than the longest that is waited for.
                quiet = restarts and (not learns or deadline - meta[slot, SEEN] < timeout)
                cause = QUIET if quiet else TIMEOUT
                _close(meta, c, slot, cause, deadline, out, starts, items, links, queue, orders)
                continue
            slot = queue[c[FIRST_OUT]]
            c[FIRST_OUT] += 1
            if learns and meta[slot, REASON] != LATE:
                _settled(
                    meta, c, slot, kinds, sizes, silences, ordered, common, kind_table, hqueue,
                    hseen, coverage, max_kinds,
                )  # fmt: skip
            meta[slot, STATE] = FREE
        if i == n:
            break

        h1, h2, t = rows[i, R_H1], rows[i, R_H2], rows[i, R_T]
        late = rows[i, R_LATE] != 0
        row = offset + i
        kind = -1
        if learns:
            if common[C_FIRST] == UNSET:
                common[C_FIRST] = now
            kind, _ = _find(kinds, kind_table, c[HEADS], rows[i, R_HEAD], np.int64(0))
            if kind >= 0 and kinds[kind, L_SEEN] < 0:
                kind = -1
        slot, at = _find(meta, table, c[SLOTS], h1, h2)
        if slot < 0:
            slot = c[SLOTS]
            c[SLOTS] += 1
            table[at] = slot
            meta[slot, H1], meta[slot, H2] = h1, h2
            meta[slot, STATE] = FREE
        state = meta[slot, STATE]
        # Nobody can revise an instance of which only a late row is known: on time, it begins anew.
        revised = late or (revises and meta[slot, REASON] != LATE)
        if state == OPEN or (state == LINGERING and revised):
            meta[slot, COUNT] += 1
            silence = max(now - meta[slot, SEEN] if by_arrival else t - meta[slot, LAST], 0)
            meta[slot, LAST_GAP] = silence
            meta[slot, GAP] = max(meta[slot, GAP], silence)
            meta[slot, SEEN] = now
            meta[slot, FIRST] = min(meta[slot, FIRST], t)
            meta[slot, LAST] = max(meta[slot, LAST], t)
            meta[slot, END] = max(meta[slot, END], rows[i, R_END])
            meta[slot, STREAMS] |= rows[i, R_STREAM]
            if meta[slot, LINK] < 0:
                meta[slot, LINK] = row
            else:
                links[meta[slot, LINK_END]] = row
            meta[slot, LINK_END] = row
            if state == LINGERING:
                # A revision: the same instance once more, with what is new.
                meta[slot, REVISION] += 1
                kept, closed = meta[slot, REASON], meta[slot, CLOSED]
                meta[slot, REASON], meta[slot, CLOSED] = LATE, now
                _emit(meta, c, slot, out, starts, items, links)
                meta[slot, REASON], meta[slot, CLOSED] = kept, closed
                continue
            if restarts and not late:
                meta[slot, DUE] = now + timeout
        else:
            if c[OPENS] >= max_open and not late:
                _settle(meta, heap, times, c)
                victim = _pop(meta, heap, times, c)
                _close(meta, c, victim, EVICTED, now, out, starts, items, links, queue, orders)
            meta[slot, SEQ] = meta[slot, SEQ] + 1 if state == LINGERING else 0
            meta[slot, HEAD] = rows[i, R_HEAD]
            meta[slot, STATE] = OPEN
            meta[slot, OPENED] = now
            meta[slot, COUNT] = 1
            meta[slot, GAP], meta[slot, LAST_GAP], meta[slot, SEEN] = 0, 0, now
            meta[slot, REVISION] = 0
            meta[slot, FIRST], meta[slot, LAST] = t, t
            meta[slot, END] = rows[i, R_END]
            meta[slot, STREAMS] = rows[i, R_STREAM]
            meta[slot, LINK], meta[slot, LINK_END] = row, row
            meta[slot, EXPECTED] = expects
            if kind >= 0 and kinds[kind, L_N] >= max(after // 4, 1):
                meta[slot, EXPECTED] = kinds[kind, L_DEGREE]
            c[OPENS] += 1
            c[PEAK] = max(c[PEAK], c[OPENS])
            if late:  # nobody knows the rest of it: out at once
                meta[slot, OPENED] = t
                meta[slot, DUE] = now
                _close(meta, c, slot, LATE, now, out, starts, items, links, queue, orders)
                continue
            meta[slot, DUE] = now + timeout
            meta[slot, QUEUED] = NEVER
        whole = False
        if learns and now >= common[C_FIRST] + hold:
            if kind >= 0:
                wait = patience(
                    kinds[kind], sizes[kind], ordered[kind], common, meta[slot, COUNT], risk,
                    after,
                )  # fmt: skip
            else:
                wait = patience(
                    stranger, sizes[0], ordered[0], common, meta[slot, COUNT], risk, after
                )
            if wait >= 0:
                # What comes at the same instant is still to be taken.
                followed = i + 1 < n and rows[i + 1, R_H1] == h1 and rows[i + 1, R_H2] == h2
                followed = followed and not rows[i + 1, R_LATE]
                followed = followed and (by_arrival or rows[i + 1, R_T] == now)
                whole = wait == 0 and not followed
                if not late:
                    meta[slot, DUE] = now + min(max(wait, 1), timeout)
        if meta[slot, DUE] < meta[slot, QUEUED] and not whole:
            _push(meta, heap, times, c, slot, meta[slot, DUE])
        if whole:
            _close(meta, c, slot, COMPLETE, now, out, starts, items, links, queue, orders)
        elif meta[slot, COUNT] >= size:
            _close(meta, c, slot, FULL, now, out, starts, items, links, queue, orders)

    if flush:
        while _settle(meta, heap, times, c) < NEVER:
            slot = _pop(meta, heap, times, c)
            _close(meta, c, slot, FLUSH, clock, out, starts, items, links, queue, orders)
    starts[c[EMITTED]] = c[ITEMS]
    return out[: c[EMITTED]], starts[: c[EMITTED] + 1], items[: c[ITEMS]], c


@njit
def flatten(meta, links, total):
    """The chains of open windows one after the other, and where each one starts."""
    starts = np.zeros(len(meta) + 1, np.int64)
    rows = np.empty(total, np.int64)
    n = 0
    for slot in range(len(meta)):
        if meta[slot, STATE] == OPEN:
            at = meta[slot, LINK]
            while at >= 0:
                rows[n] = at
                n += 1
                at = links[at]
        starts[slot + 1] = n
    return rows[:n], starts
