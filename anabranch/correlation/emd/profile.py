"""What filters need of a block, in the order of its keys; computed once for each block."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.masses import keys_of, masses
from anabranch.correlation.emd.methods.normal import moments_of
from anabranch.correlation.emd.methods.projections import shadows_of
from anabranch.correlation.emd.potentials import Learnt, Lessons
from anabranch.flow.blocks import Block

__all__ = ["Known", "Profile", "profile"]


class Known:
    """Bounds of the distances between one histogram and the rows of a block.

    They are facts, whoever uses them next: under another threshold, or in another micro-batch.
    """

    def __init__(self, masses: np.ndarray, rows: int) -> None:
        self.masses = masses.copy()
        self.low, self.high = np.zeros(rows), np.full(rows, np.inf)

    @property
    def nbytes(self) -> int:
        """Bytes of the bounds."""
        return self.masses.nbytes + self.low.nbytes + self.high.nbytes

    def know(self, at: np.ndarray | int, low: np.ndarray | float, high: np.ndarray | float) -> None:
        """Note what has been found."""
        self.low[at], self.high[at] = low, high


@dataclass
class Profile:
    """A block sorted by key: ``rows[place]`` is the row, ``spot[row]`` the place.

    Tables of filters that are not used have no columns; see `methods` for `moments`, `shadows` and
    `legs`. `before` is what is known of the distances to the row of the other side that was
    compared last.
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
    legs: tuple[bytes, np.ndarray] | None = field(default=None, repr=False)
    _lessons: Lessons | None = field(default=None, repr=False)

    def lessons(self, pool: Learnt) -> np.ndarray:
        """Its keys under what has been learnt so far."""
        if self._lessons is None or self._lessons.pool is not pool:
            self._lessons = Lessons(pool, self.masses)
        return self._lessons.keys()


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
            moments = moments_of(sorted_, ground.potential)
        if points is not None and "projections" in filters:
            shadows = shadows_of(sorted_, ground)
        return Profile(keys[rows], rows, spot, sorted_, keyed, centres, moments, shadows)

    names = ",".join(sorted(filters))
    return block.derive(("emd profile", slot, ground.digest, names), make, grows=True)
