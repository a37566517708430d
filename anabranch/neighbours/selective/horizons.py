"""What the owner of some queries can promise: until when an object cannot matter to any of them.

If k objects of a query's window are nearer than an object and stay beyond a *horizon*, the object
is not among the k nearest at any instant up to the horizon, whatever else comes. So an owner says,
for each query and for a few horizons, how near the k-th best of those that stay is: its *merger*
(the paper's word for what a peer is interested in). It always holds after the instant that the
owner had reached, so that an old one only lets more objects through, and needs no index or margin:
whoever asks compares with the very scores that the owner ranks by.

An owner also says which objects it *wants* though it could do without: those about as near as its
k-th usually is, and a few more. Objects that stay longer must be held to promise anything, and
without this an owner holds hardly more than its k best, which all leave in time.

Letters of the compiled part: q is a query, i a horizon, j an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from anabranch.flow.blocks import weigh
from anabranch.flow.container import pack, unpack
from anabranch.flow.instants import BEGINNING, FOREVER
from anabranch.flow.process import njit
from anabranch.neighbours.lists.admission import admits, allowed
from anabranch.neighbours.lists.algorithm import Queries
from anabranch.neighbours.lists.candidates import look_up
from anabranch.neighbours.lists.grid import GRID_DIMENSIONS, Grid
from anabranch.neighbours.lists.reach import directions, radii
from anabranch.neighbours.lists.reserve import reserve
from anabranch.neighbours.lists.scan import scan_limits, within
from anabranch.neighbours.lists.scoring import score

__all__ = ["STEPS", "Merger", "horizons_of"]

# The compiled functions below are opaque to mypy and coverage.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

STEPS = 8
"""Horizons in the shortest window."""

_LARGEST = 1e300
# Measured: with fewer objects beyond k, or a shorter memory, owners run out of objects that stay
# and a query then lets through far more than these few; with more of either, these are too many.
_RARE = 0.1
_FADE = 0.9  # of the volume within which the k-th object usually lies, from merger to merger


def horizons_of(reached: int, windows: np.ndarray) -> np.ndarray:
    """Horizons after an instant: by eighths of the shortest window, then doubling.

    They lie on a fixed raster, so that what is withheld by several mergers is due together.

    Examples
    --------
    >>> horizons_of(101, np.array([80])).tolist()
    [110, 120, 130, 140, 150, 160, 170, 180]
    >>> horizons_of(101, np.array([80, 500])).tolist()[-4:]
    [180, 260, 420, 740]
    """
    step = max(1, int(windows.min()) // STEPS)
    counts = list(range(1, STEPS + 1))
    while counts[-1] * step < int(windows.max()):
        counts.append(2 * counts[-1])
    found: np.ndarray = (reached // step + np.array(counts, np.int64)) * step
    return found


@dataclass(eq=False)
class Merger:
    """For each query of an owner and each horizon, the k-th best score of what stays beyond it.

    Parameters
    ----------
    reached
        The instant that the owner had reached.
    ends
        The horizons, ascending.
    scores
        A row for each query, a column for each horizon; infinite where fewer than k stay. Never
        falling along a row.
    wanted
        For each query, the score up to which objects are wanted in any case.
    heard
        By home of objects, the stamp of its step in the micro-batch that this was made in. A
        merger is true only for those whose past holds that step.

    Examples
    --------
    A query at 0 with k = 1 holds an object at distance 2 that stays until 180:

    >>> queries = Queries.of([[0.0]], k=1, window=80)
    >>> none = np.empty((2, 0), np.int64)
    >>> merger = Merger.of(queries, 101, np.array([100]), np.array([[2.0]]), none[:1])
    >>> merger.scores.tolist()[0][-2:]
    [2.0, inf]
    >>> merger.wanted.tolist()
    [10.0]
    >>> merger.wanted[:] = 0.0
    >>> t, points = np.array([105, 105]), np.array([[2.0], [2.5]])
    >>> [end > 105 for end in merger.clear_until(queries, t, t, points, none).tolist()]
    [False, True]
    """

    reached: int
    ends: np.ndarray
    scores: np.ndarray
    wanted: np.ndarray
    heard: Mapping[str, str] = field(default_factory=dict)
    _balls: _Balls | None = field(default=None, repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of scores, and of what is derived of them."""
        derived = {} if self._balls is None else vars(self._balls)
        return weigh([self.ends, self.scores, self.wanted, derived])

    @classmethod
    def of(
        cls,
        queries: Queries,
        reached: int,
        t: np.ndarray,
        points: np.ndarray,
        marks: np.ndarray,
        usual: np.ndarray | None = None,
        first: int = BEGINNING,
    ) -> Merger:
        """What queries can promise that hold the objects `points`, of the ascending times `t`.

        `usual` is how far the k-th object of each query usually is, 0 if that is not known; it is
        brought up to date. `first` is when the stream began: windows that it does not fill yet say
        little of what is usual.
        """
        ends = horizons_of(reached, queries.window)
        whole = (np.ascontiguousarray(t), np.ascontiguousarray(points), marks)
        scores = _kth_beyond(queries.asked, *whole, np.concatenate([[reached], ends]))
        if usual is None:
            usual = np.zeros(len(queries))
        now, power = np.where(np.isfinite(scores[:, 0]), scores[:, 0], 0), _power(queries)
        full = reached - queries.window >= np.maximum(queries.since, first)
        usual[:] = np.where(full, np.maximum(usual * _FADE**power, now), now)
        with np.errstate(over="ignore"):  # infinity wants everything
            wanted = usual * (1 + reserve(queries.k, _RARE) / queries.k) ** power
        return cls(reached, ends, scores[:, 1:], wanted)

    def clear_until(
        self,
        queries: Queries,
        t: np.ndarray,
        look: np.ndarray,
        points: np.ndarray,
        marks: np.ndarray,
    ) -> np.ndarray:
        """Up to which instant each object is surely in no top-k; `FOREVER` if it never will be.

        In the past for an object that is wanted in any case.

        Parameters
        ----------
        queries
            The owner's, in the order of the merger.
        t, points, marks
            Times, points and marks of objects.
        look
            Up to which instant each object is known not to matter; its own time if it is new.
        """
        if self._balls is None:
            self._balls = _Balls(queries, self.scores, self.wanted)
        balls, parts = self._balls, queries.parts_of(marks)
        kinds = (balls.starts, balls.since, balls.window, balls.known)
        out: np.ndarray = _clear_all(t, look, parts, *kinds, self.ends)
        q, i, s = balls.candidates(queries, points, parts)
        if len(queries.inverted):
            rows = allowed(queries.bounds, q, marks, i)
            q, i, s = q[rows], i[rows], s[rows]
        near = (self.scores, self.wanted, self.ends)
        _clear_candidates(t, look, (q, i, s), queries.since, queries.window, *near, out)
        return out

    def encode(self) -> bytes:
        """Bytes that `decode` reads, compressed."""
        parts = {"ends": self.ends, "wanted": self.wanted, "scores": self.scores}
        return pack(parts, {"reached": self.reached, "heard": dict(self.heard)}, small=True)

    @classmethod
    def decode(cls, data: bytes) -> Merger:
        """The merger that `encode` was called on."""
        parts, meta = unpack(data)
        return cls(**{name: part.copy() for name, part in parts.items()}, **meta)


