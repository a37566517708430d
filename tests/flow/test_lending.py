"""Sets of bits and arrays that are lent, as compiled code has them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anabranch.flow.bits import highest, lowest, ones
from anabranch.flow.lending import lent, moved
from anabranch.flow.process import njit


class Pair(NamedTuple):
    """Two arrays and a number."""

    x: np.ndarray
    y: np.ndarray
    n: int


@njit
def _of_word(word: Any) -> Any:
    return ones(word), lowest(word), highest(word)


@njit
def _add(pair: Any, values: Any) -> Any:
    pair, values = lent(pair), lent(values)
    for i in range(len(values)):
        pair.x[i] += pair.y[i] + values[i] + pair.n
    return pair.x.sum()


@njit
def _move(values: Any, begin: int, end: int, to: Any, at: int) -> None:
    moved(values, begin, end, to, at)


@given(st.integers(1, 2**64 - 1))
def test_bits_are_those_of_the_number(word: int) -> None:
    digits = bin(word)[2:]
    place = len(digits) - 1
    assert _of_word(np.uint64(word)) == (digits.count("1"), place - digits.rindex("1"), place)


def test_what_is_lent_is_the_same_memory_and_stays_its_owners() -> None:
    x, y = np.arange(5.0), np.ones(5)
    for _ in range(1000):  # were an owner counted wrongly, its memory would be gone by now
        assert _add(Pair(x, y, 2), y) == x.sum()
    assert x.tolist() == [4000 + i for i in range(5)] and y.tolist() == [1] * 5


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20), st.booleans())
def test_elements_are_moved_as_slices_are(begin: int, length: int, at: int, own: bool) -> None:
    values = np.arange(40)
    to = values if own else np.zeros(40, np.int64)
    wanted = to.copy()
    wanted[at : at + length] = values[begin : begin + length].copy()
    _move(values, begin, begin + length, to, at)
    assert to.tolist() == wanted.tolist()
