"""What every search over two sorted blocks shares: runs, room for matches, and how far it got."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Found", "Progress", "Runs"]


class Found(NamedTuple):
    """Matches: positions in the left and the right block, and distances; also room for them."""

    left: np.ndarray
    right: np.ndarray
    value: np.ndarray

    @classmethod
    def room(cls, size: int) -> Found:
        """Room for so many."""
        return cls(np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size))

    def first(self, count: int) -> Found:
        """A copy of the first so many."""
        return Found(*(part[:count].copy() for part in self))


class Runs(NamedTuple):
    """The left row at place i of its order meets the right places from ``first[i]`` to ``last[i]``.

    Examples
    --------
    >>> Runs.within(np.array([1.0, 5.0]), np.array([0.0, 1.5, 2.5]), 1.0)
    Runs(first=array([0, 3]), last=array([2, 3]))
    """

    first: np.ndarray
    last: np.ndarray

    @classmethod
    def within(cls, left: np.ndarray, right: np.ndarray, reach: float) -> Runs:
        """Right keys no further than `reach` from each left one; right ones are sorted."""
        first = np.searchsorted(right, left - reach, "left")
        return cls(first, np.searchsorted(right, left + reach, "right"))

    @classmethod
    def everything(cls, left: int, right: int) -> Runs:
        """All right places for every left one."""
        return cls(np.zeros(left, np.int64), np.full(left, right))


class Progress(NamedTuple):
    """Where a search goes on, what it has counted, and the pairs it looked at by left place."""

    at: np.ndarray
    counts: np.ndarray
    work: np.ndarray

    @classmethod
    def begin(cls, left: int, counters: int, inside: int = 0) -> Progress:
        """At the first of `left` places, and at `inside` in its run."""
        return cls(np.array([0, inside]), np.zeros(counters, np.int64), np.zeros(left))

    @property
    def done(self) -> bool:
        """Whether every left place has been looked at."""
        return bool(self.at[0] >= len(self.work))
