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

from anabranch.flow.process import njit
from anabranch.neighbours.lists.algorithm import FOREVER
from anabranch.neighbours.lists.scoring import score
from anabranch.neighbours.methods.ranked import better, oldest, place, take_out, tell
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


class _Changed(NamedTuple):
    """Queries whose result has changed at this instant: whether, which, and how many."""

    moved: np.ndarray
    listed: np.ndarray
    n: np.ndarray


# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(nogil=True)
def _note(changed, q):  # pragma: no cover
    if not changed.moved[q]:
        changed.moved[q] = True
        changed.listed[changed.n[0]] = q
        changed.n[0] += 1


@njit(nogil=True)
def _hear(cells, cell, reports, found):  # pragma: no cover
    """Put the queries of all peers that hear of an object in a cell into `found`; how many."""
    cover, owner, starts, members = cells.cover, cells.owner, cells.starts, cells.members
    heard, z, n = reports.heard, owner[cell], 0
    for p in range(cover.shape[1]):
        if cover[cell, p] == 0 and p != z:
            continue
        reports.counters[INTERESTED] += p != z
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
    changed = _Changed(np.zeros(m, np.bool_), np.empty(m, np.int64), np.zeros(1, np.int64))
    found = np.empty(m, np.int64)
    for j in range(done, len(points)):
        if count + m * (queries.k + 1) > len(reports.far):
            return j, count
        s = new.first + j
        _forget(rule, s, queries, ranked, cells, reports, changed)
        n = _hear(cells, new.cells[j], reports, found)
        _rank(rule, s, points[j], found[:n], queries, ranked, cells.centres, changed)
        for i in range(changed.n[0]):
            q = changed.listed[i]
            changed.moved[q] = False
            best, ints, size = ranked.best[q], ranked.ints[q], ranked.sizes[q]
            count = tell(best, ints, size, queries.k, reports.out, reports.far, count, q, s)
            _adjust(rule, q, queries, ranked, cells, reports)
        changed.n[0] = 0
    return len(points), count


@njit(nogil=True)
def _forget(rule, s, queries, ranked, cells, reports, changed):  # pragma: no cover
    """Take out what has left the window."""
    eldest, window = ranked.eldest, queries.window
    for q in range(len(eldest)):
        if eldest[q] + window <= s:
            best, ints, size = ranked.best[q], ranked.ints[q], ranked.sizes[q]
            ranked.sizes[q] = take_out(best, ints, size, s - window)
            eldest[q] = oldest(ints, ranked.sizes[q], FOREVER)
            _note(changed, q)
            _adjust(rule, q, queries, ranked, cells, reports)


@njit(nogil=True)
def _rank(rule, s, point, heard, queries, ranked, centres, changed):  # pragma: no cover
    """Show an object to the queries that hear of it."""
    living, born, full = queries.living, queries.born, queries.full
    best, ints, sizes, held, eldest = (
        ranked.best, ranked.ints, ranked.sizes, ranked.held, ranked.eldest
    )  # fmt: skip
    lanes = np.empty(8)
    for q in heard:
        n = sizes[q]
        off = score(0, centres[q], point, lanes)
        if rule == STEADY:
            fits = off <= held[q]
        elif rule == STARVING:
            fits = n == 0 or off < best[q, n - 1]
        else:
            fits = n < full or off < best[q, full - 1]
        if not fits or s < born[q] or not living[q]:
            continue
        place(best[q], ints[q], n, off, s, s, 0)
        sizes[q] = n + 1 if rule == STEADY else min(n + 1, full)
        eldest[q] = min(eldest[q], s)
        _note(changed, q)


@njit(nogil=True)
def _adjust(rule, q, queries, ranked, cells, reports):  # pragma: no cover
    """Announce how far a query looks now, and cut its list to what it keeps."""
    root = 1.0 / cells.centres.shape[1]
    radius, ranked.sizes[q] = _radius(
        rule, ranked.best[q], ranked.sizes[q], queries.full, queries.spare, ranked.held,
        ranked.floor, q, root,
    )  # fmt: skip
    reports.counters[MERGER] += announce(cells, q, queries.home[q], radius)


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
    changed = _Changed(np.zeros(m, np.bool_), np.empty(m, np.int64), np.zeros(1, np.int64))
    found, wider = np.empty(m, np.int64), np.empty(m, np.int64)
    recent = len(bands.ring)
    for j in range(done, len(points)):
        if count + m * (queries.k + 1) > len(reports.far):
            return j, count
        if (j - done) % _STRETCH == 0:
            for q in range(m):
                if not _make_room(bands.cand[q], bands.cand_ints[q], bands.counts[q]):
                    return j, count
        s = new.first + j
        _expire(s, queries, bands, changed)
        if s >= recent:
            n = _hear(cells, bands.ring_cells[s % recent], reports, found)
            _look_again(s - recent, found[:n], queries, bands, ranked, cells.centres, changed)
        _widen(s, recent, queries, ranked, cells, reports)
        bands.ring[s % recent] = points[j]
        bands.ring_cells[s % recent] = new.cells[j]
        n = _hear(cells, new.cells[j], reports, found)
        announced = _look(s, points[j], found[:n], queries, bands, ranked, cells, changed, wider)
        for i in range(changed.n[0]):
            q = changed.listed[i]
            changed.moved[q] = False
            top, ints, size = bands.top[q], bands.top_ints[q], bands.counts[q, 0]
            count = tell(top, ints, size, queries.k, reports.out, reports.far, count, q, s)
            bands.earliest[q] = oldest(ints, size, FOREVER)
        changed.n[0] = 0
        for i in range(announced):
            _announce_nearest(wider[i], queries, ranked, cells, reports)
    return len(points), count


