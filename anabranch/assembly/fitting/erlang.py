"""Erlang distributions and mixtures of them (hyper-Erlang)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from anabranch.assembly.fitting.distribution import Distribution, Floats
from anabranch.assembly.fitting.phasetype import PhaseType
from anabranch.errors import InvalidCall

__all__ = ["Erlang", "HyperErlang"]


class HyperErlang(Distribution):
    """A mixture of Erlang distributions.

    Branch *m* is chosen with probability ``weights[m]`` and then takes ``shapes[m]`` exponential
    steps of rate ``rates[m]``.

    Examples
    --------
    Equation 5 of the DSSIS paper, the spans of page views in seconds:

    >>> spans = HyperErlang([0.0247, 0.9753], [1, 4], [0.0404, 0.3666])
    >>> round(spans.mean, 3), round(float(spans.cdf(22)), 4), round(float(spans.ppf(0.95)), 2)
    (11.253, 0.9503, 21.97)
    >>> spans
    HyperErlang(0.0247 x Erlang(1, 0.0404) + 0.9753 x Erlang(4, 0.3666))
    """

    def __init__(
        self, weights: Sequence[float], shapes: Sequence[int], rates: Sequence[float]
    ) -> None:
        self.weights = np.asarray(weights, dtype=np.float64)
        self.shapes = np.asarray(shapes, dtype=np.int64)
        self.rates = np.asarray(rates, dtype=np.float64)
        problems = _problems(self.weights, np.asarray(shapes, dtype=np.float64), self.rates)
        if problems:
            raise InvalidCall("HyperErlang", problems)
        self.weights = self.weights / self.weights.sum()

    def pdf(self, x: ArrayLike) -> Floats:
        """Density at `x`."""
        x = np.asarray(x, dtype=np.float64)
        return np.asarray(np.where(x < 0, 0.0, np.exp(self.logpdf(np.maximum(x, 0.0)))))

    def logpdf(self, x: ArrayLike) -> Floats:
        """Logarithm of the density, exact where the density itself would underflow."""
        terms = self._log_terms(np.asarray(x, dtype=np.float64))
        return np.asarray(special.logsumexp(terms, axis=0))

    def cdf(self, x: ArrayLike) -> Floats:
        """Probability of at most `x`."""
        x = np.maximum(np.asarray(x, dtype=np.float64), 0.0)
        parts = [
            weight * special.gammainc(shape, rate * x)
            for weight, shape, rate in zip(self.weights, self.shapes, self.rates, strict=True)
        ]
        return np.asarray(sum(parts))

    def sf(self, x: ArrayLike) -> Floats:
        """Probability of more than `x`, exact far out in the tail too."""
        x = np.maximum(np.asarray(x, dtype=np.float64), 0.0)
        parts = [
            weight * special.gammaincc(shape, rate * x)
            for weight, shape, rate in zip(self.weights, self.shapes, self.rates, strict=True)
        ]
        return np.asarray(sum(parts))

    def moment(self, order: int) -> float:
        """Mean of the value to this power."""
        logs = special.gammaln(self.shapes + order) - special.gammaln(self.shapes)
        return float((self.weights * np.exp(logs - order * np.log(self.rates))).sum())

    def sample(self, size: int, seed: int | np.random.Generator = 0) -> Floats:
        """Independent draws; the same seed gives the same ones."""
        rng = np.random.default_rng(seed)
        branch = rng.choice(len(self.weights), size, p=self.weights)
        return np.asarray(rng.gamma(self.shapes[branch]) / self.rates[branch])

    def phase_type(self) -> PhaseType:
        """The same distribution as a phase-type one: a chain of phases per branch."""
        size = int(self.shapes.sum())
        alpha, T = np.zeros(size), np.zeros((size, size))
        at = 0
        for weight, shape, rate in zip(self.weights, self.shapes, self.rates, strict=True):
            alpha[at] = weight
            for phase in range(at, at + shape):
                T[phase, phase] = -rate
                if phase + 1 < at + shape:
                    T[phase, phase + 1] = rate
            at += shape
        return PhaseType(alpha, T)

    def __repr__(self) -> str:
        branches = " + ".join(
            f"{weight:.4g} x Erlang({shape}, {rate:.4g})"
            for weight, shape, rate in zip(self.weights, self.shapes, self.rates, strict=True)
        )
        return f"HyperErlang({branches})"

    def _log_terms(self, x: Floats) -> Floats:
        column = (slice(None),) + (None,) * x.ndim
        shapes = self.shapes[column].astype(np.float64)
        constant = np.log(self.weights) + self.shapes * np.log(self.rates)
        constant = constant - special.gammaln(self.shapes)
        return np.asarray(
            constant[column] + special.xlogy(shapes - 1.0, x) - self.rates[column] * x
        )


class Erlang(HyperErlang):
    """The sum of `shape` exponential times of the same rate.

    Examples
    --------
    Equation 4 of the DSSIS paper, the sizes of pages, and its window size for 90 %:

    >>> sizes = Erlang(100, 8.7963)
    >>> [round(float(sizes.cdf(n)), 4) for n in (12, 13, 14)]
    [0.7186, 0.9199, 0.9857]
    """

    def __init__(self, shape: int, rate: float) -> None:
        super().__init__([1.0], [shape], [rate])

    @property
    def shape(self) -> int:
        """Number of exponential steps."""
        return int(self.shapes[0])

    @property
    def rate(self) -> float:
        """Rate of each step."""
        return float(self.rates[0])

    def __repr__(self) -> str:
        return f"Erlang({self.shape}, {self.rate:.5g})"


def _problems(weights: Floats, shapes: Floats, rates: Floats) -> list[str]:
    if not (weights.ndim == shapes.ndim == rates.ndim == 1):
        return ["weights, shapes and rates must be lists of numbers, one per branch"]
    if not (len(weights) == len(shapes) == len(rates) >= 1):
        return [
            "weights, shapes and rates must be of one length, at least 1, got "
            f"{len(weights)}, {len(shapes)} and {len(rates)}"
        ]
    problems = []
    for number, (weight, shape, rate) in enumerate(zip(weights, shapes, rates, strict=True)):
        if not weight > 0:
            problems.append(f"weights[{number}] must be above 0, got {weight}")
        if not (shape >= 1 and shape == int(shape)):
            problems.append(f"shapes[{number}] must be a whole number of at least 1, got {shape}")
        if not (rate > 0 and math.isfinite(rate)):
            problems.append(f"rates[{number}] must be a finite number above 0, got {rate}")
    if not problems and abs(weights.sum() - 1) > 1e-6:
        problems.append(f"weights must sum to 1, they sum to {weights.sum()}")
    return problems
