"""What filters need of a block, in the order of its keys; computed once for each block."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from anabranch.correlation.emd.bounds import Routes, cheapest_first
from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.masses import keys_of, masses
from anabranch.correlation.emd.potentials import Learnt, Lessons, directions
from anabranch.flow.blocks import Block
from anabranch.flow.process import njit

__all__ = ["Known", "Profile", "profile"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_DIRECTIONS = 8


class Known:
    """Bounds of the distances between one histogram and the rows of a block.

    They are facts, whoever uses them next: under another threshold, or in another micro-batch.
    """

    def __init__(self, masses: np.ndarray, rows: int) -> None:
        self.masses = masses.copy()
        self.low, self.high = np.zeros(rows), np.full(rows, np.inf)

    def know(self, at: np.ndarray | int, low: np.ndarray | float, high: np.ndarray | float) -> None:
        """Note what has been found."""
        self.low[at], self.high[at] = low, high


@dataclass
class Profile:
    """A block sorted by key: ``rows[place]`` is the row, ``spot[row]`` the place.

    Tables of filters that are not used have no columns. `moments` holds mean, deviation and the
    integrals of the cumulative histogram along the key's axis; see `scan`. `before` is what is
    known of the distances to the row of the other side that was compared last.
    """

    keys: np.ndarray
    rows: np.ndarray
    spot: np.ndarray
    masses: np.ndarray
    pool: np.ndarray
    centres: np.ndarray
    moments: np.ndarray
    shadows: np.ndarray
    before: Known | None = field(default=None, repr=False)
    _legs: dict[bytes, np.ndarray] = field(default_factory=dict, repr=False)
    _lessons: Lessons | None = field(default=None, repr=False)

    def lessons(self, pool: Learnt) -> np.ndarray:
        """Its keys under what has been learnt so far."""
        if self._lessons is None or self._lessons.pool is not pool:
            self._lessons = Lessons(pool, self.masses)
        return self._lessons.keys()

    def to_references(self, references: np.ndarray, routes: Routes) -> np.ndarray:
        """An upper bound of the distance of each row to each reference."""
        # A stored block outlives the search that chose these references; the next chooses others.
        name = references.tobytes()
        if name not in self._legs:
            legs = np.empty((len(self.masses), len(references)))
            _legs(self.masses, references, routes, legs)
            self._legs = {name: legs}
        return self._legs[name]


def profile(
    block: Block, slot: str, ground: Ground, pool: np.ndarray | None, filters: frozenset[str]
) -> Profile:
    """The profile of a block under a ground distance, for these filters."""

    def make(of: Block) -> Profile:
        keys = keys_of(of, slot, ground)
        rows = np.argsort(keys, kind="stable").astype(np.int32)
        spot = np.empty(len(rows), np.int32)
        spot[rows] = np.arange(len(rows), dtype=np.int32)
        sorted_ = np.ascontiguousarray(masses(of, slot)[rows])
        n, points = len(rows), ground.points
        keyed = np.zeros((n, 0), np.float32)
        if pool is not None:
            keyed = np.ascontiguousarray((sorted_ @ pool.T).astype(np.float32))
        centres, moments, shadows = (np.zeros((n, 0)), np.zeros((n, 0)), np.zeros((n, 0), "f4"))
        if points is not None and "centroid" in filters:
            centres = np.ascontiguousarray(sorted_ @ points)
        if points is not None and "normal" in filters:
            moments = _moments(sorted_, ground.potential)
        if points is not None and "projections" in filters:
            shadows = _shadows(sorted_, ground)
        return Profile(keys[rows], rows, spot, sorted_, keyed, centres, moments, shadows)

    names = ",".join(sorted(filters))
    return block.derive(("emd profile", slot, ground.digest, names), make)


def axis_of(potential: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The order of the bins along the key's axis, their distinct places, and each bin's place."""
    order = np.argsort(potential, kind="stable")
    places, at = np.unique(potential[order], return_inverse=True)
    return order, places, at


def _moments(sorted_: np.ndarray, potential: np.ndarray) -> np.ndarray:
    """Mean, deviation, and the integral of the cumulative histogram up to each place."""
    order, places, at = axis_of(potential)
    on_axis = np.zeros((len(sorted_), len(places)))
    for column, place in enumerate(at):
        on_axis[:, place] += sorted_[:, order[column]]
    mean = on_axis @ places
    spread = np.sqrt(np.maximum(on_axis @ places**2 - mean**2, 0.0))
    below = np.cumsum(on_axis, axis=1)[:, :-1] * np.diff(places)
    integral = np.concatenate([np.zeros((len(sorted_), 1)), np.cumsum(below, axis=1)], axis=1)
    return np.ascontiguousarray(np.concatenate([mean[:, None], spread[:, None], integral], axis=1))


def _shadows(sorted_: np.ndarray, ground: Ground) -> np.ndarray:
    """Cumulative histograms along some directions, times the gaps; directions one after another.

    Axes come first if the ground distance is Manhattan's, which is at least the sum over them.
    """
    assert ground.points is not None
    d = ground.points.shape[1]
    if ground.metric == "manhattan" or d == 1:
        vectors = np.eye(d)
    else:
        vectors = directions(ground, _DIRECTIONS)
    tables = []
    for u in vectors:
        line = ground.points @ u
        order = np.argsort(line, kind="stable")
        gaps = np.diff(line[order])
        tables.append(np.cumsum(sorted_[:, order], axis=1)[:, :-1] * gaps)
    return np.ascontiguousarray(np.concatenate(tables, axis=1).astype(np.float32))


@njit(nogil=True)
def _legs(table, references, routes, out):  # pragma: no cover
    n = table.shape[1]
    supply, demand = np.empty(n), np.empty(n)
    for r in range(len(table)):
        for o in range(len(references)):
            out[r, o] = cheapest_first(table[r], references[o], routes, np.inf, supply, demand)
