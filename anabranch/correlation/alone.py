"""A correlation that also emits rows without a partner, decided where they are compared.

A row waits at one worker: where the copy that leads lies; see `waiting`. Where the plan is fixed
and sends every row that may be emitted to exactly one worker, that worker meets all its partners
and knows by itself that there are none. Otherwise see `forwarding`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from anabranch.correlation.call import Correlation
from anabranch.correlation.kernel import CorrelateJob, CorrelateKernel, CorrelateNotes
from anabranch.correlation.matching import Matches
from anabranch.correlation.waiting import Decision, Waiting, as_pairs, once
from anabranch.errors import StateMismatch
from anabranch.flow.blocks import Block, concat, take
from anabranch.flow.kernel import Task
from anabranch.flow.sides import HASH, ID
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
class AloneJob(CorrelateJob):
    """A call of `correlate` whose workers decide which rows have no partner."""

    verb: ClassVar[str] = "correlate"
    plan: str = ""  # the fingerprint of the one plan that sends rows once; none where workers share

    @property
    def settings(self) -> Mapping[str, str]:
        """Those of the call, and where rows wait."""
        return {**self.correlation.settings, "waiting": "among compared rows"}

    @property
    def stays(self) -> tuple[int, ...]:
        """How long rows stay to be compared, and then how long notices of them."""
        return super().stays + Waiting.stays(self.correlation)

    def kernel(self, slices: Slices[CorrelateNotes], task: Task) -> AloneKernel:
        """One worker."""
        return AloneKernel(self, slices, task, self.device(task))


class AloneKernel(CorrelateKernel):
    """A worker that yields pairs, and rows that lack the other side."""

    _shared: ClassVar[bool] = False  # whether rows that wait here may be met elsewhere

    def __init__(self, job: AloneJob, slices: Slices[CorrelateNotes], *place: Any) -> None:
        super().__init__(job, slices, *place)
        compared = len(slices.stays) - len(Waiting.stays(job.correlation))
        self._waiting = Waiting(job.correlation, slices, compared, self._shared)
        self._waits = job.correlation.unmatched
        self._met: dict[int, list[tuple[Block, np.ndarray]]] = {}
        self._is_last = False
        self._decided: list[Decision] = []
        self._plan = job.plan

    def step(
        self, arrivals: Sequence[Block], now: int, last: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """What a plain worker does, and the rows that nobody can meet any more."""
        self._is_last = last
        self._refuse_others()
        for pairs in super().step(arrivals, now, last):
            if self.correlation.emits_pairs:
                yield from self._emitted(pairs)
        if not self.correlation.emits_pairs:
            self.load.pairs = 0
        decided, self._decided = self._decided, []
        yield from self._emitted_alone(decided)

    def due(self) -> int | None:
        """When slices expire, or the first row that waits can be decided."""
        found = [due for due in (super().due(), self._waiting.due()) if due is not None]
        return min(found, default=None)

    def _refuse_others(self) -> None:
        """Raise if rows wait that another plan has sent: they may have been met elsewhere.

        Before anything is decided, which also happens without rows that would tell.
        """
        if self._plan and set(self.slices.notes.plans["plans"].values()) - {self._plan}:
            raise StateMismatch(
                "rows wait that another plan has sent: restart with the same plan= and control="
            )

    def _emitted(self, pairs: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Pairs as they leave."""
        yield pairs

    def _emitted_alone(self, decided: Sequence[Decision]) -> Iterator[pa.RecordBatch]:
        """Rows without a partner as they leave."""
        for side, alone, _ in decided:
            if alone is not None:
                self.load.unmatched += len(alone)
                yield as_pairs(self.correlation, side, alone)

    def _marks(self, side: int) -> bool:
        """Rows that may be emitted are stored with whether they wait here."""
        return self.correlation.one_stream or side in self._waits

    def _matched(self, left: Block, right: Block, found: Matches) -> None:
        """Note that rows have met someone."""
        for part in self._waits:
            block, rows = ((left, found.left), (right, found.right))[part]
            self._met.setdefault(part, []).append((block, np.unique(rows)))

    def _expire(self, watermark: int) -> None:
        """Decide rows before what was known of them expires."""
        for part, found in self._met.items():
            blocks = [
                Block.of(block.t[rows], {n: take(block.columns[n], rows) for n in (ID, HASH)})
                for block, rows in found
            ]
            self._waiting.met(part, once(concat(blocks)))
        self._met = {}
        self._decided += self._waiting.decided(watermark, self._is_last)
        self.load.matched += self._waiting.matched()
        super()._expire(watermark)
