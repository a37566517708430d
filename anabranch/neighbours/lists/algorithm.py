"""What every algorithm for k-NN queries over sliding windows looks like.

An object arrives at ``t`` and is in the window of a query just after every instant ``e`` with
``t <= e < t + window`` (the paper's ``t < time <= t + window``). An instant is an arrival or an
expiry; what happens at one instant is applied together. A query sees the objects and instants that
lie after `since` and not after `until`. Objects rank by (distance, arrival number): ties go to the
older, and never more than k are in the top-k. An object is reported once for each query, at the
instant at which it first is among the k best.

With `counted` windows the clock is the arrival number: a window holds the last `window` objects,
and each arrival is an instant of its own. `since` and `until` remain times.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from anabranch.errors import StateMismatch
from anabranch.flow.container import pack, unpack
from anabranch.flow.instants import BEGINNING, FOREVER
from anabranch.flow.process import njit
from anabranch.neighbours.lists.queries import METRICS, Queries

__all__ = ["FOREVER", "METRICS", "Algorithm", "Arrivals", "Queries", "Reports"]

_A = TypeVar("_A", bound="Algorithm")


@dataclass(frozen=True, eq=False)
class Reports:
    """Objects that entered a top-k for the first time; row i of every array is report i.

    `query` is the place in the set of queries, `seq` the object's arrival number, `entered_t` the
    time of the instant, `rank` the place in the top-k then, from 1. In the order of queries,
    instants and ranks.
    """

    query: np.ndarray
    seq: np.ndarray
    entered_t: np.ndarray
    distance: np.ndarray
    rank: np.ndarray

    def __len__(self) -> int:
        return len(self.query)

    @classmethod
    def none(cls) -> Reports:
        """No reports."""
        whole = np.empty(0, np.int64)
        return cls(whole, whole, whole, np.empty(0), whole)

    def rows(self) -> list[tuple[int, int, int, float, int]]:
        """The reports as tuples, for tests and people."""
        columns = (getattr(self, field.name).tolist() for field in fields(self))
        return list(zip(*columns, strict=True))


class Arrivals(NamedTuple):
    """Objects as they come; `clock` is what windows are measured on."""

    clock: np.ndarray
    t: np.ndarray
    seq: np.ndarray
    points: np.ndarray
    marks: np.ndarray


class Algorithm(ABC):
    """One way of answering a set of queries.

    The state is that of the instance: numpy arrays and plain numbers, so it can be pickled, and
    `to_bytes` gives a compact form without pickle, with a version, for checkpoints.

    Attributes
    ----------
    queries
        The queries.
    reached
        Every instant up to this time has been dealt with.
    """

    name: ClassVar[str]
    exact: ClassVar[bool]

    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self.reached = BEGINNING
        self.newest = BEGINNING
        """Number of the newest object."""

    def advance(
        self,
        t: np.ndarray,
        seq: np.ndarray,
        points: np.ndarray,
        upto: int,
        marks: np.ndarray | None = None,
    ) -> Reports:
        """Take in arrivals and deal with every instant up to `upto`.

        Parameters
        ----------
        t
            Times, int64, ascending; later than `reached` (or equal to it, with counted windows).
        seq
            Arrival numbers, ascending; consecutive with counted windows.
        points
            One row for each, float64.
        upto
            The time that is reached: the caller promises that nothing later will arrive at or
            before it.
        marks
            One row for each, int64, a column for each test of the queries; None if they have none.
        """
        # Writable even if nothing writes: compiled code is compiled anew for read-only arrays.
        t, seq = _fit(t, np.int64), _fit(seq, np.int64)
        points = _fit(points, np.float64).reshape(len(t), self.queries.points.shape[1])
        tests = len(self.queries.inverted)
        if marks is None:
            marks = np.empty((len(t), 0), np.int64)
        marks = _fit(marks, np.int64).reshape(len(t), tests)
        self._check(t, seq, points, upto)
        clock = seq if self.queries.counted else t
        reports = self._run(Arrivals(clock, t, seq, points, marks), upto)
        self.reached = upto
        if len(seq):
            self.newest = int(seq[-1])
        return reports

    def add(self, queries: Queries) -> int:
        """Add queries; they see nothing at or before `reached`. Returns the first one's place."""
        first = len(self.queries)
        late = replace(queries, since=np.maximum(queries.since, self.reached))
        self.queries = self.queries.followed_by(late)
        self._added(len(queries))
        return first

    def cancel(self, rows: np.ndarray, at: np.ndarray | int) -> None:
        """Let some queries end at a time, or each at its own; `keep` then frees their state."""
        until = self.queries.until.copy()
        until[rows] = np.minimum(until[rows], at)
        self.queries = replace(self.queries, until=until)

    def keep(self, rows: np.ndarray) -> None:
        """Forget all queries but these (places, ascending, or a mask); places are renumbered."""
        places = np.arange(len(self.queries))[rows]
        self.queries = self.queries.take(places)
        self._kept(places)

    @abstractmethod
    def _run(self, fresh: Arrivals, upto: int) -> Reports:
        """`advance`, after all checks."""

    @abstractmethod
    def _added(self, count: int) -> None:
        """Make room for so many new queries at the end."""

    @abstractmethod
    def _kept(self, places: np.ndarray) -> None:
        """Drop the state of all queries but these."""

    def _check(self, t: np.ndarray, seq: np.ndarray, points: np.ndarray, upto: int) -> None:
        counted = self.queries.counted
        if upto < self.reached:
            raise ValueError(f"time cannot go back: {self.reached} is reached, upto is {upto}")
        if not len(t):
            return
        unsorted, back, gap, not_finite, origin = _examine(t, seq, points)
        early = t[0] < self.reached if counted else t[0] <= self.reached
        if early or t[-1] > upto or unsorted:
            raise ValueError(
                f"arrivals must be sorted, after {self.reached} and not after {upto}; "
                f"got {t.min()} to {t.max()}"
            )
        if seq[0] <= self.newest or back:
            raise ValueError("arrival numbers must ascend over all calls")
        if counted:
            follows = self.newest == BEGINNING or seq[0] == self.newest + 1
            if not follows or gap:
                raise ValueError("with counted windows, arrival numbers must have no gaps")
        if not_finite:
            raise ValueError("points must be finite numbers; drop bad rows before")
        if self.queries.metric == "cosine" and origin:
            raise ValueError("a point at the origin has no cosine distance; drop it before")

    @property
    def nbytes(self) -> int:
        """Bytes of all that is held: queries, their state and what was made from them."""
        return _weigh([vars(self), vars(self.queries)], set())

    def to_bytes(self) -> bytes:
        """The whole state, with a version, without pickle."""
        state = self._state()
        arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
        plain = {name: value for name, value in state.items() if name not in arrays}
        return pack(arrays, {"algorithm": self.name, "plain": plain})

    @classmethod
    def from_bytes(cls: type[_A], data: bytes) -> _A:
        """The algorithm that `to_bytes` was called on."""
        arrays, meta = unpack(data)
        if meta["algorithm"] != cls.name:
            raise StateMismatch(
                f"the state is that of {meta['algorithm']}, not of {cls.name}; keep the method "
                "of a checkpoint, or start with a new one"
            )
        made = cls.__new__(cls)
        # Copies, for algorithms write into what they hold.
        made._take_up(meta["plain"] | {name: array.copy() for name, array in arrays.items()})
        return made

    def _state(self) -> dict[str, Any]:
        """Arrays and plain values by name, from which `_take_up` makes the algorithm again."""
        state: dict[str, Any] = {**vars(self), **vars(self.queries)}
        del state["queries"]
        return state

    def _take_up(self, state: dict[str, Any]) -> None:
        names = [field.name for field in fields(Queries)]
        self.queries = Queries(**{name: state.pop(name) for name in names})
        vars(self).update(state)


