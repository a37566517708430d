"""Ground distances: how far mass must travel between the bins of two histograms.

Bins in a row or on a circle have closed forms; bins at points of a space, or with any metric matrix
between them, need a solver. Every ground distance knows one *potential* f that changes by no more
than the distance between two bins, |f_i - f_j| <= c_ij. The *key* of a histogram, the sum of
p_i f_i, then differs by no more than the Earth Mover's Distance between any two histograms: on a
line it is the mean. Keys sort slices and cut the work into ranges.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from anabranch.calls import is_number, is_whole

__all__ = ["Ground", "read_ground"]

_METRICS = ("euclidean", "manhattan")
_SYMMETRY = 1e-9
_SHOWN = 16  # numbers of a ground that are shown; longer ones by their digest


@dataclass(frozen=True)
class Ground:
    """A ground distance between `bins` bins (None: as many as the histograms turn out to have).

    `kind` is ``line``, ``circle``, ``points`` or ``matrix``. `table` holds the positions on the
    line, the points (one row each) or the matrix, unscaled; `scale` divides every distance.

    Examples
    --------
    >>> line, problems = read_ground("line", None, "max", 5)
    >>> line.costs[0].tolist(), line.largest, problems
    ([0.0, 0.25, 0.5, 0.75, 1.0], 1.0, [])
    """

    kind: str
    bins: int | None
    table: np.ndarray | None = field(default=None, repr=False, compare=False)
    metric: str = "euclidean"
    scale: float | str | None = None

    def of(self, bins: int) -> Ground:
        """The same ground distance for a known number of bins."""
        if self.bins == bins:
            return self
        return Ground(self.kind, bins, self.table, self.metric, self.scale)

    def shared(self) -> Ground:
        """The one equal ground distance that all searches of this process use and derive from."""
        return _SHARED.setdefault((self.digest, self.bins), self)

    @property
    def nbytes(self) -> int:
        """Bytes of what was given and of what has been derived so far."""
        return sum(part.nbytes for part in vars(self).values() if isinstance(part, np.ndarray))

    @cached_property
    def digest(self) -> str:
        """What tells this ground distance from another."""
        table = b"" if self.table is None else self.table.tobytes()
        head = f"{self.kind} {self.metric} {self.scale} ".encode()
        return f"{self.kind}-{hashlib.sha256(head + table).hexdigest()[:8]}"

    @property
    def square(self) -> bool:
        """Whether the table alone could be taken for a matrix."""
        return self.table is not None and self.table.shape[0] == self.table.shape[1]

    @property
    def text(self) -> str:
        """As it was given; of a long one how long it is, and what tells it from others."""
        if self.table is None:
            return repr(self.kind)
        if self.table.size > _SHOWN:
            what = {"line": "positions", "points": "points"}.get(self.kind, "bins in a matrix")
            return f"<{len(self.table)} {what}, {self.digest}>"
        rows = [[int(x) if x.is_integer() else x for x in row] for row in self.table.tolist()]
        return repr([row[0] for row in rows] if self.kind == "line" else rows)

    def __hash__(self) -> int:
        return hash((self.digest, self.bins))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ground) and (self.digest, self.bins) == (other.digest, other.bins)

    @cached_property
    def points(self) -> np.ndarray | None:
        """Scaled coordinates of the bins, one row each; None if there are none.

        They begin at 0 along every axis: far from it, sums of masses times coordinates would lose
        more to rounding than the tolerance of the threshold.
        """
        if self.kind not in ("line", "points"):
            return None
        table = self._positions[:, None] if self.kind == "line" else self.table
        assert table is not None
        points: np.ndarray = (table - table.min(axis=0)) / self.divisor
        return points

    @cached_property
    def order(self) -> np.ndarray:
        """The bins of a line from left to right."""
        return np.argsort(self._positions, kind="stable")

    @cached_property
    def gaps(self) -> np.ndarray:
        """Scaled distances between neighbours on a line (in `order`) or a circle."""
        if self.kind == "circle":
            assert self.bins is not None
            return np.full(self.bins, 1 / self.divisor)
        gaps: np.ndarray = np.diff(self._positions[self.order]) / self.divisor
        return gaps

    @cached_property
    def costs(self) -> np.ndarray:
        """The scaled distance of every two bins."""
        costs: np.ndarray = np.ascontiguousarray(self._distances / self.divisor)
        return costs

    @cached_property
    def divisor(self) -> float:
        """What distances are divided by."""
        if self.scale == "max":
            return self._farthest or 1.0
        return float(self.scale) if self.scale is not None else 1.0

    @cached_property
    def largest(self) -> float:
        """The greatest scaled distance: no Earth Mover's Distance is above it."""
        if self.kind == "line":
            return float(self.gaps.sum())
        return float(self._farthest / self.divisor)

    @property
    def epsilon(self) -> float:
        """How near to the threshold a distance counts as equal to it."""
        return 1e-9 * self.largest

    @cached_property
    def potential(self) -> np.ndarray:
        """A potential that changes by no more than the distance: the one that makes the keys."""
        if self.points is not None:
            # One axis is no longer than the Euclidean or the Manhattan distance.
            widest = int(np.argmax(np.ptp(self.points, axis=0)))
            axis = self.points[:, widest]
            return np.ascontiguousarray(axis - axis.min())
        # Distances to one bin are a potential by the triangle inequality; to the most remote bin
        # they differ most. On a circle all are alike.
        if self.kind == "circle":
            return self._round / self.divisor
        return np.ascontiguousarray(self.costs[int(np.argmax(self.costs.sum(axis=0)))])

    @property
    def key_range(self) -> tuple[float, float]:
        """The least and the greatest key."""
        return float(self.potential.min()), float(self.potential.max())

    @cached_property
    def _positions(self) -> np.ndarray:
        if self.table is not None:
            return self.table.ravel()
        assert self.bins is not None
        return np.arange(self.bins, dtype=np.float64)

    def __getstate__(self) -> dict[str, Any]:
        """What was given, without what can be derived from it: tables of n x n are not shipped."""
        kept = [given.name for given in fields(self)] + ["digest"]
        return {name: value for name, value in self.__dict__.items() if name in kept}

    @property
    def _round(self) -> np.ndarray:
        """Unscaled distances from the first bin of a circle."""
        assert self.bins is not None
        ahead = np.arange(self.bins)
        distances: np.ndarray = np.minimum(ahead, self.bins - ahead).astype(np.float64)
        return distances

    @property
    def _farthest(self) -> float:
        """The greatest unscaled distance; closed forms need no table of all of them for it."""
        if self.kind == "line":
            return float(np.ptp(self._positions))
        if self.kind == "circle":
            return float(self._round.max())
        return float(self._distances.max(initial=0.0))

    @property
    def _distances(self) -> np.ndarray:
        if self.kind == "matrix":
            assert self.table is not None
            return self.table
        if self.kind == "circle":
            assert self.bins is not None
            apart = np.abs(np.arange(self.bins)[:, None] - np.arange(self.bins)[None])
            circle: np.ndarray = np.minimum(apart, self.bins - apart).astype(np.float64)
            return circle
        points = self._positions[:, None] if self.kind == "line" else self.table
        assert points is not None
        apart = np.abs(points[:, None, :] - points[None, :, :])
        if self.metric == "manhattan" or points.shape[1] == 1:
            total: np.ndarray = apart.sum(axis=2)
            return total
        length: np.ndarray = np.sqrt((apart**2).sum(axis=2))
        return length


