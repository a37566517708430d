"""The list with repair: exact whatever the data, and fast where arrivals come in random order.

Each query keeps the objects of its window up to a threshold, a few more than k. Few arrivals pass
it, and an index over the queries finds them: a grid in few dimensions, else a matrix product or a
blocked scan. The window itself is kept once for all queries and is read only when a list runs
short.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from anabranch.flow.gpu.choice import Choice
from anabranch.flow.instants import FOREVER
from anabranch.neighbours.lists.admission import allowed
from anabranch.neighbours.lists.algorithm import Algorithm, Arrivals, Queries, Reports
from anabranch.neighbours.lists.candidates import group, look_up, rescore
from anabranch.neighbours.lists.grid import GRID_DIMENSIONS, Grid, covered, drift
from anabranch.neighbours.lists.lists import run
from anabranch.neighbours.lists.log import still_remembered
from anabranch.neighbours.lists.matrix import Matrix
from anabranch.neighbours.lists.objects import Objects
from anabranch.neighbours.lists.products import Products
from anabranch.neighbours.lists.reach import directions, radii
from anabranch.neighbours.lists.reserve import reserve
from anabranch.neighbours.lists.scan import scan_limits, within
from anabranch.neighbours.lists.stretches import LONG
from anabranch.neighbours.lists.tables import Asked, Held, Lists, Log, Near

__all__ = ["ListWithRepair"]

_INDEXES = ("auto", "grid", "scan", "product")
_CHUNK = 16384  # lists and their part of the window stay in the processor's cache
_FIRST_CHUNK = 512  # while windows fill, thresholds fall quickly
_RARE = 0.01
# Beyond, a look at each query of an object's part is cheaper than a scan of all.
_MANY_PARTS = 16
_MANY = 5  # that part of the queries: to make a grid again costs little more than to mend it
_MADE = ("_grid", "_registered", "_radii_at_build", "_known", "_products", "_matrix")
_ARRAYS = ("_spare", "_start", "_size", "_tau", "_oldest", "_head")


class ListWithRepair(Algorithm):
    """Exact top-k lists of many queries over one stream.

    Parameters
    ----------
    queries
        The queries.
    spare
        How many objects beyond k a list keeps after a cut or a repair; any number from 1 is
        exact. By default so many that on a stream in random order a list rarely runs short.
    index
        ``"grid"``; ``"product"`` or ``"scan"``, which compare every object with every query; or
        ``"auto"``: the grid up to four dimensions, and beyond whichever of these is the faster.

    Examples
    --------
    >>> lists = ListWithRepair(Queries.of([[0.0]], k=1, window=10))
    >>> lists.advance([0, 4], [0, 1], [[1.0], [2.0]], upto=9).rows()
    [(0, 0, 0, 1.0, 1)]
    >>> lists.advance([], [], [], upto=10).rows()
    [(0, 1, 10, 2.0, 1)]
    """

    name: ClassVar[str] = "exact"
    exact: ClassVar[bool] = True

    def __init__(self, queries: Queries, spare: int | None = None, index: str = "auto") -> None:
        super().__init__(queries)
        if index not in _INDEXES:
            raise ValueError(f"index must be one of {', '.join(_INDEXES)}, got {index!r}")
        if spare is not None and spare < 1:
            raise ValueError(f"spare must be at least 1, got {spare}")
        self._fixed_spare = 0 if spare is None else spare
        self._index = index
        self.repairs = 0
        self.chunks = 0
        none = np.empty(0, np.int64)
        self._spare = self._start = self._size = self._oldest = self._head = none
        self._tau = self._scores = np.empty(0)
        self._codes = self._log_number = self._log_next = none
        self._log_used = self._log_kept = 0
        self.changed = np.empty(0, bool)
        self._objects = Objects(queries.points.shape[1], len(queries.inverted))
        self._grid: Grid | None = None
        self._registered = 0  # queries, since the grid was made
        self._radii_at_build = np.empty(0)
        self._centres = np.empty((0, queries.points.shape[1]))
        self._known: tuple[Queries, Asked, int, int] | None = None
        self._products: Products | None = None
        self._matrix = self._multiplying()
        self._added(len(queries))

    # What callers may ask for

    def top(self, query: int) -> tuple[np.ndarray, np.ndarray]:
        """Arrival numbers and distances of a query's current k best, best first."""
        _, seq, distance, rank = self.tops(np.array([query]))
        return seq[rank > 0], distance[rank > 0]

    def tops(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The current k best of some queries: query, arrival number, distance and rank from 1.

        A query without any has one row, of rank 0.
        """
        counts = np.minimum(self._size[queries], self.queries.k[queries])
        rows = np.maximum(counts, 1)
        query = np.repeat(queries, rows)
        place = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
        at = self._start[query] + place
        some = np.repeat(counts > 0, rows)
        seq, distance = np.full(len(query), -1), np.full(len(query), np.nan)
        seq[some] = self._objects.seq[(self._codes[at[some]] >> 1) - self._objects.base]
        distance[some] = self._scores[at[some]]
        return query, seq, distance, np.where(some, place + 1, 0)

    def use(self, choice: Choice) -> None:
        """Have a GPU propose where it is the faster, if there is one; answers stay the same."""
        if self._products is None or self._products.choice != choice:
            self._products = Products(choice)

    def detach(self) -> Objects:
        """Leave the window out, which the caller keeps; `reattach` what this gives."""
        held = self._objects
        self._objects = Objects(held.points.shape[1], held.marks.shape[1], held.ends)
        return held

    def reattach(self, detached: Objects) -> None:
        """Undo `detach`."""
        self._objects = detached

    def attach(self, t: np.ndarray, seq: np.ndarray, points: np.ndarray, marks: np.ndarray) -> None:
        """Give back at least the window that was detached: the newest objects up to `reached`."""
        self._objects = Objects(points.shape[1], marks.shape[1], self._objects.ends - len(t))
        self._objects.append(t, seq, points, marks)

    # What `Algorithm` asks for

    def _added(self, count: int) -> None:
        queries = self.queries
        k = queries.k[len(queries) - count :]
        spare = np.full(count, self._fixed_spare) if self._fixed_spare else reserve(k, _RARE)
        room = k + 2 * spare + 2
        starts = len(self._scores) + np.concatenate([[0], np.cumsum(room)])
        fresh = {
            "_spare": spare,
            "_start": starts[:-1],
            "_size": np.zeros(count, np.int64),
            "_tau": np.full(count, np.inf),
            "_oldest": np.full(count, FOREVER),
            "_head": np.full(count, -1),
        }
        for name, values in fresh.items():
            setattr(self, name, np.concatenate([getattr(self, name), values]))
        more = int(room.sum())
        self._scores = np.concatenate([self._scores, np.empty(more)])
        self._codes = np.concatenate([self._codes, np.zeros(more, np.int64)])
        if self._grid is not None:
            self._grid = self._grid.with_more(count)
            self._radii_at_build = np.concatenate([self._radii_at_build, np.zeros(count)])
        self._renumbered()

    def _kept(self, places: np.ndarray) -> None:
        room = self.queries.k + 2 * self._spare[places] + 2
        old = self._start[places]
        for name in _ARRAYS:
            setattr(self, name, getattr(self, name)[places])
        self._start = np.concatenate([[0], np.cumsum(room)])[:-1].astype(np.int64)
        total = int(room.sum())
        rows = np.repeat(old - self._start, room) + np.arange(total)
        self._scores, self._codes = self._scores[rows], self._codes[rows]
        if self._grid is not None:
            self._grid = self._grid.only(places)
            self._radii_at_build = self._radii_at_build[places]
        self._renumbered()

    def _run(self, fresh: Arrivals, upto: int) -> Reports:
        clock, t = fresh.clock, fresh.t
        self.changed[:] = False
        found = []
        at = 0
        while True:
            size = min(_CHUNK, _FIRST_CHUNK << min(self.chunks, 10))
            left = len(t) - at
            end = at + -(-left // max(1, round(left / size)))
            if end < len(t):
                # What arrives at one instant stays together.
                end = int(np.searchsorted(clock, clock[end - 1], "right"))
            stop = upto if end == len(t) else int(t[end - 1])
            part = slice(at, end)
            self._objects.append(t[part], fresh.seq[part], fresh.points[part], fresh.marks[part])
            found.append(self._chunk(end - at, stop))
            self._expire(stop)
            at = end
            if at == len(t):
                break
        if len(found) == 1:
            return Reports(*found[0])
        # Chunks follow each other in time, and each is in the order of queries.
        columns = [np.concatenate(parts) for parts in zip(*found, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return Reports(*(column[order] for column in columns))

    def _chunk(self, fresh: int, stop: int) -> tuple[np.ndarray, ...]:
        """Carry all lists through the newest objects and on to a time."""
        queries, held = self.queries, self._held(fresh)
        direct = self._tau == np.inf
        q, i, s = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0)
        if fresh:
            q, i, s = self._candidates(held.points[held.fresh :], held.marks[held.fresh :], direct)
            self.chunks += 1
        starts, place, score = group(len(queries), q, i, s)
        near = Near(starts, place, score, direct)
        asked, longest, _ = self._asked()
        rows, scores, *log, repairs = run(
            asked, self._lists(), held, near, self._log(), longest >= LONG, stop
        )
        self._log_number, self._log_next, self._log_used = log
        self.repairs += repairs
        query, number, instant, rank = np.ascontiguousarray(rows.T)
        if queries.counted and len(rows):
            instant = held.times[instant - held.clock[0]]
        return query, self._objects.seq[number - held.base], instant, scores, rank

    # What compiled code takes

    def _asked(self) -> tuple[Asked, int, int]:
        """The queries, and their longest list and window; worked out once for small batches."""
        of = self.queries
        if self._known is None or self._known[0] is not of:
            longest = int((of.k + 2 * self._spare).max(initial=0))
            self._known = (of, of.asked, longest, int(of.window.max(initial=0)))
        return self._known[1:]

    def _lists(self) -> Lists:
        places = (self._start, self._size, self._spare, self._tau, self._oldest, self._head)
        return Lists(*places, self.changed, self._scores, self._codes)

    def _held(self, fresh: int) -> Held:
        of = self._objects
        clock = of.seq if self.queries.counted else of.times
        return Held(clock, of.times, of.points, of.base, len(of) - fresh, of.marks)

    def _log(self) -> Log:
        return Log(self._log_number, self._log_next, self._log_used)

    def _remember(self, log: Log) -> None:
        self._log_number, self._log_next, self._log_used = log.number, log.following, int(log.used)

    # The index

    def _candidates(
        self, points: np.ndarray, marks: np.ndarray, direct: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pairs that may meet, closer than the threshold; sets `direct` for queries that no index
        covers.
        """
        q, i, s = self._near(points, self.queries.parts_of(marks), direct)
        if len(self.queries.inverted):
            rows = allowed(self.queries.bounds, q, marks, i)
            q, i, s = q[rows], i[rows], s[rows]
        return q, i, s

    def _near(
        self, points: np.ndarray, parts: np.ndarray, direct: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pairs closer than the threshold, and perhaps of one part."""
        queries, measure = self.queries, self.queries.metric_code
        units = directions(measure, points)
        reach = radii(measure, self._tau)
        dim = points.shape[1]
        few = dim <= GRID_DIMENSIONS or queries.parts.max(initial=0) >= _MANY_PARTS
        if self._index == "grid" or (self._index == "auto" and few):
            grid = self._grid_for(units, reach)
            tau = covered(self._tau, reach, grid.limit, direct)
            room = max(1024, 2 * len(points))
            q, i, s = look_up(measure, points, units, parts, queries.points, tau, grid, room)
            return q, i, s
        which = np.flatnonzero(~direct & (self._tau > 0))
        found = self._multiplied(points, units, reach, which)
        if found is not None:
            return found
        largest = max(float(np.abs(units).max()), float(np.abs(self._centres).max(initial=0)))
        limits = scan_limits(measure, reach[which], largest, dim)
        if limits is None:
            direct[:] = True
            return np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0)
        compared = self._centres, units
        return within(measure, queries.points, points, compared, which, limits, self._tau)

    def _multiplying(self) -> Matrix | None:
        return None if self._index == "scan" else Matrix(always=self._index == "product")

    def _multiplied(
        self, points: np.ndarray, units: np.ndarray, reach: np.ndarray, which: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """What products propose for some queries; None where they are of no use."""
        queries, measure = self.queries, self.queries.metric_code
        mine = np.full(len(reach), -np.inf)
        mine[which] = reach[which]
        for proposing in (self._products, self._matrix):
            if proposing is None:
                continue
            found = proposing.near(measure, self._centres, units, mine)
            if found is not None:
                q, i = found
                s = rescore(measure, queries.points, points, q, i)
                useless = int((s >= self._tau[q]).sum())
                proposing.resting.judge(useless, units.size * len(which))
                return q, i, s
        return None

    def _grid_for(self, units: np.ndarray, reach: np.ndarray) -> Grid:
        """The grid; queries that are new or outgrew it are registered if they are many.

        It is made again, over the box of today's objects, if very many did or became much smaller.
        """
        queries, grid = self.queries, self._grid
        if grid is not None:
            strays, shrunk = drift(reach, grid.limit, self._radii_at_build)
            # Strays look at every object, which costs about as much as to register as many cells.
            few = max(4 + len(reach) // 50, len(grid.queries) // len(units))
            if shrunk <= len(reach) // _MANY:
                if strays <= few:
                    return grid
                if strays <= len(reach) // _MANY and self._registered + strays <= len(reach):
                    # Young queries become smaller, and large balls lie in many cells.
                    smaller = reach < 0.75 * self._radii_at_build
                    which = np.flatnonzero((grid.limit < reach) & (reach < np.inf) | smaller)
                    grid = grid.registering(
                        queries.metric_code, self._centres, reach, which, queries.parts
                    )
                    if grid is not None:
                        self._grid = grid
                        self._registered += strays
                        self._radii_at_build[which] = reach[which]
                        return grid
        which = np.flatnonzero((reach < np.inf) & (self._tau > 0)).astype(np.int64)
        self._grid = Grid.of(queries.metric_code, self._centres, reach, which, units, queries.parts)
        self._registered = 0
        self._radii_at_build = np.where(reach < np.inf, reach, 0.0)
        return self._grid

    def _renumbered(self) -> None:
        """What is there for each query, after some came or went."""
        self.changed = np.zeros(len(self.queries), bool)
        self._centres = directions(self.queries.metric_code, self.queries.points)

    # What is forgotten

    def _expire(self, stop: int) -> None:
        """Drop objects that are in no window any more."""
        clock = self._objects.seq if self.queries.counted else self._objects.times
        now = stop
        if self.queries.counted:
            now = int(clock[-1]) if len(clock) else 0
        longest = self._asked()[2]
        self._objects.drop(int(np.searchsorted(clock, now - longest, "right")))
        if self._log_used > 2 * self._log_kept + 4096:
            self._forget(now)

    def _forget(self, now: int) -> None:
        held = self._held(0)
        first = held.base + np.searchsorted(held.clock, now - self.queries.window, "right")
        self._remember(still_remembered(self._head, self._log(), first))
        self._log_kept = self._log_used

    # Checkpoints

    def _state(self) -> dict[str, Any]:
        """The index is made again from the rest."""
        state = super()._state()
        for name in (*_MADE, "_centres", "_objects"):
            del state[name]
        for name in ("_log_number", "_log_next"):
            state[name] = state[name][: self._log_used]
        held = self._objects
        window = {"times": held.times, "seq": held.seq, "points_held": held.points}
        return state | window | {"marks_held": held.marks, "base": held.base}

    def _take_up(self, state: dict[str, Any]) -> None:
        times, seq, points, marks = (
            state.pop(name) for name in ("times", "seq", "points_held", "marks_held")
        )
        self._objects = Objects(points.shape[1], marks.shape[1], state.pop("base"))
        self._objects.append(times, seq, points, marks)
        super()._take_up(state)
        self._grid, self._registered = None, 0
        self._radii_at_build = np.empty(0)
        self._known = self._products = None
        self._matrix = self._multiplying()
        self._renumbered()
