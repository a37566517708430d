"""A share of exact zeros beside a density: instances of a single event span no time."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from anabranch.assembly.fitting.distribution import Distribution, Floats
from anabranch.errors import InvalidCall

__all__ = ["WithZeros"]


class WithZeros(Distribution):
    """Zero with probability `share`, otherwise a value of `rest`.

    Examples
    --------
    >>> from anabranch.assembly.fitting.erlang import Erlang
    >>> spans = WithZeros(0.5, Erlang(1, 1.0))
    >>> float(spans.cdf(0)), spans.mean, float(spans.ppf(0.3))
    (0.5, 0.5, 0.0)
    """

    def __init__(self, share: float, rest: Distribution) -> None:
        if not 0 <= share < 1:
            raise InvalidCall("WithZeros", [f"share must be in [0, 1), got {share!r}"])
        self.share, self.rest = float(share), rest

    def pdf(self, x: ArrayLike) -> Floats:
        """Density of the values above zero."""
        return np.asarray((1 - self.share) * self.rest.pdf(x))

    def cdf(self, x: ArrayLike) -> Floats:
        """Probability of at most `x`."""
        values = np.asarray(x, dtype=np.float64)
        return np.asarray(
            np.where(values >= 0, self.share + (1 - self.share) * self.rest.cdf(values), 0.0)
        )

    def moment(self, order: int) -> float:
        """Mean of the value to this power."""
        return (1 - self.share) * self.rest.moment(order)

    def sample(self, size: int, seed: int | np.random.Generator = 0) -> Floats:
        """Independent draws; the same seed gives the same ones."""
        rng = np.random.default_rng(seed)
        return np.asarray(np.where(rng.random(size) < self.share, 0.0, self.rest.sample(size, rng)))

    def __repr__(self) -> str:
        return f"{self.share:.4g} x zero + {1 - self.share:.4g} x {self.rest!r}"
