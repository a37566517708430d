"""Interest routing: an object goes only to workers that have a query for which it may matter.

At the start of a batch, at time T, each query looks at its *witnesses*: objects it has been sent
that stay in its window beyond T + H, the horizon. If k of them are nearer than an arrival, the
arrival cannot be among the k nearest before T + H. It is then withheld where it was read, and
looked at once more at the last batch start up to T + H: if by then k *younger* objects are nearer,
it never can be and is dropped; if not, it is sent. So every top-k is exact although most objects
are never sent, and thresholds may be as old as the start of the batch.

This is a reference in one process; it counts what would be sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numba
import numpy as np

from anabranch.errors import InvalidCall
from anabranch.knn.algorithm import FOREVER, Queries, Reports
from anabranch.knn.probabilistic import reserve
from anabranch.knn.scoring import distances
from anabranch.knn.zones import zones

__all__ = ["Interest", "Sent", "rows_per_object"]


@dataclass
class Sent:
    """What interest routing sent: rows are objects times workers."""

    objects: int = 0
    at_once: int = 0
    later: int = 0
    withheld: int = 0
    dropped: int = 0

    @property
    def rows_per_object(self) -> float:
        """Rows shuffled for each object."""
        return (self.at_once + self.later) / max(self.objects, 1)


@dataclass
class _Worker:
    """One owner of queries: what it was sent, and what is withheld from it elsewhere."""

    rows: np.ndarray  # its queries
    clock: np.ndarray
    t: np.ndarray
    seq: np.ndarray
    scores: np.ndarray  # a row for each of its queries, a column for each object
    told: np.ndarray
    waiting: list[tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = field(
        default_factory=list
    )


class Interest:
    """Exact k-NN over workers that are sent only what may matter to them.

    Parameters
    ----------
    queries
        The queries; near ones share a worker.
    workers
        How many.
    horizon
        H as a share of the shortest window, between 0 and 1. Batches are taken in pieces shorter
        than the horizon.
    spare
        How many witnesses beyond k set a threshold; more of them send more at once and less later.

    Examples
    --------
    >>> run = Interest(Queries.of([[0.0], [9.0]], k=1, window=10), workers=2)
    >>> run.advance([0, 4], [0, 1], [[1.0], [2.0]], upto=10).rows()
    [(0, 0, 0, 1.0, 1), (0, 1, 10, 2.0, 1), (1, 0, 0, 8.0, 1), (1, 1, 4, 7.0, 1)]
    """

    def __init__(
        self, queries: Queries, workers: int, horizon: float = 0.5, spare: int | None = None
    ) -> None:
        problems = []
        if workers < 1:
            problems.append(f"workers must be at least 1, got {workers}")
        if not 0 < horizon < 1:
            problems.append(f"horizon must lie between 0 and 1, got {horizon}; 0.5 is usual")
        shortest = int(queries.window.min(initial=FOREVER))
        if shortest < 3:
            problems.append(f"windows must be at least 3 for a horizon to fit, got {shortest}")
        if problems:
            raise InvalidCall("interest", problems)
        self.queries = queries
        self.horizon = min(max(2, int(shortest * horizon)), shortest - 1)
        self.spare = reserve(queries.k, 0.1) if spare is None else np.full(len(queries), spare)
        self.sent = Sent()
        self._reached = -FOREVER  # on the clock of the windows
        self._t, self._first = np.empty(0, np.int64), 0  # times of objects by number
        homes = zones(queries.points, workers)
        none = np.empty(0, np.int64)
        self._workers = [
            _Worker(
                rows, none, none, none, np.empty((len(rows), 0)), np.empty((len(rows), 0), bool)
            )
            for rows in (np.flatnonzero(homes == worker) for worker in range(workers))
            if len(rows)
        ]

    def advance(self, t: np.ndarray, seq: np.ndarray, points: np.ndarray, upto: int) -> Reports:
        """Take in arrivals and deal with every instant up to `upto`; as `Algorithm.advance`."""
        t, seq = np.asarray(t, np.int64), np.asarray(seq, np.int64)
        points = np.asarray(points, np.float64).reshape(len(t), self.queries.points.shape[1])
        clock = seq if self.queries.counted else t
        end = upto
        if self.queries.counted:
            end = int(seq[-1]) if len(seq) else self._reached
            self._first = int(seq[0]) if len(seq) else 0
            self._t = t
        found = []
        at = 0
        while True:
            # Thresholds are those at the start of a piece, so one with arrivals must be short; what
            # comes before the next arrival is a piece of its own.
            stop = end
            if len(clock) > at:
                quiet = int(clock[at]) - 1
                stop = (
                    quiet if quiet > self._reached else min(end, self._reached + self.horizon - 1)
                )
            to = int(np.searchsorted(clock, stop, "right"))
            part = slice(at, to)
            found += self._piece(clock[part], t[part], seq[part], points[part], stop, upto)
            self._reached, at = stop, to
            if stop >= end:
                break
        if not found:
            return Reports.none()
        columns = [np.concatenate(parts) for parts in zip(*found, strict=True)]
        order = np.lexsort((columns[4], columns[2], columns[0]))
        return Reports(*(column[order] for column in columns))

    def _piece(
        self,
        clock: np.ndarray,
        t: np.ndarray,
        seq: np.ndarray,
        points: np.ndarray,
        stop: int,
        upto: int,
    ) -> list[tuple[np.ndarray, ...]]:
        """One batch, shorter than the horizon: decide what to send, then let the owners work."""
        queries, start = self.queries, self._reached
        self.sent.objects += len(t)
        found = []
        scores = np.empty((len(queries), 0))
        if len(t):
            scores = distances(queries.metric_code, queries.points, points)
        for worker in self._workers:
            mine = scores[worker.rows]
            wanted = np.zeros(len(t), bool)
            if len(t):
                wanted = (mine <= self._thresholds(worker, start)[:, None]).any(axis=0)
            late = self._second_look(worker, stop)
            kept = ~wanted
            if kept.any():
                worker.waiting.append((start, clock[kept], t[kept], seq[kept], mine[:, kept]))
            self.sent.withheld += int(kept.sum())
            self.sent.at_once += int(wanted.sum())
            self._receive(worker, *late)
            self._receive(worker, clock[wanted], t[wanted], seq[wanted], mine[:, wanted])
            found += self._work(worker, start, stop, upto)
        return found

    def _thresholds(self, worker: _Worker, start: int) -> np.ndarray:
        """How far an arrival may be from each query of a worker and be sent at once."""
        limits = np.full(len(worker.rows), np.inf)
        for place, q in enumerate(worker.rows):
            lasting = (worker.clock + self.queries.window[q] > start + self.horizon) & (
                worker.t > self.queries.since[q]
            )
            count = int(lasting.sum())
            if count >= self.queries.k[q]:
                most = min(int(self.queries.k[q] + self.spare[q]), count)
                limits[place] = np.partition(worker.scores[place, lasting], most - 1)[most - 1]
        return limits

    def _second_look(
        self, worker: _Worker, stop: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Withheld objects that must be sent now, because the next batch start is too late."""
        due = [part for part in worker.waiting if stop > part[0] + self.horizon]
        worker.waiting = [part for part in worker.waiting if stop <= part[0] + self.horizon]
        none = np.empty(0, np.int64)
        if not due:
            return none, none, none, np.empty((len(worker.rows), 0))
        clock, t, seq = (np.concatenate([part[i] for part in due]) for i in (1, 2, 3))
        scores = np.concatenate([part[4] for part in due], axis=1)
        send = np.zeros(len(t), bool)
        for place, q in enumerate(worker.rows):
            valid = worker.t > self.queries.since[q]
            younger = (worker.seq[None, valid] > seq[:, None]) & (
                worker.scores[place, valid][None, :] < scores[place][:, None]
            )
            alive = t > self.queries.since[q]
            send |= alive & (younger.sum(axis=1) < self.queries.k[q])
        self.sent.later += int(send.sum())
        self.sent.dropped += int((~send).sum())
        return clock[send], t[send], seq[send], scores[:, send]

    def _receive(
        self,
        worker: _Worker,
        clock: np.ndarray,
        t: np.ndarray,
        seq: np.ndarray,
        scores: np.ndarray,
    ) -> None:
        worker.clock = np.concatenate([worker.clock, clock])
        worker.t = np.concatenate([worker.t, t])
        worker.seq = np.concatenate([worker.seq, seq])
        worker.scores = np.concatenate([worker.scores, scores], axis=1)
        fresh = np.zeros((len(worker.rows), len(t)), bool)
        worker.told = np.concatenate([worker.told, fresh], axis=1)

    def _work(
        self, worker: _Worker, start: int, stop: int, upto: int
    ) -> list[tuple[np.ndarray, ...]]:
        """All reports of a worker's queries between two times; what has expired goes."""
        queries = self.queries
        found: list[tuple[np.ndarray, ...]] = []
        for place, q in enumerate(worker.rows):
            window, until = int(queries.window[q]), min(int(queries.until[q]), upto)
            valid = (worker.t > queries.since[q]) & (worker.t <= until)
            rows = np.flatnonzero(valid)
            rows = rows[np.lexsort((worker.seq[rows], worker.scores[place, rows]))]
            clock = worker.clock[rows]
            instants = np.unique(np.concatenate([clock, clock + window]))
            instants = instants[(instants > start) & (instants <= stop)]
            if not queries.counted:
                instants = instants[instants <= until]
            told = worker.told[place, rows]
            which, when, rank = _told_between(clock, told, instants, int(queries.k[q]), window)
            worker.told[place, rows] = told
            if len(which):
                hit = rows[which]
                entered = when
                if queries.counted:
                    # An instant is an arrival, which may not have been sent here.
                    entered = self._t[when - self._first]
                ok = entered <= until
                found.append(
                    (
                        np.full(int(ok.sum()), q),
                        worker.seq[hit][ok],
                        entered[ok],
                        worker.scores[place, hit][ok],
                        rank[ok],
                    )
                )
        longest = int(queries.window[worker.rows].max())
        alive = worker.clock + longest > stop
        worker.clock, worker.t = worker.clock[alive], worker.t[alive]
        worker.seq = worker.seq[alive]
        worker.scores, worker.told = worker.scores[:, alive], worker.told[:, alive]
        return found


