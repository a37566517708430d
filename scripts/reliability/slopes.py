"""Whether a figure grows: the slope of the second half of a run, and how sure that is.

Single readings jump: a garbage collection, a compaction, a neighbour on the machine. So the second
half is cut into blocks, each counts by its median, and a straight line goes through the medians.
The 95 % interval of its slope says what the noise allows. Growth is *shown* if the whole interval
lies above the limit, and *excluded* if the slope is not above it and the interval reaches no higher
than three times as far; otherwise the run was too short to tell, and the report says so.

Memory of processes is judged so. Seconds of a micro-batch and bytes of a checkpoint are noisy by
nature: files come and go, and the machine has other work. For these the same blocks are compared,
the later six with the earlier six: by how much their medians differ, and whether their ranks do.

On the heap lies what micro-batches under way need, and at each reading another share of it; what
stays is below all of that. So there a block counts by its least reading, and blocks are compared.
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
_SURE = 31  # of 36 pairs of 6 and 6 blocks: the rank-sum test at 2.5 %, one-sided


@dataclass(frozen=True)
class Slope:
    """Growth per hour as a share of the mean, with its 95 % interval."""

    mean: float
    per_hour: float
    low: float
    high: float

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
    """The medians of earlier and of later blocks; in how many of 36 pairs the later one is more."""

    early: float
    late: float
    higher: float

    @property
    def verdict(self) -> str:
        """``flat``, ``grows`` or ``too noisy to tell``."""
        if self.late <= RISE * self.early:
            return "flat"
        return "grows" if self.higher >= _SURE else "too noisy to tell"

    def to_dict(self) -> dict[str, Any]:
        """For the report."""
        return {name: round(value, 3) for name, value in asdict(self).items()} | {
            "verdict": self.verdict
        }


def shift(
    seconds: Sequence[float], values: Sequence[float], of: Callable[..., Any] = np.median
) -> Shift:
    """How the second half of a series moved, where single readings say little.

    `of` is what a block counts by.

    Examples
    --------
    >>> hours = np.arange(0, 4, 0.01)
    >>> noise = 40 * np.random.default_rng(1).random(len(hours))
    >>> shift(hours * 3600, 100 + noise).verdict, shift(hours * 3600, noise + 40 * hours).verdict
    ('flat', 'grows')
    """
    _, x = _blocks(seconds, values, of)
    early, late = x[: len(x) // 2], x[len(x) // 2 :]
    more = np.sign(late[:, None] - early[None, :])
    pairs = float((more + 1).sum() / 2) * 36 / more.size
    return Shift(float(np.median(early)), float(np.median(late)), pairs)


def _blocks(
    seconds: Sequence[float], values: Sequence[float], of: Callable[..., Any] = np.median
) -> tuple[np.ndarray, np.ndarray]:
    """The second half of a series as blocks: their hours, and what each counts by."""
    t, x = np.asarray(seconds, float) / 3600, np.asarray(values, float)
    late = t >= (t[0] + t[-1]) / 2
    blocks = [part for part in np.array_split(np.flatnonzero(late), _BLOCKS) if len(part)]
    if len(blocks) < 4:
        raise ValueError(f"{len(t)} readings are too few for a slope: let it run longer")
    return (
        np.array([t[part].mean() for part in blocks]),
        np.array([of(x[part]) for part in blocks]),
    )


def slope(seconds: Sequence[float], values: Sequence[float]) -> Slope:
    """The slope of the second half of a series.

    Examples
    --------
    >>> hours = np.arange(0, 4, 0.01)
    >>> slope(hours * 3600, 100 + 0 * hours).verdict, slope(hours * 3600, 100 + 5 * hours).verdict
    ('flat', 'grows')
    >>> noise = 40 * np.random.default_rng(1).random(len(hours))
    >>> slope(hours * 3600, 100 + noise).verdict
    'too short to tell'
    """
    t, x = _blocks(seconds, values)
    mean = float(x.mean())
    if mean == 0:
        return Slope(0.0, 0.0, 0.0, 0.0)
    away = t - t.mean()
    rise = float((away * x).sum() / (away**2).sum())
    left = x - mean - rise * away
    error = math.sqrt(float((left**2).sum()) / (len(x) - 2) / float((away**2).sum()))
    reach = _STUDENT[len(x) - 2] * error
    return Slope(mean, rise / mean, (rise - reach) / mean, (rise + reach) / mean)


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
