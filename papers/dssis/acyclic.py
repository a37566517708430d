"""Acyclic phase-type distributions by likelihood, in their canonical form.

Every acyclic phase-type distribution is a chain of phases of ascending rates, entered anywhere and
left at its end (Cumani's CF1): n rates and n - 1 probabilities say it all. They are found by
expectation-maximisation: how long each phase lasted and where each value entered, given the value,
follows from uniformisation; starts and rates are set accordingly, and the likelihood only grows.

The uniformisation rate stays fixed, so that the Poisson weights, the costly part, are
computed once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from anabranch.assembly.fitting.distribution import Floats
from anabranch.assembly.fitting.phasetype import PhaseType
from anabranch.assembly.fitting.sample import Sample, read_sample
from anabranch.calls import is_whole
from anabranch.errors import InvalidCall
from anabranch.flow.process import njit

__all__ = ["canonical", "fit_acyclic"]

# mypy: disable-error-code="misc, no-untyped-def, no-untyped-call, no-any-return"

_GROUPS = 250
_SPREAD = 60.0


def fit_acyclic(
    data: ArrayLike, phases: int = 3, *, starts: int = 3, rounds: int = 1500, seed: int = 0
) -> PhaseType:
    """The acyclic phase-type distribution of so many phases that fits best.

    The likelihood of phase-type distributions has local maxima: several starts are tried, and the
    best is kept. Data is shortened to a few hundred weighted values first.

    Parameters
    ----------
    data
        Positive values, all complete; for values that were cut off take `fit_hyper_erlang`.
    phases
        Number of phases.
    starts
        Number of starting points.
    rounds
        Most steps of each.
    seed
        For the starting points.

    Examples
    --------
    >>> truth = PhaseType([0.3, 0.7], [[-0.5, 0.5], [0.0, -3.0]])
    >>> found = fit_acyclic(truth.sample(20_000, seed=5), phases=2)
    >>> abs(found.mean / truth.mean - 1) < 0.03, abs(found.scv / truth.scv - 1) < 0.1
    (True, True)
    """
    problems = []
    if not (is_whole(phases) and phases <= 100):
        problems.append(f"phases must be a whole number from 1 to 100, got {phases!r}")
    if not is_whole(starts):
        problems.append(f"starts must be a whole number of at least 1, got {starts!r}")
    if problems:
        raise InvalidCall("fit_acyclic", problems)
    sample = read_sample(data, verb="fit_acyclic")
    unit = sample.mean
    short = sample.shortened(_GROUPS)
    values = short.values / unit
    weights = short.weights / short.weights.sum()
    # The fastest phase that the data can tell: well below the smallest values that have weight.
    rank = np.cumsum(weights)
    small = max(float(values[np.searchsorted(rank, 0.01)]), 1e-3)
    fastest = float(np.clip(4 * phases / small, 4 * phases, max(_SPREAD, 6 * phases)))
    poisson = _poisson(fastest * values)
    best: tuple[float, Floats, Floats] | None = None
    rng = np.random.default_rng(seed)
    first = [_start(short, unit, phases, number, rng) for number in range(starts)]
    for alpha, rates in first:
        rates = np.minimum(rates, fastest)
        found = _climb(alpha, rates, fastest, poisson, weights, rounds)
        if best is None or found[0] > best[0]:
            best = found
    assert best is not None
    alpha, rates = canonical(best[1], best[2])
    T = np.diag(-rates) + np.diag(rates[:-1], 1)
    return PhaseType(alpha, T / unit)


def canonical(alpha: Floats, rates: Floats) -> tuple[Floats, Floats]:
    """The same chain with its rates in ascending order.

    An exponential step of rate *y* is, with probability y/x, one of rate *x* > *y* alone and
    otherwise both; so two neighbours change places and some of the starts move up.

    Examples
    --------
    >>> alpha, rates = canonical(np.array([0.5, 0.5]), np.array([4.0, 1.0]))
    >>> alpha.tolist(), rates.tolist()
    ([0.875, 0.125], [1.0, 4.0])
    """
    alpha, rates = alpha.astype(np.float64), rates.astype(np.float64)
    moved = True
    while moved:
        moved = False
        for at in range(len(rates) - 1):
            quick, slow = rates[at], rates[at + 1]
            if quick > slow:
                share = slow / quick
                alpha[at] += (1 - share) * alpha[at + 1]
                alpha[at + 1] *= share
                rates[at], rates[at + 1] = slow, quick
                moved = True
    return alpha / alpha.sum(), rates


def _start(
    short: Sample, unit: float, phases: int, number: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """A chain of the data's mean: first an Erlang, then ever wider ones, then random ones."""
    if number == 0:
        alpha = np.full(phases, 0.1 / max(phases - 1, 1))
        alpha[0] = 0.9
        rates = np.full(phases, float(phases)) * np.linspace(0.9, 1.1, phases)
    elif number == 1:
        spread = max(2.0, min(short.scv, 30.0))
        alpha = np.full(phases, 1 / phases)
        rates = np.geomspace(1 / spread, spread, phases)
    else:
        alpha = rng.dirichlet(np.ones(phases))
        rates = np.sort(10 ** rng.uniform(-1, 1, phases))
    alpha = alpha / alpha.sum()
    # Mean of the chain: a start at i runs through all phases from i on.
    mean = float(alpha @ np.cumsum((1 / rates)[::-1])[::-1])
    return alpha, rates * mean


