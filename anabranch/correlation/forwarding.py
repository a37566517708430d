"""The first of two steps of a correlation that also emits rows without a partner.

A row lies on several workers, and none of them knows whether another has found it a partner. So
every row has a *home*, a worker of a second step, by the hash of its id, whatever the plan. The one
copy that leads sends the row there; every worker that matches it sends a *notice*; pairs pass
through. See `homes` for what happens there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from anabranch.correlation.gpu.device import Device
from anabranch.correlation.kernel import CorrelateJob, CorrelateKernel, CorrelateNotes
from anabranch.correlation.matching import Matches
from anabranch.correlation.waiting import named
from anabranch.flow.blocks import Block, concat, take
from anabranch.flow.kernel import Task, addressed
from anabranch.flow.sides import HASH, ID, keep_column
from anabranch.flow.slices import Slices
from anabranch.plans.plan import LEFT

__all__ = ["HOMES", "MET", "PAIRS", "ROWS", "ForwardingJob", "ForwardingKernel"]

# What a cell holds, in its meta data.
ROWS, MET, PAIRS = "rows", "met", "pairs"
HOMES = 4
"""How many there are, whatever the session: rows must find theirs after a restart."""


@dataclass(frozen=True)
class ForwardingJob(CorrelateJob):
    """A call of `correlate` whose rows have homes."""

    verb: ClassVar[str] = "correlate"

    def kernel(self, slices: Slices[CorrelateNotes], task: Task) -> ForwardingKernel:
        """One worker."""
        return ForwardingKernel(self, slices, task.worker, self.device(task))


class ForwardingKernel(CorrelateKernel):
    """A worker that sends cells to homes: batches of the columns ``worker`` and ``block``."""

    def __init__(
        self,
        job: ForwardingJob,
        slices: Slices[CorrelateNotes],
        worker: int = 0,
        device: Device | None = None,
    ) -> None:
        super().__init__(job, slices, worker, device)
        self._waits = job.correlation.unmatched
        self._cells: list[tuple[int, bytes]] = []
        self._met: dict[int, list[tuple[Block, np.ndarray]]] = {}

    def step(
        self, arrivals: Sequence[Block], now: int, last: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """What a plain worker does, as cells for homes."""
        home = self.load.worker % HOMES
        for pairs in super().step(arrivals, now, last):
            if self.correlation.emits_pairs:
                columns = dict(zip(pairs.schema.names, pairs.columns, strict=True))
                block = Block.of(pairs.column("right_t").to_numpy(), columns)
                yield from addressed([(home, block.encode(what=PAIRS))])
        if not self.correlation.emits_pairs:
            self.load.pairs = 0
        self._send_notices()
        cells, self._cells = self._cells, []
        yield from addressed(cells)

    def _admitted(self, side: int, block: Block, lead: np.ndarray) -> None:
        """Send rows that lead to their homes."""
        for part in self._sides_of(side):
            rows = np.flatnonzero(lead)
            kept = [keep_column(n) for n in range(len(self.correlation.sides[part].keep))]
            columns = {name: take(block.columns[name], rows) for name in (ID, *kept)}
            self._send(part, ROWS, block.t[rows], block.columns[HASH][rows], columns)

    def _matched(self, left: Block, right: Block, found: Matches) -> None:
        """Note that rows have met someone."""
        for part in self._waits:
            block, rows = ((left, found.left), (right, found.right))[part]
            self._met.setdefault(part, []).append((block, np.unique(rows)))

    def _send_notices(self) -> None:
        """Tell homes of the rows that have met someone in this step, of each once."""
        for part, found in self._met.items():
            blocks = [
                Block.of(block.t[rows], {n: take(block.columns[n], rows) for n in (ID, HASH)})
                for block, rows in found
            ]
            whole = concat(blocks)
            whole = whole.take(np.unique(named(whole), return_index=True)[1])
            self._send(part, MET, whole.t, whole.columns[HASH], {ID: whole.columns[ID]})
        self._met = {}

    def _sides_of(self, side: int) -> Sequence[int]:
        """The sides that wait for partners and have the rows of this input."""
        if self.correlation.one_stream:
            return self._waits if side == LEFT else ()
        return [part for part in self._waits if part == side]

    def _send(
        self, side: int, what: str, t: np.ndarray, h: np.ndarray, columns: dict[str, Any]
    ) -> None:
        homes = (h.view(np.uint64) % np.uint64(HOMES)).astype(np.int64)
        for home in np.unique(homes).tolist():
            mine = np.flatnonzero(homes == home)
            part = {name: take(column, mine) for name, column in columns.items()}
            cell = Block.of(t[mine], part).encode(what=what, side=side)
            self._cells.append((home, cell))
