"""The compiled loop: events in order of time, and the timers between them.

All windows of a bucket are rows of one table of integers, found by a hash table over both key
hashes. Deadlines of open windows sit in a binary heap, remembered instances in a queue (they are
remembered equally long, so they leave in the order they closed). Before an event of time t every
timer due at or before t fires, in the order of time and key: what comes out then depends on the
events alone, not on how they were batched.

Letters: `meta` is the table of windows (by `W`, which others call `Column`) and `slot` a row of it;
`rows` are the events (by `I`), i is the number of one in this step and ``offset + i`` its
number among all that are held, which `links` chains; `c` are counters (by `C`); `s` is the room of
a step, `m` the memory of kinds and h a row of it; `do` are the settings; `now` is the clock at an
event. What is done for every event takes arrays, not tuples of them, and is put in place
of its call: a compiled call counts the owners of every array that it is given.
"""

from __future__ import annotations

import numpy as np

from anabranch.assembly.deadlines import next_due, pop, push
from anabranch.assembly.learning import C_FIRST, L_N, L_SIZE, patience
from anabranch.assembly.memory import capacity, find, kind_of, learn_from, memory_of
from anabranch.assembly.table import (
    COMPLETE,
    ENDED,
    EVICTED,
    FLUSH,
    FREE,
    FULL,
    LATE,
    MARK,
    OPEN,
    QUIET,
    REMEMBERED,
    TIMEOUT,
    Column,
    Counter,
    Event,
    State,
)
from anabranch.flow.instants import BEGINNING, FOREVER
from anabranch.flow.process import njit

