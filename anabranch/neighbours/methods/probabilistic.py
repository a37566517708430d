"""PA: each query keeps the k + c best objects and forgets the rest (paper, section 4.2).

What is not among the k + c best when it arrives, or falls out of them, is forgotten although it
might have entered the top-k later; `reserve` says how rarely.

A list that lost members to expiry takes whatever comes until it is full again;
keeping to the old threshold, as the paper can be read, starves it.

Letters: q is a query, i an object that comes, e the next instant at which something happens, n how
many a list holds.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from anabranch.flow.instants import FOREVER
from anabranch.flow.process import njit
from anabranch.neighbours.lists.admission import bar
from anabranch.neighbours.lists.algorithm import Arrivals, Queries, Reports
from anabranch.neighbours.lists.reserve import reserve
from anabranch.neighbours.lists.scoring import beyond, fill, root
from anabranch.neighbours.methods.ranked import (
    emit,
    oldest,
    place,
    take_out,
    whole_reports,
    whole_rows,
)
from anabranch.neighbours.methods.relaxed import Kept, reported
from anabranch.neighbours.methods.tables import Ranked, room_for_list, room_to_see

__all__ = ["Probabilistic"]


class Probabilistic(Kept):
    """PA: misses about as few as `error` says where the order of objects is random.

    Where distances to a query drift, the bound does not hold: if they grow, objects are forgotten
    that are among the nearest later. Nor does it where many objects are equally far: ties go to the
    older, so that the younger of equals follow one after another, and those beyond k + c are
    forgotten. Nor, with windows of time, where far fewer objects come in one window than in the one
    before.

    Parameters
    ----------
    queries
        The queries.
    error
        Probability with which an object may be missed.

    Examples
    --------
    >>> algorithm = Probabilistic(Queries.of([[0.0]], k=1, window=10), error=0.01)
    >>> algorithm.advance([0, 4], [0, 1], [[1.0], [2.0]], upto=20).rows()
    [(0, 0, 0, 1.0, 1), (0, 1, 10, 2.0, 1)]
    """

    name: ClassVar[str] = "probabilistic"
    exact: ClassVar[bool] = False

    def __init__(self, queries: Queries, error: float = 1e-3) -> None:
        super().__init__(queries)
        self.error = error
        self.sizes = queries.k + reserve(queries.k, error)

    def _added(self, count: int) -> None:
        super()._added(count)
        self.sizes = self.queries.k + reserve(self.queries.k, self.error)

    def _kept(self, places: np.ndarray) -> None:
        super()._kept(places)
        self.sizes = self.sizes[places]

    def _run(self, fresh: Arrivals, upto: int) -> Reports:
        held, last = Ranked(self.offsets, self.scores, self.ints), self._last(fresh, upto)
        found = _probabilistic(self.queries.asked, held, self.sizes, fresh, last, upto)
        self.offsets, self.scores, self.ints, out, far = found
        return reported(out, far)


# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(nogil=True)
def _probabilistic(asked, held, sizes, fresh, last, upto):  # pragma: no cover
    """Each query through all instants up to `last`; its list afterwards, and all reports."""
    measure, centres, ks, spans, since, until, counted, bounds = asked
    offsets, scores, ints = held
    clock, t, seq, points, marks = fresh
    arriving = len(t)
    out, far, count = np.empty((256, 4), np.int64), np.empty(256), 0
    kept, kept_ints, at = np.empty(len(scores) + 256), np.empty((len(scores) + 256, 3), np.int64), 0
    new_offsets = np.zeros(len(ks) + 1, np.int64)
    columns, filled, lanes = room_to_see(points)
    best, best_ints = room_for_list(sizes)
    for q in range(len(ks)):
        n = offsets[q + 1] - offsets[q]
        out, far = whole_reports(out, far, count, n + arriving)
        best[:n] = scores[offsets[q] : offsets[q + 1]]
        best_ints[:n] = ints[offsets[q] : offsets[q + 1]]
        i = np.searchsorted(t, since[q], side="right")
        fill(measure, centres[q], points, columns, i, arriving, filled, lanes)
        bar(bounds, q, marks, i, arriving, filled)
        k, window, full = ks[q], spans[q], sizes[q]
        first = oldest(best_ints, n, FOREVER)
        while True:
            if n == full:
                # Pass over what changes nothing: before the next expiry, no better than the tail.
                tail = beyond(measure, best[full - 1])
                while i < arriving and clock[i] < first + window and filled[i] >= tail:
                    i += 1
            e = min(clock[i] if i < arriving else FOREVER, first + window)
            if e > last:
                break
            time = t[i] if counted else e
            if time > until[q]:
                break
            changed = first + window <= e
            if changed:
                n = take_out(best, best_ints, n, e - window)
            while i < arriving and clock[i] == e:
                off = root(measure, filled[i])
                # The younger of equals comes after.
                if off < (best[full - 1] if n == full else np.inf):
                    place(best, best_ints, n, off, seq[i], clock[i], 0)
                    n = min(n + 1, full)
                    changed = True
                i += 1
            if changed:
                count = emit(best, best_ints, n, k, out, far, count, q, time)
                first = oldest(best_ints, n, FOREVER)
        if upto >= until[q]:
            n = 0
        kept, kept_ints = whole_rows(kept, kept_ints, at, n)
        kept[at : at + n] = best[:n]
        kept_ints[at : at + n] = best_ints[:n]
        at += n
        new_offsets[q + 1] = at
    return (
        new_offsets, kept[:at].copy(), kept_ints[:at].copy(), out[:count].copy(), far[:count].copy()
    )  # fmt: skip
