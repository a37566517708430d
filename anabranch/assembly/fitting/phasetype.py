"""Phase-type distributions: the time a Markov chain takes to be absorbed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import expm
from scipy.special import gammaln

from anabranch.assembly.fitting.distribution import Distribution, Floats
from anabranch.errors import InvalidCall

__all__ = ["PhaseType", "rate_matrix_problems"]

_TERMS = 4_000_000
"""Uniformisation is used while it needs fewer steps than this for the farthest point."""


class PhaseType(Distribution):
    """The time to leave a chain of phases, started as `alpha`, with rates `T` between phases.

    ``T[i, j]`` is the rate from phase *i* to *j*, ``-T[i, i]`` the rate of leaving *i* at all; what
    a row lacks to zero is its rate of ending.

    Examples
    --------
    Equation 8 of the DSSIS paper has a negative rate between two phases, a misprint:

    >>> T = [[-378.3987, 378.3987, 0, 0], [0, -378.3987, 378.3987, 0],
    ...      [0, 0, -12669.0969, -0.0000346], [0, 0, 0, -0.0512]]
    >>> PhaseType([1, 0, 0, 0], T)
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: PhaseType cannot start: T[2, 3] is -3.46e-05: a rate between two \
phases must not be negative
    >>> T[2][3] = 0
    >>> round(PhaseType([1, 0, 0, 0], T).mean, 7)
    0.0053644
    """

    def __init__(self, alpha: ArrayLike, T: ArrayLike) -> None:
        self.alpha = np.asarray(alpha, dtype=np.float64)
        self.T = np.asarray(T, dtype=np.float64)
        problems = _start_problems(self.alpha) + rate_matrix_problems(self.T, "T", ends=True)
        if not problems and len(self.alpha) != len(self.T):
            problems = [f"alpha has {len(self.alpha)} phases and T has {len(self.T)}"]
        if problems:
            raise InvalidCall("PhaseType", problems)
        self.alpha = self.alpha / self.alpha.sum()
        self.exit = np.maximum(-self.T.sum(axis=1), 0.0)

    @property
    def phases(self) -> int:
        """Number of phases."""
        return len(self.alpha)

    def pdf(self, x: ArrayLike) -> Floats:
        """Density at `x`."""
        values = np.asarray(x, dtype=np.float64)
        return np.asarray(np.where(values < 0, 0.0, self._absorb(values, self.exit)))

    def cdf(self, x: ArrayLike) -> Floats:
        """Probability of at most `x`."""
        return np.asarray(np.clip(1.0 - self.sf(x), 0.0, 1.0))

    def sf(self, x: ArrayLike) -> Floats:
        """Probability of more than `x`."""
        return self._absorb(np.asarray(x, dtype=np.float64), np.ones(self.phases))

    def moment(self, order: int) -> float:
        """Mean of the value to this power."""
        right: Floats = np.ones(self.phases)
        for _ in range(order):
            right = np.asarray(np.linalg.solve(-self.T, right), dtype=np.float64)
        return float(math.factorial(order) * (self.alpha @ right))

    def sample(self, size: int, seed: int | np.random.Generator = 0) -> Floats:
        """Independent draws; the same seed gives the same ones. All draws step together."""
        rng = np.random.default_rng(seed)
        leaving = -np.diag(self.T)
        jumps = self.T / leaving[:, None]
        np.fill_diagonal(jumps, 0.0)
        steps = np.cumsum(np.column_stack([jumps, self.exit / leaving]), axis=1)
        steps[:, -1] = 1.0
        phase = rng.choice(self.phases, size, p=self.alpha)
        total, live = np.zeros(size), np.arange(size)
        while len(live):
            total[live] += rng.exponential(1 / leaving[phase])
            phase = (rng.random(len(live))[:, None] >= steps[phase]).sum(axis=1)
            going = phase < self.phases
            live, phase = live[going], phase[going]
        return total

    def scaled(self, factor: float) -> PhaseType:
        """The distribution of `factor` times the value."""
        return PhaseType(self.alpha, self.T / factor)

    def __repr__(self) -> str:
        return f"PhaseType({self.phases} phases, mean {self.mean:.5g}, scv {self.scv:.4g})"

    def _absorb(self, x: Floats, right: Floats) -> Floats:
        """``alpha exp(T x) right`` for every x."""
        flat = np.maximum(np.atleast_1d(x).ravel(), 0.0)
        answer = np.zeros(flat.shape)
        finite = np.isfinite(flat)
        fastest = float(np.max(-np.diag(self.T)))
        near = finite & (fastest * flat <= _TERMS / 40)
        if near.any():
            answer[near] = self._uniformised(flat[near], right, fastest)
        for number in np.flatnonzero(finite & ~near):
            answer[number] = self.alpha @ expm(self.T * flat[number]) @ right
        return np.asarray(np.maximum(answer, 0.0).reshape(np.shape(x)))

    def _uniformised(self, x: Floats, right: Floats, fastest: float) -> Floats:
        means = fastest * x
        last = int(means.max() + 10 * math.sqrt(means.max()) + 30)
        jump = np.eye(self.phases) + self.T / fastest
        steps = np.empty(last + 1)
        vector = self.alpha.copy()
        for step in range(last + 1):
            steps[step] = vector @ right
            # Nothing is left to add: what remains is zero to the last bit.
            if steps[step] == 0.0 and vector.sum() == 0.0:
                steps[step:] = 0.0
                break
            vector = vector @ jump
        logs = gammaln(np.arange(last + 2, dtype=np.float64) + 1)
        answer = np.empty(len(x))
        # Only Poisson terms within ten deviations of their mean matter; points of like width go
        # together so that a block is never much larger than its longest row needs.
        order = np.argsort(means)
        widths = (10 * np.sqrt(means) + 30).astype(np.int64)
        start = 0
        while start < len(order):
            stop = start + 1
            budget = 2_000_000
            while (
                stop < len(order)
                and widths[order[stop]] <= 2 * widths[order[start]] + 8
                and (stop - start + 1) * (2 * widths[order[stop]] + 1) <= budget
            ):
                stop += 1
            chosen = order[start:stop]
            width = int(widths[chosen].max())
            low = np.maximum(means[chosen].astype(np.int64) - width, 0)
            terms = np.minimum(low[:, None] + np.arange(2 * width + 1), last)
            real = (low[:, None] + np.arange(2 * width + 1)) <= last
            mean = means[chosen][:, None]
            with np.errstate(divide="ignore", invalid="ignore"):
                log = np.where(mean > 0, terms * np.log(mean), np.where(terms == 0, 0.0, -np.inf))
            weight = np.where(real, np.exp(log - mean - logs[terms]), 0.0)
            answer[chosen] = (weight * steps[terms]).sum(axis=1)
            start = stop
        return answer


def rate_matrix_problems(matrix: Floats, name: str, *, ends: bool) -> list[str]:
    """What is wrong with a matrix of rates, entry by entry.

    Parameters
    ----------
    matrix, name
        The matrix and what its owner calls it.
    ends
        Whether rows may sum to less than zero, and from every phase the end must be reachable.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        return [f"{name} must be a square matrix, got shape {matrix.shape}"]
    if not np.all(np.isfinite(matrix)):
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        return [f"{name}[{row}, {column}] is {matrix[row, column]}: rates must be finite"]
    problems = []
    off = matrix - np.diag(np.diag(matrix))
    for row, column in np.argwhere(off < 0):
        problems.append(
            f"{name}[{row}, {column}] is {matrix[row, column]:g}: a rate between two phases must "
            "not be negative"
        )
    for row in np.flatnonzero(np.diag(matrix) >= 0):
        problems.append(
            f"{name}[{row}, {row}] is {matrix[row, row]:g}: the diagonal holds minus the rate of "
            "leaving the phase, which must be below 0"
        )
    if problems:
        return problems
    sums = matrix.sum(axis=1)
    slack = 1e-9 * np.abs(np.diag(matrix))
    for row in np.flatnonzero(sums > slack):
        problems.append(
            f"row {row} of {name} sums to {sums[row]:g}: a phase cannot be left for others at a "
            "higher rate than it is left at all; the sum must be at most 0"
        )
    if ends and not problems:
        reach = sums < -slack
        for _ in range(len(matrix)):
            reach = reach | ((off > 0) @ reach)
        problems = [
            f"from phase {row} of {name} the end is never reached: no path leads to a row that "
            "sums to less than 0"
            for row in np.flatnonzero(~reach)
        ]
    return problems


def _start_problems(alpha: Floats) -> list[str]:
    if alpha.ndim != 1 or not len(alpha) or not np.all(np.isfinite(alpha)):
        return [f"alpha must be a list of probabilities, got shape {alpha.shape}"]
    problems = [
        f"alpha[{number}] is {alpha[number]:g}: probabilities must not be negative"
        for number in np.flatnonzero(alpha < 0)
    ]
    if not problems and abs(alpha.sum() - 1) > 1e-6:
        problems.append(f"alpha must sum to 1, it sums to {alpha.sum():g}")
    return problems
