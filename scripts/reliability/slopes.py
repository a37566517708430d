"""Whether a figure grows: the slope of the second half of a run, and how sure that is.

Single readings jump: a garbage collection, a compaction, a neighbour on the machine. So the second
half is cut into blocks, each counts by its median, and a straight line goes through the medians.
The 95 % interval of its slope says what the noise allows. Growth is *shown* if the whole interval
lies above the limit, and *excluded* if the slope is not above it and the interval reaches no higher
than three times as far; otherwise the run was too short to tell, and the report says so.

Memory is judged so. On the heap lies what micro-batches under way need, and at each reading another
share of it; what stays is below all of that. So there a block counts by its least reading.

Seconds of a micro-batch and bytes of a checkpoint are noisy by nature: files come and go, and the
machine has other work. For these the same blocks are compared, the later six with the earlier six,
by how much their medians differ. A neighbour's work lasts for minutes, so noise makes one half
higher than the other by chance; what grows is higher from block to block. So of all pairs of blocks
the later one must be the higher in four of five (Kendall).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["LIMIT", "REACH", "RISE", "Shift", "Slope", "shift", "slope"]

LIMIT = 0.01
"""Of the mean, per hour."""

REACH = 0.03
"""How far the interval of a slope that counts as flat may reach, of the mean per hour."""

RISE = 1.1
"""How much higher than before the later blocks may lie, where readings are noisy."""

_BLOCKS = 12
_SURE = 0.8  # of all pairs of blocks


@dataclass(frozen=True)
class Slope:
    """Growth per hour as a share of the mean, with its 95 % interval."""

    mean: float
    per_hour: float
    low: float
    high: float
    rise: float = 0.0  # over all that is judged, in the units of the figure

    @property
    def verdict(self) -> str:
        """``flat``, ``grows`` or ``too short to tell``."""
        if self.low > LIMIT:
            return "grows"
        flat = self.per_hour <= LIMIT and self.high <= REACH
        return "flat" if flat else "too short to tell"

    def to_dict(self) -> dict[str, Any]:
        """For the report."""
        return {name: round(value, 6) for name, value in asdict(self).items()} | {
            "verdict": self.verdict
        }


@dataclass(frozen=True)
class Shift:
    """The medians of earlier and of later blocks; in which share of all pairs it is more later."""

    early: float
    late: float
    rising: float

    @property
    def verdict(self) -> str:
        """``flat``, ``grows`` or ``too noisy to tell``."""
        if self.late <= RISE * self.early:
            return "flat"
        return "grows" if self.rising >= _SURE else "too noisy to tell"

    @property
    def rise(self) -> float:
        """By how much it is more later."""
        return self.late - self.early

    def to_dict(self) -> dict[str, Any]:
        """For the report."""
        found = {**asdict(self), "rise": self.rise}
        return {name: round(value, 3) for name, value in found.items()} | {"verdict": self.verdict}


def shift(seconds: Sequence[float], values: Sequence[float], since: float = 0.0) -> Shift:
    """How the second half of a series moved, or what is later than `since`.

    For figures of which single readings say little.

    Examples
    --------
    >>> hours = np.arange(0, 4, 0.01)
    >>> noise = 40 * np.random.default_rng(1).random(len(hours))
    >>> shift(hours * 3600, 100 + noise).verdict, shift(hours * 3600, noise + 40 * hours).verdict
    ('flat', 'grows')
    """
    _, x = _blocks(seconds, values, since, np.median)
    early, late = x[: len(x) // 2], x[len(x) // 2 :]
    more = np.sign(x[None, :] - x[:, None])[np.triu_indices(len(x), 1)]
    return Shift(float(np.median(early)), float(np.median(late)), float((more + 1).mean() / 2))


def _blocks(
    seconds: Sequence[float], values: Sequence[float], since: float, of: Callable[..., Any]
) -> tuple[np.ndarray, np.ndarray]:
    """The second half of a series as blocks: their hours, and what each counts by.

    Less than half of it if the rest is earlier than `since`.
    """
    t, x = np.asarray(seconds, float) / 3600, np.asarray(values, float)
    late = t >= max((t[0] + t[-1]) / 2, since / 3600)
    blocks = [part for part in np.array_split(np.flatnonzero(late), _BLOCKS) if len(part)]
    if len(blocks) < 4:
        raise ValueError(f"{len(t)} readings are too few for a slope: let it run longer")
    return (
        np.array([t[part].mean() for part in blocks]),
        np.array([of(x[part]) for part in blocks]),
    )


def slope(
    seconds: Sequence[float],
    values: Sequence[float],
    since: float = 0.0,
    of: Callable[..., Any] = np.median,
) -> Slope:
    """The slope of the second half of a series, or of what is later than `since`.

    `of` is what a block counts by.

    Examples
    --------
    >>> hours = np.arange(0, 4, 0.01)
    >>> slope(hours * 3600, 100 + 0 * hours).verdict, slope(hours * 3600, 100 + 5 * hours).verdict
    ('flat', 'grows')
    >>> noise = 40 * np.random.default_rng(1).random(len(hours))
    >>> slope(hours * 3600, 100 + noise).verdict
    'too short to tell'
    """
    t, x = _blocks(seconds, values, since, of)
    mean = float(x.mean())
    if mean == 0:
        return Slope(0.0, 0.0, 0.0, 0.0)
    away = t - t.mean()
    rise = float((away * x).sum() / (away**2).sum())
    left = x - mean - rise * away
    error = math.sqrt(float((left**2).sum()) / (len(x) - 2) / float((away**2).sum()))
    reach = _STUDENT[len(x) - 2] * error
    span = float(t[-1] - t[0]) * len(t) / (len(t) - 1)  # middles lie half a block inside
    return Slope(mean, rise / mean, (rise - reach) / mean, (rise + reach) / mean, rise * span)


# Student's t at 97.5 %, by degrees of freedom.
_STUDENT = {
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
    10: 2.228,
}
