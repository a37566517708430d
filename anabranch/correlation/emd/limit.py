"""A threshold with its tolerance: what matches, what is surely near and what is surely far.

Distances within a billionth of the largest ground distance of the threshold count as equal to it,
so rounding cannot part pairs that are equal. Filters may cut a pair only beyond that, and those
that compute in float32 only beyond what float32 may get wrong as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.correlation.emd.ground import Ground

__all__ = ["Limit"]

_FLOAT32 = 2.0**-24


@dataclass(frozen=True)
class Limit:
    """``distance op threshold`` for a ground distance with a known number of bins.

    Examples
    --------
    >>> limit = Limit("<=", 0.5, epsilon=0.1)
    >>> limit.holds(np.array([0.4, 0.59, 0.7])).tolist()
    [True, True, False]
    >>> Limit(">", 0.5, epsilon=0.1).holds(np.array([0.4, 0.59, 0.7])).tolist()
    [False, False, True]
    """

    op: str
    threshold: float
    epsilon: float

    @property
    def upward(self) -> bool:
        """Whether greater distances match."""
        return self.op in (">=", ">")

    @property
    def low(self) -> float:
        """The least distance that matches."""
        if not self.upward:
            return -np.inf
        edge = self.threshold - self.epsilon if self.op == ">=" else self.threshold + self.epsilon
        return float(edge if self.op == ">=" else np.nextafter(edge, np.inf))

    @property
    def high(self) -> float:
        """The greatest distance that matches."""
        if self.upward:
            return np.inf
        edge = self.threshold + self.epsilon if self.op == "<=" else self.threshold - self.epsilon
        return float(edge if self.op == "<=" else np.nextafter(edge, -np.inf))

    @property
    def near(self) -> float:
        """A lower bound above this rules a pair out, if near pairs are wanted."""
        return self.threshold + self.epsilon

    @property
    def far(self) -> float:
        """An upper bound below this rules a pair out, if far pairs are wanted."""
        return self.threshold - self.epsilon

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Which distances match."""
        result: np.ndarray = (values >= self.low) & (values <= self.high)
        return result

    def margin(self, ground: Ground) -> float:
        """What a float32 sum over the bins may be off by, the threshold's own rounding included."""
        bins = ground.bins or 1
        return 2 * (bins + 4) * _FLOAT32 * ground.largest + 2 * _FLOAT32 * abs(self.threshold)
