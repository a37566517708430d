"""Pools of potentials: many keys per histogram, each a lower bound of every distance.

A potential that changes by no more than the ground distance moves no key further than the Earth
Mover's Distance, so the greatest difference of keys over a pool is a lower bound, and all keys of a
block are one matrix product. The *standing* pool is made of the ground distance alone. The *learnt*
pool holds the newest duals of pairs that were solved and did not match: neighbours in a stream are
alike, so what separates one pair separates the next ones too (the "new feasible solution" of
EMD-DDSJ, section 3.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.correlation.emd.ground import Ground

__all__ = ["WIDE", "Learning", "Learnt", "Lessons", "directions", "standing"]

STANDING = 32


@dataclass(frozen=True)
class Learning:
    """How duals of solved pairs are used.

    `room` of them are kept; `rows` left rows are scanned before what they taught is used; `at_once`
    a dual also acts on the pairs of those rows that wait to be solved; a group of survivors may add
    `lessons` at most; with `invests`, pairs that expensive bounds ruled out in number are solved
    for their duals.
    """

    room: int
    rows: int
    at_once: bool
    lessons: int
    invests: bool


# Every potential costs a key of every row, so a group may teach only so many.
WIDE = Learning(room=64, rows=256, at_once=True, lessons=8, invests=True)


def standing(ground: Ground, count: int = STANDING) -> np.ndarray:
    """So many potentials, one a row: directions if bins have places, then distances to far bins.

    Examples
    --------
    >>> from anabranch.correlation.emd.ground import read_ground
    >>> square, _ = read_ground([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> pool = standing(square)
    >>> gaps = np.abs(pool[:, :, None] - pool[:, None, :]).max(axis=0)
    >>> pool.shape, bool((gaps <= square.costs + 1e-12).all())
    ((32, 4), True)
    """
    rows = []
    if ground.points is not None and ground.points.shape[1] > 1:
        # Half the pool: more directions help less than remote bins do.
        rows = [ground.points @ u for u in directions(ground, count // 2)]
    nearest = np.full(len(ground.costs), np.inf)
    anchor = int(np.argmax(ground.costs.sum(axis=0)))
    while len(rows) < count:
        rows.append(ground.costs[anchor])
        nearest = np.minimum(nearest, ground.costs[anchor])
        anchor = int(np.argmax(nearest))
    pool = np.array(rows[:count])
    # Keys near zero lose less to rounding.
    centred: np.ndarray = pool - (pool.max(axis=1) + pool.min(axis=1))[:, None] / 2
    return centred


def directions(ground: Ground, count: int) -> np.ndarray:
    """Vectors along which places are no further apart than the ground distance says."""
    assert ground.points is not None
    d = ground.points.shape[1]
    if d == 2:
        angles = np.arange(count) * np.pi / count
        found = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    else:
        found = np.random.default_rng(d).standard_normal((count, d))
        found[: min(d, count)] = np.eye(d)[: min(d, count)]
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    if ground.metric == "manhattan":
        lengths = np.abs(found).max(axis=1, keepdims=True)
    scaled: np.ndarray = found / lengths
    return scaled


class Learnt:
    """The newest potentials taken from duals, in a ring; `ages` says which of them came when.

    Examples
    --------
    >>> pool = Learnt(bins=2, room=2)
    >>> for height in (1.0, 2.0, 3.0): pool.add(np.array([0.0, height]))
    >>> pool.rows[:2].tolist(), pool.count
    ([[-1.5, 1.5], [-1.0, 1.0]], 2)
    """

    def __init__(self, bins: int, room: int) -> None:
        self.rows = np.zeros((-(-room // 8) * 8, bins))  # scans take eight at a time
        self.ages = np.zeros(len(self.rows), np.int64)
        self._room = room
        self.count = self.total = 0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.rows.nbytes + self.ages.nbytes

    def add(self, potential: np.ndarray) -> None:
        """Put one in, in the place of the oldest."""
        at = self.total % self._room
        self.rows[at] = potential - (potential.max() + potential.min()) / 2
        self.total += 1
        self.ages[at] = self.total
        self.count = max(self.count, at + 1)


class Lessons:
    """The keys of some histograms under what has been learnt; brought up to date when asked.

    Examples
    --------
    >>> pool = Learnt(bins=2, room=8)
    >>> pool.add(np.array([0.0, 3.0]))
    >>> lessons = Lessons(pool, np.eye(2))
    >>> lessons.keys()[:, 0].tolist()
    [-1.5, 1.5]
    """

    def __init__(self, pool: Learnt, masses: np.ndarray) -> None:
        self.pool = pool
        # Products in float32 are within the margin that scans leave for it, and twice as fast.
        self._masses = masses.astype(np.float32)
        self._keys = np.zeros((len(masses), len(pool.rows)), np.float32)
        self._ages, self._total = np.zeros_like(pool.ages), 0

    @property
    def nbytes(self) -> int:
        """Bytes of the histograms and their keys; what was learnt is the chain's."""
        return self._masses.nbytes + self._keys.nbytes + self._ages.nbytes

    def keys(self) -> np.ndarray:
        """One row per histogram, one column per potential, in float32."""
        pool = self.pool
        if self._total != pool.total:
            stale = np.flatnonzero(self._ages != pool.ages)
            self._keys[:, stale] = self._masses @ pool.rows[stale].T.astype(np.float32)
            self._ages[stale], self._total = pool.ages[stale], pool.total
        return self._keys
