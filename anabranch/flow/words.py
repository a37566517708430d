"""Whole numbers of up to four 64-bit words, for decimals that one word does not hold.

A column of them is a matrix of int64, the most significant word first. All words but the first are
shifted by half their range, so numbers have the order of their rows; one word is the number itself.
"""

from __future__ import annotations

import numpy as np

__all__ = [
    "ROUNDINGS",
    "around",
    "at_most",
    "difference",
    "floats",
    "from_arrow",
    "magnitude",
    "shortened",
]

ROUNDINGS = 9
"""How many there are at most in a float made of words."""

_SIGN = np.uint64(1 << 63)


def from_arrow(words: np.ndarray, count: int) -> np.ndarray:
    """Numbers of `count` words, given as Arrow has them: the least significant word first.

    Examples
    --------
    >>> from_arrow(np.array([[5, 0, 0, 0], [-5, -1, -1, -1]]), 1).tolist()
    [5, -5]
    >>> (from_arrow(np.array([[5, 0, 0, 0]]), 2) ^ [0, -(2**63)]).tolist()
    [[0, 5]]
    """
    if count == 1:
        return words[:, 0].copy()
    numbers = words[:, count - 1 :: -1].copy()
    numbers[:, 1:] ^= _SIGN.view(np.int64)
    return numbers


def shortened(numbers: np.ndarray) -> np.ndarray | None:
    """The same numbers in one word each, if that holds them all.

    Examples
    --------
    >>> shortened(from_arrow(np.array([[5, 0, 0, 0], [-5, -1, -1, -1]]), 3)).tolist()
    [5, -5]
    """
    low: np.ndarray = numbers[:, -1] ^ _SIGN.view(np.int64)
    sign = low >> 63
    others = numbers[:, :-1] ^ np.array([0, *[_SIGN.view(np.int64)] * (numbers.shape[1] - 2)])
    return low if (others == sign[:, None]).all() else None


def around(numbers: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest number within a limit of each; the ends of the range stop them.

    Examples
    --------
    >>> low, high = around(np.array([7, 2**63 - 2]), 3)
    >>> low.tolist() == [4, 2**63 - 5], high.tolist() == [10, 2**63 - 1]
    (True, True)
    """
    raised = _raised(numbers)
    far = _split(limit, raised.shape[1])
    ends = []
    for flip in (np.uint64(0), ~np.uint64(0)):
        end, below = _minus(raised ^ flip, far)
        end[below] = 0
        ends.append((end ^ flip ^ _SIGN).view(np.int64).reshape(numbers.shape))
    return ends[0], ends[1]


def difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``|a - b|`` of each two numbers, as plain words without a sign."""
    x, y = _raised(a), _raised(b)
    apart, below = _minus(x, y)
    apart[below] = _minus(y[below], x[below])[0]
    return apart


def at_most(words: np.ndarray, limit: int) -> np.ndarray:
    """Whether plain words are no greater than a limit.

    Examples
    --------
    >>> apart = difference(np.array([[1, 0]]), np.array([[0, 0]]))  # 2**64
    >>> [at_most(apart, limit).tolist() for limit in (2**64 - 1, 2**64, 10**99)]
    [[False], [True], [True]]
    """
    return ~_minus(_split(limit, words.shape[1]), words)[1]


def magnitude(words: np.ndarray) -> np.ndarray:
    """Plain words as floats: a few roundings, and nothing cancels, for all parts are positive."""
    found = np.zeros(len(words))
    for word in words.T:
        found = found * 2.0**64 + word
    return found


def floats(numbers: np.ndarray) -> np.ndarray:
    """Numbers as floats that are near to them.

    Examples
    --------
    >>> floats(from_arrow(np.array([[5, 0, 0, 0], [-5, -1, -1, -1]]), 4)).tolist()
    [5.0, -5.0]
    """
    below = numbers[:, 0] < 0
    plain = _raised(numbers)
    plain[:, 0] ^= _SIGN
    size = magnitude(np.where(below[:, None], ~plain, plain)) + below  # ~n is -n - 1
    return np.where(below, -size, size)


def _raised(numbers: np.ndarray) -> np.ndarray:
    """Numbers from 0 on: half the range is added, so words need no sign."""
    words: np.ndarray = numbers if numbers.ndim == 2 else numbers[:, None]
    return np.ascontiguousarray(words).view(np.uint64) ^ _SIGN


def _split(number: int, count: int) -> np.ndarray:
    """A number from 0 on in so many plain words, at most the greatest that they hold."""
    number = min(number, 2 ** (64 * count) - 1)
    parts = [(number >> (64 * n)) % 2**64 for n in reversed(range(count))]
    return np.array([parts], np.uint64)


def _minus(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Plain words of ``a - b``, and where that is below zero."""
    rows = max(len(a), len(b)) if len(a) and len(b) else 0
    found, borrowed = np.empty((rows, a.shape[1]), np.uint64), np.zeros(rows, bool)
    for n in reversed(range(a.shape[1])):
        x, y = a[:, n], b[:, n]
        found[:, n] = x - y - borrowed
        borrowed = (x < y) | (borrowed & (x == y))
    return found, borrowed
