"""Distributions as they were seen, values that were cut off included (Kaplan and Meier, 1958)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from anabranch.assembly.fitting.sample import Floats, read_sample

__all__ = ["Survival"]


class Survival:
    """The empirical distribution; by the product-limit estimate where values were cut off.

    Parameters
    ----------
    data
        Values of at least 0.
    complete
        False where a value was cut off and the true one is larger. Without any this is the plain
        share of values.

    Examples
    --------
    Ten spans; two were still running when they were cut at 4 seconds:

    >>> seen = Survival([1, 2, 2, 3, 4, 4, 5, 6, 7, 9], complete=[1, 1, 1, 1, 0, 0, 1, 1, 1, 1])
    >>> [round(float(seen.cdf(x)), 3) for x in (2, 4, 6, 9)]
    [0.3, 0.4, 0.7, 1.0]
    >>> float(seen.ppf(0.7))
    6.0
    """

    def __init__(self, data: ArrayLike, complete: ArrayLike | None = None) -> None:
        sample = read_sample(data, complete, verb="Survival", positive=False)
        self.size = int(sample.size)
        self.cut = int(sample.censored_weights.sum())
        # At risk just before each value: all that are not shorter. One cut off at the very value
        # was still there.
        shorter = np.cumsum(sample.weights) - sample.weights
        gone = np.concatenate([[0.0], np.cumsum(sample.censored_weights)])
        at_risk = sample.size - shorter - gone[np.searchsorted(sample.censored, sample.values)]
        self.values: Floats = sample.values
        with np.errstate(divide="ignore"):
            logs = np.cumsum(np.log1p(-sample.weights / at_risk))
        self.probabilities: Floats = -np.expm1(logs)

    @property
    def known(self) -> float:
        """How much of the distribution was seen; the rest is longer than every complete value."""
        return float(self.probabilities[-1])

    @property
    def mean(self) -> float:
        """Mean up to the largest complete value; the rest counts as that value."""
        steps = np.diff(self.probabilities, prepend=0.0)
        return float(self.values @ steps + self.values[-1] * (1 - self.known))

    def cdf(self, x: ArrayLike) -> Floats:
        """Probability of at most `x`."""
        at = np.searchsorted(self.values, np.asarray(x, dtype=np.float64), side="right")
        return np.asarray(np.concatenate([[0.0], self.probabilities])[at])

    def ppf(self, p: ArrayLike) -> Floats:
        """The least value of at least this probability; infinite if that was never seen."""
        wanted = np.asarray(p, dtype=np.float64)
        at = np.searchsorted(self.probabilities, wanted - 1e-12)
        return np.asarray(np.concatenate([self.values, [np.inf]])[at])

    def shares(self) -> tuple[Floats, Floats]:
        """Values and the probability of each; what was never seen goes to the largest."""
        steps = np.diff(self.probabilities, prepend=0.0)
        steps[-1] += 1 - self.known
        return self.values, steps

    def distance(self, cdf: Floats, *, counts: bool = False) -> float:
        """Largest gap to another distribution, given its cdf at `values` (Kolmogorov-Smirnov).

        Between two counts there is nothing to compare, so with `counts` only the values matter.
        """
        if counts:
            return float(np.max(np.abs(cdf - self.probabilities)))
        before = np.concatenate([[0.0], self.probabilities[:-1]])
        # Just before a value the other is as at it, unless the value is 0: nothing lies below.
        below = np.where(self.values > 0, cdf, 0.0)
        return float(np.max(np.maximum(np.abs(cdf - self.probabilities), np.abs(below - before))))

    def __repr__(self) -> str:
        cut = f", {self.cut} cut off" if self.cut else ""
        return f"Survival({self.size} values{cut}, mean {self.mean:.4g})"
