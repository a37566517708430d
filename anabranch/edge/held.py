"""The rows of one stream that an evaluator holds, and how far it has heard of the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch.edge.definitions import Stream
from anabranch.edge.ownership import EARLIEST
from anabranch.edge.sampling import priorities
from anabranch.edge.sections import Section

__all__ = ["Held"]

_NOTHING = np.empty(0, np.int64)


@dataclass
class Held:
    """Rows in order of time; `covered` is the largest number ever taken."""

    n: np.ndarray = field(default_factory=lambda: _NOTHING)
    t: np.ndarray = field(default_factory=lambda: _NOTHING)
    stamp: np.ndarray = field(default_factory=lambda: _NOTHING)
    priority: np.ndarray = field(default_factory=lambda: np.empty(0))
    columns: tuple[np.ndarray, ...] = ()
    covered: int = -1
    watermark: int = EARLIEST
    fresh: np.ndarray = field(default_factory=lambda: np.empty(0, bool))
    """Which rows came in this step."""
    _form: list[Any] | None = None  # of the rows, as long as these are held

    def take(self, sections: Sequence[Section], stream: Stream) -> None:
        """Add the rows of sections that were never taken."""
        sections = [section for section in sections if len(section.n)]
        self.fresh = np.zeros(len(self.n), bool)
        if not sections:
            return
        n = np.concatenate([section.n for section in sections])
        _, first = np.unique(n, return_index=True)
        new = first[n[first] > self.covered]
        if not len(new):
            return
        t = np.concatenate([section.t for section in sections])[new]
        stamps = [np.full(len(section.n), section.stamp) for section in sections]
        several = zip(*(section.columns for section in sections), strict=True)
        columns = [np.concatenate(parts)[new] for parts in several]
        held = self.columns or tuple(column[:0] for column in columns)
        self._form = None
        self.covered = int(n[new].max())
        self.n = np.concatenate([self.n, n[new]])
        self.t = np.concatenate([self.t, t])
        self.stamp = np.concatenate([self.stamp, np.concatenate(stamps)[new]])
        self.priority = np.concatenate([self.priority, priorities(t, stream.tick)])
        self.columns = tuple(map(np.concatenate, zip(held, columns, strict=True)))
        self.fresh = np.concatenate([self.fresh, np.ones(len(new), bool)])
        if (np.diff(self.t) < 0).any():  # of another incarnation, whose clock was behind
            self._select(np.argsort(self.t, kind="stable"))

    def keep(self, needed: np.ndarray) -> None:
        """Free all other rows."""
        if not needed.all():
            self._select(np.flatnonzero(needed))

    def _select(self, rows: np.ndarray) -> None:
        self._form = None
        self.n, self.t, self.stamp = self.n[rows], self.t[rows], self.stamp[rows]
        self.priority, self.fresh = self.priority[rows], self.fresh[rows]
        self.columns = tuple(column[rows] for column in self.columns)

    def to_form(self) -> list[Any]:
        """All of it as lists, numbers and bytes."""
        if self._form is None:
            arrays = [self.n, self.t, self.stamp, self.priority, *self.columns]
            self._form = [_bytes_of(array) for array in arrays]
        return [self.covered, self.watermark, self._form]

    @classmethod
    def from_form(cls, form: list[Any]) -> Held:
        """What `to_form` wrote."""
        covered, watermark, arrays = form
        n, t, stamp, priority, *columns = map(_array_of, arrays)
        fresh = np.zeros(len(n), bool)
        return cls(n, t, stamp, priority, tuple(columns), covered, watermark, fresh)


def _bytes_of(array: np.ndarray) -> list[Any]:
    if array.dtype == object:
        return ["O", array.shape, array.tolist()]
    return [array.dtype.str, array.shape, array.tobytes()]


def _array_of(form: list[Any]) -> np.ndarray:
    kind, shape, content = form
    if kind == "O":
        return np.array(content, object)
    return np.frombuffer(content, kind).reshape(shape)
