"""Expectation-maximisation for mixtures of Erlang branches, many candidates at once.

The steps of G-FIT (Thümmler, Buchholz and Telek, 2006), for fixed shapes r_m::

    q_im = a_m f_m(x_i) / sum_m a_m f_m(x_i)
    a_m  = mean of q_im over i
    l_m  = r_m sum q_im / sum q_im x_i

in the log domain, because densities of a hundred phases underflow. A value that was cut off at *c*
takes part with its probability of being larger than *c*, and with its expected size given that,
so that spans cut by a timeout do not pull the fit down.

Arrays are (candidate, branch, value): a hundred short runs cost little more than one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from anabranch.assembly.fitting.distribution import Floats
from anabranch.assembly.fitting.sample import Sample

__all__ = ["Candidates", "run"]

_TINY = 1e-300


@dataclass
class Candidates:
    """Mixtures under way: one row per candidate, one column per branch; unused branches weigh 0."""

    weights: Floats
    shapes: Floats
    rates: Floats
    likelihood: Floats
    rounds: int = 0

    @classmethod
    def start(cls, shapes: list[tuple[int, ...]], sample: Sample) -> Candidates:
        """Branches spread over the quantiles of the data, slow ones first."""
        width = max(len(row) for row in shapes)
        table = np.ones((len(shapes), width))
        weights = np.zeros((len(shapes), width))
        centres = np.full((len(shapes), width), sample.mean)
        rank = np.cumsum(sample.weights) / sample.weights.sum()
        for number, row in enumerate(shapes):
            count = len(row)
            table[number, :count] = row
            weights[number, :count] = 1 / count
            if count > 1:
                # Few phases mean a wide branch: it gets the long values.
                at = 1 - (np.arange(count) + 0.5) / count
                centres[number, :count] = sample.values[
                    np.minimum(np.searchsorted(rank, at), len(rank) - 1)
                ]
        centres = np.maximum(centres, sample.mean * 1e-3)
        return cls(weights, table, table / centres, np.full(len(shapes), -np.inf))

    def best(self, count: int, size: float) -> Candidates:
        """The `count` candidates of the least BIC."""
        return self.only(np.argsort(self.bic(size), kind="stable")[:count])

    def only(self, chosen: Any) -> Candidates:
        """Some of the candidates, by mask or by number."""
        return Candidates(
            self.weights[chosen], self.shapes[chosen], self.rates[chosen], self.likelihood[chosen]
        )

    @classmethod
    def join(cls, parts: list[Candidates]) -> Candidates:
        """All candidates of several."""
        return cls(
            np.concatenate([part.weights for part in parts]),
            np.concatenate([part.shapes for part in parts]),
            np.concatenate([part.rates for part in parts]),
            np.concatenate([part.likelihood for part in parts]),
        )

    def bic(self, size: float) -> Floats:
        """Bayesian information criterion; weight, shape and rate of each branch are parameters."""
        parameters = 3 * (self.weights > 0).sum(axis=1) - 1
        return np.asarray(parameters * np.log(size) - 2 * self.likelihood)


def run(found: Candidates, sample: Sample, *, rounds: int, tolerance: float = 1e-8) -> Candidates:
    """Improve every candidate until all stand still, at most so many rounds."""
    logs = np.log(sample.values)
    # Blocks of values, so that a hundred thousand of them stay in cache.
    block = max(1, int(400_000 // max(1, found.weights.size)))
    for step in range(rounds):
        before = found.likelihood.copy()
        _step(found, sample, logs, block)
        found.rounds = step + 1
        change = np.abs(found.likelihood - before)
        if step and np.all(change <= tolerance * np.abs(found.likelihood) + 1e-12):
            break
    return found


def _step(found: Candidates, sample: Sample, logs: Floats, block: int) -> None:
    with np.errstate(divide="ignore"):
        log_weights = np.log(found.weights)
    constant = log_weights + found.shapes * np.log(found.rates) - special.gammaln(found.shapes)
    mass = np.zeros(found.weights.shape)
    total = np.zeros(found.weights.shape)
    likelihood = np.zeros(len(found.weights))
    for start in range(0, len(logs), block):
        part = slice(start, start + block)
        x, weight = sample.values[part], sample.weights[part]
        terms = (found.shapes - 1)[..., None] * logs[part]
        terms -= found.rates[..., None] * x
        terms += constant[..., None]
        likelihood += _share(terms, weight)
        mass += terms @ weight
        total += terms @ (weight * x)
    if len(sample.censored):
        cut, weight = sample.censored, sample.censored_weights
        scaled = found.rates[..., None] * cut
        above = np.maximum(special.gammaincc(found.shapes[..., None], scaled), _TINY)
        terms = np.log(above) + log_weights[..., None]
        longer = special.gammaincc(found.shapes[..., None] + 1, scaled) / above
        expected = np.maximum(longer * (found.shapes / found.rates)[..., None], cut)
        likelihood += _share(terms, weight)
        mass += terms @ weight
        total += (terms * expected) @ weight
    live = (found.weights > 0) & (total > 0) & (mass > 1e-12)
    found.weights = np.where(live, mass / sample.size, 0.0)
    found.weights /= found.weights.sum(axis=1, keepdims=True)
    found.rates = np.where(live, found.shapes * mass / np.where(live, total, 1.0), found.rates)
    found.likelihood = likelihood


def _share(terms: Floats, weight: Floats) -> Floats:
    """Turn log terms into shares per branch, in place; the log likelihood of each candidate."""
    top = terms.max(axis=1, keepdims=True)
    terms -= top
    np.exp(terms, out=terms)
    together = terms.sum(axis=1, keepdims=True)
    terms /= together
    return np.asarray((np.log(together[:, 0]) + top[:, 0]) @ weight)