@numba.njit(cache=True)
def _told_between(clock, told, instants, k, window):  # type: ignore[no-untyped-def]  # pragma: no cover
    """First entries into the top-k at these instants; objects come best first."""
    which, when, rank = [0][:0], [0][:0], [0][:0]
    for e in instants:
        inside = 0
        for i in range(len(clock)):
            if clock[i] <= e < clock[i] + window:
                inside += 1
                if not told[i]:
                    told[i] = True
                    which.append(i)
                    when.append(e)
                    rank.append(inside)
                if inside == k:
                    break
    return np.array(which, np.int64), np.array(when, np.int64), np.array(rank, np.int64)


def rows_per_object(queries: int, k: float, objects: float, workers: int) -> dict[str, float]:
    """Rows shuffled per object under plan A (everywhere), B (interest) and C (objects parted).

    `objects` is how many a window holds. B sends about ``3.2 to 8.6`` times the least, k / n, to
    each query, and never more than one row to a worker; C sends each object once and then what
    enters a local top-k.

    Examples
    --------
    >>> {plan: round(rows, 1) for plan, rows in rows_per_object(400, 9, 40_000, 16).items()}
    {'A': 16.0, 'B': 1.8, 'C': 3.0}
    """
    share = k / objects
    factor = 3.2 if k >= 40 else 8.6
    wanted = queries / workers * share * factor
    reached = workers * (1 - np.exp(-wanted))
    entering = 1.13 if k >= 40 else 1.36
    return {
        "A": float(workers),
        "B": float(min(workers, 1 + reached)),
        "C": float(1 + workers * queries * entering * share),
    }
