"""The second of two steps of a correlation whose windows count rows: it compares them.

Rows come from `ordering` with their ranks in the place of times, and all rows of a step come after
those of the steps before. With ranks for times a plain worker does the same as ever; it only looks
for stored rows by the numbers that rows carry, and what frees them are ranks, by side, that have
come. Pairs have event times again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import pyarrow as pa

from anabranch.correlation.filters.tiles import Pair
from anabranch.correlation.kernel import CorrelateJob, CorrelateKernel, CorrelateNotes
from anabranch.correlation.ordering import FIRST
from anabranch.flow.blocks import Block
from anabranch.flow.kernel import Task
from anabranch.flow.sides import BEFORE
from anabranch.flow.slices import Slices
from anabranch.plans.plan import LEFT, RIGHT

__all__ = ["RankedJob", "RankedKernel"]

_LAST = 1 << 62


@dataclass(frozen=True)
class RankedJob(CorrelateJob):
    """A call of `correlate` whose rows have ranks."""

    def kernel(self, slices: Slices[CorrelateNotes], task: Task) -> RankedKernel:
        """One worker."""
        return RankedKernel(self, slices, task)


class RankedKernel(CorrelateKernel):
    """A worker that compares rows by rank."""

    def step(
        self, arrivals: Sequence[Block], now: int, last: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """What a plain worker does, for rows that are in time and in order."""
        heard = next((block.meta for block in arrivals if "counts" in block.meta), None)
        if heard is None:
            return  # nothing happens without rows
        self._counts, self._expired = heard["counts"], int(heard["expired"])
        yield from super().step(arrivals, now, last)
        # A plan is retired by this: its rows have expired once they are no newer.
        self.load.watermark = self._expired

    def due(self) -> None:
        """Rows expire when others come, and not with time."""

    def _check_state(self, arrivals: Sequence[Block], limit: int) -> None:
        super()._check_state(arrivals, self._expired + max(self.correlation.window))

    def _pairings(self, lefts: Sequence[Block], rights: Sequence[Block]) -> Iterator[Pair]:
        """Fresh against stored on either side, and fresh against fresh."""
        window = self.correlation.window
        for left in lefts:
            first = int(left.columns[BEFORE][0]) - window[RIGHT]
            for stored in self.slices.reach(RIGHT, first, _LAST):
                yield Pair(left, stored, window)
        for right in rights:
            first = int(right.columns[BEFORE][0]) - window[LEFT]
            for stored in self.slices.reach(LEFT, first, _LAST):
                yield Pair(stored, right, window)
        for left, right in product(lefts, rights):
            yield Pair(left, right, window)

    def _expire(self, watermark: int) -> None:
        """Free rows that are not among the newest so many of their side."""
        for side in range(len(self.slices.stays)):  # parts, of one stream
            count = self._counts[LEFT if self.correlation.one_stream else side]
            self.slices.expire(FIRST + count - 1, side)
