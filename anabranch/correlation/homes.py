"""The second step of a correlation that also emits rows without a partner: the homes of rows.

A home holds the rows that have no partner yet. A notice takes its row out: that is there already,
since a row goes to its home in the micro-batch in which it comes. What is left is emitted once the
watermark has passed every time at which a partner might be; one that comes after that is late.
Notices of a micro-batch are taken in before its rows are decided.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from anabranch.correlation.call import Correlation
from anabranch.correlation.forwarding import HOMES, MET, PAIRS, named
from anabranch.flow.blocks import Block, concat
from anabranch.flow.kernel import Task
from anabranch.flow.load import Load
from anabranch.flow.sides import ID, keep_column
from anabranch.flow.slices import Notes, Slices
from anabranch.plans.plan import SIDES

__all__ = ["HomeKernel", "HomesJob"]

_ENDLESS = 1 << 62


@dataclass(frozen=True)
class HomesJob:
    """A call of `correlate` as the homes of its rows run it."""

    correlation: Correlation
    verb: ClassVar[str] = "correlate homes"
    small: ClassVar[bool] = False

    @property
    def settings(self) -> Mapping[str, str]:
        """What must stay the same for stored rows to keep their meaning, and their homes."""
        return {**self.correlation.settings, "homes": str(HOMES)}

    @property
    def stays(self) -> tuple[int, ...]:
        """How long rows of either side wait for partners."""
        return self.correlation.window

    @property
    def notes(self) -> type[Notes]:
        """What workers remember."""
        return Notes

    def kernel(self, slices: Slices[Notes], task: Task) -> HomeKernel:
        """One worker."""
        return HomeKernel(self, slices, task.worker)


class HomeKernel:
    """One worker of the second step. It yields pairs, and rows that lack the other side."""

    nbytes = 0
    late_until: int | None = None

    def __init__(self, job: HomesJob, slices: Slices[Notes], worker: int = 0) -> None:
        self.correlation = job.correlation
        self.slices = slices
        self.load = Load(worker)

    def step(
        self, arrivals: Sequence[Block], now: int, last: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Let pairs through, and emit the rows that nobody can meet any more."""
        began = time.perf_counter()
        self.load.watermark = now
        met: dict[int, list[Block]] = {}
        for block in arrivals:
            if block.meta["what"] == PAIRS:
                yield pa.RecordBatch.from_pydict(dict(block.columns))
            elif block.meta["what"] == MET:
                met.setdefault(int(block.meta["side"]), []).append(block)
            else:
                self.slices.append(int(block.meta["side"]), block.in_time_order())
        for side, notices in met.items():
            self._take_out(side, concat(notices))
        for side in self.correlation.unmatched:
            limit = _ENDLESS if last else now - self.correlation.window[side]
            alone = self.slices.take_until(side, limit)
            if alone is not None:
                self.load.unmatched += len(alone)
                yield self._as_pairs(side, alone)
        self.slices.merge_small()
        self.slices.notes.reached = now
        self.load.state_rows, self.load.state_bytes = self.slices.rows, self.slices.nbytes
        self.load.busy_seconds += time.perf_counter() - began

    def due(self) -> int | None:
        """When the first row that waits can be decided."""
        stays = self.correlation.window
        waiting = (
            entry.first + stays[side]
            for side in self.correlation.unmatched
            for entry in self.slices.of(side)
        )
        return min(waiting, default=None)

    def snapshot(self) -> None:
        """There is nothing beside the slices."""

    def restore(self, data: Any) -> None:
        """There is nothing to restore."""

    def renew(self, fresh: Any) -> None:
        """Nothing is kept from one batch to the next."""

    def _take_out(self, side: int, met: Block) -> None:
        """Forget the rows of which notices have come."""
        first, last = int(met.t.min()), int(met.t.max())
        for entry in self.slices.of(side):
            if entry.first > last or entry.last < first:
                continue
            block = self.slices.read(entry.number)
            known = _are_in(block, met)
            if known.any():
                self.slices.drop(entry.number)
                self.slices.append(side, block.take(np.flatnonzero(~known)))

    def _as_pairs(self, side: int, rows: Block) -> pa.RecordBatch:
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
        for number, of in enumerate(self.correlation.sides):
            for place in range(len(of.keep)):
                name = keep_column(place)
                here = number == side
                column = pa.array(rows.columns[name]) if here else nothing
                columns[f"{of.label}_{name}"] = column
        return pa.RecordBatch.from_pydict(columns)


def _are_in(rows: Block, others: Block) -> np.ndarray:
    """Which rows are among others, by time and id; an id alone may come again at another time."""
    both = concat([block.without(*(set(block.columns) - {ID})) for block in (rows, others)])
    names = named(both)
    found: np.ndarray = np.isin(names[: len(rows)], names[len(rows) :])
    return found
