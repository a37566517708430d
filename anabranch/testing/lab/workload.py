"""What the devices of the lab compute: who of their friends is near, at shares that differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.edge.definitions import Definition, Stream, View
from anabranch.edge.sampling import sampled
from anabranch.placement.call import place
from anabranch.placement.placement import Placement
from anabranch.testing.lab.devices import name_of

__all__ = ["Workload"]

_TICK = 1_000_000


@dataclass(frozen=True)
class Workload:
    """Views over pairs of devices; `near` is how far apart rows may be that match.

    `shares` are how much of either side's rows a view needs, and `periods` the seconds between
    rows of each device.
    """

    pairs: np.ndarray  # (views, 2)
    shares: np.ndarray  # (views, 2)
    periods: np.ndarray
    near: float = 0.0
    window: int = 5_000_000
    deliver: tuple[str, ...] = ()
    tick: int = _TICK

    @classmethod
    def sampled(cls, devices: int, friends: float = 3.0, seed: int = 1, **more: Any) -> Workload:
        """Everybody needs some friends' rows now and then: shares log-uniform, 0.01 to 1."""
        rng = np.random.default_rng(seed)
        count = int(devices * friends)
        pairs = rng.integers(0, devices, (2 * count, 2))
        pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
        pairs = rng.permutation(pairs)[:count]
        shares = np.round(10.0 ** rng.uniform(-2, 0, pairs.shape), 3)
        return cls(pairs, shares, np.ones(devices), **more)

    @classmethod
    def friends(cls, devices: int, seed: int = 1, **more: Any) -> Workload:
        """As the RACE paper has it: friends Zipf(2), 1 to 10 rows a second Zipf(2), all needed."""
        rng = np.random.default_rng(seed)
        counts = _zipf(rng, max(devices // 10, 1), devices)
        a = np.repeat(np.arange(devices), counts)
        pairs = np.sort(np.column_stack([a, rng.integers(0, devices, len(a))]), axis=1)
        pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
        rates = _zipf(rng, 10, devices)
        return cls(pairs, np.ones(pairs.shape), 1.0 / rates, tick=0, **more)

    @property
    def devices(self) -> int:
        """How many there are."""
        return len(self.periods)

    def name(self, view: int) -> str:
        """The name of a view."""
        a, b = map(name_of, self.pairs[view].tolist())
        return f"near(gps[{a}],gps[{b}])"

    def wishes(self, location: Mapping[str, str]) -> tuple[Any, Any, Any]:
        """Streams, definition and views, each at its place, for `KeeperState.add`."""
        names = list(map(name_of, range(self.devices)))
        columns = {"xy": "array<double>"}
        streams = [Stream(f"gps[{name}]", name, columns, self.tick) for name in names]
        where = ["euclidean", "xy", "xy", None, "<=", self.near]
        window = self.window, self.window
        near = Definition("near", "pairs", window, where, deliver=self.deliver)
        asked = self.shares if self.tick else np.ones(self.pairs.shape)
        shares = [list(map(float, row)) for row in asked]
        pairs: list[list[int]] = self.pairs.tolist()
        views = [
            (View(self.name(k), "near", tuple(pair), tuple(share)), location[self.name(k)])
            for k, (pair, share) in enumerate(zip(pairs, shares, strict=True))
        ]
        return streams, [near], views

    def plan(
        self, rates: np.ndarray | None = None, pin: Mapping[str, str] | None = None
    ) -> Placement:
        """The best placement at rates (views, 2) of rows per second; as declared if not given.

        With all views in `pin`, it is that placement.
        """
        if rates is None:
            rates = self.shares / self.periods[self.pairs]
        names = [f"gps[{name_of(k)}]" for k in range(self.devices)]
        needs = [
            (self.name(view), names[stream], float(rates[view, side]))
            for view in range(len(self.pairs))
            for side, stream in enumerate(self.pairs[view])
        ]
        homes = {names[k]: name_of(k) for k in np.unique(self.pairs)}
        return place(needs, homes, 1.0, 1.0, pin=pin)

    def counted(self, rows: Mapping[str, list[int]], seconds: float) -> np.ndarray:
        """Rows per second that each view needed of either side, of those that there were."""
        times = {int(number): np.array(found, np.int64) for number, found in rows.items()}
        found = np.empty(self.pairs.shape)
        for view, pair in enumerate(self.pairs.tolist()):
            for side, number in enumerate(pair):
                t = times[number]
                if self.tick and len(t):
                    t = t[np.diff(t // self.tick, prepend=t[0] // self.tick - 1) > 0]
                    t = t[sampled(t, self.tick, self.shares[view, side])]
                found[view, side] = len(t) / seconds
        return found


def _zipf(rng: np.random.Generator, most: int, count: int) -> np.ndarray:
    """Numbers from 1 to `most`, each with a weight of one over its square."""
    weights = 1.0 / np.arange(1, most + 1) ** 2
    return rng.choice(np.arange(1, most + 1), count, p=weights / weights.sum())
