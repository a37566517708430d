"""Sums in eight lanes: to the last bit those of the definition."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.flow.lanes import PRODUCTS, SIZES, SQUARES, summed
from anabranch.flow.process import njit

TERMS = {
    SQUARES: lambda a, b: (a - b) * (a - b),
    SIZES: lambda a, b: abs(a - b),
    PRODUCTS: lambda a, b: a * b,
}


@njit
def sum_of(kind, u, v):  # type: ignore[no-untyped-def]  # pragma: no cover
    return summed(kind, u, v, np.empty(8))


@pytest.mark.parametrize("types", ["ff", "fd", "df", "dd"])
def test_a_sum_is_that_of_the_definition(types: str) -> None:
    random = np.random.default_rng(4)
    for d in (0, 1, 7, 8, 9, 64, 100):
        u, v = (
            (random.normal(size=d) * np.exp2(random.integers(-60, 60, d))).astype(kind)
            for kind in types
        )
        for kind, term in TERMS.items():
            lanes = [0.0] * 8
            for c in range(d):
                lanes[c % 8] += term(float(u[c]), float(v[c]))
            a, b, c, d_, e, f, g, h = lanes
            assert sum_of(kind, u, v) == ((a + b) + (c + d_)) + ((e + f) + (g + h))
