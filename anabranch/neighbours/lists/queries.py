"""A set of standing queries, as every algorithm takes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anabranch.errors import InvalidCall
from anabranch.flow.instants import BEGINNING, FOREVER
from anabranch.neighbours.lists.admission import Bounds
from anabranch.neighbours.lists.tables import Asked

__all__ = ["FOREVER", "METRICS", "Queries"]

METRICS = ("euclidean", "manhattan", "cosine")
"""Distances, in the order of the compiled code. Cosine distance is one less the cosine."""

_ROWS = ("points", "k", "window", "since", "until", "low", "high")


@dataclass(frozen=True, eq=False)
class Queries:
    """A set of queries; row q of every array belongs to query q.

    Parameters
    ----------
    points
        A matrix of float64, one row for each query.
    k
        How many neighbours.
    window
        Microseconds, or objects where `counted`.
    since, until
        Microseconds: objects and instants in ``since < t <= until`` count.
    counted
        Windows hold so many objects, not so much time.
    metric
        One of `METRICS`.
    low, high, inverted, further
        Which objects count: `admission` says how. None where all do.
    parted
        The first test is an equality: queries and objects of one mark form a part of their own.

    Examples
    --------
    >>> queries = Queries.of([[0.0, 0.0], [1.0, 1.0]], k=3, window=1_000_000)
    >>> len(queries), queries.k.tolist(), queries.until.tolist() == [FOREVER, FOREVER]
    (2, [3, 3], True)
    """

    points: np.ndarray
    k: np.ndarray
    window: np.ndarray
    since: np.ndarray
    until: np.ndarray
    counted: bool = False
    metric: str = "euclidean"
    low: np.ndarray = None  # type: ignore[assignment]
    high: np.ndarray = None  # type: ignore[assignment]
    inverted: np.ndarray = None  # type: ignore[assignment]
    further: np.ndarray = None  # type: ignore[assignment]
    parted: bool = False

    @classmethod
    def of(
        cls,
        points: Any,
        k: Any,
        window: Any,
        since: Any = BEGINNING,
        until: Any = FOREVER,
        counted: bool = False,
        metric: str = "euclidean",
    ) -> Queries:
        """Queries from anything array-like; a single number holds for all of them."""
        rows = np.array(points, np.float64, order="C")
        if rows.ndim != 2:
            raise InvalidCall("nearest", [f"query points must be a matrix, got shape {rows.shape}"])

        def column(values: Any) -> np.ndarray:
            return np.array(np.broadcast_to(np.asarray(values, np.int64), len(rows)))

        return cls(rows, column(k), column(window), column(since), column(until), counted, metric)

    def __post_init__(self) -> None:
        if self.low is None:
            none = np.empty((len(self.points), 0), np.int64)
            for name in ("low", "high"):
                object.__setattr__(self, name, none)
            for name in ("inverted", "further"):
                object.__setattr__(self, name, np.empty(0, bool))
        shapes = {self.low.shape, self.high.shape, (len(self.points), len(self.further))}
        if len(shapes) > 1 or len(self.inverted) != len(self.further):
            raise ValueError("low and high need a row for each query and a column for each test")
        problems = []
        if self.metric not in METRICS:
            problems.append(f"metric must be one of {', '.join(METRICS)}, got {self.metric!r}")
        if not np.isfinite(self.points).all():
            problems.append(
                "query points must be finite numbers; drop or repair those that are not"
            )
        else:
            with np.errstate(over="ignore"):
                norms = np.einsum("ij,ij->i", self.points, self.points)
            if not np.isfinite(norms).all():
                problems.append("a query's squared norm overflows; drop it, or scale all points")
            if self.metric == "cosine" and not self.points.any(axis=1).all():
                problems.append("a query at the origin has no direction; drop it")
        for name in ("k", "window"):
            values = getattr(self, name)
            if (values < 1).any():
                problems.append(f"{name} must be at least 1, got {int(values.min())}")
        if problems:
            raise InvalidCall("nearest", problems)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def metric_code(self) -> int:
        """The metric's place in `METRICS`, as compiled code takes it."""
        return METRICS.index(self.metric)

    @property
    def bounds(self) -> Bounds:
        """Which objects count, as compiled code takes it."""
        return Bounds(self.low, self.high, self.inverted, self.further)

    @property
    def asked(self) -> Asked:
        """All of it, as compiled code takes it."""
        spans = (self.window, self.since, self.until)
        return Asked(self.metric_code, self.points, self.k, *spans, self.counted, self.bounds)

    @property
    def parts(self) -> np.ndarray:
        """The part of each query: 0 where there are no parts, -1 if it is in none."""
        if not self.parted:
            return np.zeros(len(self), np.int64)
        # Bounds that nothing is between are those of a query without a part.
        return np.where(self.low[:, 0] == self.high[:, 0], self.low[:, 0], -1)

    def parts_of(self, marks: np.ndarray) -> np.ndarray:
        """The part of each object."""
        return marks[:, 0] if self.parted else np.zeros(len(marks), np.int64)

    def take(self, rows: np.ndarray) -> Queries:
        """Some of the queries, by place or mask."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _ROWS})

    def followed_by(self, others: Queries) -> Queries:
        """These queries and then others of the same kind."""
        if (self.counted, self.metric, self.points.shape[1]) != (
            others.counted,
            others.metric,
            others.points.shape[1],
        ):
            raise InvalidCall(
                "nearest",
                [
                    f"queries of one set must agree: had {self._kind()}, got {others._kind()}; "
                    "run different kinds as separate sets"
                ],
            )
        joined: dict[str, Any] = {
            n: np.concatenate([getattr(self, n), getattr(others, n)]) for n in _ROWS
        }
        return replace(self, **joined)

    def _kind(self) -> str:
        unit = "objects" if self.counted else "time"
        return f"{self.metric} in {self.points.shape[1]} dimensions, windows of {unit}"
