"""The second step of a correlation that also emits rows without a partner: the homes of rows.

A home holds rows and the notices of those that have met someone; a row is there before them, since
it goes to its home in the micro-batch in which it comes. Rows without a notice are emitted once the
watermark has passed every time at which a partner might be; one that comes after that is late.
Notices of a micro-batch are taken in before its rows are decided.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from anabranch.correlation.call import Correlation
from anabranch.correlation.forwarding import HOMES, MET, PAIRS
from anabranch.correlation.waiting import Waiting, as_pairs
from anabranch.flow.blocks import Block, concat
from anabranch.flow.kernel import Task
from anabranch.flow.load import Load
from anabranch.flow.slices import Notes, Slices

__all__ = ["HomeKernel", "HomesJob"]


@dataclass(frozen=True)
class HomesJob:
    """A call of `correlate` as the homes of its rows run it."""

    correlation: Correlation
    verb: ClassVar[str] = "correlate homes"
    small: ClassVar[bool] = False
    notes: ClassVar[type[Notes]] = Notes

    @property
    def settings(self) -> Mapping[str, str]:
        """What must stay the same for stored rows to keep their meaning, and their homes."""
        return {**self.correlation.settings, "homes": str(HOMES)}

    @property
    def stays(self) -> tuple[int, ...]:
        """How long rows of either side wait for partners, and notices of them."""
        return Waiting.stays(self.correlation)

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
        self._waiting = Waiting(job.correlation, slices)

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
                self._waiting.add(int(block.meta["side"]), block)
        for side, notices in met.items():
            self._waiting.met(side, concat(notices))
        for side, alone in self._waiting.decided(now, last):
            self.load.unmatched += len(alone)
            yield as_pairs(self.correlation, side, alone)
        self.load.matched += self._waiting.matched()
        self.slices.merge_small()
        self.slices.notes.reached = now
        self.load.state_rows, self.load.state_bytes = self.slices.rows, self.slices.nbytes
        self.load.busy_seconds += time.perf_counter() - began

    def due(self) -> int | None:
        """When the first row that waits can be decided."""
        return self._waiting.due()

    def snapshot(self) -> None:
        """There is nothing beside the slices."""

    def restore(self, data: Any) -> None:
        """There is nothing to restore."""

    def renew(self, fresh: Any) -> None:
        """Nothing is kept from one batch to the next."""