__all__ = ["flatten", "run_loop"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

W, C, I = Column, Counter, Event  # noqa: E741


@njit
def run_loop(held, known, rows, do, clock, flush):
    """Take in `rows` in their order, fire what is due at `clock`, and emit what closed.

    A late row is of time `clock`; `by_arrival` every row is. Returns emitted windows, each with
    the place where its items start, the items, and counters.
    """
    n = len(rows)
    c = np.zeros(C.COUNT, np.int64)
    s = _state(held, c, n)
    m = memory_of(held, known, c, n, do)
    kind_table = m.table
    table = _index(held, s, c, n)
    meta, links, heap, queue = held.meta, held.links, s.heap, s.queue
    out, items, offset = s.out, s.items, held.offset
    kinds, sizes, ordered, common = known.kinds, known.sizes, known.ordered, known.common
    for i in range(n + 1):
        late = i < n and rows[i, I.LATE] != 0
        now = clock if i == n or do.by_arrival or late else rows[i, I.T]
        # Entries that are out of date count too: one would hide those behind it.
        while (c[C.HEAP] > 0 and heap[0, 1] <= now) or (
            c[C.FIRST_OUT] < c[C.LAST_IN] and _may_leave(meta, queue, c[C.FIRST_OUT], do, now)
        ):
            deadline = next_due(meta, c, heap)
            leaves, slot = _leaving(meta, c, queue, do.remember)
            if min(deadline, leaves) > now or min(deadline, leaves) == FOREVER:
                break
            if deadline <= leaves:
                slot = pop(meta, c, heap)
                # A silence as it ends sessions, or shorter than the longest that is waited for.
                quiet = do.restarts and (
                    not do.learns or deadline - meta[slot, W.SEEN] < do.timeout
                )
                cause = QUIET if quiet else TIMEOUT
                if do.grace >= 0 and deadline == meta[slot, W.CLOSED]:
                    cause = ENDED
                _close(meta, c, links, queue, out, items, slot, cause, deadline)
                continue
            c[C.FIRST_OUT] += 1
            meta[slot, W.STATE] = FREE
            if do.learns and meta[slot, W.REASON] != LATE:
                learn_from(m, c, meta[slot], do)
        if i == n:
            break
        h = -1
        if do.learns:
            if common[C_FIRST] == BEGINNING:
                common[C_FIRST] = now
            h = kind_of(kinds, kind_table, rows[i, I.KIND])
        slot = _slot_of(meta, table, c, rows[i, I.H1], rows[i, I.H2])
        state = meta[slot, W.STATE]
        # Nobody can revise an instance of which only a late row is known: on time, it begins anew.
        revised = late or (do.revises and meta[slot, W.REASON] != LATE)
        if state == OPEN or (state == REMEMBERED and revised):
            _join(meta, links, rows, i, offset + i, slot, now, do)
            if state == REMEMBERED:
                _revise(meta, c, links, out, items, slot, now)
                continue
        else:
            if c[C.OPENS] >= do.max_open and not late:  # the one that is due first makes room
                next_due(meta, c, heap)
                _close(meta, c, links, queue, out, items, pop(meta, c, heap), EVICTED, now)
            _open(meta, rows, i, offset + i, slot, now, do)
            if h >= 0 and kinds[h, L_N] >= max(do.after // 4, 1):
                meta[slot, W.EXPECTED] = kinds[h, L_SIZE]
            c[C.OPENS] += 1
            c[C.PEAK] = max(c[C.PEAK], c[C.OPENS])
            if late:  # nobody knows the rest of it: out at once
                meta[slot, W.OPENED], meta[slot, W.DUE] = rows[i, I.T], now
                _close(meta, c, links, queue, out, items, slot, LATE, now)
                continue
        awaited = do.grace >= 0 and _awaits_end(meta, rows, i, slot, now, do.grace)
        # While the end is awaited, more is to come: what was learned says nothing of when.
        if do.learns and not awaited and now >= common[C_FIRST] + do.hold:
            count = meta[slot, W.COUNT]
            wait = patience(kinds, sizes, ordered, common, h, count, do.risk, do.after)
            if wait >= 0 and not late:
                meta[slot, W.DUE] = now + min(max(wait, 1), do.timeout)
            if wait == 0 and not _followed(rows, i, now, do.by_arrival):
                _close(meta, c, links, queue, out, items, slot, COMPLETE, now)
                continue
        if do.grace >= 0 and not awaited:
            meta[slot, W.DUE] = min(meta[slot, W.DUE], meta[slot, W.CLOSED])
            if do.grace == 0 and not _followed(rows, i, now, do.by_arrival):
                _close(meta, c, links, queue, out, items, slot, ENDED, now)
                continue
        if meta[slot, W.DUE] < meta[slot, W.QUEUED]:
            push(meta, c, heap, slot, meta[slot, W.DUE])
        if meta[slot, W.COUNT] >= do.size:
            _close(meta, c, links, queue, out, items, slot, FULL, now)
    if flush:
        while next_due(meta, c, heap) < FOREVER:
            _close(meta, c, links, queue, out, items, pop(meta, c, heap), FLUSH, clock)
    return out[: c[C.EMITTED]], items[: c[C.ITEMS]], c


# Begin: windows and kinds are found by their hashes, deadlines are queued.


@njit
def _state(held, c, n):
    """Room for what a step of n events makes."""
    most = held.windows + 2 * n + 1
    c[C.SLOTS], c[C.ORDERS] = held.windows, held.order
    return State(
        np.empty((2 * held.windows + 3 * n + 1, 2), np.int64),
        np.empty((most, 2), np.int64),
        np.empty((most, W.WIDTH), np.int64),
        np.empty(len(held.links), np.int64),
    )


@njit
def _index(held, s, c, n):
    """The hash table over keys: slots, or -1."""
    meta, heap, queue = held.meta, s.heap, s.queue
    table = np.full(capacity(held.windows + n), -1, np.int64)
    for slot in range(held.windows):
        _, at = find(meta, table, meta[slot, W.H1], meta[slot, W.H2])
        table[at] = slot
        if meta[slot, W.STATE] == OPEN:
            c[C.OPENS] += 1
            push(meta, c, heap, slot, meta[slot, W.DUE])
        else:
            _remember(meta, c, queue, slot)
    c[C.PEAK] = c[C.OPENS]
    return table


@njit(inline="always")
def _slot_of(meta, table, c, h1, h2):
    """The row of a key in the table of windows, a new one if there is none."""
    slot, at = find(meta, table, h1, h2)
    if slot < 0:
        slot = c[C.SLOTS]
        c[C.SLOTS] += 1
        table[at] = slot
        meta[slot, W.H1], meta[slot, W.H2] = h1, h2
        meta[slot, W.STATE] = FREE
    return slot


# Timers


@njit(inline="always")
def _may_leave(meta, queue, at, do, now):
    """Whether an entry of the queue is due, or is out of date since its key has another window."""
    slot = queue[at, 0]
    current = meta[slot, W.ORDER] == queue[at, 1] and meta[slot, W.STATE] == REMEMBERED
    return not current or meta[slot, W.CLOSED] + do.remember <= now


@njit(inline="always")
def _leaving(meta, c, queue, remember):
    """When the next window that is remembered is forgotten, and which."""
    while c[C.FIRST_OUT] < c[C.LAST_IN]:
        slot, order = queue[c[C.FIRST_OUT], 0], queue[c[C.FIRST_OUT], 1]
        if meta[slot, W.STATE] == REMEMBERED and meta[slot, W.ORDER] == order:
            return meta[slot, W.CLOSED] + remember, slot
        c[C.FIRST_OUT] += 1  # it has a second window by now
    return FOREVER, -1


# Events


@njit(inline="always")
def _join(meta, links, rows, i, row, slot, now, do):
    """Put an event into the window of its key, open or remembered."""
    t = rows[i, I.T]
    meta[slot, W.COUNT] += 1
    silence = max(now - meta[slot, W.SEEN] if do.by_arrival else t - meta[slot, W.LAST], 0)
    meta[slot, W.LAST_GAP] = silence
    meta[slot, W.GAP] = max(meta[slot, W.GAP], silence)
    meta[slot, W.SEEN] = now
    meta[slot, W.FIRST] = min(meta[slot, W.FIRST], t)
    meta[slot, W.LAST] = max(meta[slot, W.LAST], t)
    meta[slot, W.END] = max(meta[slot, W.END], rows[i, I.END])
    meta[slot, W.STREAMS] |= rows[i, I.STREAM]
    if meta[slot, W.LINK] < 0:
        meta[slot, W.LINK] = row
    else:
        links[meta[slot, W.LINK_END]] = row
    meta[slot, W.LINK_END] = row
    if do.restarts and not rows[i, I.LATE] and meta[slot, W.STATE] == OPEN:
        meta[slot, W.DUE] = now + do.timeout


@njit(inline="always")
def _open(meta, rows, i, row, slot, now, do):
    """Open a window for an event."""
    t = rows[i, I.T]
    meta[slot, W.SEQ] = meta[slot, W.SEQ] + 1 if meta[slot, W.STATE] == REMEMBERED else 0
    meta[slot, W.KIND] = rows[i, I.KIND]
    meta[slot, W.STATE] = OPEN
    meta[slot, W.OPENED] = now
    meta[slot, W.COUNT] = 1
    meta[slot, W.GAP], meta[slot, W.LAST_GAP], meta[slot, W.SEEN] = 0, 0, now
    meta[slot, W.REVISION] = 0
    meta[slot, W.FIRST], meta[slot, W.LAST] = t, t
    meta[slot, W.END] = rows[i, I.END]
    meta[slot, W.STREAMS] = rows[i, I.STREAM]
    meta[slot, W.LINK], meta[slot, W.LINK_END] = row, row
    meta[slot, W.EXPECTED] = do.expects
    meta[slot, W.DUE], meta[slot, W.QUEUED] = now + do.timeout, FOREVER
    meta[slot, W.CLOSED] = FOREVER


@njit(inline="always")
def _awaits_end(meta, rows, i, slot, now, grace):
    """Whether a window has had no end marker yet; the first says when it is due at the latest."""
    if rows[i, I.STREAM] & MARK:  # without grace, events of the same instant still belong to it
        meta[slot, W.CLOSED] = min(meta[slot, W.CLOSED], now + max(grace, 1))
    return meta[slot, W.CLOSED] == FOREVER


@njit(inline="always")
def _followed(rows, i, now, by_arrival):
    """Whether another event of the key comes at the same instant: it is still to be taken."""
    j = i + 1
    if j == len(rows) or rows[j, I.H1] != rows[i, I.H1] or rows[j, I.H2] != rows[i, I.H2]:
        return False
    return not rows[j, I.LATE] and (by_arrival or rows[j, I.T] == now)


@njit
def _revise(meta, c, links, out, items, slot, now):
    """The same instance once more, with what is new."""
    meta[slot, W.REVISION] += 1
    kept, closed = meta[slot, W.REASON], meta[slot, W.CLOSED]
    meta[slot, W.REASON], meta[slot, W.CLOSED] = LATE, now
    _emit(meta, c, links, out, items, slot)
    meta[slot, W.REASON], meta[slot, W.CLOSED] = kept, closed


# Results


@njit(inline="always")
def _emit(meta, c, links, out, items, slot):
    """A row of the result: the window as it is, and its events since the last one."""
    e = c[C.EMITTED]
    c[C.EMITTED] += 1
    for k in range(W.WIDTH):
        out[e, k] = meta[slot, k]
    out[e, W.LINK] = c[C.ITEMS]
    at = meta[slot, W.LINK]
    while at >= 0:
        items[c[C.ITEMS]] = at
        c[C.ITEMS] += 1
        at = links[at]
    meta[slot, W.LINK] = -1
    meta[slot, W.LINK_END] = -1


@njit
def _close(meta, c, links, queue, out, items, slot, reason, at):
    meta[slot, W.STATE] = REMEMBERED
    meta[slot, W.REASON] = reason
    meta[slot, W.CLOSED] = at
    meta[slot, W.ORDER] = c[C.ORDERS]
    c[C.ORDERS] += 1
    c[C.OPENS] -= 1
    _emit(meta, c, links, out, items, slot)
    _remember(meta, c, queue, slot)


@njit(inline="always")
def _remember(meta, c, queue, slot):
    """Queue a window that is remembered."""
    at = c[C.LAST_IN]
    c[C.LAST_IN] += 1
    queue[at, 0], queue[at, 1] = slot, meta[slot, W.ORDER]


@njit
def flatten(meta, links, total):
    """The chains of open windows one after the other, and where each one starts."""
    starts = np.zeros(len(meta) + 1, np.int64)
    rows = np.empty(total, np.int64)
    n = 0
    for slot in range(len(meta)):
        if meta[slot, W.STATE] == OPEN:
            at = meta[slot, W.LINK]
            while at >= 0:
                rows[n] = at
                n += 1
                at = links[at]
        starts[slot + 1] = n
    return rows[:n], starts
