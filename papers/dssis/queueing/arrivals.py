"""Markovian arrival processes: gaps that may be of any phase type, and may depend on each other."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from anabranch.assembly.fitting.distribution import Floats
from anabranch.assembly.fitting.phasetype import PhaseType, rate_matrix_problems
from anabranch.errors import InvalidCall
from papers.dssis.queueing.stationary import stationary

__all__ = ["MAP", "poisson", "renewal"]


class MAP:
    """A Markovian arrival process.

    Parameters
    ----------
    D0
        Rates of phase changes without an arrival; its diagonal makes all rows sum to zero.
    D1
        Rates of phase changes with one.

    Examples
    --------
    >>> bursts = MAP([[-10.0, 0.1], [0.1, -0.3]], [[9.9, 0.0], [0.0, 0.2]])
    >>> round(bursts.rate, 3), round(bursts.scv, 2)
    (5.05, 16.73)
    >>> MAP([[-1.0, 0.0], [0.0, -1.0]], [[1.0, 0.0], [0.0, 0.5]])
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: MAP cannot start: row 1 of D0 + D1 sums to -0.5: it must sum to \
0, or probability would be lost
    """

    def __init__(self, D0: ArrayLike, D1: ArrayLike) -> None:
        self.D0 = np.asarray(D0, dtype=np.float64)
        self.D1 = np.asarray(D1, dtype=np.float64)
        problems = rate_matrix_problems(self.D0, "D0", ends=True)
        if self.D1.shape != self.D0.shape:
            problems.append(f"D1 has shape {self.D1.shape} and D0 {self.D0.shape}")
        elif not np.all(np.isfinite(self.D1)):
            problems.append("D1 must be finite")
        else:
            for row, column in np.argwhere(self.D1 < 0):
                problems.append(
                    f"D1[{row}, {column}] is {self.D1[row, column]:g}: a rate of arrivals must "
                    "not be negative"
                )
            if not problems:
                sums = (self.D0 + self.D1).sum(axis=1)
                wrong = np.abs(sums) > 1e-9 * np.abs(np.diag(self.D0))
                problems += [
                    f"row {row} of D0 + D1 sums to {sums[row]:g}: it must sum to 0, or "
                    "probability would be lost"
                    for row in np.flatnonzero(wrong)
                ]
        if problems:
            raise InvalidCall("MAP", problems)
        self.steady: Floats = stationary(self.D0 + self.D1)

    @property
    def phases(self) -> int:
        """Number of phases."""
        return len(self.D0)

    @property
    def rate(self) -> float:
        """Arrivals per unit of time."""
        return float(self.steady @ self.D1.sum(axis=1))

    @property
    def scv(self) -> float:
        """Squared coefficient of variation of the time between arrivals."""
        start = self.steady @ self.D1 / self.rate
        once = np.linalg.solve(-self.D0, np.ones(self.phases))
        twice = np.linalg.solve(-self.D0, once)
        return float(2 * (start @ twice) / (start @ once) ** 2 - 1)

    def faster(self, factor: float) -> MAP:
        """The same process at `factor` times the speed."""
        if not (factor > 0 and math.isfinite(factor)):
            raise InvalidCall("faster", [f"factor must be a finite number above 0, got {factor!r}"])
        return MAP(self.D0 * factor, self.D1 * factor)

    def sample(self, size: int, seed: int = 0) -> Floats:
        """Times between arrivals, one after the other."""
        rng = np.random.default_rng(seed)
        leaving = -np.diag(self.D0)
        moves = np.hstack([self.D0, self.D1]) / leaving[:, None]
        moves[np.arange(self.phases), np.arange(self.phases)] = 0.0
        ahead = np.cumsum(moves, axis=1)
        phase = int(rng.choice(self.phases, p=self.steady @ self.D1 / self.rate))
        gaps, elapsed, count = np.empty(size), 0.0, 0
        while count < size:
            block = rng.random((8192, 2))
            for lasting, choice in zip(-np.log1p(-block[:, 0]), block[:, 1], strict=True):
                elapsed += lasting / leaving[phase]
                to = int(np.searchsorted(ahead[phase], choice, side="right"))
                to = min(to, 2 * self.phases - 1)
                if to >= self.phases:
                    gaps[count] = elapsed
                    elapsed, count = 0.0, count + 1
                    if count == size:
                        break
                phase = to % self.phases
        return gaps

    def __repr__(self) -> str:
        return f"MAP({self.phases} phases, rate {self.rate:.5g}, scv {self.scv:.4g})"


def poisson(rate: float) -> MAP:
    """Arrivals at random times.

    Examples
    --------
    >>> poisson(3.0)
    MAP(1 phases, rate 3, scv 1)
    """
    if not (rate > 0 and math.isfinite(rate)):
        raise InvalidCall("poisson", [f"rate must be a finite number above 0, got {rate!r}"])
    return MAP([[-rate]], [[rate]])


def renewal(gaps: PhaseType) -> MAP:
    """Independent gaps of a phase-type distribution.

    Examples
    --------
    >>> renewal(PhaseType([1.0, 0.0], [[-2.0, 2.0], [0.0, -2.0]]))
    MAP(2 phases, rate 1, scv 0.5)
    """
    return MAP(gaps.T, np.outer(gaps.exit, gaps.alpha))
