"""A plan for one stream against itself: groups of rows, and a worker for every two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isqrt
from typing import Any, ClassVar

import numpy as np

from anabranch.errors import renamed
from anabranch.flow.hashing import slot_of, slot_table
from anabranch.plans.arguments import refuse, share_problems, shares, worker_problems
from anabranch.plans.cells import Cells
from anabranch.plans.plan import Plan, Routes, Rows, loggable

__all__ = ["Triangle", "groups_of", "triangle", "workers_of"]

# Roles of left and right rows in the worker where two groups meet: a row of the first meets rows of
# the second and none of its own, whichever of the two is taken for the left one.
_FIRST, _SECOND = (2, 1), (1, 2)
# Roles where two groups are compared each with itself: a row meets its own and none of the other's.
_EVEN, _ODD = (1, 1), (2, 2)


@loggable
@dataclass(frozen=True)
class Triangle(Plan):
    """Rows in `groups` groups by hash; two rows meet in the worker of their two groups.

    Worker numbers go through the triangle line by line: (0, 1), (0, 2), ... (1, 2), (1, 3), ... A
    group against itself is half the work of two groups against each other, so one worker does it
    for two groups; those come last.
    """

    groups: int
    weights: tuple[float, ...] | None = None
    name: ClassVar[str] = "triangle"
    workers: int = field(init=False, repr=False, compare=False)
    _table: np.ndarray = field(init=False, repr=False, compare=False)
    _homes: np.ndarray = field(init=False, repr=False, compare=False)
    _roles: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        g = self.groups
        number = np.zeros((g, g), np.int32)
        first, second = np.triu_indices(g, 1)
        number[first, second] = number[second, first] = np.arange(len(first))
        number[np.diag_indices(g)] = len(first) + np.arange(g) // 2
        mine, other = np.indices((g, g))
        roles = np.empty((2, g, g), np.int64)
        for side in (0, 1):
            roles[side] = np.where(mine < other, _FIRST[side], _SECOND[side])
            roles[side][np.diag_indices(g)] = [(_EVEN, _ODD)[n % 2][side] for n in range(g)]
        object.__setattr__(self, "workers", workers_of(g))
        object.__setattr__(self, "_table", slot_table(g, self.weights))
        object.__setattr__(self, "_homes", number)
        object.__setattr__(self, "_roles", roles)

    @classmethod
    def of_fields(cls, **fields: Any) -> Triangle:
        return triangle(**fields)

    def route(self, side: int, rows: Rows, window: tuple[int, int]) -> Routes:
        group = slot_of(rows.h, self._table)
        offsets = np.arange(len(group) + 1) * self.groups
        return Routes(offsets, self._homes[group].ravel(), self._roles[side][group].ravel())

    def cells(self) -> Cells:
        return Cells(self._homes.tolist(), "groups of rows", "groups of rows")

    def __str__(self) -> str:
        return f"triangle({self.groups})"


def workers_of(groups: int) -> int:
    """How many workers so many groups have.

    Examples
    --------
    >>> [workers_of(groups) for groups in (1, 2, 3, 4, 5, 6)]
    [1, 2, 5, 8, 13, 18]
    """
    return groups * (groups - 1) // 2 + -(-groups // 2)


def groups_of(workers: int) -> int:
    """The most groups that so many workers can hold.

    Examples
    --------
    >>> [groups_of(workers) for workers in (1, 2, 4, 5, 8, 12, 200)]
    [1, 2, 2, 3, 4, 4, 20]
    """
    groups = isqrt(2 * workers)
    return groups if workers_of(groups) <= workers else groups - 1


@renamed()
def triangle(groups: int, *, weights: Sequence[float] | None = None) -> Triangle:
    """Spread one stream that is correlated with itself over a triangle of workers.

    Rows are put in `groups` groups by hash, and every two groups have a worker: half the square of
    `groups` in all. A row is copied `groups` times and every two rows are compared once: half the
    comparisons of a stream joined with a second copy of itself, and less state. All workers
    have the same work if `groups` is even. `weights` are the shares of the groups.

    Examples
    --------
    >>> print(triangle(4), triangle(4).workers)
    triangle(4) 8
    """
    problems = worker_problems("groups", groups)
    if not problems:
        problems = worker_problems("the square of groups, halved,", workers_of(int(groups)))
    refuse("triangle", problems + share_problems("weights", weights, groups))
    return Triangle(int(groups), None if weights is None else shares(weights))