_SHARED: WeakValueDictionary[tuple[str, int | None], Ground] = WeakValueDictionary()


def read_ground(
    ground: Any, metric: Any = None, scale: Any = None, dim: Any = None
) -> tuple[Ground, list[str]]:
    """The ground distance that a user describes, and what is wrong with it.

    Examples
    --------
    >>> read_ground([[0, 1, 5], [1, 0, 1], [5, 1, 0]])[1]
    ['ground: from bin 0 to bin 2 it is 5 but by way of bin 1 only 2: distances must obey the \
triangle inequality; take the shortest paths instead']
    """
    problems = []
    if metric is not None and not (isinstance(metric, str) and metric in _METRICS):
        problems.append(f"metric must be 'euclidean' or 'manhattan', got {metric!r}")
        metric = "euclidean"
    good_scale = scale is None or _is_positive(scale) or (isinstance(scale, str) and scale == "max")
    if not good_scale:
        problems.append(f"scale must be a number above 0, or 'max', got {scale!r}")
        scale = None
    # As a float, so that 2 and 2.0 are one and a restart finds them alike.
    scale = "max" if isinstance(scale, str) else None if scale is None else float(scale)
    bins = int(dim) if is_whole(dim) else None
    if isinstance(ground, str):
        if ground not in ("line", "circle"):
            problems.append(
                f"ground must be 'line', 'circle', positions of the bins or a matrix of distances, "
                f"got {ground!r}"
            )
            ground = "line"
        if metric is not None:
            problems.append(f"metric= goes with positions of the bins, not with {ground!r}")
        return Ground(ground, bins, None, "euclidean", scale), problems
    try:
        table = np.array(ground, np.float64)
    except (OverflowError, TypeError, ValueError):
        table = np.zeros((0,))
    if table.ndim not in (1, 2) or table.shape[0] < 1 or (table.ndim == 2 and table.shape[1] < 1):
        problems.append(
            "ground must be 'line', 'circle', an array of positions (one row per bin) or a square "
            f"matrix of distances, got {type(ground).__name__} of shape {table.shape}"
        )
        return Ground("line", bins, None, "euclidean", scale), problems
    if dim is not None and dim != table.shape[0]:
        problems.append(f"dim={dim!r}, but ground describes {table.shape[0]} bins: leave dim out")
    n = table.shape[0]
    if not np.isfinite(table).all():
        at = np.argwhere(~np.isfinite(table))[0]
        problems.append(f"ground: the entry at {at.tolist()} is not finite; all must be numbers")
        return Ground("line", n, None, "euclidean", scale), problems
    square = table.ndim == 2 and table.shape[0] == table.shape[1]
    if square and metric is None:
        found = Ground("matrix", n, table, "euclidean", scale)
        return found, problems + _matrix_problems(table)
    if table.ndim == 1 or table.shape[1] == 1:
        return Ground("line", n, table.reshape(n, 1), "euclidean", scale), problems
    return Ground("points", n, table, metric or "euclidean", scale), problems


