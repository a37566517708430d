"""Data to be fitted: checked, counted, and shortened where that loses nothing of weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import PchipInterpolator

from anabranch.errors import InvalidCall

__all__ = ["Floats", "Sample", "read_sample"]

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Sample:
    """Distinct values with how often each was seen; a *censored* one is only known to be larger.

    Attributes
    ----------
    values, weights
        Distinct values, ascending, and their counts. Censored ones are apart.
    censored, censored_weights
        Values that were cut off: the true one is above.
    """

    values: Floats
    weights: Floats
    censored: Floats
    censored_weights: Floats

    @property
    def size(self) -> float:
        """Number of observations, censored ones included."""
        return float(self.weights.sum() + self.censored_weights.sum())

    @property
    def mean(self) -> float:
        """Mean of the values that were seen whole."""
        return float(self.values @ self.weights / self.weights.sum())

    @property
    def mean_log(self) -> float:
        """Mean logarithm of the values that were seen whole."""
        return float(np.log(self.values) @ self.weights / self.weights.sum())

    @property
    def scv(self) -> float:
        """Squared coefficient of variation of the values that were seen whole."""
        deviations = (self.values - self.mean) ** 2
        return float(deviations @ self.weights / self.weights.sum()) / self.mean**2

    def shortened(self, groups: int = 1000) -> Sample:
        """At most about twice `groups` values, each the mean of its group.

        Groups are equally full, and finer in the tails, where one value can decide a branch.
        """
        values, weights = _group(self.values, self.weights, groups)
        return Sample(values, weights, *_group(self.censored, self.censored_weights, groups // 8))

    def lightened(self, groups: int = 200) -> Sample:
        """All complete values, but few groups of cut-off ones: their tails are expensive."""
        cut = _group(self.censored, self.censored_weights, groups)
        return Sample(self.values, self.weights, *cut)

    def spread(self, points: int = 8) -> Sample:
        """Counts as a density can take them: each is spread over the half below and above it.

        Not evenly, which would widen the distribution, but along a smooth curve through the shares
        of values up to each count. One that was cut off at *n* is at least *n*, so above
        ``n - 0.5``.
        """
        total = np.concatenate([[0.0], np.cumsum(self.weights)])
        knots = np.stack([self.values - 0.5, self.values + 0.5], axis=1).ravel()
        reached = np.stack([total[:-1], total[1:]], axis=1).ravel()
        knots, first = np.unique(knots, return_index=True)
        smooth = PchipInterpolator(knots, reached[first])
        edges = self.values[:, None] + np.linspace(-0.5, 0.5, points + 1)
        mass = np.diff(smooth(edges), axis=1).ravel()
        values = np.maximum(((edges[:, 1:] + edges[:, :-1]) / 2).ravel(), 1e-3)
        return Sample(
            values[mass > 0],
            mass[mass > 0],
            np.maximum(self.censored - 0.5, 1e-3),
            self.censored_weights,
        )


def read_sample(
    data: ArrayLike, complete: ArrayLike | None = None, *, verb: str, positive: bool = True
) -> Sample:
    """Check `data` and count its distinct values; where not `complete`, a value was cut off."""
    values = np.asarray(data, dtype=np.float64).ravel()
    whole = np.ones(len(values), dtype=bool)
    problems = []
    if complete is not None:
        whole = np.asarray(complete, dtype=bool).ravel()
        if len(whole) != len(values):
            problems.append(f"complete has {len(whole)} entries for {len(values)} values")
    if not np.all(np.isfinite(values)):
        where = int(np.flatnonzero(~np.isfinite(values))[0])
        problems.append(
            f"data[{where}] is {values[where]}: leave missing values out, and mark cut-off ones "
            "with complete=False"
        )
    elif (bad := int(np.sum(values < 0 if not positive else values <= 0))) > 0:
        limit = "above 0" if positive else "at least 0"
        problems.append(
            f"{bad} of {len(values)} values are not {limit}; times and sizes must be. Values that "
            "are zero by nature are a share of their own, not part of the density"
        )
    if not problems and not whole.any():
        problems.append("there is no complete value to fit" if len(values) else "data is empty")
    if problems:
        raise InvalidCall(verb, problems)
    counted = np.unique(values[whole], return_counts=True)
    cut = np.unique(values[~whole], return_counts=True)
    return Sample(counted[0], counted[1].astype(np.float64), cut[0], cut[1].astype(np.float64))


def _group(values: Floats, weights: Floats, groups: int) -> tuple[Floats, Floats]:
    if len(values) <= groups:
        return values, weights
    rank = np.cumsum(weights)
    even = values[np.searchsorted(rank, np.linspace(0, rank[-1], groups + 1)[1:-1])]
    positive = values[values > 0]
    spread = np.geomspace(positive[0], positive[-1], groups)
    edges = np.unique(np.concatenate([even, spread]))
    label = np.searchsorted(edges, values, side="right")
    totals = np.bincount(label, weights)
    sums = np.bincount(label, weights * values)
    full = totals > 0
    return sums[full] / totals[full], np.asarray(totals[full], dtype=np.float64)
