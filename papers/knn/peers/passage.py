"""Objects pass through the peers one by one, and messages are counted; compiled.

Each object is an instant. First what expires at it goes, with the merger updates this causes; then
the object is sent to its rendezvous peer and by it to every interested peer, and each of those
shows it to its queries; then changed thresholds are announced. Updates take no time.

Letters: s is the number of an object among all that were published and j among the `new` ones, q a
query and m how many there are, p a peer, z the peer that a cell belongs to, n a count.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.flow.instants import FOREVER
from anabranch.flow.process import njit
from anabranch.neighbours.lists.scoring import score
from anabranch.neighbours.methods.ranked import better, emit, oldest, place, take_out
from anabranch.neighbours.methods.skyband import expire, holds, limit, offer, prune
from papers.knn.peers.interest import announce

__all__ = [
    "OPEN",
    "STARVING",
    "STEADY",
    "Objects",
    "Queries",
    "Ranked",
    "Reports",
    "Skybands",
    "filtered_passage",
    "probabilistic_passage",
]

INTERESTED, MERGER = 0, 1
STEADY, STARVING, OPEN = 0, 1, 2
_STRETCH = 32  # objects between two looks at the room for candidates; each adds at most two


class Objects(NamedTuple):
    """New objects: the number of the first, points, and the cells that these lie in."""

    first: int
    points: np.ndarray
    cells: np.ndarray


class Queries(NamedTuple):
    """Which queries live, since which object, and at which peer; and what is common to all.

    A list of ranked objects is `full` with so many, and may hold `spare` ones more.
    """

    living: np.ndarray
    born: np.ndarray
    home: np.ndarray
    k: int
    full: int
    spare: int
    window: int


class Ranked(NamedTuple):
    """The nearest objects of each query: distances, numbers, how many, and the oldest of them.

    `held` is the threshold of a steady query, `floor` the size below which it looks further.
    """

    best: np.ndarray
    ints: np.ndarray
    sizes: np.ndarray
    eldest: np.ndarray
    held: np.ndarray
    floor: np.ndarray


class Skybands(NamedTuple):
    """The k nearest and the candidates of each query, and the latest objects, for a second look.

    `counts` are how many are nearest, where candidates begin and where they end; candidates are
    pruned above `limits`, which grow by `gamma`; `earliest` is the oldest of the nearest.
    """

    top: np.ndarray
    top_ints: np.ndarray
    cand: np.ndarray
    cand_ints: np.ndarray
    counts: np.ndarray
    limits: np.ndarray
    earliest: np.ndarray
    ring: np.ndarray
    ring_cells: np.ndarray
    gamma: float


class Reports(NamedTuple):
    """Messages by kind, objects that each peer looked at, and room for reports and distances."""

    counters: np.ndarray
    heard: np.ndarray
    out: np.ndarray
    far: np.ndarray


# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(nogil=True)
def _note(moved, listed, changed, q):  # pragma: no cover
    """List a query as changed, once; how many there are."""
    if moved[q]:
        return changed
    moved[q] = True
    listed[changed] = q
    return changed + 1


@njit(nogil=True, inline="always")
def _hear(cover, z, starts, members, cell, counters, heard, found):  # pragma: no cover
    """Put the queries of all peers that hear of an object in a cell into `found`; how many."""
    n = 0
    for p in range(cover.shape[1]):
        if cover[cell, p] == 0 and p != z:
            continue
        counters[INTERESTED] += p != z
        heard[p] += 1
        for at in range(starts[p], starts[p + 1]):
            found[n] = members[at]
            n += 1
    return n


# PA


@njit(nogil=True)
def probabilistic_passage(rule, new, queries, ranked, cells, reports, done):  # pragma: no cover
    """Objects through peers that use PA; returns how many there are and how many reports."""
    m, count, points = len(queries.living), 0, new.points
    best, ints, sizes, eldest, held, floor = ranked
    living, born, home, k, full, spare, window = queries
    counters, hearing, out, far = reports
    cover, owner, starts, members = cells.cover, cells.owner, cells.starts, cells.members
    centres, root = cells.centres, 1.0 / points.shape[1]
    moved, listed = np.zeros(m, np.bool_), np.empty(m, np.int64)
    heard, lanes = np.empty(m, np.int64), np.empty(8)
    for j in range(done, len(points)):
        if count + m * (k + 1) > len(far):
            return j, count
        s, cell, changed = new.first + j, new.cells[j], 0
        for q in range(m):
            if eldest[q] + window <= s:
                sizes[q] = take_out(best[q], ints[q], sizes[q], s - window)
                eldest[q] = oldest(ints[q], sizes[q], FOREVER)
                changed = _note(moved, listed, changed, q)
                radius, sizes[q] = _radius(
                    rule, best[q], sizes[q], full, spare, held, floor, q, root
                )
                counters[MERGER] += announce(cells, q, home[q], radius)
        n = _hear(cover, owner[cell], starts, members, cell, counters, hearing, heard)
        for at in range(n):
            q = heard[at]
            off = score(0, centres[q], points[j], lanes)
            size = sizes[q]
            if rule == STEADY:
                fits = off <= held[q]
            elif rule == STARVING:
                fits = size == 0 or off < best[q, size - 1]
            else:
                fits = size < full or off < best[q, full - 1]
            if not fits or s < born[q] or not living[q]:
                continue
            place(best[q], ints[q], size, off, s, s, 0)
            sizes[q] = size + 1 if rule == STEADY else min(size + 1, full)
            eldest[q] = min(eldest[q], s)
            changed = _note(moved, listed, changed, q)
        for i in range(changed):
            q = listed[i]
            moved[q] = False
            count = emit(best[q], ints[q], sizes[q], k, out, far, count, q, s)
            radius, sizes[q] = _radius(rule, best[q], sizes[q], full, spare, held, floor, q, root)
            counters[MERGER] += announce(cells, q, home[q], radius)
    return len(points), count


@njit(nogil=True)
def _radius(rule, best, n, full, spare, held, floor, q, root):  # pragma: no cover
    """How far a query of PA looks now, and how many objects it keeps.

    A steady query (see `PeerSettings`) keeps its threshold while it holds from `full` to
    ``full + spare`` objects. With more it cuts the list to the middle of that; with fewer it looks
    further, as far as the middle would be reached if objects were spread evenly, and again only
    if the list goes on shrinking.
    """
    if rule == STARVING:
        return (best[n - 1] if n > 0 else np.inf), n
    if rule == OPEN:
        return (best[n - 1] if n == full else np.inf), n
    middle = full + (spare + 1) // 2
    if n > full + spare:
        n = middle
        held[q] = best[n - 1]
    if n >= full:
        floor[q] = full
    elif n < floor[q]:
        # A threshold of nothing, of many objects at the query itself, cannot be stretched.
        held[q] = held[q] * (middle / max(n, 1)) ** root if held[q] > 0 else np.inf
        floor[q] = n - max(1, spare // 8)
    return held[q], n


# RAPF


@njit(nogil=True)
def _make_room(scores, ints, n):  # pragma: no cover
    """Move candidates to the front of their array if its end is near."""
    if n[2] + 2 * _STRETCH + 2 <= len(scores):
        return True
    size = n[2] - n[1]
    for i in range(size):
        scores[i] = scores[n[1] + i]
        ints[i, 0] = ints[n[1] + i, 0]
        ints[i, 1] = ints[n[1] + i, 1]
        ints[i, 2] = ints[n[1] + i, 2]
    n[1], n[2] = 0, size
    return size + 2 * _STRETCH + 2 <= len(scores)


@njit(nogil=True)
def filtered_passage(new, queries, bands, ranked, cells, reports, done):  # pragma: no cover
    """Objects through peers that use RAPF; returns how many and how many reports.

    Stops early if there is no room for more reports or candidates: the caller makes some.
    """
    m, count, points = len(queries.living), 0, new.points
    top, top_ints, cand, cand_ints, counts, limits, earliest, ring, ring_cells, gamma = bands
    best, ints, sizes, eldest = ranked.best, ranked.ints, ranked.sizes, ranked.eldest
    living, born, home, k, full, _, window = queries
    counters, hearing, out, far = reports
    cover, owner, starts, members = cells.cover, cells.owner, cells.starts, cells.members
    centres, recent, lanes = cells.centres, len(ring), np.empty(8)
    moved, listed, wider = np.zeros(m, np.bool_), np.empty(m, np.int64), np.empty(m, np.int64)
    heard, queue, heap = np.empty(m, np.int64), np.empty(k, np.int64), np.empty(k)
    for j in range(done, len(points)):
        if count + m * (k + 1) > len(far):
            return j, count
        if (j - done) % _STRETCH == 0:
            for q in range(m):
                if not _make_room(cand[q], cand_ints[q], counts[q]):
                    return j, count
        s, changed, announced = new.first + j, 0, 0
        for q in range(m):
            if earliest[q] + window <= s:
                expire(top[q], top_ints[q], cand[q], cand_ints[q], counts[q], k, s - window)
                changed = _note(moved, listed, changed, q)
        o, slot = s - recent, s % recent
        if o >= 0:  # a second look at the object that leaves the latest ones
            cell = ring_cells[slot]
            n = _hear(cover, owner[cell], starts, members, cell, counters, hearing, heard)
            for at in range(n):
                q = heard[at]
                if o < born[q] or not living[q]:
                    continue
                off = score(0, centres[q], ring[slot], lanes)
                barred = sizes[q] >= k and better(best[q, k - 1], ints[q, k - 1, 0], off, o)
                if barred or holds(top_ints[q], cand_ints[q], counts[q], o):
                    continue
                if offer(top[q], top_ints[q], cand[q], cand_ints[q], counts[q], k, off, o, o):
                    changed = _note(moved, listed, changed, q)
        for q in range(m):
            if eldest[q] + recent <= s:
                sizes[q] = take_out(best[q], ints[q], sizes[q], s - recent)
                eldest[q] = oldest(ints[q], sizes[q], FOREVER)
                radius = best[q, k - 1] if sizes[q] >= k else np.inf
                counters[MERGER] += announce(cells, q, home[q], radius)
        cell = new.cells[j]
        ring[slot], ring_cells[slot] = points[j], cell
        n = _hear(cover, owner[cell], starts, members, cell, counters, hearing, heard)
        for at in range(n):
            q = heard[at]
            if s < born[q] or not living[q]:
                continue
            off, f = score(0, centres[q], points[j], lanes), sizes[q]
            if f < k or off < best[q, k - 1]:
                inside = offer(top[q], top_ints[q], cand[q], cand_ints[q], counts[q], k, off, s, s)
                if counts[q, 2] - counts[q, 1] > limits[q]:
                    prune(
                        top[q], top_ints[q], cand[q], cand_ints[q], counts[q], k, s - window,
                        queue, heap,
                    )  # fmt: skip
                    limits[q] = limit(counts[q, 2] - counts[q, 1], gamma)
                wider[announced] = q
                announced += 1
                if inside:
                    changed = _note(moved, listed, changed, q)
            if f < full or off < best[q, full - 1]:
                place(best[q], ints[q], f, off, s, s, 0)
                sizes[q] = min(f + 1, full)
                eldest[q] = min(eldest[q], s)
        for i in range(changed):
            q = listed[i]
            moved[q] = False
            count = emit(top[q], top_ints[q], counts[q, 0], k, out, far, count, q, s)
            earliest[q] = oldest(top_ints[q], counts[q, 0], FOREVER)
        for i in range(announced):
            q = wider[i]
            radius = best[q, k - 1] if sizes[q] >= k else np.inf
            counters[MERGER] += announce(cells, q, home[q], radius)
    return len(points), count
