"""Lists that take objects in after their turn: those withheld because they did not matter yet.

An object that could not be among the k nearest up to an instant may be left out until then without
changing any answer. When it comes, it takes the place that it would have had: the numbers of those
after it in the order of (time, id) move up, and it enters the lists that it belongs to.

Letters of the compiled part: q a query, s a score, n objects of the window.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from anabranch.flow.instants import FOREVER
from anabranch.flow.process import njit
from anabranch.neighbours.lists.admission import admits
from anabranch.neighbours.lists.algorithm import Queries
from anabranch.neighbours.lists.log import longer, remember_emitted
from anabranch.neighbours.lists.refill import repair_list
from anabranch.neighbours.lists.repair import ListWithRepair
from anabranch.neighbours.lists.scoring import score
from anabranch.neighbours.lists.stretches import first_above
from anabranch.neighbours.lists.tables import Log
from anabranch.neighbours.selective.horizons import Merger

__all__ = ["BelatedLists"]

# The compiled functions below are opaque to mypy and coverage.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


class BelatedLists(ListWithRepair):
    """The list with repair, for windows of time, with objects that may come belatedly.

    Examples
    --------
    >>> lists = BelatedLists(Queries.of([[0.0]], k=1, window=10))
    >>> lists.advance([0], [0], [[1.0]], upto=6).rows()
    [(0, 0, 0, 1.0, 1)]

    An object of time 4 was withheld; it enters when the first one leaves.

    >>> lists.insert(np.array([1]), np.array([4]), np.array([1]), np.array([[2.0]]))
    >>> lists.advance([], [], [], upto=10).rows()
    [(0, 1, 10, 2.0, 1)]
    """

    name: ClassVar[str] = "exact, belated"

    def __init__(self, queries: Queries, spare: int | None = None, index: str = "auto") -> None:
        super().__init__(queries, spare, index)
        self._usual = np.zeros(len(queries))
        self._began = FOREVER

    def insert(
        self,
        before: np.ndarray,
        t: np.ndarray,
        seq: np.ndarray,
        points: np.ndarray,
        marks: np.ndarray | None = None,
    ) -> None:
        """Take in objects that were in no top-k up to `reached`.

        Parameters
        ----------
        before
            For each, ascending, the present arrival number that it comes before.
        t, points
            Their times, at or before `reached`, and points.
        seq
            Their arrival numbers from now on; those of the others move up.
        marks
            As in `advance`.
        """
        if not len(t):
            return
        if marks is None:
            marks = np.empty((len(t), 0), np.int64)
        places = self._objects.insert(before, t, seq, points, marks)
        self.newest += len(t)
        firsts = self._objects.base + places
        for name in ("_oldest", "_log_number"):
            values = getattr(self, name)
            moved = values + np.searchsorted(firsts, values, "right")
            setattr(self, name, np.where(values < FOREVER, moved, values))
        known = self._codes >> 1
        self._codes = self._codes + 2 * np.searchsorted(firsts, known, "right")
        log, repairs = _insert_all(
            self._asked()[0],
            self._lists(),
            self._held(0),
            self._log(),
            places + np.arange(len(places)),
            self.reached,
        )
        self._remember(log)
        self.repairs += repairs

    def merger(self) -> Merger:
        """What these queries can promise now, by all objects that they hold."""
        if len(self._usual) != len(self.queries):
            self._usual = np.zeros(len(self.queries))
        held = self._objects
        self._began = min([self._began, *held.times[:1].tolist()])
        return Merger.of(
            self.queries,
            self.reached,
            held.times,
            held.points,
            held.marks,
            self._usual,
            self._began,
        )


@njit(boundscheck=False)
def _insert_all(asked, lists, held, log, places, reached):  # pragma: no cover
    """Make the lists what they would be, had the objects at `places` come in time."""
    tau, size, oldest, lanes = lists.tau, lists.size, lists.oldest, np.empty(8)
    clock, points, n = held.clock, held.points, len(held.clock)
    repairs = 0
    for q in range(len(asked.k)):
        if asked.until[q] <= reached:
            continue
        begin, keep, span = lists.start[q], asked.k[q] + lists.spare[q], asked.span[q]
        tied = False
        for at in places:
            if clock[at] <= asked.since[q] or clock[at] + span <= reached:
                continue
            if not admits(asked.bounds, q, held.marks, at):
                continue
            s = score(asked.measure, asked.centres[q], points[at], lanes)
            if s > tau[q]:
                continue
            if s == tau[q] and tau[q] < np.inf:
                # Which of those at the threshold the list holds depended on who came first.
                tied = True
                continue
            _put(lists, q, s, held.base + at)
            if size[q] > keep + lists.spare[q]:
                log = _remembering(lists, q, begin + keep, begin + size[q], log)
                size[q], tau[q] = keep, lists.scores[begin + keep - 1]
        if tied:
            # The list may shrink by this, and what was reported must stay known.
            log = _remembering(lists, q, begin, begin + size[q], log)
            first = max(
                first_above(clock, reached - span, 0, n), first_above(clock, asked.since[q], 0, n)
            )
            size[q] = repair_list(q, size[q], first, n, asked, lists, held, log, lanes)
            tau[q] = lists.scores[begin + keep - 1] if size[q] == keep else np.inf
            least = FOREVER
            for code in lists.codes[begin : begin + size[q]]:
                least = min(least, code >> 1)
            oldest[q] = least
            repairs += 1
    return log, repairs


@njit(boundscheck=False)
def _remembering(lists, q, begin, end, log):  # pragma: no cover
    """The log with the entries from begin to end that have been reported."""
    log = longer(log, end - begin)
    return Log(log.number, log.following, remember_emitted(lists, q, begin, end, log, log.used))


@njit(boundscheck=False)
def _put(lists, q, s, number):  # pragma: no cover
    """Put an object into a list, after those as near that are older."""
    scores, codes, begin, end = lists.scores, lists.codes, lists.start[q], lists.start[q]
    end += lists.size[q]
    place = first_above(scores, s, begin, end)
    while place > begin and scores[place - 1] == s and codes[place - 1] >> 1 > number:
        place -= 1
    for j in range(end, place, -1):
        scores[j] = scores[j - 1]
        codes[j] = codes[j - 1]
    scores[place], codes[place] = s, number << 1
    lists.size[q] += 1
    lists.oldest[q] = min(lists.oldest[q], number)
