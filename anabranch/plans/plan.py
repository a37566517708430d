"""Plans: two maps, of left rows and of right rows to workers, that meet in exactly one worker.

That one law, for every pair that the window lets join, is all that exactness needs of a plan;
`anabranch.testing.check_plan` tests it for any plan, a user's own included. How a plan spreads its
rows is a matter of cost alone.

===================  ============================  ======================================
plan                 left row goes to              right row goes to
===================  ============================  ======================================
``ssp(k)``           one worker, by hash           all k workers
``grid(a, b)``       the b workers of its row      the a workers of its column
``csp(k, segment)``  the worker of its segment     workers of the segments its window touches
``keyed(k)``         the worker of its key         the same
``spans(k)``         the owner of its value        owners of all values within reach (`spans`)
===================  ============================  ======================================

``ssp`` and ``csp`` are the single and the coupled stream partition of ViCo (sections 2 and 3);
their "left" is the master, which ``master="right"`` turns round.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from anabranch.calls import Duration, describe, is_whole, microseconds
from anabranch.errors import InvalidCall
from anabranch.flow.hashing import SLOTS_PER_WORKER, slot_of, slot_table

__all__ = [
    "Csp",
    "Grid",
    "Keyed",
    "Plan",
    "Routes",
    "Ssp",
    "choose",
    "csp",
    "grid",
    "keyed",
    "plan_from_dict",
    "ssp",
]

LEFT, RIGHT, SIDES = 0, 1, ("left", "right")


class Routes(NamedTuple):
    """Row i goes to ``workers[offsets[i]:offsets[i + 1]]``, each worker at most once."""

    offsets: np.ndarray
    workers: np.ndarray


class Plan(ABC):
    """Two maps that meet once.

    `route` is given rows by their event time and by a hash (of the id; of the key for a plan that
    is `by_key`) and must answer for a row alone, whatever other rows come with it.
    """

    kind: ClassVar[str]
    by_key: ClassVar[bool] = False
    by_value: ClassVar[bool] = False  # rows are told apart by a number: see `spans`

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many workers the plan uses, numbered from 0."""

    @abstractmethod
    def route(self, side: int, t: np.ndarray, h: np.ndarray, window: tuple[int, int]) -> Routes:
        """The workers of each row of `side` (0 left, 1 right) under `window` (microseconds)."""

    def route_values(self, side: int, values: np.ndarray, h: np.ndarray) -> Routes:
        """The same for a plan that is `by_value`, from one number per row."""
        raise TypeError(f"{self} does not route by value")

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """A JSON form that `plan_from_dict` reads."""

    @property
    def fingerprint(self) -> str:
        """Eight characters that tell this plan from any other."""
        return fingerprint_of(self.to_dict())

    @property
    def former_fingerprint(self) -> str:
        """The one that checkpoints begun by earlier versions hold."""
        return fingerprint_of(self.to_dict())


@dataclass(frozen=True)
class Grid(Plan):
    """`rows` times `cols` workers; ``ssp`` is the grid with one row or one column."""

    rows: int
    cols: int
    weights: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    kind: ClassVar[str] = "grid"
    _tables: tuple[np.ndarray, np.ndarray] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        row_weights, col_weights = self.weights or (None, None)
        tables = (slot_table(self.rows, row_weights), slot_table(self.cols, col_weights))
        object.__setattr__(self, "_tables", tables)

    @property
    def workers(self) -> int:
        return self.rows * self.cols

    def route(self, side: int, t: np.ndarray, h: np.ndarray, window: tuple[int, int]) -> Routes:
        line = slot_of(h, self._tables[side])
        if side == LEFT:  # the whole row
            workers = line[:, None] * self.cols + np.arange(self.cols, dtype=np.int32)
        else:  # the whole column
            workers = line[:, None] + np.arange(self.rows, dtype=np.int32) * np.int32(self.cols)
        return Routes(np.arange(len(h) + 1) * workers.shape[1], workers.ravel())

    def to_dict(self) -> dict[str, Any]:
        return {"plan": self.kind, "rows": self.rows, "cols": self.cols, "weights": self.weights}

    def __str__(self) -> str:
        return f"grid({self.rows}, {self.cols})"


