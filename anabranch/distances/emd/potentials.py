"""Pools of potentials: many keys per histogram, each a lower bound of every distance.

A potential that changes by no more than the ground distance moves no key further than the Earth
Mover's Distance, so the greatest difference of keys over a pool is a lower bound, and all keys of a
block are one matrix product. The *standing* pool is made of the ground distance alone. The *learnt*
pool holds the newest duals of pairs that were solved and did not match: neighbours in a stream are
alike, so what told one pair apart tells the next ones apart too (the "new feasible solution" of
EMD-DDSJ, section 3.3).
"""

from __future__ import annotations

import numpy as np

from anabranch.distances.emd.ground import Ground

__all__ = ["Learnt", "directions", "forget", "learnt", "standing"]

STANDING, LEARNT, LATEST = 32, 64, 8


def standing(ground: Ground, count: int = STANDING) -> np.ndarray:
    """So many potentials, one a row: directions if bins have places, then distances to far bins.

    Examples
    --------
    >>> from anabranch.distances.emd.ground import read_ground
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


_LESSONS: dict[tuple[Ground, float, int], Learnt] = {}


def learnt(ground: Ground, threshold: float, wide: bool) -> Learnt:
    """What this process has learnt so far: kernels come and go with every micro-batch.

    It changes which pairs must be solved, never which pairs match.
    """
    room = LEARNT if wide else LATEST
    key = (ground, threshold, room)
    if key not in _LESSONS:
        _LESSONS[key] = Learnt(len(ground.costs), room)
    return _LESSONS[key]


def forget() -> None:
    """Unlearn everything, for measurements that begin afresh."""
    _LESSONS.clear()


class Learnt:
    """The newest potentials taken from duals, in a ring.

    Examples
    --------
    >>> pool = Learnt(bins=2, room=2)
    >>> for height in (1.0, 2.0, 3.0): _ = pool.add(np.array([0.0, height]))
    >>> pool.rows.tolist(), pool.count
    ([[-1.5, 1.5], [-1.0, 1.0]], 2)
    """

    def __init__(self, bins: int, room: int = LEARNT) -> None:
        self.rows = np.zeros((room, bins))
        self.count = 0
        self._next = 0

    def add(self, potential: np.ndarray) -> int:
        """Put one in, in the place of the oldest; where it went."""
        at = self._next
        self.rows[at] = potential - (potential.max() + potential.min()) / 2
        self._next = (at + 1) % len(self.rows)
        self.count = max(self.count, at + 1)
        return at
