"""Lists that take objects in after their turn: those withheld because they did not matter yet.

An object that could not be among the k nearest up to an instant may be left out until then without
changing any answer. When it comes, it takes the place that it would have had: the numbers of those
after it in the order of (time, id) move up, and it enters the lists that it belongs to.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from anabranch.flow.process import njit
from anabranch.neighbours.interest.horizons import Merger
from anabranch.neighbours.lists.algorithm import FOREVER, Queries
from anabranch.neighbours.lists.lists import NEVER, remember_told
from anabranch.neighbours.lists.refill import repair_list
from anabranch.neighbours.lists.repair import ListWithRepair
from anabranch.neighbours.lists.scoring import score
from anabranch.neighbours.lists.stretches import first_above

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
        self, before: np.ndarray, t: np.ndarray, seq: np.ndarray, points: np.ndarray
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
        """
        if not len(t):
            return
        held = self._w_seq[self._lo : self._hi]
        places = np.searchsorted(held, before, "left")
        times = np.insert(self._w_times[self._lo : self._hi], places, t)
        numbers = np.insert(held + np.searchsorted(before, held, "right"), places, seq)
        everything = np.insert(self._w_points[self._lo : self._hi], places, points, axis=0)
        self._lo = self._hi = 0
        self._append(times, times, numbers, everything)
        self.newest += len(t)
        firsts = self._base + places
        for name in ("_oldest", "_log_number"):
            values = getattr(self, name)
            moved = values + np.searchsorted(firsts, values, "right")
            setattr(self, name, np.where(values < NEVER, moved, values))
        known = self._codes >> 1
        self._codes = self._codes + 2 * np.searchsorted(firsts, known, "right")
        queries = self.queries
        self._log_number, self._log_next, self._log_used, repairs = _insert_all(
            queries.metric_code,
            queries.points,
            queries.k,
            self._spare,
            queries.window,
            queries.since,
            queries.until,
            self._start,
            self._size,
            self._tau,
            self._oldest,
            self._scores,
            self._codes,
            times,
            everything,
            self._base,
            places + np.arange(len(places)),
            self.reached,
            self._head,
            self._log_number,
            self._log_next,
            self._log_used,
        )
        self._log_used = int(self._log_used)
        self.repairs += repairs

    def merger(self) -> Merger:
        """What these queries can promise now, by all objects that they hold."""
        if len(self._usual) != len(self.queries):
            self._usual = np.zeros(len(self.queries))
        held = slice(self._lo, self._hi)
        times = self._w_times[held]
        self._began = min([self._began, *times[:1].tolist()])
        return Merger.of(
            self.queries, self.reached, times, self._w_points[held], self._usual, self._began
        )


@njit(boundscheck=False)
def _insert_all(  # pragma: no cover
    measure, centres, k, spare, span, since, until, start, size, tau, oldest, scores, codes,
    clock, points, base, places, reached, head, log_number, log_next, log_used,
):  # fmt: skip
    """Make the lists what they would be, had the objects at `places` come in time."""
    n = len(clock)
    repairs = 0
    for q in range(len(k)):
        if until[q] <= reached:
            continue
        begin, length, limit = start[q], size[q], tau[q]
        centre = centres[q]
        tied = False
        for at in places:
            if clock[at] <= since[q] or clock[at] + span[q] <= reached:
                continue
            s = score(measure, centre, points[at])
            if s > limit:
                continue
            if s == limit and limit < np.inf:
                # Which of those at the threshold the list holds depended on who came first.
                tied = True
                continue
            number = base + at
            place = first_above(scores, s, begin, begin + length)
            while place > begin and scores[place - 1] == s and codes[place - 1] >> 1 > number:
                place -= 1
            for j in range(begin + length, place, -1):
                scores[j] = scores[j - 1]
                codes[j] = codes[j - 1]
            scores[place], codes[place] = s, number << 1
            length += 1
            oldest[q] = min(oldest[q], number)
            if length > k[q] + 2 * spare[q]:
                keep = k[q] + spare[q]
                log_number, log_next, log_used = remember_told(
                    codes, begin + keep, begin + length, head, q, log_number, log_next, log_used
                )
                length = keep
                limit = scores[begin + keep - 1]
        if tied:
            # The list may shrink by this, and what was told must stay known.
            log_number, log_next, log_used = remember_told(
                codes, begin, begin + length, head, q, log_number, log_next, log_used
            )
            first = max(
                first_above(clock, reached - span[q], 0, n), first_above(clock, since[q], 0, n)
            )
            length = repair_list(
                measure, centre, clock, points, base, first, n, k[q] + spare[q], scores, codes,
                begin, length, head[q], log_number, log_next,
            )  # fmt: skip
            limit = scores[begin + length - 1] if length == k[q] + spare[q] else np.inf
            least = NEVER
            for code in codes[begin : begin + length]:
                least = min(least, code >> 1)
            oldest[q] = least
            repairs += 1
        size[q], tau[q] = length, limit
    return log_number, log_next, log_used, repairs
