"""Which queries of a fixed table a worker has, and since when, while the number of workers changes.

A plan gives every query an owner. When a new plan comes, a new owner cannot take over at once: it
does not know the window, nor what has been reported. But from the first micro-batch of the plan on
every object reaches it. All objects that came before lie at or before a *bound*, the watermark then
in force plus the allowed lateness. The new owner runs the query silently over what is later than
the bound; after one window it knows the window, after two it knows what was reported of it. So the
query changes hands at the instant ``bound + 2 * window``: all workers know that instant without
asking, and each instant has exactly one owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.errors import StateMismatch
from anabranch.flow.blocks import Block
from anabranch.neighbours.lists.algorithm import FOREVER
from anabranch.neighbours.lists.zones import zones
from anabranch.plans.memory import check_newest

__all__ = ["Change", "Tenure"]

_MILLISECOND = 1000  # watermarks are that coarse


@dataclass(frozen=True)
class Change:
    """Rows of the table that come and go under a new plan, and the plan's bound."""

    take: np.ndarray
    give: np.ndarray
    bound: int


class Tenure:
    """What one worker owns."""

    def __init__(self, late: int, queries: Block | None, worker: int) -> None:
        self.late = late
        self.queries = queries
        self.worker = worker

    def changes(
        self, arrivals: Sequence[tuple[int, Block]], watermark: int, notes: dict[str, Any]
    ) -> Iterator[Change]:
        """What plans that were not seen before change; `notes` remembers them."""
        plans: dict[str, Any] = {}
        for _, block in arrivals:
            plans.update(block.meta.get("nearest", {}))
        known: dict[str, Any] = notes.setdefault("tenures", {})
        check_newest([int(number) for number in known], [int(number) for number in plans])
        newest = max(map(int, known), default=-1)
        for number in sorted(plans, key=int):
            workers, weights = plans[number]
            if number in known:
                if known[number] != [workers, weights]:
                    raise StateMismatch(
                        f"plan {number} is not the one that this checkpoint was begun with: "
                        "restart with the same plan=, partitions and plan log, or begin a new "
                        "checkpoint"
                    )
                continue
            if int(number) < newest:  # retired, and a router has not heard of it
                continue
            if self.queries is not None:
                before = self._mine(known[max(known, key=int)]) if known else _nothing(self.queries)
                mine = self._mine([workers, weights])
                first = int(number) == 0
                bound = -FOREVER if first else max(watermark, 0) + self.late + _MILLISECOND
                yield Change(np.flatnonzero(mine & ~before), np.flatnonzero(before & ~mine), bound)
            known[number] = [workers, weights]
        if plans:  # the others are retired
            for number in [number for number in known if number not in plans]:
                del known[number]

    def _mine(self, plan: Sequence[Any]) -> np.ndarray:
        assert self.queries is not None
        workers, weights = plan
        found: np.ndarray = zones(self.queries.columns["v"], workers, weights) == self.worker
        return found


def _nothing(queries: Block) -> np.ndarray:
    return np.zeros(len(queries), bool)
