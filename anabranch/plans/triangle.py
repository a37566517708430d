"""A plan for one stream against itself: groups of rows, and a worker for every two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isqrt
from typing import ClassVar

import numpy as np

from anabranch.errors import renamed
from anabranch.flow.hashing import slot_of, slot_table
from anabranch.plans.arguments import refuse, share_problems, shares, worker_problems
from anabranch.plans.plan import Plan, Routes, Rows, loggable

__all__ = ["Triangle", "groups_of", "triangle"]

# Roles in the worker of two groups: a row of the first meets rows of the second and none of its
# own, whichever of the two is taken for the left one. In the worker of one group all meet.
_ROLES = {"first": (2, 1), "second": (1, 2), "only": (1, 1)}


@loggable
@dataclass(frozen=True)
class Triangle(Plan):
    """Rows in `groups` groups by hash; two rows meet in the worker of their two groups.

    Worker numbers go through the triangle line by line: (0, 0), (0, 1), ... (1, 1), (1, 2), ...
    """

    groups: int
    weights: tuple[float, ...] | None = None
    kind: ClassVar[str] = "triangle"
    workers: int = field(init=False, repr=False, compare=False)
    _table: np.ndarray = field(init=False, repr=False, compare=False)
    _homes: np.ndarray = field(init=False, repr=False, compare=False)
    _roles: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        g = self.groups
        number = np.zeros((g, g), np.int32)
        first, second = np.triu_indices(g)
        number[first, second] = number[second, first] = np.arange(len(first))
        mine, other = np.indices((g, g))
        roles = np.empty((2, g, g), np.int64)
        for name, where in (
            ("first", mine < other),
            ("second", mine > other),
            ("only", mine == other),
        ):
            for side in (0, 1):
                roles[side][where] = _ROLES[name][side]
        object.__setattr__(self, "workers", len(first))
        object.__setattr__(self, "_table", slot_table(g, self.weights))
        object.__setattr__(self, "_homes", number)
        object.__setattr__(self, "_roles", roles)

    def route(self, side: int, rows: Rows, window: tuple[int, int]) -> Routes:
        group = slot_of(rows.h, self._table)
        offsets = np.arange(len(group) + 1) * self.groups
        return Routes(offsets, self._homes[group].ravel(), self._roles[side][group].ravel())

    def __str__(self) -> str:
        return f"triangle({self.groups})"


def groups_of(workers: int) -> int:
    """The most groups that so many workers can hold.

    Examples
    --------
    >>> [groups_of(workers) for workers in (1, 2, 3, 5, 6, 10, 200)]
    [1, 1, 2, 2, 3, 4, 19]
    """
    return (isqrt(8 * workers + 1) - 1) // 2


@renamed()
def triangle(groups: int, *, weights: Sequence[float] | None = None) -> Triangle:
    """Spread one stream that is correlated with itself over a triangle of workers.

    Rows are put in `groups` groups by hash, and every two groups have a worker, so ``groups *
    (groups + 1) / 2`` in all. A row is copied `groups` times and every two rows are compared once:
    half the comparisons, and half the state, of a stream joined with a second copy of itself.
    `weights` are the shares of the groups.

    Examples
    --------
    >>> print(triangle(3), triangle(3).workers)
    triangle(3) 6
    """
    problems = worker_problems("groups", groups)
    if not problems:
        problems = worker_problems("groups * (groups + 1) / 2", groups * (groups + 1) // 2)
    refuse("triangle", problems + share_problems("weights", weights, groups))
    return Triangle(int(groups), None if weights is None else shares(weights))
