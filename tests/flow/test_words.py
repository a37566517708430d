"""Whole numbers of several words, against Python's own."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.flow.words import (
    ROUNDINGS,
    around,
    at_most,
    difference,
    floats,
    from_arrow,
    magnitude,
)


def column(numbers: list[int], words: int) -> np.ndarray:
    data = b"".join(number.to_bytes(32, "little", signed=True) for number in numbers)
    return from_arrow(np.frombuffer(data, np.int64).reshape(-1, 4), words)


def back(numbers: np.ndarray) -> list[int]:
    """What `column` was made of."""
    words = (numbers.reshape(len(numbers), -1).view(np.uint64) ^ np.uint64(2**63)).copy()
    return [number - 2 ** (64 * words.shape[1] - 1) for number in plain(words)]


def plain(words: np.ndarray) -> list[int]:
    return [sum(w << (64 * n) for n, w in enumerate(reversed(row))) for row in words.tolist()]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[int, list[int], list[int], int]:
    words = draw(st.integers(1, 4))
    most = 2 ** (64 * words - 1) - 1
    edges = [n for k in range(words) for n in (2 ** (64 * k), 2 ** (64 * k) - 1)]
    signed = st.sampled_from([*edges, *(-n for n in edges), most, -most - 1])
    numbers = st.integers(-most - 1, most) | signed.filter(lambda n: -most <= n <= most)
    one, other = (draw(st.lists(numbers, min_size=6, max_size=6)) for _ in range(2))
    limits = st.sampled_from([0, 1, *edges, 2 * most + 1, 10**99, abs(one[0] - other[0])])
    return words, one, other, draw(limits | st.integers(0, most))


@given(worlds())
def test_words_are_compared_as_python_does(world: Any) -> None:
    words, one, other, limit = world
    a, b = column(one, words), column(other, words)
    assert back(a) == one
    apart = difference(a, b)
    assert plain(apart) == [abs(x - y) for x, y in zip(one, other, strict=True)]
    assert at_most(apart, limit).tolist() == [n <= limit for n in plain(apart)]
    most = 2 ** (64 * words - 1) - 1
    low, high = around(a, limit)
    assert back(low) == [max(x - limit, -most - 1) for x in one]
    assert back(high) == [min(x + limit, most) for x in one]
    # Rows have the order of their numbers.
    rows = [tuple(np.atleast_1d(row).tolist()) for row in (*a, *b)]
    assert sorted(range(12), key=rows.__getitem__) == sorted(
        range(12), key=(one + other).__getitem__
    )


@given(worlds())
def test_floats_are_near(world: Any) -> None:
    words, one, other, _ = world
    a, b = (column(numbers, words).reshape(6, -1) for numbers in (one, other))
    apart = difference(a, b)
    for found, true in ((floats(a), one), (magnitude(apart), plain(apart))):
        for x, n in zip(found.tolist(), true, strict=True):
            assert abs(Fraction(x) - n) <= Fraction(ROUNDINGS * abs(n), 2**53)
