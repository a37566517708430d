"""One run: queries are activated, objects published, messages counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from anabranch.neighbours.methods import Filtered, Probabilistic, Queries
from papers.knn.peers.data import Source
from papers.knn.peers.interest import cells_by_distance
from papers.knn.peers.network import MESSAGES, Network
from papers.knn.peers.settings import PeerSettings

__all__ = ["Outcome", "errors", "run", "use_sensors"]

_BATCH = 10_000
Tick = Callable[[int], None]


@dataclass(frozen=True)
class Outcome:
    """What one run has counted, after its warm-up.

    Attributes
    ----------
    messages
        By kind; activations are those of all queries, before the first object.
    merged_cells
        Share of all cells that the merger of a peer covers, on average at the end.
    busiest
        Objects that the busiest peer looked at, in multiples of the mean over all peers.
    looks
        How often, for each object, a peer looked at it.
    """

    settings: PeerSettings
    messages: dict[str, int]
    merged_cells: float
    busiest: float
    looks: float

    def per_object(self, kind: str) -> float:
        """Messages of a kind for each object."""
        return self.messages[kind] / self.settings.objects

    @property
    def total(self) -> float:
        """All messages for each object."""
        return sum(self.messages.values()) / self.settings.objects

    @property
    def increase(self) -> float:
        """Messages more than one central processor needs, in percent of those."""
        kinds = ("query activation", "notify rendezvous peer", "notify owner peer")
        return 100 * (self.total / sum(self.per_object(kind) for kind in kinds) - 1)

    def to_dict(self) -> dict[str, Any]:
        """A form for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Outcome:
        """The outcome that `to_dict` was called on."""
        return cls(**{**data, "settings": PeerSettings(**data["settings"])})


class _Sensors:
    """The sensor readings of this process; not part of the settings, since they are data."""

    rows: np.ndarray | None = None


def use_sensors(rows: np.ndarray | None) -> None:
    """Set the rows that ``data="sensors"`` draws from."""
    _Sensors.rows = rows
    _drawn.cache_clear()


@lru_cache(maxsize=1)
def _drawn(
    settings: PeerSettings,
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    """Queries of a run, and their cells in order: the same for every k, method and overlay."""
    points = _source(settings).draw(settings.queries)
    boxed = settings.merger == "box"
    return points, None if boxed else cells_by_distance(points, settings.resolution)


def _source(settings: PeerSettings) -> Source:
    rng = np.random.default_rng([settings.seed, 0])
    return Source(settings, rng, _Sensors.rows)


def _same_queries(settings: PeerSettings) -> PeerSettings:
    """Settings that differ only in what queries do not depend on are made equal."""
    return PeerSettings(
        data=settings.data,
        dimension=settings.dimension,
        resolution=settings.resolution,
        queries=settings.queries,
        merger=settings.merger,
        spread=settings.spread,
        seed=settings.seed,
        peers=1,
    )


def run(
    settings: PeerSettings, tick: Tick | None = None, keep: bool = False
) -> tuple[Outcome, np.ndarray]:
    """Simulate; with `keep`, the reports too, as rows of query and object.

    Examples
    --------
    >>> tiny = PeerSettings(peers=4, queries=5, window=50, objects=200, warmup=100, resolution=3)
    >>> outcome, _ = run(tiny)
    >>> outcome.per_object("notify rendezvous peer"), outcome.messages["query activation"]
    (1.0, 5)
    """
    queries, cells = _drawn(_same_queries(settings))
    network = Network(settings, np.random.default_rng([settings.seed, 1]), queries, cells)
    network.activate(np.arange(settings.queries))
    source = _source(settings)
    source.rng = np.random.default_rng([settings.seed, 2])
    chooser = np.random.default_rng([settings.seed, 3])
    found = []
    changes = _times(settings)
    for begin, end, counted in _batches(settings, changes):
        if begin == settings.warmup and counted:
            for kind in MESSAGES:
                if kind != "query activation":
                    network.messages[kind] = 0
            network.heard[:] = 0
        reports = network.publish(source.draw(end - begin))
        if keep and counted:
            found.append(np.stack(reports, axis=1))
        if end in changes:
            network.join()
            network.depart(int(chooser.choice(network.overlay.alive)))
        if tick is not None:
            tick(end - begin)
    looks = network.heard[: settings.peers]
    outcome = Outcome(
        settings,
        {kind: int(network.messages[kind]) for kind in MESSAGES},
        network.merged_cells,
        float(looks.max() / max(looks.mean(), 1e-12)),
        float(network.heard.sum() / settings.objects),
    )
    return outcome, np.concatenate(found) if found else np.empty((0, 2), np.int64)


def errors(settings: PeerSettings, tick: Tick | None = None) -> dict[str, tuple[float, float]]:
    """Shares of results missed, and of false ones, for each way of reading PA.

    ``PA`` and ``PA-starving`` run over the peers; ``PA-open`` is the library's; all are held
    against RAPF with half a window as its buffer, which is exact.
    """
    queries, _ = _drawn(_same_queries(settings))
    of = Queries.of(queries, settings.k, settings.window, counted=True)
    source = _source(settings)
    source.rng = np.random.default_rng([settings.seed, 2])
    exact, alone = Filtered(of, None, settings.error), Probabilistic(of, settings.error)
    due: list[np.ndarray] = []
    opened: list[np.ndarray] = []
    for begin, end, counted in _batches(settings, ()):
        seq, points = np.arange(begin, end), source.draw(end - begin)
        for algorithm, kept in ((exact, due), (alone, opened)):
            reports = algorithm.advance(seq, seq, points, end - 1)
            if counted:
                kept.append(np.stack([reports.query, reports.seq], axis=1))
    rows = {"PA-open": np.concatenate(opened)}
    for method in ("PA", "PA-starving"):
        _, rows[method] = run(replace(settings, method=method), tick, keep=True)
    right = _codes(np.concatenate(due))
    found = {}
    for method, ours in rows.items():
        codes = _codes(ours)
        missed = len(np.setdiff1d(right, codes)) / len(right)
        false = len(np.setdiff1d(codes, right)) / len(right)
        found[method] = (missed, false)
    return found


def _codes(rows: np.ndarray) -> np.ndarray:
    codes: np.ndarray = rows[:, 0] * 2**40 + rows[:, 1]
    return codes


def _times(settings: PeerSettings) -> tuple[int, ...]:
    """After how many objects a peer joins and another departs."""
    steps = np.arange(1, settings.churn + 1) * settings.objects // (settings.churn + 1)
    return tuple((settings.warmup + steps).tolist())


def _batches(settings: PeerSettings, changes: tuple[int, ...]) -> list[tuple[int, int, bool]]:
    last = settings.warmup + settings.objects
    cuts = {0, settings.warmup, last, *range(0, last, _BATCH), *changes}
    ordered = sorted(cuts)
    return [(a, b, a >= settings.warmup) for a, b in pairwise(ordered)]