@dataclass(frozen=True)
class Ssp(Plan):
    """Master rows are dealt out by hash, slave rows go to all workers (ViCo, section 2.1)."""

    count: int
    master: str = "left"
    weights: tuple[float, ...] | None = None
    kind: ClassVar[str] = "ssp"
    _table: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_table", slot_table(self.count, self.weights))

    @property
    def workers(self) -> int:
        return self.count

    def route(self, side: int, t: np.ndarray, h: np.ndarray, window: tuple[int, int]) -> Routes:
        n = len(h)
        if SIDES[side] == self.master:
            return Routes(np.arange(n + 1), slot_of(h, self._table))
        workers = np.tile(np.arange(self.count, dtype=np.int32), n)
        return Routes(np.arange(n + 1) * self.count, workers)

    def to_dict(self) -> dict[str, Any]:
        return {
            "plan": self.kind,
            "workers": self.count,
            "master": self.master,
            "weights": self.weights,
        }

    def __str__(self) -> str:
        return f"ssp({self.count}, master={self.master})"


@dataclass(frozen=True)
class Csp(Plan):
    """Master rows go to the worker of their time segment (ViCo, section 2.2).

    Segments are dealt to workers through a slot table known in advance, so that a slave row also
    reaches the workers of segments that have not begun.
    """

    count: int
    segment: int
    master: str = "left"
    weights: tuple[float, ...] | None = None
    kind: ClassVar[str] = "csp"
    _table: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_table", slot_table(self.count, self.weights))

    @property
    def workers(self) -> int:
        return self.count

    def route(self, side: int, t: np.ndarray, h: np.ndarray, window: tuple[int, int]) -> Routes:
        slots = len(self._table)
        if SIDES[side] == self.master:
            return Routes(np.arange(len(t) + 1), self._table[(t // self.segment) % slots])
        # -W_left <= l - r <= W_right: a right row meets lefts in [r - W_left, r + W_right], a
        # left row meets rights in [l - W_right, l + W_left].
        w_left, w_right = window
        back, ahead = (w_left, w_right) if side == RIGHT else (w_right, w_left)
        first = (t - back) // self.segment
        # As many neighbouring segments as workers meet all of them, unless shares are uneven.
        most = self.count if self.weights is None else slots
        touched = np.minimum((t + ahead) // self.segment - first + 1, most)
        # Column s of `homes` is the worker of the s-th segment touched, or the first one again.
        step = np.arange(int(touched.max(initial=1)))
        homes = self._table[(first[:, None] + np.minimum(step, touched[:, None] - 1)) % slots]
        homes.sort(axis=1)
        fresh = np.ones(homes.shape, bool)
        fresh[:, 1:] = homes[:, 1:] != homes[:, :-1]
        offsets = np.zeros(len(t) + 1, np.int64)
        np.cumsum(fresh.sum(axis=1), out=offsets[1:])
        return Routes(offsets, homes[fresh])

    def to_dict(self) -> dict[str, Any]:
        return {
            "plan": self.kind,
            "workers": self.count,
            "segment": self.segment,
            "master": self.master,
            "weights": self.weights,
        }

    def __str__(self) -> str:
        return f"csp({self.count}, segment={describe(self.segment)}, master={self.master})"


@dataclass(frozen=True)
class Keyed(Plan):
    """Rows of one key meet in the worker of that key; for predicates with an equality."""

    count: int
    weights: tuple[float, ...] | None = None
    kind: ClassVar[str] = "keyed"
    by_key: ClassVar[bool] = True
    _table: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_table", slot_table(self.count, self.weights))

    @property
    def workers(self) -> int:
        return self.count

    def route(self, side: int, t: np.ndarray, h: np.ndarray, window: tuple[int, int]) -> Routes:
        return Routes(np.arange(len(h) + 1), slot_of(h, self._table))

    def to_dict(self) -> dict[str, Any]:
        return {"plan": self.kind, "workers": self.count, "weights": self.weights}

    def __str__(self) -> str:
        return f"keyed({self.count})"


def ssp(workers: int, master: str = "left", *, weights: Sequence[float] | None = None) -> Ssp:
    """Deal out the master side by hash, send the other side to every worker.

    Examples
    --------
    >>> print(ssp(4, master="right"))
    ssp(4, master=right)
    """
    problems = _count("workers", workers) + _master(master) + _shares("weights", weights, workers)
    _refuse("ssp", problems)
    return Ssp(int(workers), master, _frozen(weights))


def csp(
    workers: int,
    segment: Duration = "10 seconds",
    master: str = "left",
    *,
    weights: Sequence[float] | None = None,
) -> Csp:
    """Cut the master side into time segments, one worker each; the other side follows.

    Examples
    --------
    >>> print(csp(4, segment="90 seconds"))
    csp(4, segment=90 seconds, master=left)
    """
    problems = _count("workers", workers) + _master(master) + _shares("weights", weights, workers)
    length = 0
    try:
        length = microseconds(segment)
        if length <= 0:
            problems.append(f"segment must be longer than zero, got {segment!r}")
    except ValueError as error:
        problems.append(f"segment: {error}")
    _refuse("csp", problems)
    return Csp(int(workers), length, master, _frozen(weights))


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
    problems = _count("rows", rows) + _count("cols", cols)
    if weights is not None:
        if len(weights) != 2:
            problems.append("weights must be a pair: shares of the rows, shares of the columns")
        else:
            problems += _shares("weights[0]", weights[0], rows)
            problems += _shares("weights[1]", weights[1], cols)
    _refuse("grid", problems)
    frozen = None if weights is None else (_floats(weights[0]), _floats(weights[1]))
    return Grid(int(rows), int(cols), frozen)


def keyed(workers: int, *, weights: Sequence[float] | None = None) -> Keyed:
    """Send rows to the worker of their key (needs ``same`` in the predicate).

    Examples
    --------
    >>> print(keyed(4))
    keyed(4)
    """
    _refuse("keyed", _count("workers", workers) + _shares("weights", weights, workers))
    return Keyed(int(workers), _frozen(weights))


def choose(
    workers: int,
    rows: tuple[float, float] = (1, 1),
    span: int = 0,
    window: tuple[int, int] = (0, 0),
) -> Plan:
    """The plan of `workers` workers that copies least, for so many left and right rows.

    `span` is the event time that the rows cover, if it is known; where it is long against the
    window, time segments are cheaper than any grid.

    Examples
    --------
    >>> print(choose(4))
    grid(2, 2)
    >>> print(choose(4, rows=(1_000_000, 1_000)))
    grid(4, 1)
    >>> hour = 3_600_000_000
    >>> print(choose(4, span=24 * hour, window=(hour // 60, hour // 60)))
    csp(4, segment=1350 seconds, master=left)
    """
    shapes = [(a, workers // a) for a in range(workers, 0, -1) if workers % a == 0]
    # Of equals the one with more rows comes first, so that two workers give ssp with left master.
    a, b = min(shapes, key=lambda shape: shape[1] * rows[0] + shape[0] * rows[1])
    best: Plan = Grid(a, b)
    copies = b * rows[0] + a * rows[1]
    segments = workers * SLOTS_PER_WORKER
    if span > 0 and workers > 1 and (segment := span // segments) > 0:
        beyond = min(workers - 1, sum(window) / segment)
        if sum(rows) + beyond * min(rows) < copies:
            best = Csp(workers, segment, "left" if rows[0] >= rows[1] else "right")
    return best


def plan_from_dict(form: dict[str, Any]) -> Plan:
    """The plan that `Plan.to_dict` wrote.

    Examples
    --------
    >>> plan_from_dict(ssp(3).to_dict()) == ssp(3)
    True
    """
    kind, weights = form["plan"], form.get("weights")
    if kind == "grid":
        shares = None if weights is None else (_floats(weights[0]), _floats(weights[1]))
        return Grid(form["rows"], form["cols"], shares)
    if kind == "ssp":
        return Ssp(form["workers"], form["master"], _frozen(weights))
    if kind == "csp":
        return Csp(form["workers"], form["segment"], form["master"], _frozen(weights))
    if kind == "keyed":
        return Keyed(form["workers"], _frozen(weights))
    if kind == "spans":
        from anabranch.plans.spans import Spans as Other
    elif kind == "interest":
        from anabranch.neighbours.interest.routing import Interest as Other  # type: ignore[assignment]
    else:
        raise ValueError(f"unknown plan {kind!r}; known: csp, grid, interest, keyed, spans and ssp")
    return Other.from_dict(form)


def fingerprint_of(form: dict[str, Any]) -> str:
    """Eight characters that tell one JSON form from any other."""
    return hashlib.sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()[:8]


def _floats(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _frozen(weights: Sequence[float] | None) -> tuple[float, ...] | None:
    return None if weights is None else _floats(weights)


def _count(name: str, value: object) -> list[str]:
    if is_whole(value):
        return []
    return [f"{name} must be a whole number of at least 1, got {value!r}"]


def _master(value: object) -> list[str]:
    return [] if value in SIDES else [f"master must be 'left' or 'right', got {value!r}"]


def _shares(name: str, weights: Sequence[float] | None, count: object) -> list[str]:
    if weights is None:
        return []
    if len(weights) != count:
        return [f"{name} must hold one share for each of {count}, got {len(weights)}"]
    if not all(math.isfinite(w) and w >= 0 for w in weights) or not any(w > 0 for w in weights):
        return [f"{name} must be numbers of at least 0, one of them above 0, got {list(weights)!r}"]
    return []


def _refuse(verb: str, problems: list[str]) -> None:
    if problems:
        raise InvalidCall(verb, problems)
