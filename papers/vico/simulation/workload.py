"""Hosts, rates and frames of a run, drawn from its seed: every method meets the same ones.

A frame is stamped with the whole second in which it arrives on its stream, so that a window holds
whole steps and pairs can be counted by the step and yet exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.flow.hashing import mix
from papers.vico.simulation.settings import Settings

__all__ = ["Frames", "Hosts", "Workload", "draw_hosts", "draw_workload"]

SECOND = 1_000_000


@dataclass(frozen=True)
class Hosts:
    """Capacities, fastest host first: units per second, frames in memory, frames per second."""

    speed: np.ndarray
    memory: np.ndarray
    link: np.ndarray


@dataclass(frozen=True)
class Frames:
    """Frames that reach the router, in no order: stamp, seconds of delay, hash."""

    stamp: np.ndarray
    delay: np.ndarray
    h: np.ndarray


@dataclass(frozen=True)
class Workload:
    """Mean rates and frame counts, by side, operator and second."""

    settings: Settings
    rates: np.ndarray
    counts: np.ndarray
    first_ids: np.ndarray

    def arriving(self, side: int, operator: int, start: int, stop: int) -> Frames:
        """The frames that reach the router in seconds `start` to `stop`, the latter not included.

        Examples
        --------
        >>> work = draw_workload(Settings(operators=2, seconds=600))
        >>> bool(len(work.arriving(0, 1, 100, 200).h) == work.counts[0, 1, 100:200].sum())
        True
        """
        delay = self.settings.delay
        begin = max(start - delay, 0)
        counts = self.counts[side, operator, begin:stop]
        stamp = np.repeat(np.arange(begin, stop), counts)
        number = self.first_ids[side, operator, begin] + np.arange(len(stamp))
        h = mix(number + ((operator * 2 + side) << 40))
        if not delay:
            return Frames(stamp, np.zeros(len(stamp), np.int64), h)
        late = mix(h).view(np.uint64) % np.uint64(delay + 1)
        arrival = stamp + late.astype(np.int64)
        here = (arrival >= start) & (arrival < stop)
        return Frames(stamp[here], (arrival - stamp)[here], h[here])

    @property
    def due(self) -> np.ndarray:
        """Pairs that the windows let join, by operator and by the second of the later frame."""
        kept = self.settings.window
        left, right = self.counts.astype(np.int64)
        lefts, rights = _last(left, kept[0]), _last(right, kept[1])
        result: np.ndarray = left * rights + right * (lefts - left)
        return result


def draw_hosts(settings: Settings) -> Hosts:
    """The hosts of a run; those of a smaller cluster are among those of a larger one.

    Examples
    --------
    >>> hosts = draw_hosts(Settings(hosts=5, beta=2))
    >>> bool((hosts.speed >= 1000).all() and (hosts.speed <= 2000).all())
    True
    """
    draws = np.random.default_rng([settings.seed, 1]).random((settings.hosts, 3))
    # Fastest first: lines of a grid are then alike, and "the first of equals" is the fastest.
    draws = draws[np.argsort(-draws[:, 0], kind="stable")]
    low, high = np.array([settings.cpu, settings.memory, settings.link]).T
    cpu, memory, link = (low + draws * (high - low)).T
    return Hosts(
        cpu * settings.beta,
        np.floor(memory * 1e6 / settings.frame_bytes),
        np.floor(link * 1e6 / 8 / settings.frame_bytes),
    )


def draw_workload(settings: Settings) -> Workload:
    """Rates and frame counts of a run.

    Examples
    --------
    >>> work = draw_workload(Settings(operators=3, seconds=2000, rates=(4, 4)))
    >>> work.counts.shape, bool(abs(work.counts.mean() - 4) < 0.1)
    ((2, 3, 2000), True)
    """
    seconds, period = settings.seconds, settings.redraw or settings.seconds
    eras = -(-seconds // period)
    shape = (2, settings.operators)
    if settings.eras:
        turns = [settings.eras[era % len(settings.eras)] for era in range(eras)]
        means = np.broadcast_to(np.array(turns).T[:, None, :], (*shape, eras))
    else:
        seed = settings.seed if settings.rate_seed is None else settings.rate_seed
        drawn = np.random.default_rng([seed, 2]).uniform(*settings.rates, (eras, *shape))
        means = np.moveaxis(drawn, 0, -1)
    rates = np.repeat(means, period, axis=-1)[..., :seconds]
    counts = np.random.default_rng([settings.seed, 3]).poisson(rates)
    # What is stamped in the last seconds would arrive after the run: nothing is.
    counts[..., seconds - settings.delay :] = 0
    first_ids = np.cumsum(counts, axis=-1) - counts
    return Workload(settings, rates, counts, first_ids)


def _last(counts: np.ndarray, kept: int) -> np.ndarray:
    """Sums over each second and the `kept` seconds before it."""
    total = np.cumsum(counts, axis=-1)
    total[..., kept + 1 :] -= np.cumsum(counts, axis=-1)[..., : -(kept + 1)]
    return total