@njit(nogil=True)
def _expire(s, queries, bands, changed):  # pragma: no cover
    """Take out what has left the window."""
    earliest, k, window = bands.earliest, queries.k, queries.window
    for q in range(len(earliest)):
        if earliest[q] + window <= s:
            expire(
                bands.top[q], bands.top_ints[q], bands.cand[q], bands.cand_ints[q],
                bands.counts[q], k, s - window,
            )  # fmt: skip
            _note(changed, q)


@njit(nogil=True)
def _look_again(o, heard, queries, bands, ranked, centres, changed):  # pragma: no cover
    """Show object o once more, as it leaves the latest ones, to those that hear of it now."""
    top, top_ints, cand, cand_ints, counts = (
        bands.top, bands.top_ints, bands.cand, bands.cand_ints, bands.counts
    )  # fmt: skip
    best, ints, sizes, k = ranked.best, ranked.ints, ranked.sizes, queries.k
    living, born, point = queries.living, queries.born, bands.ring[o % len(bands.ring)]
    lanes = np.empty(8)
    for q in heard:
        if o < born[q] or not living[q]:
            continue
        off = score(0, centres[q], point, lanes)
        barred = sizes[q] >= k and better(best[q, k - 1], ints[q, k - 1, 0], off, o)
        if barred or holds(top_ints[q], cand_ints[q], counts[q], o):
            continue
        if offer(top[q], top_ints[q], cand[q], cand_ints[q], counts[q], k, off, o, o):
            _note(changed, q)


@njit(nogil=True)
def _widen(s, recent, queries, ranked, cells, reports):  # pragma: no cover
    """Take out of the filters what is no longer among the latest objects."""
    eldest = ranked.eldest
    for q in range(len(eldest)):
        if eldest[q] + recent <= s:
            best, ints, size = ranked.best[q], ranked.ints[q], ranked.sizes[q]
            ranked.sizes[q] = take_out(best, ints, size, s - recent)
            eldest[q] = oldest(ints, ranked.sizes[q], FOREVER)
            _announce_nearest(q, queries, ranked, cells, reports)


@njit(nogil=True)
def _look(s, point, heard, queries, bands, ranked, cells, changed, wider):  # pragma: no cover
    """Show a new object to the queries that hear of it; how many stand in `wider`, to announce."""
    top, top_ints, cand, cand_ints, counts = (
        bands.top, bands.top_ints, bands.cand, bands.cand_ints, bands.counts
    )  # fmt: skip
    best, ints, sizes, eldest = ranked.best, ranked.ints, ranked.sizes, ranked.eldest
    living, born, k, full = queries.living, queries.born, queries.k, queries.full
    centres, limits = cells.centres, bands.limits
    queue, heap, lanes, announced = np.empty(k, np.int64), np.empty(k), np.empty(8), 0
    for q in heard:
        if s < born[q] or not living[q]:
            continue
        off = score(0, centres[q], point, lanes)
        f = sizes[q]
        if f < k or off < best[q, k - 1]:
            inside = offer(top[q], top_ints[q], cand[q], cand_ints[q], counts[q], k, off, s, s)
            if counts[q, 2] - counts[q, 1] > limits[q]:
                prune(
                    top[q], top_ints[q], cand[q], cand_ints[q], counts[q], k,
                    s - queries.window, queue, heap,
                )  # fmt: skip
                limits[q] = limit(counts[q, 2] - counts[q, 1], bands.gamma)
            wider[announced] = q
            announced += 1
            if inside:
                _note(changed, q)
        if f < full or off < best[q, full - 1]:
            place(best[q], ints[q], f, off, s, s, 0)
            sizes[q] = min(f + 1, full)
            eldest[q] = min(eldest[q], s)
    return announced


@njit(nogil=True)
def _announce_nearest(q, queries, ranked, cells, reports):  # pragma: no cover
    """A query looks as far as its k-th nearest of the latest objects."""
    k = queries.k
    radius = ranked.best[q, k - 1] if ranked.sizes[q] >= k else np.inf
    reports.counters[MERGER] += announce(cells, q, queries.home[q], radius)