def _fit(column: Any, kind: type) -> np.ndarray:
    """A column as compiled code takes it: itself if it is, for to ask numpy takes microseconds."""
    if isinstance(column, np.ndarray) and column.dtype == kind:
        flags = column.flags
        if flags.c_contiguous and flags.writeable:
            return column
    return np.require(column, kind, ["C", "W"])


def _weigh(held: Any, seen: set[int]) -> int:
    """Bytes of the arrays in nested dicts, lists, tuples and objects, each counted once."""
    if isinstance(held, np.ndarray):
        while isinstance(held.base, np.ndarray):  # a view keeps all of its owner
            held = held.base
        if id(held) in seen:
            return 0
        seen.add(id(held))
        return int(held.nbytes)
    if isinstance(held, (list, tuple)):
        return sum(_weigh(value, seen) for value in held)
    if isinstance(held, dict):
        return sum(_weigh(value, seen) for value in held.values())
    return _weigh(vars(held), seen) if hasattr(held, "__dict__") else 0


# Compiled; mypy and coverage do not see its inside.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@njit(boundscheck=False)
def _examine(t, seq, points):  # pragma: no cover
    """What is wrong with arrivals, each as a bool.

    Times descend; numbers do not ascend; or not by one; values are not finite; a point is at the
    origin.
    """
    n, dim = points.shape
    unsorted = back = gap = 0
    for i in range(1, n):
        unsorted += t[i] < t[i - 1]
        back += seq[i] <= seq[i - 1]
        gap += seq[i] != seq[i - 1] + 1
    bad = 0
    origin = 0
    for i in range(n):
        zeros = 0
        for a in range(dim):
            bad += not math.isfinite(points[i, a])
            zeros += points[i, a] == 0.0
        origin += zeros == dim
    return unsorted > 0, back > 0, gap > 0, bad > 0, origin > 0