def _poisson(means: Floats) -> Floats:
    """Poisson weights, one row per value."""
    last = int(means.max() + 8 * np.sqrt(means.max()) + 30)
    steps = np.arange(last + 1)
    logs = special.xlogy(steps, means[:, None]) - means[:, None] - special.gammaln(steps + 1)
    return np.ascontiguousarray(np.exp(logs))


def _climb(
    alpha: Floats, rates: Floats, fastest: float, poisson: Floats, weights: Floats, rounds: int
) -> tuple[float, Floats, Floats]:
    likelihood = -np.inf
    for _ in range(rounds):
        forward = _forward(alpha, rates / fastest, poisson.shape[1])
        ends = forward[:, -1] * rates[-1]
        density = np.maximum(poisson @ ends, 1e-300)
        now = float(weights @ np.log(density))
        if now - likelihood < 1e-9 * abs(now) + 1e-12:
            likelihood = max(now, likelihood)
            break
        likelihood = now
        per_step = (weights / density) @ poisson
        begun, lasted, passed = _expected(forward, alpha, rates, fastest, per_step)
        # Left at the end: once per value.
        passed[-1] = weights.sum()
        alpha = np.maximum(begun, 0.0)
        alpha = alpha / alpha.sum()
        rates = np.clip(passed / np.maximum(lasted, 1e-300), 1e-6, fastest)
    return likelihood, alpha, rates


@njit
def _forward(alpha, jump, steps):
    """Probability of each phase after each uniform step."""
    phases = len(alpha)
    rows = np.empty((steps, phases))
    rows[0] = alpha
    for step in range(1, steps):
        for phase in range(phases):
            value = rows[step - 1, phase] * (1 - jump[phase])
            if phase:
                value += rows[step - 1, phase - 1] * jump[phase - 1]
            rows[step, phase] = value
    return rows


@njit
def _expected(forward, alpha, rates, fastest, per_step):
    """Expected starts, time spent and passages per phase, summed over the data.

    `per_step` weighs how much of the data's density ends after each number of uniform steps. Going
    back over the steps collects what is still to come behind each phase.
    """
    steps, phases = forward.shape
    behind = np.zeros(phases)
    lasted = np.zeros(phases)
    passed = np.zeros(phases)
    fresh = np.empty(phases)
    for step in range(steps - 1, -1, -1):
        # behind: density of ending from here, through steps step + 1, step + 2, ...
        for phase in range(phases):
            lasted[phase] += forward[step, phase] * behind[phase]
            if phase + 1 < phases:
                passed[phase] += forward[step, phase] * rates[phase] * behind[phase + 1]
        for phase in range(phases):
            share = rates[phase] / fastest
            fresh[phase] = behind[phase] * (1 - share)
            if phase + 1 < phases:
                fresh[phase] += behind[phase + 1] * share
        fresh[phases - 1] += per_step[step] * rates[phases - 1]
        behind[:] = fresh
    return alpha * behind, lasted / fastest, passed / fastest
