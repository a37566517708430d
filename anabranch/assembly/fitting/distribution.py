"""What every fitted distribution can do: density, quantile, moments, samples, a plot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from anabranch.assembly.fitting.plotting import plot_distribution
from anabranch.assembly.fitting.sample import Floats

__all__ = ["Distribution", "Floats"]


class Distribution(ABC):
    """A distribution of a time or a size, never negative.

    Subclasses give `cdf`, `pdf`, `moment` and `sample`; the rest follows. Every method takes a
    number or an array and answers in the same shape.
    """

    @abstractmethod
    def pdf(self, x: ArrayLike) -> Floats:
        """Density at `x`."""

    @abstractmethod
    def cdf(self, x: ArrayLike) -> Floats:
        """Probability of at most `x`."""

    @abstractmethod
    def moment(self, order: int) -> float:
        """Mean of the value to this power."""

    @abstractmethod
    def sample(self, size: int, seed: int | np.random.Generator = 0) -> Floats:
        """Independent draws; the same seed gives the same ones."""

    def sf(self, x: ArrayLike) -> Floats:
        """Probability of more than `x`."""
        return np.asarray(1.0 - self.cdf(x))

    @property
    def mean(self) -> float:
        """Expected value."""
        return self.moment(1)

    @property
    def variance(self) -> float:
        """Expected squared distance from the mean."""
        return max(self.moment(2) - self.mean**2, 0.0)

    @property
    def scv(self) -> float:
        """Squared coefficient of variation: variance over squared mean; 1 for an exponential."""
        return self.variance / self.mean**2

    def ppf(self, p: ArrayLike) -> Floats:
        """The least value whose probability `cdf` is at least `p`.

        Found by bisection down to the last bit, so that ``cdf(ppf(p))`` is `p` up to rounding.
        """
        wanted = np.asarray(p, dtype=np.float64)
        if np.any((wanted < 0) | (wanted > 1) | np.isnan(wanted)):
            raise ValueError(f"ppf takes probabilities in [0, 1], got {p!r}")
        flat = np.atleast_1d(wanted).ravel()
        answer = np.full(flat.shape, np.inf)
        answer[flat <= self.cdf(0.0)] = 0.0
        todo = np.flatnonzero((flat > self.cdf(0.0)) & (flat < 1.0))
        if len(todo):
            answer[todo] = self._bisect(flat[todo])
        return np.asarray(answer.reshape(wanted.shape))

    def plot(self, data: ArrayLike | None = None, *, axes: Any = None) -> Any:
        """Draw density and distribution, over the data they were fitted to if it is given.

        Returns the two matplotlib axes.
        """
        return plot_distribution(self, data, axes=axes)

    def _bisect(self, wanted: Floats) -> Floats:
        high = np.full(wanted.shape, max(self.mean, 1e-300))
        for _ in range(1100):
            short = self.cdf(high) < wanted
            if not short.any():
                break
            high[short] *= 2.0
        low = np.where(self.cdf(high / 2) < wanted, high / 2, 0.0)
        for _ in range(1100):
            middle = low + (high - low) / 2
            if not np.any((middle > low) & (middle < high)):
                break
            if np.all(high - low <= 4e-16 * high):
                break
            enough = self.cdf(middle) >= wanted
            high = np.where(enough, middle, high)
            low = np.where(enough, low, middle)
        return np.asarray(high)
