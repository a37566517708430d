"""A content-addressable network (CAN): who is responsible for which cells of the grid.

Zones are boxes of cells. A peer that joins picks a point and gets half of the zone it lies in; one
that departs hands its zones to a neighbour, if it can to one whose zone makes a box with it, and
else to the one that has least (paper, sections 5.1 and 5.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Overlay", "Zone"]


@dataclass(frozen=True)
class Zone:
    """A box of cells, from `low` up to but without `high` on each axis; `axis` was split last."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    axis: int = -1

    @property
    def cells(self) -> int:
        """How many cells it has."""
        return int(np.prod(np.subtract(self.high, self.low)))

    @property
    def box(self) -> tuple[slice, ...]:
        """The same as an index into the grid."""
        return tuple(slice(a, b) for a, b in zip(self.low, self.high, strict=True))

    def split(self) -> tuple[Zone, Zone] | None:
        """Two halves, along the axis after the last one that can still be split."""
        d = len(self.low)
        for step in range(1, d + 1):
            axis = (self.axis + step) % d
            a, b = self.low[axis], self.high[axis]
            if b - a >= 2:
                middle = (a + b) // 2
                high = (*self.high[:axis], middle, *self.high[axis + 1 :])
                low = (*self.low[:axis], middle, *self.low[axis + 1 :])
                return Zone(self.low, high, axis), Zone(low, self.high, axis)
        return None

    def joined(self, other: Zone) -> Zone | None:
        """The box that both make together, if they do."""
        differ = [n for n in range(len(self.low)) if (self.low[n], self.high[n])
                  != (other.low[n], other.high[n])]  # fmt: skip
        if len(differ) != 1:
            return None
        axis = differ[0]
        if self.high[axis] != other.low[axis] and other.high[axis] != self.low[axis]:
            return None
        low = tuple(map(min, self.low, other.low))
        return Zone(low, tuple(map(max, self.high, other.high)), axis - 1)


class Overlay:
    """Peers and their zones.

    Examples
    --------
    >>> overlay = Overlay(resolution=4, dimension=2, peers=4, rng=np.random.default_rng(1))
    >>> sorted(np.bincount(overlay.owner.ravel()).tolist()), overlay.alive
    ([4, 4, 4, 4], [0, 1, 2, 3])
    """

    def __init__(
        self, resolution: int, dimension: int, peers: int, rng: np.random.Generator
    ) -> None:
        self.rng = rng
        shape = (resolution,) * dimension
        self.owner = np.zeros(shape, np.int64)
        self.zones: dict[int, list[Zone]] = {0: [Zone((0,) * dimension, shape)]}
        self._next = 1
        while len(self.zones) < peers:
            self.join()

    @property
    def alive(self) -> list[int]:
        """The peers that are there."""
        return sorted(self.zones)

    def join(self) -> tuple[int, int]:
        """A new peer; returns it and the one whose zone was split."""
        while True:
            point = tuple(self.rng.integers(0, self.owner.shape[0], self.owner.ndim))
            host = int(self.owner[point])
            zone = next(
                z for z in self.zones[host]
                if all(a <= x < b for a, x, b in zip(z.low, point, z.high, strict=True))
            )  # fmt: skip
            halves = zone.split()
            if halves is not None:
                break
        new = self._next
        self._next += 1
        kept, given = halves
        self.zones[host].remove(zone)
        self.zones[host].append(kept)
        self.zones[new] = [given]
        self.owner[given.box] = new
        return new, host

    def depart(self, peer: int) -> list[int]:
        """A peer leaves; returns who took over its zones."""
        takers = []
        for zone in sorted(self.zones.pop(peer), key=lambda z: -z.cells):
            near = [p for p in self.neighbours(peer) if p in self.zones] or self.alive
            taker, box = min(near, key=lambda p: (self._cells(p), p)), None
            for p in sorted(near, key=lambda p: (self._cells(p), p)):
                boxes = [(z, both) for z in self.zones[p] if (both := zone.joined(z)) is not None]
                if boxes:
                    taker, box = p, boxes[0]
                    break
            if box is not None:
                self.zones[taker].remove(box[0])
                self.zones[taker].append(box[1])
            else:
                self.zones[taker].append(zone)
            self.owner[zone.box] = taker
            takers.append(taker)
        return takers

    def neighbours(self, peer: int) -> list[int]:
        """Peers whose zones share a side with one of the peer's; the space is a torus."""
        mine = self.owner == peer
        found: set[int] = set()
        for axis in range(self.owner.ndim):
            for step in (-1, 1):
                beside = np.roll(mine, step, axis) & ~mine
                found.update(np.unique(self.owner[beside]).tolist())
        return sorted(found)

    def _cells(self, peer: int) -> int:
        return sum(zone.cells for zone in self.zones[peer])
