"""RA: each query keeps a relaxed k-skyband of everything that arrives (paper, section 4.1).

Letters: q is a query, i an object that comes, e the next instant at which something happens, n the
sizes of the skyband's parts.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from anabranch.errors import InvalidCall
from anabranch.flow.instants import FOREVER
from anabranch.flow.process import njit
from anabranch.neighbours.lists.admission import bar
from anabranch.neighbours.lists.algorithm import Algorithm, Arrivals, Queries, Reports
from anabranch.neighbours.lists.scoring import fill, root
from anabranch.neighbours.methods.ranked import emit, oldest, whole_reports, whole_rows
from anabranch.neighbours.methods.skyband import expire, limit, load, offer, prune, unload
from anabranch.neighbours.methods.tables import Bands, room_for_band, room_to_see

__all__ = ["Kept", "Relaxed", "Skybands"]


class Kept(Algorithm):
    """State shared by the algorithms that keep objects of each query, one query after another."""

    def __init__(self, queries: Queries) -> None:
        super().__init__(queries)
        self.offsets = np.zeros(len(queries) + 1, np.int64)
        self.scores = np.empty(0)
        self.ints = np.empty((0, 3), np.int64)

    @property
    def held(self) -> np.ndarray:
        """How many objects each query keeps."""
        return np.diff(self.offsets)

    def _last(self, fresh: Arrivals, upto: int) -> int:
        """The last instant of the clock that windows are measured on."""
        if not self.queries.counted:
            return upto
        return int(fresh.seq[-1]) if len(fresh.seq) else self.newest

    def _added(self, count: int) -> None:
        self.offsets = np.append(self.offsets, np.full(count, self.offsets[-1]))

    def _kept(self, places: np.ndarray) -> None:
        self.offsets, rows = runs(self.offsets, places)
        self.scores, self.ints = self.scores[rows], self.ints[rows]


class Skybands(Kept):
    """State shared by the algorithms that keep k-skybands.

    Of each query come first the best, in rank order, then the candidates, in arrival order.
    """

    def __init__(self, queries: Queries, gamma: float = 0.2) -> None:
        if not gamma >= 0:
            raise InvalidCall(self.name, [f"gamma must not be negative, got {gamma}"])
        super().__init__(queries)
        self.gamma = gamma
        self.tops = np.zeros(len(queries), np.int64)
        self.limit = np.zeros(len(queries), np.int64)

    def _bands(self) -> Bands:
        """The skybands, as compiled code takes them."""
        return Bands(self.offsets, self.scores, self.ints, self.tops, self.limit, self.gamma)

    def _added(self, count: int) -> None:
        super()._added(count)
        self.tops = np.append(self.tops, np.zeros(count, np.int64))
        self.limit = np.append(self.limit, np.zeros(count, np.int64))

    def _kept(self, places: np.ndarray) -> None:
        super()._kept(places)
        self.tops, self.limit = self.tops[places], self.limit[places]


class Relaxed(Skybands):
    """RA, exact on any stream: every query looks at every object.

    Parameters
    ----------
    queries
        The queries.
    gamma
        How far the candidates may outgrow the skyband before they are pruned.

    Examples
    --------
    >>> algorithm = Relaxed(Queries.of([[0.0]], k=1, window=10))
    >>> algorithm.advance([0, 4], [0, 1], [[1.0], [2.0]], upto=20).rows()
    [(0, 0, 0, 1.0, 1), (0, 1, 10, 2.0, 1)]
    """

    name: ClassVar[str] = "relaxed"
    exact: ClassVar[bool] = True

    def _run(self, fresh: Arrivals, upto: int) -> Reports:
        found = _relaxed(self.queries.asked, self._bands(), fresh, self._last(fresh, upto), upto)
        self.offsets, self.scores, self.ints, out, far = found
        return reported(out, far)


def reported(out: np.ndarray, far: np.ndarray) -> Reports:
    """Reports from what compiled code has written."""
    query, seq, time, rank = out.T.copy()
    return Reports(query, seq, time, far, rank)


def runs(offsets: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets of some of the runs laid one after another, and the rows they consist of.

    Examples
    --------
    >>> runs(np.array([0, 2, 3, 5]), np.array([0, 2]))
    (array([0, 2, 4]), array([0, 1, 3, 4]))
    """
    lengths = np.diff(offsets)[places]
    kept = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = np.arange(kept[-1]) + np.repeat(offsets[:-1][places] - kept[:-1], lengths)
    return kept, rows


# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(nogil=True)
def _relaxed(asked, bands, fresh, last, upto):  # pragma: no cover
    """Each query through all instants up to `last`; its skyband afterwards, and all reports."""
    measure, centres, ks, spans, since, until, counted, bounds = asked
    offsets, scores, ints, tops, limits, gamma = bands
    clock, t, seq, points, marks = fresh
    arriving = len(t)
    out, far, count = np.empty((256, 4), np.int64), np.empty(256), 0
    kept, kept_ints, at = np.empty(len(scores) + 256), np.empty((len(scores) + 256, 3), np.int64), 0
    new_offsets = np.zeros(len(ks) + 1, np.int64)
    top, top_ints, cand, cand_ints, n = room_for_band(asked, bands, arriving)
    columns, filled, lanes = room_to_see(points)
    for q in range(len(ks)):
        before = offsets[q + 1] - offsets[q]
        out, far = whole_reports(out, far, count, before + arriving)
        load(scores, ints, offsets[q], tops[q], offsets[q + 1], top, top_ints, cand, cand_ints, n)
        i = np.searchsorted(t, since[q], side="right")
        fill(measure, centres[q], points, columns, i, arriving, filled, lanes)
        bar(bounds, q, marks, i, arriving, filled)
        k, window, most = ks[q], spans[q], limits[q]
        order, heap = np.empty(k, np.int64), np.empty(k)
        first = oldest(top_ints, n[0], FOREVER)
        while True:
            e = min(clock[i] if i < arriving else FOREVER, first + window)
            if e > last:
                break
            time = t[i] if counted else e
            if time > until[q]:
                break
            changed = first + window <= e
            if changed:
                expire(top, top_ints, cand, cand_ints, n, k, e - window)
            while i < arriving and clock[i] == e:
                off = root(measure, filled[i])
                if off < np.inf:
                    changed |= offer(top, top_ints, cand, cand_ints, n, k, off, seq[i], clock[i])
                if n[2] - n[1] > most:
                    prune(top, top_ints, cand, cand_ints, n, k, e - window, order, heap)
                    most = limit(n[2] - n[1], gamma)
                i += 1
            if changed:
                count = emit(top, top_ints, n[0], k, out, far, count, q, time)
                first = oldest(top_ints, n[0], FOREVER)
        limits[q] = most
        if upto >= until[q]:
            n[:] = 0
        kept, kept_ints = whole_rows(kept, kept_ints, at, n[0] + n[2] - n[1])
        at = unload(top, top_ints, cand, cand_ints, n, kept, kept_ints, at)
        new_offsets[q + 1] = at
        tops[q] = n[0]
    return (
        new_offsets, kept[:at].copy(), kept_ints[:at].copy(), out[:count].copy(), far[:count].copy()
    )  # fmt: skip
