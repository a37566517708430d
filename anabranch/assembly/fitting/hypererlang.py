"""Fitting Erlang and hyper-Erlang distributions to data; branches are found by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement, pairwise

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from anabranch.assembly.fitting.erlang import Erlang, HyperErlang
from anabranch.assembly.fitting.expectation import Candidates, run
from anabranch.assembly.fitting.sample import Sample, read_sample
from anabranch.calls import is_whole
from anabranch.errors import InvalidCall

__all__ = ["fit_erlang", "fit_hyper_erlang"]

_FINALISTS = 12
_MOST_PHASES = 2000


def fit_erlang(data: ArrayLike, *, complete: ArrayLike | None = None) -> Erlang:
    """The Erlang distribution of the greatest likelihood.

    Parameters
    ----------
    data
        Positive values.
    complete
        False where a value was cut off and the true one is larger.

    Examples
    --------
    >>> fit_erlang(Erlang(100, 8.7963).sample(20_000, seed=1)).shape in range(97, 104)
    True
    """
    sample = read_sample(data, complete, verb="fit_erlang")
    if len(sample.censored):
        around = _shape_of(sample)
        found = _search([(shape,) for shape in _near(around)], sample)
        return Erlang(int(found.shapes[0]), float(found.rates[0]))
    shape = _shape_of(sample)
    return Erlang(shape, shape / sample.mean)


def fit_hyper_erlang(
    data: ArrayLike,
    *,
    complete: ArrayLike | None = None,
    phases: int = 10,
    branches: int = 3,
    shapes: Sequence[int] | None = None,
    counts: bool = False,
) -> HyperErlang:
    """A mixture of Erlang distributions by G-FIT, its branches chosen by BIC.

    Every way to share at most `phases` phases among at most `branches` branches is tried by a short
    run on shortened data, together with the single Erlang of the data's variation and splits of
    the data into groups; the best dozen run to the end, and the best three on all data.

    Parameters
    ----------
    data
        Positive values.
    complete
        False where a value was cut off and the true one is larger.
    phases, branches
        How far the search goes.
    shapes
        Phases per branch, if you know them: no search.
    counts
        Whether values are whole numbers. Each then stands for the half below and above it, or a
        density would find that nothing beats a needle on every number; read ``cdf(n + 0.5)``.

    Examples
    --------
    >>> truth = HyperErlang([0.3, 0.7], [1, 4], [0.1, 2.0])
    >>> found = fit_hyper_erlang(truth.sample(20_000, seed=3))
    >>> found.shapes.tolist(), [round(float(rate), 1) for rate in found.rates]
    ([1, 4], [0.1, 2.0])
    """
    problems = []
    if not (is_whole(phases) and phases <= 60):
        problems.append(f"phases must be a whole number from 1 to 60, got {phases!r}")
    if not (is_whole(branches) and branches <= 5):
        problems.append(f"branches must be a whole number from 1 to 5, got {branches!r}")
    if shapes is not None and not (len(shapes) and all(is_whole(s) for s in shapes)):
        problems.append(f"shapes must be whole numbers of at least 1, got {shapes!r}")
    if problems:
        raise InvalidCall("fit_hyper_erlang", problems)
    sample = read_sample(data, complete, verb="fit_hyper_erlang")
    if counts:
        sample = sample.spread()
    if len(sample.values) == 1 and not len(sample.censored):
        # One value only: no rate would ever be enough, so take the sharpest there is.
        return Erlang(_MOST_PHASES, _MOST_PHASES / sample.mean)
    if shapes is not None:
        return _search([tuple(int(shape) for shape in shapes)], sample, climb=False)
    return _search(_ways(sample, phases, branches), sample)


def _search(ways: list[tuple[int, ...]], sample: Sample, climb: bool = True) -> HyperErlang:
    """Short runs of all, long runs of a dozen, and the best three on every value."""
    short = sample.shortened(300)
    found = run(Candidates.start(ways, short), short, rounds=20)
    # A finalist's short run says little about how far it still climbs: a dozen, not one.
    finer = sample.shortened(1000)
    found = run(found.best(_FINALISTS, sample.size), finer, rounds=600, tolerance=1e-9)
    if climb:
        counts = (found.weights > 0).sum(axis=1)
        # The best of each number of branches climbs, or three would hide that two are enough.
        found = Candidates.join(
            [_climb(found.only(counts == count), short) for count in np.unique(counts)]
        )
        found = run(found, finer, rounds=200, tolerance=1e-9)
    found = run(found.best(3, sample.size), sample.lightened(), rounds=60, tolerance=1e-9)
    found = found.best(1, sample.size)
    live = found.weights[0] > 1e-9
    order = np.argsort(-(found.shapes / found.rates)[0][live], kind="stable")
    weights = found.weights[0][live][order]
    return HyperErlang(
        (weights / weights.sum()).tolist(),
        found.shapes[0][live][order].astype(int).tolist(),
        found.rates[0][live][order].tolist(),
    )


def _climb(found: Candidates, sample: Sample) -> Candidates:
    """Change the phases of one branch at a time while that helps; sharp branches need many."""
    found = run(found.best(1, sample.size), sample, rounds=40, tolerance=1e-8)
    for _ in range(40):
        best = found.best(1, sample.size)
        near = [best.shapes[0]]
        for branch in np.flatnonzero(best.weights[0] > 0):
            now = best.shapes[0, branch]
            for other in {now - 1, now + 1, round(now * 0.8), round(now * 1.25)} - {now}:
                if 1 <= other <= _MOST_PHASES:
                    changed = best.shapes[0].copy()
                    changed[branch] = other
                    near.append(changed)
        shapes = np.array(near)
        rows = len(shapes)
        moved = Candidates(
            np.repeat(best.weights, rows, axis=0),
            shapes,
            # The branch keeps its mean.
            np.repeat(best.rates / best.shapes, rows, axis=0) * shapes,
            np.full(rows, -np.inf),
        )
        moved = run(moved, sample, rounds=40, tolerance=1e-8)
        if moved.bic(sample.size).min() >= best.bic(sample.size)[0] - 1e-6:
            break
        found = moved
    return found.best(1, sample.size)


def _ways(sample: Sample, phases: int, branches: int) -> list[tuple[int, ...]]:
    ways: set[tuple[int, ...]] = set()
    for count in range(1, branches + 1):
        for way in combinations_with_replacement(range(1, phases + 1), count):
            if sum(way) <= phases:
                ways.add(way)
    around = _shape_of(sample)
    ways |= {(shape,) for shape in _near(around)}
    if branches > 1:
        ways |= {tuple(sorted((slow, around))) for slow in (1, 2)}
        for share in (0.1, 0.25, 0.5, 0.75, 0.9):
            ways.add(tuple(sorted(_groups(sample, [share]))))
    if branches > 2:
        for shares in ([0.33, 0.67], [0.1, 0.9], [0.2, 0.5], [0.5, 0.8]):
            ways.add(tuple(sorted(_groups(sample, shares))))
    return sorted(ways)


def _groups(sample: Sample, shares: list[float]) -> list[int]:
    """Phases of the groups that the data falls into when cut at these shares."""
    rank = np.cumsum(sample.weights) / sample.weights.sum()
    cuts = [0, *(int(np.searchsorted(rank, share)) for share in shares), len(rank)]
    found = []
    for start, stop in pairwise(cuts):
        weights = sample.weights[start:stop]
        if len(weights) < 2:
            found.append(1)
            continue
        mean = np.average(sample.values[start:stop], weights=weights)
        spread = np.average((sample.values[start:stop] - mean) ** 2, weights=weights)
        # A slice of a wide branch looks narrow; half the phases is nearer the branch's own.
        found.append(int(np.clip(mean**2 / spread / 2, 1, _MOST_PHASES)))
    return found


def _near(shape: int) -> list[int]:
    steps = {round(shape * factor) for factor in (0.5, 0.7, 0.85, 0.93, 1.0, 1.07, 1.15, 1.3)}
    return sorted({min(max(1, step), _MOST_PHASES) for step in steps})


def _shape_of(sample: Sample) -> int:
    """The whole number of phases of the greatest likelihood, censoring left aside."""
    mean, excess = sample.mean, np.log(sample.mean) - sample.mean_log
    if excess <= 1e-9:
        return _MOST_PHASES

    def slope(shape: float) -> float:
        return float(np.log(shape) - special.digamma(shape) - excess)

    if slope(1.0) <= 0:
        return 1
    if slope(float(_MOST_PHASES)) >= 0:
        return _MOST_PHASES
    exact = optimize.brentq(slope, 1.0, float(_MOST_PHASES))

    def likelihood(shape: int) -> float:
        rate = shape / mean
        return float(
            shape * np.log(rate) + (shape - 1) * sample.mean_log - shape - special.gammaln(shape)
        )

    return max((int(exact), int(exact) + 1), key=likelihood)
