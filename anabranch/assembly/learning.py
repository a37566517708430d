"""What a learned policy knows, and how long it waits: the chance that more is to come.

A window of `count` events that has been silent for a time g is whole or not. Let p be the
chance that an instance like it goes on, and S(g) the share of instances that go on after a longer
silence than g. Having waited for g in vain, the chance that more is to come is

    p S(g) / (p S(g) + 1 - p)

and the window closes when that has fallen to the risk that is allowed: at once if p is that small,
otherwise after the silence g with S(g) = risk (1 - p) / (p (1 - risk)).

p comes from the kind's recent sizes. At the greatest of them these cannot say how often it is
exceeded; what has happened to all kinds of which as much was known can. S comes from the longest
silences of the kind's recent instances or, while there are few, of all kinds'. But what is unlikely
to come may take longer than what always does: where p is below a half, S is that of the silences
before such events. Everything is learned from instances that are no longer remembered, so
that what a close cut off counts too.

Letters: h a row of the kinds, c a number of events, b a situation (as much known, with one event
or several), p the chance above.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from anabranch.flow.instants import BEGINNING
from anabranch.flow.process import njit

__all__ = [
    "COMMON",
    "KIND_WIDTH",
    "RING",
    "Known",
    "in_order",
    "learn",
    "new_knowledge",
    "patience",
]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

# Columns of the table of kinds; the rings of recent instances are tables of their own.
L_HASH, L_ZERO, L_N, L_SILENCES, L_SIZE, L_SEEN = range(6)
KIND_WIDTH = 6
RING, COMMON_RING, RARE_RING = 32, 512, 128

# What is known of all kinds, in one array: when the first event came, how many silences there
# are and how many before what was unlikely to come, instances with so many events and those
# of them that had more, instances that came up to the greatest size known of their kind and those
# of them that went beyond, then both kinds of silences by age and by length.
DEGREES, BINS = 64, 12
C_FIRST, C_SILENCES, C_RARE, C_REACHED = 0, 1, 2, 3
C_MORE = C_REACHED + DEGREES + 1
C_MET = C_MORE + DEGREES + 1
C_EXCEEDED = C_MET + BINS
C_RING = C_EXCEEDED + BINS
C_ORDERED = C_RING + COMMON_RING
C_RARE_RING = C_ORDERED + COMMON_RING
C_RARE_ORDERED = C_RARE_RING + RARE_RING
COMMON = C_RARE_ORDERED + RARE_RING

_UNLIKELY = 0.5
_AGE = 8192  # counts are halved here, so that what is old fades


class Known(NamedTuple):
    """What is known of kinds, one row of each, and of all of them.

    Attributes
    ----------
    kinds
        The table of kinds.
    sizes, silences, ordered
        Rings of sizes and of silences by age, and the silences by length.
    common
        What is known of all kinds.
    """

    kinds: np.ndarray
    sizes: np.ndarray
    silences: np.ndarray
    ordered: np.ndarray
    common: np.ndarray


def new_knowledge(held: dict[str, np.ndarray], room: int) -> Known:
    """What is held, with room for more kinds.

    Examples
    --------
    >>> [array.shape for array in new_knowledge({}, 3)]
    [(3, 6), (3, 32), (3, 32), (3, 32), (1437,)]
    """
    widths = {"kinds": KIND_WIDTH, "sizes": RING, "silences": RING, "ordered": RING}
    tables = {}
    for name, width in widths.items():
        known = held.get(name, np.empty((0, width), np.int64))
        tables[name] = np.concatenate([known, np.zeros((room, width), np.int64)])
    common = np.zeros(COMMON, np.int64)
    common[C_FIRST] = BEGINNING
    return Known(**tables, common=held.get("common", common).copy())


def in_order(known: Known, kinds: int) -> dict[str, np.ndarray]:
    """What is known of the first `kinds`, as it is stored: learned about longest ago first."""
    seen = known.kinds[:kinds, L_SEEN]
    live = np.flatnonzero(seen >= 0)
    live = live[np.argsort(seen[live], kind="stable")]
    tables = {name: table[live] for name, table in known._asdict().items() if name != "common"}
    return {**tables, "common": known.common}


@njit
def _situation(known, count):
    """Which kinds are alike: as much known of them, and one event or several."""
    size = 0
    while known > 1:
        known >>= 1
        size += 1
    return 2 * size + (1 if count > 1 else 0)


@njit
def _remember(ring, ordered, n, value):
    """Put the n-th value into a ring and into the same values in order."""
    size = len(ring)
    filled = min(n, size)
    if n >= size:
        at = np.searchsorted(ordered, ring[n % size])
        filled -= 1
        for j in range(at, filled):
            ordered[j] = ordered[j + 1]
    at = filled
    while at > 0 and ordered[at - 1] > value:
        ordered[at] = ordered[at - 1]
        at -= 1
    ordered[at] = value
    ring[n % size] = value


@njit
def _chance(known, sizes, common, count):
    """How likely it is that an instance with so many events gets more."""
    c = min(count, DEGREES)
    usual = (common[C_MORE + c] + 1) / (common[C_REACHED + c] + 2)
    if known == 0:
        return usual
    reached, more = 0, 0
    for j in range(known):
        reached += sizes[j] >= count
        more += sizes[j] > count
    if more == 0:
        b = _situation(known, count)
        return (common[C_EXCEEDED + b] + usual) / (common[C_MET + b] + 1)
    return (usual + more) / (1 + reached)


@njit
def learn(known, h, count, silence, last, coverage):
    """Take in an instance of kind h: how many events, its longest and its last silence."""
    kind, sizes, common = known.kinds[h], known.sizes[h], known.common
    n = kind[L_N]
    filled = min(n, RING)
    if count > 1 and _chance(filled, sizes, common, count - 1) < _UNLIKELY:
        ring = common[C_RARE_RING : C_RARE_RING + RARE_RING]
        _remember(ring, common[C_RARE_ORDERED:], common[C_RARE], last)
        common[C_RARE] += 1
    if filled:
        most = sizes[:filled].max()
        for c in range(most, count + 1):
            b = _situation(filled, c)
            common[C_MET + b] += 1
            common[C_EXCEEDED + b] += c < count
            if common[C_MET + b] >= _AGE:
                common[C_MET + b] //= 2
                common[C_EXCEEDED + b] //= 2
    for c in range(1, min(count, DEGREES) + 1):
        common[C_REACHED + c] += 1
        common[C_MORE + c] += c < count
    if common[C_REACHED + 1] >= _AGE:
        for c in range(C_REACHED, C_MET):
            common[c] //= 2
    sizes[n % RING] = count
    kind[L_N] = n + 1
    filled = min(n + 1, RING)
    found = np.sort(sizes[:filled])
    place = int(np.ceil(coverage * filled - 1e-9)) - 1
    kind[L_SIZE] = found[min(filled - 1, max(0, place))]
    if count > 1:
        _remember(known.silences[h], known.ordered[h], kind[L_SILENCES], silence)
        kind[L_SILENCES] += 1
        ring = common[C_RING : C_RING + COMMON_RING]
        in_order = common[C_ORDERED : C_ORDERED + COMMON_RING]
        _remember(ring, in_order, common[C_SILENCES], silence)
        common[C_SILENCES] += 1


@njit
def patience(kinds, sizes, ordered, common, h, count, risk, after):
    """How long to wait for another event; 0 if not at all, -1 if nobody knows.

    `h` is -1 for a kind of which nothing is known.
    """
    if common[C_REACHED + 1] < after:
        return np.int64(-1)
    row = max(h, 0)
    seen, silences = (kinds[h, L_N], kinds[h, L_SILENCES]) if h >= 0 else (0, 0)
    p = _chance(min(seen, RING), sizes[row], common, count)
    share = risk * (1 - p) / (p * (1 - risk))  # p is never 0
    if share >= 1:
        return np.int64(0)
    if common[C_SILENCES] < after:
        return np.int64(-1)
    lengths = common[C_ORDERED:C_RARE_RING]
    n = min(common[C_SILENCES], COMMON_RING)
    if p < _UNLIKELY and common[C_RARE] >= after:
        lengths = common[C_RARE_ORDERED:]
        n = min(common[C_RARE], RARE_RING)
    elif silences >= after:
        lengths = ordered[row]
        n = min(silences, RING)
    if share * (n + 1) >= 1:
        place = int(np.ceil((1 - share) * n - 1e-9)) - 1
        return lengths[max(0, place)] + 1
    # Longer than any seen: the longest few are taken to go on as they fall, exponentially. The
    # logarithm is of plain arithmetic alone, so that all machines find the same.
    k = min(max(8, n // 20), n - 1)
    if k == 0:
        return lengths[0] + 1
    edge = lengths[n - 1 - k]
    excess = 0
    for j in range(n - k, n):
        excess += lengths[j] - edge
    fraction, exponent = math.frexp(k / (n * share))
    far = edge + np.int64(excess / k * 0.6931471805599453 * (exponent + 2 * fraction - 2))
    return max(far, lengths[n - 1]) + 1
