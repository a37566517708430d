"""Plans that spread rows by a hash, of their id or of their key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from anabranch.errors import renamed
from anabranch.flow.hashing import slot_of, slot_table
from anabranch.plans.arguments import (
    NO_MASTER,
    is_list,
    other_side,
    refuse,
    share_problems,
    shares,
    side_problems,
    worker_problems,
)
from anabranch.plans.cells import Cells
from anabranch.plans.plan import LEFT, SIDES, Plan, Routes, Rows, loggable

__all__ = ["Broadcast", "Grid", "Keyed", "Slotted", "broadcast", "grid", "keyed", "ssp"]


@dataclass(frozen=True)
class Slotted(Plan):
    """A plan whose workers have slots, as many as their weights say."""

    workers: int
    weights: tuple[float, ...] | None = field(default=None, kw_only=True)
    _table: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_table", slot_table(self.workers, self.weights))

    def by_slot(self, hashes: np.ndarray) -> Routes:
        """Each row to the one worker of its hash."""
        return Routes(np.arange(len(hashes) + 1), slot_of(hashes, self._table))

    def __str__(self) -> str:
        return f"{self.name}({self.workers})"


@loggable
@dataclass(frozen=True)
class Broadcast(Slotted):
    """Rows of one side go to all workers, those of the other are spread (ViCo, section 2.1)."""

    side: str = "right"
    name: ClassVar[str] = "broadcast"

    @classmethod
    def of_fields(cls, **fields: Any) -> Broadcast:
        return broadcast(**fields)

    def route(self, side: int, rows: Rows, window: tuple[int, int]) -> Routes:
        if SIDES[side] != self.side:
            return self.by_slot(rows.h)
        n = len(rows.h)
        workers = np.tile(np.arange(self.workers, dtype=np.int32), n)
        return Routes(np.arange(n + 1) * self.workers, workers)

    def once(self, side: int) -> bool:
        return self.workers == 1 or SIDES[side] != self.side

    def cells(self) -> Cells:
        workers = list(range(self.workers))
        if self.side == "right":
            return Cells([[worker] for worker in workers], "all right rows", "left rows")
        return Cells([workers], "right rows", "all left rows")

    def __str__(self) -> str:
        return f"broadcast({self.workers}, side={self.side})"


@loggable
@dataclass(frozen=True)
class Keyed(Slotted):
    """Rows of one key meet in the worker of that key; for predicates with an equality."""

    name: ClassVar[str] = "keyed"
    needs: ClassVar[str] = "key"

    @classmethod
    def of_fields(cls, **fields: Any) -> Keyed:
        return keyed(**fields)

    def route(self, side: int, rows: Rows, window: tuple[int, int]) -> Routes:
        if rows.key is None:
            raise ValueError(f"{self} routes rows by key, and these have none")
        return self.by_slot(rows.key)

    def once(self, side: int) -> bool:
        return True

    def may_match(self, left: Rows, right: Rows) -> np.ndarray:
        assert left.key is not None and right.key is not None
        same: np.ndarray = left.key[:, None] == right.key[None, :]
        return same


@loggable
@dataclass(frozen=True)
class Grid(Plan):
    """`rows` times `cols` workers; ``broadcast`` is the grid with one row or one column."""

    rows: int
    cols: int
    weights: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    name: ClassVar[str] = "grid"
    workers: int = field(init=False, repr=False, compare=False)
    _tables: tuple[np.ndarray, np.ndarray] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        row_weights, col_weights = self.weights or (None, None)
        tables = (slot_table(self.rows, row_weights), slot_table(self.cols, col_weights))
        object.__setattr__(self, "_tables", tables)
        object.__setattr__(self, "workers", self.rows * self.cols)

    @classmethod
    def of_fields(cls, **fields: Any) -> Grid:
        return grid(**fields)

    def route(self, side: int, rows: Rows, window: tuple[int, int]) -> Routes:
        line = slot_of(rows.h, self._tables[side])
        if side == LEFT:  # the whole row
            workers = line[:, None] * self.cols + np.arange(self.cols, dtype=np.int32)
        else:  # the whole column
            workers = line[:, None] + np.arange(self.rows, dtype=np.int32) * np.int32(self.cols)
        return Routes(np.arange(len(rows.h) + 1) * workers.shape[1], workers.ravel())

    def once(self, side: int) -> bool:
        return (self.cols if side == LEFT else self.rows) == 1

    def cells(self) -> Cells:
        lines = np.arange(self.workers).reshape(self.rows, self.cols)
        return Cells(lines.tolist(), "right rows", "left rows")

    def __str__(self) -> str:
        return f"grid({self.rows}, {self.cols})"


@renamed(master=NO_MASTER)
def broadcast(
    workers: int, side: str = "right", *, weights: Sequence[float] | None = None
) -> Broadcast:
    """Send one side to every worker, and spread the other by hash.

    `side` is the one that goes everywhere: the slower stream, so that few copies are made.
    `weights` are the shares of the workers in the side that is spread.

    Examples
    --------
    >>> print(broadcast(4, side="left"))
    broadcast(4, side=left)
    """
    problems = worker_problems("workers", workers) + side_problems(side)
    refuse("broadcast", problems + share_problems("weights", weights, workers))
    return Broadcast(int(workers), side, weights=None if weights is None else shares(weights))


@renamed()
def ssp(workers: int, master: str = "left", *, weights: Sequence[float] | None = None) -> Broadcast:
    """The single stream partition of the ViCo paper: `broadcast`, by the side that is spread.

    Examples
    --------
    >>> print(ssp(4, master="right"))
    broadcast(4, side=left)
    """
    refuse("ssp", side_problems(master, "master"))
    return broadcast(workers, other_side(master), weights=weights)


@renamed()
def grid(
    rows: int,
    cols: int,
    *,
    weights: tuple[Sequence[float], Sequence[float]] | None = None,
) -> Grid:
    """Arrange workers in a grid: left rows fill a grid row, right rows a grid column.

    `weights` are the shares of the grid rows and of the grid columns.

    Examples
    --------
    >>> print(grid(2, 3), grid(2, 3).workers)
    grid(2, 3) 6
    """
    problems = worker_problems("rows", rows) + worker_problems("cols", cols)
    if not problems:
        problems = worker_problems("rows * cols", int(rows) * int(cols))
    if weights is not None and not (is_list(weights) and len(weights) == 2):
        problems.append(
            "weights must be a pair, shares of the rows and shares of the columns, such as "
            f"([1, 2], [1, 1]), got {weights!r}"
        )
    elif weights is not None:
        for number, count in enumerate((rows, cols)):
            name = f"weights[{number}]"
            problems += share_problems(name, weights[number], count, optional=False)
    refuse("grid", problems)
    if weights is None:
        return Grid(int(rows), int(cols))
    return Grid(int(rows), int(cols), (shares(weights[0]), shares(weights[1])))


@renamed()
def keyed(workers: int, *, weights: Sequence[float] | None = None) -> Keyed:
    """Send rows to the worker of their key (needs ``same`` in the predicate).

    Examples
    --------
    >>> print(keyed(4))
    keyed(4)
    """
    problems = worker_problems("workers", workers) + share_problems("weights", weights, workers)
    refuse("keyed", problems)
    return Keyed(int(workers), weights=None if weights is None else shares(weights))
