"""Whether a figure grows: the slope of the second half of a run, and how sure that is.

Single readings jump: a garbage collection, a compaction, a neighbour on the machine. So the second
half is cut into blocks, each counts by its median, and a straight line goes through the medians.
The 95 % interval of its slope says what the noise allows. Growth is *shown* if the whole interval
lies above the limit, and *excluded* if the whole of it lies below; otherwise the run was too short
to tell, and the report says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["LIMIT", "Slope", "slope"]

LIMIT = 0.01
"""Of the mean, per hour."""

_BLOCKS = 12


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
        return "flat" if self.high <= LIMIT else "too short to tell"

    def to_dict(self) -> dict[str, Any]:
        """For the report."""
        return {name: round(value, 6) for name, value in asdict(self).items()} | {
            "verdict": self.verdict
        }


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
    t, x = np.asarray(seconds, float) / 3600, np.asarray(values, float)
    late = t >= (t[0] + t[-1]) / 2
    blocks = [part for part in np.array_split(np.flatnonzero(late), _BLOCKS) if len(part)]
    if len(blocks) < 4:
        raise ValueError(f"{len(t)} readings are too few for a slope: let it run longer")
    t = np.array([t[part].mean() for part in blocks])
    x = np.array([np.median(x[part]) for part in blocks])
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
