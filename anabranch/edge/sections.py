"""What frames carry: rows and results of one stream or view, column by column."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from anabranch.edge.definitions import COLUMN_TYPES, Stream
from anabranch.edge.ownership import EARLIEST
from anabranch.edge.sampling import sampled

__all__ = ["Results", "Section", "is_column", "shape_of", "thinned"]


@dataclass(frozen=True, eq=False)
class Section:
    """Rows of one stream with one stamp, in order of `n`; or its watermark alone.

    `watermark` promises that no later row of the stream has a time at or before it. `band` is the
    least priority of a row that is sampled: who asks for a share at or below it does without.
    """

    stream: int
    stamp: int
    n: np.ndarray  # int64, ascending; identity is (stream, n)
    t: np.ndarray  # int64 microseconds, never descending
    columns: tuple[np.ndarray, ...] = ()  # as the stream declares them; vectors (rows, length)
    watermark: int = EARLIEST
    band: float = 0.0
    packed: bytes | None = None  # as a mailbox has it: a relay passes on what it does not change

    def later(self, first: int) -> Section:
        """The section without its first rows."""
        columns = tuple(column[first:] for column in self.columns)
        return replace(self, n=self.n[first:], t=self.t[first:], columns=columns, packed=None)


@dataclass(frozen=True, eq=False)
class Results:
    """Results of one view: their identity is (view, n of each input row)."""

    view: int
    n: tuple[np.ndarray, ...]  # of each input, int64
    t: tuple[np.ndarray, ...]
    stamp: np.ndarray  # of each result: the largest of its rows'
    score: np.ndarray  # float64; NaN where `where` has no value
    columns: tuple[np.ndarray, ...] = ()  # those kept of the left side, then of the right
    packed: bytes | None = None  # as every frame has it


def shape_of(section: Section, stream: Stream) -> list[int] | None:
    """The lengths of a section's vectors, 0 for other columns; None if it is not of that stream.

    Examples
    --------
    >>> rows = np.array([1, 2]), np.array([10, 20])
    >>> xy, x = np.zeros((2, 3)), np.zeros(2)
    >>> gps = Stream("gps[ann]", "ann", {"xy": "array<double>", "speed": "double"})
    >>> shape_of(Section(0, 0, *rows, (xy, x)), gps), shape_of(Section(0, 0, *rows, (x, xy)), gps)
    ([3, 0], None)
    """
    if len(section.columns) != len(stream.columns):
        return None
    if not all(map(is_column, section.columns, stream.columns.values())):
        return None
    return [column.shape[1] if column.ndim == 2 else 0 for column in section.columns]


def is_column(column: np.ndarray, type_: str) -> bool:
    """Whether an array is a column of a declared type."""
    vector = type_.startswith("array<")
    wanted = COLUMN_TYPES[type_[6:-1] if vector else type_]
    if column.dtype != wanted or column.ndim != 1 + vector:
        return False
    return wanted is not object or all(isinstance(one, str) for one in column)


def thinned(section: Section, share: float, tick: int) -> Section | None:
    """The rows of a section that a share takes; None if it takes none of them.

    Examples
    --------
    >>> rows = Section(0, 0, np.arange(4), np.arange(4))
    >>> thinned(rows, 0.5, 1).n.tolist(), thinned(rows, 1.0, 1) is rows
    ([0, 2], True)
    """
    if section.band >= share:
        return None
    if not len(section.n) or not tick or share >= 1.0:
        return section
    taken = sampled(section.t, tick, share)
    if taken.all():
        return section
    if not taken.any():
        return None
    columns = tuple(column[taken] for column in section.columns)
    n, t = section.n[taken], section.t[taken]
    return replace(section, n=n, t=t, columns=columns, packed=None)