def _power(queries: Queries) -> float:
    """How a distance grows with the number of objects within it, where objects lie evenly."""
    dim = int(queries.points.shape[1])
    # The cosine distance grows with the square of how far directions are apart.
    return 2 / max(1, dim - 1) if queries.metric == "cosine" else 1 / max(1, dim)


class _Balls:
    """An index over queries that finds those that may bound an object's horizon.

    Queries with the same part, `since` and window make a class; those of part p are the classes
    from ``starts[p]`` to ``starts[p + 1]``. All of a class know at least `known` horizons (have k
    objects beyond them), so an object outside all balls of that horizon is clear until then; only
    queries in whose ball it lies have to be asked one by one.
    """

    def __init__(self, queries: Queries, scores: np.ndarray, wanted: np.ndarray) -> None:
        # Beyond the largest number there is no limit to look below: such scores tell nothing.
        finite = (scores < _LARGEST).sum(axis=1)
        parts = queries.parts
        kinds, place = np.unique(
            np.stack([parts, queries.since, queries.window], axis=1), axis=0, return_inverse=True
        )
        part, self.since, self.window = (np.ascontiguousarray(column) for column in kinds.T)
        self.starts = np.searchsorted(part, np.arange(parts.max(initial=0) + 2))
        self.known = np.full(len(kinds), scores.shape[1], np.int64)
        np.minimum.at(self.known, place.ravel(), finite)
        deepest = np.minimum(finite, self.known.max(initial=0))
        radius = scores[np.arange(len(scores)), np.maximum(deepest, 1) - 1]
        radius = np.maximum(radius, np.minimum(wanted, _LARGEST))
        # The index finds what is strictly below a limit; a tie with the k-th must be found too.
        self.limit = np.where(deepest > 0, np.nextafter(radius, np.inf), -1.0)
        self.which = np.flatnonzero(deepest > 0)
        measure = queries.metric_code
        self.reach = np.where(self.limit > 0, radii(measure, self.limit), 0.0)
        self.centres = directions(measure, queries.points)
        self.grid: Grid | None = None
        if queries.points.shape[1] <= GRID_DIMENSIONS and len(self.which):
            centres, reach = self.centres[self.which], self.reach[self.which, None]
            box = np.concatenate([centres - reach, centres + reach])
            if np.isfinite(box).all():
                which = self.which
                self.grid = Grid.of(measure, self.centres, self.reach, which, box, parts)

    def candidates(
        self, queries: Queries, points: np.ndarray, parts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Queries and objects with their scores, of all objects in a query's ball."""
        measure = queries.metric_code
        none = np.empty(0, np.int32)
        if not len(points) or not len(self.which):
            return none, none, np.empty(0)
        units = directions(measure, points)
        if self.grid is not None:
            room = max(1024, 2 * len(points))
            found: tuple[np.ndarray, np.ndarray, np.ndarray] = look_up(
                measure,
                points,
                units,
                parts,
                queries.points,
                self.limit,
                self.grid,
                room,
            )
            return found
        which = self.which
        largest = max(float(np.abs(units).max()), float(np.abs(self.centres).max()))
        limits = scan_limits(measure, self.reach[which], largest, points.shape[1])
        compared = self.centres, units
        return within(measure, queries.points, points, compared, which, limits, self.limit)


@njit(boundscheck=False)
def _kth_beyond(asked, t, points, marks, ends):  # pragma: no cover
    """For each query and horizon, the k-th best score of objects in its window just after it."""
    measure, centres, k, window, since, _, _, bounds = asked
    count = len(ends)
    lanes = np.empty(8)
    out = np.full((len(k), count), np.inf)
    for q in range(len(k)):
        best = np.empty(0)
        last = len(t)
        began = np.searchsorted(t, since[q], "right")
        # From the furthest horizon back: each adds the objects that leave before the one after it.
        for i in range(count - 1, -1, -1):
            first = max(began, np.searchsorted(t, ends[i] - window[q], "right"))
            if first < last:
                held = len(best)
                more = np.empty(held + last - first)
                more[:held] = best
                for j in range(first, last):
                    if admits(bounds, q, marks, j):
                        more[held] = score(measure, centres[q], points[j], lanes)
                        held += 1
                more = more[:held]
                best = np.partition(more, k[q] - 1)[: k[q]] if len(more) > k[q] else more
                last = first
            if len(best) == k[q]:
                out[q, i] = best.max()
    return out


@njit(boundscheck=False)
def _clear_all(t, look, parts, starts, since, window, known, ends):  # pragma: no cover
    """Until when objects are clear that lie in no ball; always if no query is in their part."""
    out = np.empty(len(t), np.int64)
    for o in range(len(t)):
        clear, part = 2**62, parts[o]
        here = 0 <= part < len(starts) - 1
        for c in range(starts[part] if here else 0, starts[part + 1] if here else 0):
            # A class of queries that began later, or whose window the object has left.
            if since[c] >= t[o] or t[o] + window[c] <= look[o]:
                continue
            end = ends[known[c] - 1] if known[c] > 0 else -(2**62)
            if end + 1 < t[o] + window[c]:
                clear = min(clear, end)
        out[o] = clear
    return out


@njit(boundscheck=False)
def _clear_candidates(t, look, pairs, since, window, scores, wanted, ends, out):  # pragma: no cover
    """Lower the bound of objects that lie in a ball to the last horizon that rules them out."""
    q, i, s = pairs
    for n in range(len(q)):
        a, o = q[n], i[n]
        if since[a] >= t[o] or t[o] + window[a] <= look[o]:
            continue
        before = np.searchsorted(scores[a], s[n], "left")
        end = ends[before - 1] if before > 0 else -(2**62)
        if s[n] <= wanted[a]:
            out[o] = -(2**62)
        elif end + 1 < t[o] + window[a]:
            out[o] = min(out[o], end)


assert FOREVER == 2**62  # as written in compiled code
