"""Distances at every scale: against exact rationals, and in the answers of every algorithm."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.correlation.filters.exact import measure
from anabranch.flow.blocks import Block
from anabranch.neighbours.lists.algorithm import METRICS, Algorithm, Queries
from anabranch.neighbours.lists.repair import ListWithRepair
from anabranch.neighbours.lists.scoring import score
from anabranch.neighbours.methods import Filtered, Probabilistic, Relaxed
from tests.neighbours.runs import distances
from tests.neighbours.twin import distance, reports

LEAST = 2.0**-1074
ULP = 2.0**-52
SCALES = (-1074, -1060, -1022, -545, -530, -500, -300, 0, 300, 480, 508)


def exact(metric: str, u: np.ndarray, v: np.ndarray) -> Decimal:
    """The distance in rationals, its root to 400 digits."""
    a, b = [Fraction(x) for x in u.tolist()], [Fraction(x) for x in v.tolist()]
    with localcontext() as context:
        context.prec = 400

        def decimal(value: Fraction) -> Decimal:
            return Decimal(value.numerator) / Decimal(value.denominator)

        if metric == "euclidean":
            return decimal(
                sum(((x - y) ** 2 for x, y in zip(a, b, strict=True)), Fraction())
            ).sqrt()
        if metric == "manhattan":
            return decimal(sum((abs(x - y) for x, y in zip(a, b, strict=True)), Fraction()))
        norms = sum((x * x for x in a), Fraction()) * sum((y * y for y in b), Fraction())
        dot = sum((x * y for x, y in zip(a, b, strict=True)), Fraction())
        return 1 - decimal(dot) / decimal(norms).sqrt()


def vectors(random: np.random.Generator, n: int, dim: int) -> np.ndarray:
    """Vectors of one scale, of mixed scales, alike, opposite, and multiples of each other."""
    made = np.empty((n, dim))
    for row in range(n):
        kind = random.integers(6)
        scale = random.choice(SCALES, dim if kind == 0 else 1).astype(int)
        made[row] = np.ldexp(random.integers(-9, 10, dim) / 9, scale)
        if row and kind == 1:
            made[row] = made[random.integers(row)]
        if row and kind == 2:
            made[row] = -made[random.integers(row)]
        if row and kind == 3:
            made[row] = np.ldexp(made[random.integers(row)], -int(random.integers(0, 40)))
        if row and kind == 4:
            made[row] = np.nextafter(made[random.integers(row)], np.inf)
        if not made[row].any():
            made[row, 0] = np.ldexp(1.0, int(scale[0]))
    return made


@given(seed=st.integers(0, 2**32 - 1), dim=st.sampled_from([1, 2, 3, 4, 5, 8, 11, 24]))
def test_distances_are_right_at_every_scale(seed: int, dim: int) -> None:
    random = np.random.default_rng(seed)
    x, y = vectors(random, 3, dim), vectors(random, 4, dim)
    y[0] = x[0]
    lanes = np.empty(8)
    for code, metric in enumerate(METRICS):
        side_by_side = distances(code, x, y)
        for i, u in enumerate(x):
            for j, v in enumerate(y):
                got, right = score(code, u, v, lanes), exact(metric, u, v)
                assert side_by_side[i, j] == got == distance(metric, u.tolist(), v.tolist())
                # A cosine has an error of its own size, which is up to 1.
                size = Decimal(1) if metric == "cosine" else right
                error = abs(Decimal(float(got)) - right)
                assert error <= size * Decimal((dim + 6) * ULP) + Decimal(LEAST), (metric, u, v)
        if metric != "euclidean":
            left, right_side = (Block.of(np.zeros(len(rows)), {"v": rows}) for rows in (x, y))
            i, j = (places.ravel() for places in np.indices(side_by_side.shape))
            theirs = measure(metric, "v", left, right_side, i, j)
            assert ((1 - theirs if metric == "cosine" else theirs) == side_by_side.ravel()).all()


def test_distances_that_used_to_be_lost() -> None:
    lanes = np.empty(8)

    def between(code: int, u: list[float], v: list[float]) -> float:
        return float(score(code, np.array(u), np.array(v), lanes))

    assert between(0, [1e-200, 0.0], [0.0, 0.0]) == 1e-200
    assert between(0, [1e154, 0.0], [-1e154, 0.0]) == 2e154
    assert between(2, [3e-162, 4e-162], [3e-162, 4e-162]) == 0.0
    assert between(2, [3e-200, 4e-200], [4e100, 3e100]) == pytest.approx(0.04)
    assert between(2, [LEAST, 0.0], [0.0, 1e154]) == 1.0


MAKES: dict[str, Any] = {
    "grid": lambda queries: ListWithRepair(queries, spare=1, index="grid"),
    "scan": lambda queries: ListWithRepair(queries, spare=1, index="scan"),
    "product": lambda queries: ListWithRepair(queries, spare=1, index="product"),
    "relaxed": Relaxed,
    "filtered": lambda queries: Filtered(queries, error=0.9),
    "probabilistic": Probabilistic,
}


@given(
    seed=st.integers(0, 2**32 - 1),
    metric=st.sampled_from(METRICS),
    dim=st.sampled_from([1, 2, 4, 6]),
    make=st.sampled_from(sorted(MAKES)),
    one_scale=st.booleans(),
)
def test_answers_are_right_at_every_scale(
    seed: int, metric: str, dim: int, make: str, one_scale: bool
) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 60))
    points, centres = vectors(random, n, dim), vectors(random, 3, dim)
    if one_scale:  # so that more than one distance is of a size
        scale = int(random.choice(SCALES))
        for array in (points, centres):
            array[:] = np.ldexp(random.integers(1, 9, array.shape) / 7, scale)
            array[array == 0] = math.ldexp(1.0, scale)
    k, window = random.integers(1, 5, 3), random.integers(2, 30, 3)
    queries = Queries.of(centres, k, window, metric=metric)
    algorithm: Algorithm = MAKES[make](queries)
    if isinstance(algorithm, Probabilistic):
        algorithm.sizes[:] = 100
    found, at = [], 0
    for end in [*np.sort(random.integers(0, n, 3)).tolist(), n]:
        seq = np.arange(at, end)
        found += algorithm.advance(seq, seq, points[at:end], end - 1).rows()
        at = end
    found += algorithm.advance([], [], [], n + 40).rows()
    asked = [
        {"point": p, "k": int(a), "window": int(b)}
        for p, a, b in zip(centres.tolist(), k, window, strict=True)
    ]
    objects = [(s, s, p) for s, p in enumerate(points.tolist())]
    assert sorted(found) == sorted(reports(objects, asked, metric=metric))


@pytest.mark.parametrize("index", ["grid", "scan", "product"])
@pytest.mark.parametrize("size", [1e160, 1e200, 1e300])
def test_an_object_whose_square_overflows_hides_no_other(index: str, size: float) -> None:
    lists = ListWithRepair(Queries.of(np.zeros((1, 6)), k=1, window=100), spare=1, index=index)
    points = np.full((10, 6), 2.0)
    points[8:] = [[size], [1.0]]  # both come when the list has a threshold
    found = lists.advance(np.arange(8), np.arange(8), points[:8], 7).rows()
    found += lists.advance(np.arange(8, 10), np.arange(8, 10), points[8:], 10).rows()
    objects = [(s, s, p) for s, p in enumerate(points.tolist())]
    asked = [{"point": [0.0] * 6, "k": 1, "window": 100}]
    assert found == reports(objects, asked, upto=10)
