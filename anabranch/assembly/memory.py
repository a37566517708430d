"""Keys and kinds found by their hashes, and which kinds are remembered; compiled.

Letters: `m` is the memory of kinds, h a row of it, `c` are counters (by `C`), and `W` names the
columns of a window, as in `loop`.
"""

from __future__ import annotations

import numpy as np

from anabranch.assembly.learning import L_HASH, L_N, L_SEEN, L_ZERO, learn
from anabranch.assembly.table import Column, Counter, Memory
from anabranch.flow.process import njit

__all__ = ["capacity", "find", "kind_of", "learn_from", "memory_of"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

W, C = Column, Counter


@njit
def capacity(size):
    """Of a hash table that is at most half full."""
    found = 16
    while found < 2 * (size + 1):
        found *= 2
    return found


@njit
def find(keys, table, h1, h2):
    """The row of a key, or -1 and where it would stand in the hash table."""
    mask = len(table) - 1
    at = (h1 ^ (h2 >> 17)) & mask
    while table[at] >= 0:
        slot = table[at]
        if keys[slot, 0] == h1 and keys[slot, 1] == h2:
            return slot, at
        at = (at + 1) & mask
    return -1, at


@njit
def memory_of(held, known, c, n, do):
    """Kinds of the step, in the order in which they were learned about."""
    most = held.kinds + held.windows + 2 * n + 1
    table = np.full(capacity(len(known.kinds)) if do.learns else 1, -1, np.int64)
    queue, seen = np.empty(most, np.int64), np.empty(most, np.int64)
    c[C.KINDS] = c[C.LIVE_KINDS] = held.kinds
    c[C.LEARNED] = held.learned
    if do.learns:
        for h in range(held.kinds):
            _, at = find(known.kinds, table, known.kinds[h, L_HASH], np.int64(0))
            table[at] = h
            queue[h], seen[h] = h, known.kinds[h, L_SEEN]
        c[C.KIND_IN] = held.kinds
    return Memory(known, table, queue, seen)


@njit
def kind_of(kinds, table, kind):
    """The row of a kind of which something is known, or -1."""
    h, _ = find(kinds, table, kind, np.int64(0))
    return h if h >= 0 and kinds[h, L_SEEN] >= 0 else -1


@njit
def learn_from(m, c, window, do):
    """Learn from an instance of which nothing more will be heard."""
    kinds = m.known.kinds
    h, at = find(kinds, m.table, window[W.KIND], np.int64(0))
    if h < 0:
        h = c[C.KINDS]
        c[C.KINDS] += 1
        m.table[at] = h
        kinds[h, L_HASH], kinds[h, L_ZERO] = window[W.KIND], 0
        kinds[h, L_SEEN] = -1
    if kinds[h, L_SEEN] < 0:
        kinds[h, L_N:] = 0
        c[C.LIVE_KINDS] += 1
    learn(m.known, h, window[W.COUNT], window[W.GAP], window[W.LAST_GAP], do.coverage)
    kinds[h, L_SEEN] = c[C.LEARNED]
    m.queue[c[C.KIND_IN]], m.seen[c[C.KIND_IN]] = h, c[C.LEARNED]
    c[C.KIND_IN] += 1
    c[C.LEARNED] += 1
    while c[C.LIVE_KINDS] > do.max_kinds:  # forget the kind that was learned about longest ago
        old, seen = m.queue[c[C.KIND_OUT]], m.seen[c[C.KIND_OUT]]
        c[C.KIND_OUT] += 1
        if kinds[old, L_SEEN] == seen:
            kinds[old, L_SEEN] = -1
            c[C.LIVE_KINDS] -= 1
