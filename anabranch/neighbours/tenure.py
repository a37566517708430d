"""Which queries of a fixed table a worker has, and since when, while the number of workers changes.

A plan gives every query an owner. When a new plan comes, a new owner cannot take over at once: it
does not know the window, nor what has been reported. But from the first micro-batch of the plan on
every object reaches it. All objects that came before lie before a *bound*: the watermark then in
force plus the allowed lateness, or the newest of them where another watermark of the query holds
that one back. Every worker hears of it in every micro-batch, so that all know the same. The new
owner runs the query silently over what is later than the bound; after one window it knows the
window, after two it knows what was reported of it. So the query changes hands at the instant
``bound + 2 * window``: all workers know that instant without asking, and each instant has exactly
one owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.errors import StateMismatch
from anabranch.flow.blocks import Block
from anabranch.flow.instants import BEGINNING
from anabranch.neighbours.lists.zones import zones
from anabranch.plans.memory import check_newest

__all__ = ["Change", "Tenure"]

_MILLISECOND = 1000  # watermarks are that coarse


@dataclass(frozen=True)
class Change:
    """Rows of the table that come and go under a new plan, its bound, and what it replaces."""

    take: np.ndarray
    give: np.ndarray
    bound: int
    replaced: str | None = None


class Tenure:
    """What one worker owns."""

    def __init__(self, delay: int, queries: Block | None, worker: int) -> None:
        self.delay = delay
        self.queries = queries
        self.worker = worker

    def changes(
        self, arrivals: Sequence[Block], newest: int, known: dict[str, list[Any]]
    ) -> Iterator[Change]:
        """What plans that were not seen before change; `known` remembers those that are live.

        No object that came before is later than `newest`.
        """
        plans: dict[str, list[Any]] = {}
        for block in arrivals:
            plans.update(block.meta.get("nearest", {}))
        if not plans:
            return
        highest = max(map(int, known), default=-1)
        _check_plans(plans, known, highest)
        for number in sorted(plans, key=int):
            # One below the highest is live for rows of before; it changes nothing any more.
            if number in known or (known and int(number) < highest):
                continue
            if self.queries is not None:
                last = max(known, key=int) if known else None
                before = _nothing(self.queries) if last is None else self._mine(known[last])
                mine = self._mine(plans[number])
                bound = BEGINNING if int(number) == 0 else newest + _MILLISECOND
                take, give = np.flatnonzero(mine & ~before), np.flatnonzero(before & ~mine)
                yield Change(take, give, bound, last)
            known[number] = plans[number]
        # Of plans that are over nothing is remembered: state must not grow with every change.
        for number in [n for n in known if n not in plans]:
            del known[number]

    def _mine(self, plan: Sequence[Any]) -> np.ndarray:
        assert self.queries is not None
        workers, weights = plan
        found: np.ndarray = zones(self.queries.columns["v"], workers, weights) == self.worker
        return found


def _check_plans(plans: dict[str, list[Any]], known: dict[str, list[Any]], highest: int) -> None:
    for number, plan in plans.items():
        if known.get(number, plan) != plan:
            was, now = (_named(workers, weights) for workers, weights in (known[number], plan))
            raise StateMismatch(
                f"this checkpoint was begun with {was} as plan {number}, and rows arrive under "
                f"{now}: pass plan={was}, whatever the number of partitions is now, and the same "
                "plan log if there is one; or begin a new checkpoint"
            )
    check_newest([highest], [int(number) for number in plans])


def _named(workers: int, weights: Any) -> str:
    return (
        f"ab.broadcast({workers})"
        if weights is None
        else f"ab.broadcast({workers}) with weights {weights}"
    )


def _nothing(queries: Block) -> np.ndarray:
    return np.zeros(len(queries), bool)
