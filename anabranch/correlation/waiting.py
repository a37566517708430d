"""Rows that wait for a partner, and what is known of those that have met one.

Both are stored in order of time and decided together, once the watermark has passed every time at
which a partner might be. A row that has met someone is not taken out at once, for that would write
everything around it anew; that is done when notices have become many against the rows.

A row lies on several workers, and waits at one. So a worker also knows of rows that wait elsewhere
and have met someone here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.correlation.call import Correlation
from anabranch.flow.blocks import Block, concat
from anabranch.flow.instants import FOREVER
from anabranch.flow.sides import ID, keep_column
from anabranch.flow.slices import Slices
from anabranch.plans.plan import SIDES

__all__ = ["Decision", "Waiting", "as_pairs", "named", "without"]

FEW_NOTICES = 4096
"""So many are kept whatever the number of rows; beyond, half as many as there are rows."""
_BOTH = len(SIDES)
_KINDS = 3  # rows that wait, notices, notices of rows that wait elsewhere


class Decision(NamedTuple):
    """Rows of one side that have met nobody here, and those that have and wait elsewhere."""

    side: int
    alone: Block | None
    elsewhere: Block | None


class Waiting:
    """The rows of one worker that wait, in slices of the sides from `first` on.

    Six sides follow each other: left rows, right rows, left rows that were met, right rows that
    were met, and of the latter those that no longer wait here or never did. All stay as long as
    the window says. Where workers do not share rows, nobody asks for the last two.
    """

    def __init__(
        self, correlation: Correlation, slices: Slices[Any], first: int, shared: bool
    ) -> None:
        self._correlation = correlation
        self._slices = slices
        self._first = first
        self._shared = shared
        self._matched = 0

    @staticmethod
    def stays(correlation: Correlation) -> tuple[int, ...]:
        """How long rows of the six sides stay."""
        return correlation.window * _KINDS

    def add(self, side: int, rows: Block) -> None:
        """Rows that came in, and wait here."""
        self._slices.append(self._first + side, rows.in_time_order())

    def met(self, side: int, notices: Block) -> None:
        """Times and ids of rows that have met someone."""
        self._slices.append(self._met_side(side), notices.in_time_order())
        rows, known, elsewhere = (
            sum(entry.rows for entry in self._slices.of(self._first + kind * _BOTH + side))
            for kind in range(_KINDS)
        )
        if known > max(FEW_NOTICES, (rows + elsewhere) // 2):
            self._take_out(side)

    def decided(self, now: int, last: bool = False) -> Iterator[Decision]:
        """By side, what is known of the rows that, at this watermark, nobody can meet any more."""
        for side in self._correlation.unmatched:
            limit = FOREVER if last else now - self._correlation.window[side]
            rows = self._slices.take_until(self._first + side, limit)
            known = self._known(side, limit)
            alone = without(rows, known)
            if rows is not None:
                self._matched += len(rows) - (0 if alone is None else len(alone))
            if alone is not None or known is not None:
                yield Decision(side, alone, without(known, rows) if self._shared else None)

    def matched(self) -> int:
        """How many rows were found to have met someone, since this was last asked."""
        found, self._matched = self._matched, 0
        return found

    def due(self) -> int | None:
        """When the first row, whether it waits here or elsewhere, can be decided."""
        stays = self._correlation.window
        waiting = (
            entry.first + stays[side]
            for side in self._correlation.unmatched
            for kind in range(_KINDS)
            for entry in self._slices.of(self._first + kind * _BOTH + side)
        )
        return min(waiting, default=None)

    def _met_side(self, side: int) -> int:
        return self._first + _BOTH + side

    def _known(self, side: int, limit: int) -> Block | None:
        """Notices up to a time, which then are no longer stored."""
        taken = (
            self._slices.take_until(number, limit)
            for number in (self._met_side(side), self._met_side(side) + _BOTH)
        )
        found = [block for block in taken if block is not None]
        if not found:
            return None
        whole = concat(found)
        return whole.take(np.unique(named(whole), return_index=True)[1])

    def _take_out(self, side: int) -> None:
        """Forget the rows of which notices have come, and the notices of rows that wait here."""
        known = self._known(side, FOREVER)
        assert known is not None
        here = []
        for entry in self._slices.of(self._first + side):
            block = self._slices.read(entry.number)
            ends = np.searchsorted(known.t, block.t[[0, -1]] + [0, 1])  # both are in order of time
            found = _are_in(block, known.slice(*ends.tolist()))
            if found.any():
                self._matched += int(found.sum())
                here.append(block.without(*(set(block.columns) - {ID})).take(np.flatnonzero(found)))
                self._slices.drop(entry.number)
                self._slices.append(self._first + side, block.take(np.flatnonzero(~found)))
        elsewhere = without(known, concat(here) if here else None)
        if self._shared and elsewhere is not None:
            self._slices.append(self._met_side(side) + _BOTH, elsewhere.in_time_order())


def as_pairs(correlation: Correlation, side: int, rows: Block) -> pa.RecordBatch:
    """Rows as pairs whose other side is null."""
    mine, nothing = SIDES[side], pa.nulls(len(rows))
    other = SIDES[1 - side]
    columns: dict[str, Any] = {
        f"{mine}_id": pa.array(rows.columns[ID]),
        f"{other}_id": nothing,
        f"{mine}_t": pa.array(rows.t),
        f"{other}_t": nothing,
        "score": nothing,
    }
    for number, of in enumerate(correlation.sides):
        for place in range(len(of.keep)):
            name = keep_column(place)
            column = pa.array(rows.columns[name]) if number == side else nothing
            columns[f"{of.label}_{name}"] = column
    return pa.RecordBatch.from_pydict(columns)


def named(rows: Block) -> np.ndarray:
    """What tells rows from each other: time and id, as values that can be sorted.

    Ids of text are numbered, so that only values of one call can be compared.
    """
    ids = rows.columns[ID]
    if not isinstance(ids, np.ndarray):
        ids = ids.dictionary_encode().indices.to_numpy().astype(np.int64)
    pairs = np.ascontiguousarray(np.stack([rows.t, ids.astype(np.int64)], axis=1))
    names: np.ndarray = pairs.view([("t", np.int64), ("id", np.int64)]).ravel()
    return names


def without(rows: Block | None, others: Block | None) -> Block | None:
    """The rows that are not among others, by time and id; None if there are none."""
    if rows is not None and others is not None:
        rows = rows.take(np.flatnonzero(~_are_in(rows, others)))
    return rows if rows is not None and len(rows) else None


def _are_in(rows: Block, others: Block) -> np.ndarray:
    """Which rows are among others, by time and id; an id alone may come again at another time."""
    both = concat([block.without(*(set(block.columns) - {ID})) for block in (rows, others)])
    names = named(both)
    found: np.ndarray = np.isin(names[: len(rows)], names[len(rows) :])
    return found
