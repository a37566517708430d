"""Rows that wait for a partner, and what is known of those that have met one.

A row waits as long as it is compared, so it waits where it is stored to be compared: at the worker
where its copy leads, which a column of the stored rows says. Nothing is written for it, until it
meets someone: then a notice, its time and id, is. Rows are decided in order of time, once the
watermark has passed every time at which a partner might be; up to which time that was done follows
from the watermark of the last step.

A row lies on several workers, and waits at one. So a worker also has notices of rows that wait
elsewhere and have met someone here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.correlation.call import Correlation
from anabranch.flow.blocks import Block, concat, take
from anabranch.flow.instants import BEGINNING, FOREVER
from anabranch.flow.sides import HASH, ID, LEAD, keep_column
from anabranch.flow.slices import Slices
from anabranch.plans.plan import SIDES

__all__ = ["Decision", "Waiting", "as_pairs", "once", "without"]

FEW_NOTICES = 4096
"""So many new notices are kept beside the old ones before those of a row become one."""
_BOTH = len(SIDES)
_KINDS = 2  # new notices, which may name a row several times, and old ones


class Decision(NamedTuple):
    """Rows of one side that have met nobody here, and those that have and wait elsewhere."""

    side: int
    alone: Block | None
    elsewhere: Block | None


class Waiting:
    """The rows of one worker that wait, among those that it compares.

    These are the first `compared` sides of the slices. Four sides of notices follow: new ones of
    left and of right rows, then old ones. All stay as long as the window says. Notices of rows that
    wait elsewhere are asked for where workers share rows.
    """

    def __init__(
        self, correlation: Correlation, slices: Slices[Any], compared: int, shared: bool
    ) -> None:
        self._correlation = correlation
        self._slices = slices
        self._compared = compared
        self._shared = shared
        self._matched = 0

    @staticmethod
    def stays(correlation: Correlation) -> tuple[int, ...]:
        """How long notices of the four sides stay."""
        return correlation.window * _KINDS

    def met(self, side: int, notices: Block) -> None:
        """Times and ids of rows that have met someone, in order of time."""
        self._slices.append(self._compared + side, notices)
        fresh, old = (
            sum(entry.rows for entry in self._slices.of(number)) for number in self._notices(side)
        )
        # Each time the old ones grow by half, so that all are seldom written anew.
        if fresh > max(FEW_NOTICES, old // 2):
            known = self._known(side, FOREVER)
            for number in self._notices(side):
                for entry in self._slices.of(number):
                    self._slices.drop(entry.number)
            if known is not None:
                self._slices.append(self._compared + _BOTH + side, known)

    def decided(self, now: int, last: bool = False) -> Iterator[Decision]:
        """By side, what is known of the rows that, at this watermark, nobody can meet any more."""
        for side in self._correlation.unmatched:
            limit = FOREVER if last else now - self._correlation.window[side]
            rows = self._rows(side, limit)
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
        """When the first row, whether it waits here or elsewhere, can be decided.

        Rows that lead elsewhere count as if they waited here.
        """
        found = []
        for side in self._correlation.unmatched:
            done, stay = self._done(side), self._correlation.window[side]
            for number in (*self._places(side), *self._notices(side)):
                for entry in self._slices.of(number):
                    if entry.first > done:
                        found.append(entry.first + stay)
                    elif entry.last > done:
                        times = self._slices.read(entry.number).t
                        found.append(int(times[np.searchsorted(times, done, "right")]) + stay)
        return min(found, default=None)

    def _notices(self, side: int) -> tuple[int, int]:
        """Where the new and the old notices of a side are."""
        return self._compared + side, self._compared + _BOTH + side

    def _places(self, side: int) -> range:
        """Where the rows of a side are."""
        return range(self._compared) if self._correlation.one_stream else range(side, side + 1)

    def _done(self, side: int) -> int:
        """The time up to which rows of a side were decided by the last step."""
        reached: int = self._slices.notes.reached
        return max(BEGINNING, reached - self._correlation.window[side])

    def _rows(self, side: int, limit: int) -> Block | None:
        """The rows up to a time that wait here and were not decided before."""
        kept = range(len(self._correlation.sides[side].keep))
        names = (ID, HASH, *map(keep_column, kept))
        found = []
        for block in self._undecided(side, self._places(side), limit):
            rows = np.flatnonzero(block.columns[LEAD])
            if len(rows):
                columns = {name: take(block.columns[name], rows) for name in names}
                found.append(Block.of(block.t[rows], columns))
        return concat(found) if found else None

    def _known(self, side: int, limit: int) -> Block | None:
        """Notices up to a time of rows that were not decided before, one of a row."""
        found = list(self._undecided(side, self._notices(side), limit))
        return once(concat(found)) if found else None

    def _undecided(self, side: int, numbers: Iterable[int], limit: int) -> Iterator[Block]:
        """What slices hold of the times up to a limit that were not decided before.

        What was decided expires with its slice, and is not taken out of it.
        """
        done = self._done(side)
        for number in numbers:
            for entry in self._slices.of(number):
                if entry.first <= limit and entry.last > done:
                    block = self._slices.read(entry.number)
                    start, stop = np.searchsorted(block.t, [done, limit], "right").tolist()
                    if start < stop:
                        yield block.slice(start, stop)


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


def once(rows: Block) -> Block:
    """Each row once, by time and id; in order of time."""
    order, new = _in_order(rows)
    return rows.take(order[new])


def without(rows: Block | None, others: Block | None) -> Block | None:
    """The rows that are not among others, by time and id; None if there are none.

    An id alone may come again at another time.
    """
    if rows is not None and others is not None:
        narrow = [block.without(*(set(block.columns) - {ID})) for block in (rows, others)]
        order, new = _in_order(concat(narrow))
        is_other = np.logical_or.reduceat(order >= len(rows), np.flatnonzero(new))
        found = np.empty(len(order), bool)
        found[order] = is_other[np.cumsum(new) - 1]
        rows = rows.take(np.flatnonzero(~found[: len(rows)]))
    return rows if rows is not None and len(rows) else None


def _in_order(rows: Block) -> tuple[np.ndarray, np.ndarray]:
    """The places of rows by time and id, and which of these is the first of equal ones.

    Ids of text are numbered.
    """
    ids = rows.columns[ID]
    if not isinstance(ids, np.ndarray):
        ids = ids.dictionary_encode().indices.to_numpy()
    order = np.lexsort((ids, rows.t))
    t, ids = rows.t[order], ids[order]
    new = np.ones(len(order), bool)
    new[1:] = (t[1:] != t[:-1]) | (ids[1:] != ids[:-1])
    return order, new
