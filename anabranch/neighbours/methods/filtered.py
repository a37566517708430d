"""RAPF: a k-skyband behind a filter of the best recent objects (paper, section 4.3).

An object enters the skyband when it arrives, if fewer than k objects of the filter are better, and
otherwise gets a second chance when it leaves the buffer of recent objects: then all in the filter
are younger, and with k better ones among them it can never be among the nearest. That is exact
whatever the filter has forgotten, as long as the k better ones outlive its stay in the buffer:
they are at most one buffer older, so **twice the buffer must fit into the window**.

Letters: q is a query, i an object that comes, f how many the filter holds, e the next instant at
which something happens, o the number of an object that leaves the buffer, n the sizes of the
skyband's parts.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from anabranch.errors import InvalidCall
from anabranch.flow.instants import FOREVER
from anabranch.flow.process import njit
from anabranch.neighbours.lists.admission import bar
from anabranch.neighbours.lists.algorithm import Arrivals, Queries, Reports
from anabranch.neighbours.lists.reserve import reserve
from anabranch.neighbours.lists.scoring import fill, root
from anabranch.neighbours.methods.ranked import (
    better,
    emit,
    oldest,
    place,
    take_out,
    whole_reports,
    whole_rows,
)
from anabranch.neighbours.methods.relaxed import Skybands, reported, runs
from anabranch.neighbours.methods.skyband import expire, holds, limit, load, offer, prune, unload
from anabranch.neighbours.methods.tables import (
    Ranked,
    room_for_band,
    room_for_list,
    room_to_see,
)

__all__ = ["Filtered"]


class Filtered(Skybands):
    """RAPF, exact on any stream.

    Parameters
    ----------
    queries
        The queries; windows of at least 2.
    buffer
        How long an object counts as recent, in the unit of the windows: at most half a window.
        One number, one for each query, or by default half of each window.
    error
        Sets the size of the filter; it changes speed, not results.
    gamma
        How far the candidates may outgrow the skyband before they are pruned.

    Examples
    --------
    >>> algorithm = Filtered(Queries.of([[0.0]], k=1, window=10), buffer=5)
    >>> algorithm.advance([0, 4], [0, 1], [[1.0], [2.0]], upto=20).rows()
    [(0, 0, 0, 1.0, 1), (0, 1, 10, 2.0, 1)]
    """

    name: ClassVar[str] = "filtered"
    exact: ClassVar[bool] = True

    def __init__(
        self, queries: Queries, buffer: Any = None, error: float = 1e-3, gamma: float = 0.2
    ) -> None:
        super().__init__(queries, gamma)
        self.error = error
        self.shared_buffer = None if buffer is None or np.ndim(buffer) else int(buffer)
        self.buffer = _buffers(queries, buffer)
        self.sizes = queries.k + reserve(queries.k, error)
        self.filter_offsets = np.zeros(len(queries) + 1, np.int64)
        self.filter_scores = np.empty(0)
        self.filter_ints = np.empty((0, 3), np.int64)
        self.recent_t = np.empty(0, np.int64)
        self.recent_seq = np.empty(0, np.int64)
        self.recent_points = np.empty((0, queries.points.shape[1]))
        self.recent_marks = np.empty((0, len(queries.inverted)), np.int64)

    def _added(self, count: int) -> None:
        super()._added(count)
        new = self.queries.take(np.arange(len(self.queries) - count, len(self.queries)))
        self.buffer = np.append(self.buffer, _buffers(new, self.shared_buffer))
        self.sizes = np.append(self.sizes, new.k + reserve(new.k, self.error))
        self.filter_offsets = np.append(
            self.filter_offsets, np.full(count, self.filter_offsets[-1])
        )

    def _kept(self, places: np.ndarray) -> None:
        super()._kept(places)
        self.filter_offsets, rows = runs(self.filter_offsets, places)
        self.filter_scores, self.filter_ints = self.filter_scores[rows], self.filter_ints[rows]
        self.buffer, self.sizes = self.buffer[places], self.sizes[places]

    def _run(self, fresh: Arrivals, upto: int) -> Reports:
        of, last = self.queries, self._last(fresh, upto)
        recent = (self.recent_t, self.recent_seq, self.recent_points, self.recent_marks)
        t, seq, points, marks = (
            np.concatenate([old, new]) for old, new in zip(recent, fresh[1:], strict=True)
        )
        clock = seq if of.counted else t
        found = _filtered(
            of.asked,
            self._bands(),
            Ranked(self.filter_offsets, self.filter_scores, self.filter_ints),
            _Limits(self.sizes, self.buffer),
            Arrivals(clock, t, seq, points, marks),
            len(self.recent_t),
            self.newest if of.counted else self.reached,
            last,
            upto,
        )
        self.offsets, self.scores, self.ints = found[:3]
        self.filter_offsets, self.filter_scores, self.filter_ints = found[3:6]
        longest = int(self.buffer.max()) if len(self.buffer) else 0
        old = int(np.searchsorted(clock, last - longest, side="right"))
        self.recent_t, self.recent_seq = t[old:].copy(), seq[old:].copy()
        self.recent_points, self.recent_marks = points[old:].copy(), marks[old:].copy()
        return reported(*found[6:])


def _buffers(queries: Queries, buffer: Any) -> np.ndarray:
    given = queries.window // 2 if buffer is None else np.asarray(buffer, np.int64)
    wanted = np.array(np.broadcast_to(given, len(queries)))
    wrong = np.flatnonzero((2 * wanted > queries.window) | (wanted < 1))
    if len(wrong):
        q = int(wrong[0])
        raise InvalidCall(
            "filtered",
            [
                f"buffer {wanted[q]} does not suit the window {queries.window[q]} of query {q}: it "
                f"must be at least 1 and at most half the window, {queries.window[q] // 2}, or "
                "nearest objects would be lost; make the buffer smaller or the window longer"
            ],
        )
    return wanted


# mypy: disable-error-code="no-untyped-def, no-untyped-call"


class _Limits(NamedTuple):
    """How many objects the filter of each query holds, and how long they count as recent."""

    sizes: np.ndarray
    buffers: np.ndarray


class _Turn(NamedTuple):
    """One query on its way through all instants up to `last`.

    Objects come from `i` on, and leave the buffer from `leaving` on. Candidates are pruned above
    `most`, which outgrows what is left of them by `gamma`.
    """

    q: int
    measure: int
    k: int
    window: int
    until: int
    counted: bool
    i: int
    leaving: int
    last: int
    full: int
    buffer: int
    most: int
    gamma: float


@njit(nogil=True)
def _filtered(
    asked, bands, filters, limited, objects, before, reached, last, upto
):  # pragma: no cover
    """Each query through all instants from `reached` up to `last`, of objects of which the first
    `before` came earlier; its skyband and its filter afterwards, and all reports.
    """
    measure, centres, ks, spans, since, until, counted, bounds = asked
    offsets, scores, ints, tops, limits, gamma = bands
    filter_offsets, filter_scores, filter_ints = filters
    sizes, buffers = limited
    clock, t, _, points, marks = objects
    total = len(t)
    out, far, count = np.empty((256, 4), np.int64), np.empty(256), 0
    kept, kept_ints, at = np.empty(len(scores) + 256), np.empty((len(scores) + 256, 3), np.int64), 0
    spare = len(filter_scores) + 256
    held, held_ints, held_at = np.empty(spare), np.empty((spare, 3), np.int64), 0
    new_offsets, new_filter = np.zeros(len(ks) + 1, np.int64), np.zeros(len(ks) + 1, np.int64)
    band = room_for_band(asked, bands, 2 * total)
    top, top_ints, cand, cand_ints, n = band
    best, best_ints = room_for_list(sizes)
    columns, filled, lanes = room_to_see(points)
    for q in range(len(ks)):
        buffer, full = buffers[q], sizes[q]
        had = offsets[q + 1] - offsets[q]
        known = np.searchsorted(t, since[q], side="right")
        i = max(before, known)
        leaving = max(known, np.searchsorted(clock, reached - buffer, side="right"))
        leave = max(leaving, np.searchsorted(clock, last - buffer, side="right"))
        fill(measure, centres[q], points, columns, leaving, leave, filled, lanes)
        fill(measure, centres[q], points, columns, max(i, leave), total, filled, lanes)
        bar(bounds, q, marks, leaving, leave, filled)
        bar(bounds, q, marks, max(i, leave), total, filled)
        out, far = whole_reports(out, far, count, had + total - i + leave - leaving)
        load(scores, ints, offsets[q], tops[q], offsets[q + 1], top, top_ints, cand, cand_ints, n)
        f = filter_offsets[q + 1] - filter_offsets[q]
        best[:f] = filter_scores[filter_offsets[q] : filter_offsets[q + 1]]
        best_ints[:f] = filter_ints[filter_offsets[q] : filter_offsets[q + 1]]
        turn = _Turn(
            q, measure, ks[q], spans[q], until[q], counted, i, leaving, last,
            full, buffer, limits[q], gamma,
        )  # fmt: skip
        count, limits[q], f = _one(turn, band, best, best_ints, f, objects, filled, out, far, count)
        if upto >= until[q]:
            n[:] = 0
            f = 0
        kept, kept_ints = whole_rows(kept, kept_ints, at, n[0] + n[2] - n[1])
        at = unload(top, top_ints, cand, cand_ints, n, kept, kept_ints, at)
        new_offsets[q + 1] = at
        tops[q] = n[0]
        held, held_ints = whole_rows(held, held_ints, held_at, f)
        held[held_at : held_at + f] = best[:f]
        held_ints[held_at : held_at + f] = best_ints[:f]
        held_at += f
        new_filter[q + 1] = held_at
    return (
        new_offsets, kept[:at].copy(), kept_ints[:at].copy(),
        new_filter, held[:held_at].copy(), held_ints[:held_at].copy(),
        out[:count].copy(), far[:count].copy(),
    )  # fmt: skip


# Apart from the loop over queries, unlike those of the other methods: with so many lists at once
# this is faster (measured: by a tenth, with batches of 1,000 objects).


@njit(nogil=True)
def _one(turn, band, best, best_ints, f, objects, filled, out, far, count):  # pragma: no cover
    """One query through all instants; the reports, when to prune next, and the filter's size."""
    q, measure, k, window, until, counted, i, leaving, last, full, buffer, most, gamma = turn
    top, top_ints, cand, cand_ints, n = band
    clock, t, seq = objects.clock, objects.t, objects.seq
    total = len(t)
    order, heap = np.empty(k, np.int64), np.empty(k)
    first, eldest = oldest(top_ints, n[0], FOREVER), oldest(best_ints, f, FOREVER)
    while True:
        e = min(clock[i] if i < total else FOREVER, first + window)
        if leaving < i:
            e = min(e, clock[leaving] + buffer)
        if e > last:
            break
        time = t[i] if counted else e
        if time > until:
            break
        changed = first + window <= e
        if changed:
            expire(top, top_ints, cand, cand_ints, n, k, e - window)
        while leaving < i and clock[leaving] + buffer <= e:
            off, o = root(measure, filled[leaving]), seq[leaving]
            # With k better ones in the filter, none of them older, it can never be nearest.
            barred = f >= k and better(best[k - 1], best_ints[k - 1, 0], off, o)
            if off < np.inf and not barred and not holds(top_ints, cand_ints, n, o):
                changed |= offer(top, top_ints, cand, cand_ints, n, k, off, o, clock[leaving])
            leaving += 1
        if eldest + buffer <= e:
            f = take_out(best, best_ints, f, e - buffer)
            eldest = oldest(best_ints, f, FOREVER)
        while i < total and clock[i] == e:
            off = root(measure, filled[i])
            if off < (best[k - 1] if f >= k else np.inf):
                changed |= offer(top, top_ints, cand, cand_ints, n, k, off, seq[i], clock[i])
            if off < (best[full - 1] if f == full else np.inf):
                place(best, best_ints, f, off, seq[i], clock[i], 0)
                f = min(f + 1, full)
                eldest = oldest(best_ints, f, FOREVER)
            i += 1
        if n[2] - n[1] > most:
            prune(top, top_ints, cand, cand_ints, n, k, e - window, order, heap)
            most = limit(n[2] - n[1], gamma)
        if changed:
            count = emit(top, top_ints, n[0], k, out, far, count, q, time)
            first = oldest(top_ints, n[0], FOREVER)
    return count, most, f
