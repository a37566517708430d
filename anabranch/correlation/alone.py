"""A correlation that also emits rows without a partner, in one step.

Where the plan is fixed and sends every row that may be emitted to exactly one worker, that worker
meets all its partners and knows by itself that there are none: no homes, no second step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.correlation.call import Correlation
from anabranch.correlation.forwarding import ROWS, ForwardingJob, ForwardingKernel
from anabranch.correlation.kernel import CorrelateKernel, CorrelateNotes
from anabranch.correlation.waiting import Waiting, as_pairs
from anabranch.flow.blocks import Block
from anabranch.flow.kernel import Task
from anabranch.flow.slices import Slices
from anabranch.plans.hashed import Keyed
from anabranch.plans.plan import Plan

__all__ = ["AloneJob", "AloneKernel", "knows_all"]


def knows_all(correlation: Correlation, plan: Plan) -> bool:
    """Whether under this plan one worker meets all partners of a row that may have none.

    A row of one stream is routed both as left and as right; by key it goes to one worker as both.

    Examples
    --------
    >>> from anabranch.correlation.call import plan_correlation
    >>> from anabranch.plans.hashed import broadcast, grid
    >>> from anabranch.predicates import within
    >>> types = {"id": "int", "ts": "timestamp", "x": "double"}
    >>> call = {"where": within("x", 1), "window": "1 s", "how": "left"}
    >>> found, _ = plan_correlation(types, types, **call)
    >>> knows_all(found, broadcast(4)), knows_all(found, grid(4, 1)), knows_all(found, grid(2, 2))
    (True, True, False)
    """
    if correlation.one_stream:
        return plan.workers == 1 or isinstance(plan, Keyed)
    return all(plan.once(side) for side in correlation.unmatched)


@dataclass(frozen=True)
class AloneJob(ForwardingJob):
    """A call of `correlate` whose workers decide which rows have no partner."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Those of the call, and that there is no second step."""
        return {**self.correlation.settings, "homes": "none"}

    @property
    def stays(self) -> tuple[int, ...]:
        """How long rows stay to be compared, and then how long those that wait."""
        return super().stays + Waiting.stays(self.correlation)

    def kernel(self, slices: Slices[CorrelateNotes], task: Task) -> AloneKernel:
        """One worker."""
        return AloneKernel(self, slices, task.worker, self.device(task))


class AloneKernel(ForwardingKernel):
    """A worker that yields pairs, and rows that lack the other side."""

    def __init__(self, job: AloneJob, slices: Slices[CorrelateNotes], *place: Any) -> None:
        super().__init__(job, slices, *place)
        compared = len(slices.stays) - len(Waiting.stays(job.correlation))
        self._waiting = Waiting(job.correlation, slices, compared)
        self._is_last = False
        self._alone: list[pa.RecordBatch] = []

    def step(
        self, arrivals: Sequence[Block], now: int, last: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """What a plain worker does, and the rows that nobody can meet any more."""
        self._is_last = last
        for pairs in CorrelateKernel.step(self, arrivals, now, last):
            if self.correlation.emits_pairs:
                yield pairs
        if not self.correlation.emits_pairs:
            self.load.pairs = 0
        alone, self._alone = self._alone, []
        yield from alone

    def due(self) -> int | None:
        """When slices expire, or the first row that waits can be decided."""
        found = [due for due in (super().due(), self._waiting.due()) if due is not None]
        return min(found, default=None)

    def _expire(self, watermark: int) -> None:
        """Decide rows before what was known of them expires."""
        self._send_notices()
        for side, rows in self._waiting.decided(watermark, self._is_last):
            self.load.unmatched += len(rows)
            self._alone.append(as_pairs(self.correlation, side, rows))
        self.load.matched += self._waiting.matched()
        super()._expire(watermark)

    def _send(
        self, side: int, what: str, t: np.ndarray, h: np.ndarray, columns: dict[str, Any]
    ) -> None:
        block = Block.of(t, columns)
        if what == ROWS:
            self._waiting.add(side, block)
        else:
            self._waiting.met(side, block)
