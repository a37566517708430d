"""The simulated network: overlay, queries, mergers and messages (paper, section 5)."""

from __future__ import annotations

from collections import Counter

import numpy as np

from anabranch.flow.instants import FOREVER
from anabranch.neighbours.lists.reserve import reserve
from papers.knn.peers import passage
from papers.knn.peers.data import cells_of
from papers.knn.peers.interest import Cells, announce, cells_by_distance, refresh, shift
from papers.knn.peers.overlay import Overlay
from papers.knn.peers.settings import PeerSettings

__all__ = ["MESSAGES", "Network"]

MESSAGES = (
    "query activation",
    "query cancellation",
    "notify rendezvous peer",
    "notify interested peer",
    "merger update",
    "notify owner peer",
    "join",
    "departure",
    "query handover",
    "neighbour inform",
)
"""All kinds of messages; those that CAN routes over several hops count as one, as in the paper."""

_RULES = {"PA": passage.STEADY, "PA-starving": passage.STARVING, "PA-open": passage.OPEN}


class Network:
    """Peers that answer queries with PA or RAPF, all with the same k and window.

    Parameters
    ----------
    settings
        What is simulated.
    rng
        Draws the points at which peers join.
    queries
        Points of queries that may become active; `activate` says when.
    cells
        What `cells_by_distance` gives for these points, if it is known already.
    """

    def __init__(
        self,
        settings: PeerSettings,
        rng: np.random.Generator,
        queries: np.ndarray,
        cells: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        self.settings = settings
        self.overlay = Overlay(settings.resolution, settings.dimension, settings.peers, rng)
        self.messages: Counter[str] = Counter({name: 0 for name in MESSAGES})
        self.published = 0
        self._points = np.ascontiguousarray(queries)
        self._query_cells = cells_of(queries, settings.resolution)
        self._boxed = settings.merger == "box"
        m, k, d = len(queries), settings.k, settings.dimension
        if self._boxed:
            self._order, self._reach = np.empty((0, 0), np.uint16), np.empty((0, 0), np.float32)
        else:
            self._order, self._reach = cells or cells_by_distance(queries, settings.resolution)
        nothing = np.array([settings.resolution, 0])
        self._boxes = np.broadcast_to(nothing, (m if self._boxed else 0, d, 2)).copy()
        total = settings.resolution**d
        capacity = settings.peers + settings.churn
        self._mergers = np.broadcast_to(nothing, (capacity, d, 2)).copy()
        self._cover = np.zeros((total, capacity), np.int16)
        self._owner = self.overlay.owner.ravel()
        self._extent = np.zeros(m, np.int64)
        self._said = np.full(m, -1.0)
        self._mark = np.zeros(capacity + 1, np.int64)
        self._living = np.zeros(m, np.bool_)
        self._born = np.full(m, FOREVER)
        self._home = self._owner[self._query_cells]
        self.heard = np.zeros(capacity, np.int64)
        """How many objects each peer has looked at, second looks included."""
        self._full = k + int(reserve(k, settings.error))
        self._spare = self._full - k
        room = self._full + self._spare + 2
        self._best, self._best_ints = np.empty((m, room)), np.empty((m, room, 3), np.int64)
        self._sizes = np.zeros(m, np.int64)
        self._eldest = np.full(m, FOREVER)
        self._held, self._floor = np.full(m, np.inf), np.zeros(m, np.int64)
        if settings.method == "RAPF":
            room = int(4 * k * (1 + np.log1p(settings.window / k))) + 512
            self._top, self._top_ints = np.empty((m, k + 1)), np.empty((m, k + 1, 3), np.int64)
            self._cand, self._cand_ints = np.empty((m, room)), np.empty((m, room, 3), np.int64)
            self._counts = np.zeros((m, 3), np.int64)
            self._limits = np.zeros(m, np.int64)
            self._earliest = np.full(m, FOREVER)
            self._ring = np.zeros((settings.recent, settings.dimension))
            self._ring_cells = np.zeros(settings.recent, np.int64)
        self._regroup()

    def activate(self, queries: np.ndarray) -> None:
        """Let queries begin; they see what is published from now on."""
        for q in queries:
            self.messages["query activation"] += 1
            self._living[q] = True
            self._born[q] = self.published
            self._announce(int(q), np.inf)

    def cancel(self, queries: np.ndarray) -> None:
        """Let queries end."""
        for q in queries:
            self.messages["query cancellation"] += 1
            self._living[q] = False
            self._announce(int(q), -1.0)
            self._sizes[q] = 0
            self._held[q] = np.inf
            self._eldest[q] = FOREVER
            if self.settings.method == "RAPF":
                self._counts[q] = 0
                self._earliest[q] = FOREVER

    def join(self) -> int:
        """Let a peer join; returns it."""
        new, host = self.overlay.join()
        self.messages["join"] += 1
        self.messages["neighbour inform"] += len(self.overlay.neighbours(new))
        self.messages["neighbour inform"] += len(self.overlay.neighbours(host))
        self._rehome()
        return new

    def depart(self, peer: int) -> None:
        """Let a peer depart."""
        takers = self.overlay.depart(peer)
        self.messages["departure"] += len(takers)
        for taker in takers:
            self.messages["neighbour inform"] += len(self.overlay.neighbours(taker))
        self._rehome()

    def publish(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Let objects appear one after another; returns reports as (query, object number)."""
        points = np.ascontiguousarray(points)
        cells = cells_of(points, self.settings.resolution)
        room = max(4096, 4 * len(self._points) * (self.settings.k + 1))
        new = passage.Objects(self.published, points, cells)
        reports = passage.Reports(
            np.zeros(2, np.int64), self.heard, np.empty((room, 4), np.int64), np.empty(room)
        )
        done, found = 0, []
        while done < len(points):
            before = done
            done, count = self._pass(new, reports, done)
            found.append(reports.out[:count, :2].copy())
            if done == before and not count:  # no room for candidates: they may be all the window
                self._grow()
        self.published += len(points)
        self.messages["notify rendezvous peer"] += len(points)
        self.messages["notify interested peer"] += int(reports.counters[passage.INTERESTED])
        self.messages["merger update"] += int(reports.counters[passage.MERGER])
        hits = np.concatenate(found)
        self.messages["notify owner peer"] += len(hits)
        return hits[:, 0], hits[:, 1]

    @property
    def merged_cells(self) -> float:
        """Mean share of all cells that a peer's merger covers now."""
        return float((self._cover > 0).sum() / self._cover.shape[0] / len(self.overlay.zones))

    @property
    def _cells(self) -> Cells:
        return Cells(
            self._order, self._reach, self._extent, self._said, self.settings.slack,
            self._cover, self._owner, self._mark, self._boxes, self._mergers,
            self._members, self._starts, self._points, self.settings.resolution,
        )  # fmt: skip

    def _pass(self, new: passage.Objects, reports: passage.Reports, done: int) -> tuple[int, int]:
        s, cells = self.settings, self._cells
        queries = passage.Queries(
            self._living, self._born, self._home, s.k, self._full, self._spare, s.window
        )
        ranked = passage.Ranked(
            self._best, self._best_ints, self._sizes, self._eldest, self._held, self._floor
        )
        if s.method == "RAPF":
            bands = passage.Skybands(
                self._top, self._top_ints, self._cand, self._cand_ints, self._counts,
                self._limits, self._earliest, self._ring, self._ring_cells, s.gamma,
            )  # fmt: skip
            result = passage.filtered_passage(new, queries, bands, ranked, cells, reports, done)
        else:
            rule = _RULES[s.method]
            result = passage.probabilistic_passage(rule, new, queries, ranked, cells, reports, done)
        return int(result[0]), int(result[1])

    def _grow(self) -> None:
        m, room = self._cand.shape
        more, more_ints = np.empty((m, 2 * room)), np.empty((m, 2 * room, 3), np.int64)
        more[:, :room], more_ints[:, :room] = self._cand, self._cand_ints
        self._cand, self._cand_ints = more, more_ints

    def _announce(self, q: int, radius: float) -> None:
        self.messages["merger update"] += announce(self._cells, q, self._home[q], radius)

    def _rehome(self) -> None:
        """Queries follow the cells they lie in."""
        self._owner = self.overlay.owner.ravel()
        homes = self._owner[self._query_cells]
        moved = np.flatnonzero((homes != self._home) & self._living)
        self.messages["query handover"] += len(moved)
        if not self._boxed:
            for q in moved:
                self.messages["merger update"] += shift(self._cells, q, self._home[q], homes[q])
        touched = np.unique(np.concatenate([self._home[moved], homes[moved]]))
        self._home = homes
        self._regroup()
        if self._boxed:
            for peer in touched:
                self.messages["merger update"] += refresh(self._cells, peer)

    def _regroup(self) -> None:
        self._members = np.argsort(self._home, kind="stable")
        counts = np.bincount(self._home, minlength=self._cover.shape[1])
        self._starts = np.concatenate([[0], np.cumsum(counts)])