def _matrix_problems(table: np.ndarray) -> list[str]:
    slack = _SYMMETRY * max(float(np.abs(table).max()), 1e-300)
    if (table < 0).any():
        i, j = np.argwhere(table < 0)[0]
        return [f"ground: from bin {i} to bin {j} it is {table[i, j]:g}, a negative distance"]
    if (np.abs(np.diag(table)) > slack).any():
        i = int(np.argmax(np.abs(np.diag(table)) > slack))
        return [f"ground: from bin {i} to itself it is {table[i, i]:g}, not 0"]
    if (np.abs(table - table.T) > slack).any():
        i, j = np.argwhere(np.abs(table - table.T) > slack)[0]
        return [
            f"ground: from bin {i} to bin {j} it is {table[i, j]:g} and back {table[j, i]:g}: "
            "distances must be symmetric"
        ]
    for k in range(len(table)):
        detour = table[:, k, None] + table[None, k, :]
        if (table > detour + slack).any():
            i, j = np.argwhere(table > detour + slack)[0]
            return [
                f"ground: from bin {i} to bin {j} it is {table[i, j]:g} but by way of bin {k} only "
                f"{detour[i, j]:g}: distances must obey the triangle inequality; take the shortest "
                "paths instead"
            ]
    return []


def _is_positive(value: Any) -> bool:
    return is_number(value, (int, float, np.integer, np.floating)) and bool(value > 0)
