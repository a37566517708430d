"""A correlation that also emits rows without a partner, whose rows lie on several workers.

Every copy of a row is decided in the same micro-batch: the one in which the watermark passes the
last time at which a partner might be. The worker where the row waits then sends it to its home
unless it has met someone there; workers where it has met someone and does not wait send a notice.
Nothing is left to be remembered by homes, which are by the hash of the id; see `homes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from anabranch.correlation.alone import AloneJob, AloneKernel
from anabranch.correlation.kernel import CorrelateNotes
from anabranch.correlation.waiting import Decision
from anabranch.flow.blocks import Block
from anabranch.flow.kernel import BYTES_AT_ONCE, Task, addressed
from anabranch.flow.sides import HASH
from anabranch.flow.slices import Slices

__all__ = ["MET", "PAIRS", "ROWS", "ForwardingJob", "ForwardingKernel"]

# What a cell holds, in its meta data.
ROWS, MET, PAIRS = "rows", "met", "pairs"


@dataclass(frozen=True)
class ForwardingJob(AloneJob):
    """A call of `correlate` whose rows have homes, so many of them."""

    homes: int = 4

    def kernel(self, slices: Slices[CorrelateNotes], task: Task) -> ForwardingKernel:
        """One worker."""
        return ForwardingKernel(self, slices, task, self.device(task))


class ForwardingKernel(AloneKernel):
    """A worker that sends cells to homes: batches of the columns ``worker`` and ``block``.

    Its report counts all rows that it decides as matched; what homes emit is taken from that.
    """

    _shared: ClassVar[bool] = True

    def __init__(self, job: ForwardingJob, slices: Slices[CorrelateNotes], *place: object) -> None:
        super().__init__(job, slices, *place)
        self._homes = job.homes

    def _emitted(self, pairs: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        columns = dict(zip(pairs.schema.names, pairs.columns, strict=True))
        block = Block.of(pairs.column("right_t").to_numpy(), columns)
        yield from addressed([(self.load.worker % self._homes, block.encode(what=PAIRS))])

    def _emitted_alone(self, decided: Sequence[Decision]) -> Iterator[pa.RecordBatch]:
        cells: list[tuple[int, bytes]] = []
        for side, alone, elsewhere in decided:
            if alone is not None:
                self.load.matched += len(alone)
                cells += self._sent(side, ROWS, alone)
            if elsewhere is not None:
                cells += self._sent(side, MET, elsewhere)
        yield from addressed(cells)

    def _sent(self, side: int, what: str, rows: Block) -> Iterator[tuple[int, bytes]]:
        """Rows as cells for their homes."""
        homes = (rows.columns[HASH].view(np.uint64) % np.uint64(self._homes)).astype(np.int64)
        for home in np.unique(homes).tolist():
            mine = np.flatnonzero(homes == home)
            part = rows.without(HASH).take(mine)
            step = max(1, len(part) * BYTES_AT_ONCE // max(part.nbytes, 1))
            for start in range(0, len(part), step):
                some = part.slice(start, min(start + step, len(part)))
                yield home, some.encode(what=what, side=side)
