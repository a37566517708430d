"""The routing ``selective`` of `nearest`: objects go only to workers to which they may matter.

Every worker is the owner of some queries, near ones together, and the home of some objects, by a
hash of their id. An object goes to its home, and from there to those owners that cannot rule it
out; see `anabranch.neighbours.selective.homes`. Under ``broadcast`` it goes to all workers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anabranch.errors import renamed
from anabranch.flow.hashing import slot_of, slot_table
from anabranch.plans.arguments import refuse, worker_problems
from anabranch.plans.hashed import Broadcast, broadcast
from anabranch.plans.plan import Routing

__all__ = ["Selective", "cheaper_plan", "rows_per_object", "selective"]

_SENT = ((1, 15.0), (9, 2.7), (81, 1.1))  # copies sent, in units of k / n for each query: measured
# A small micro-batch takes 1.4 times as long with a second stateful operator, so rows must be fewer
# by a margin before it pays.
_WORTH_IT = 0.5


@dataclass(frozen=True)
class Selective(Routing):
    """Objects at home by hash of their id, queries by zones; see `selective`."""

    workers: int
    verb: ClassVar[str] = "ab.nearest, whose queries say what may matter"

    def homes(self, h: np.ndarray) -> np.ndarray:
        """The home of each object, by the hash of its id."""
        return slot_of(h, slot_table(self.workers))

    def __str__(self) -> str:
        return f"selective({self.workers})"


@renamed()
def selective(workers: int) -> Selective:
    """For `nearest`: send objects only to workers that have a query to which they may matter.

    It needs streaming objects, fixed queries with windows of time, ``method="exact"`` and a
    ``control=`` directory that all workers see, through which they publish thresholds.

    Examples
    --------
    >>> print(selective(8))
    selective(8)
    """
    refuse("selective", worker_problems("workers", workers))
    return Selective(int(workers))


def rows_per_object(queries: int, k: float, objects: float, workers: int) -> dict[str, float]:
    """Rows shuffled per object under plan A (everywhere), B (interest) and C (objects parted).

    `objects` is how many a window holds. B sends an object home and then to each query about ``f``
    times as often as the least, k / n, but never more than once to a worker; f falls from 15 at
    k = 1 to 1.1 at k = 81, measured with 400 queries, of which near ones share copies. C sends each
    object once and then what enters a local top-k.

    Examples
    --------
    >>> {plan: round(rows, 1) for plan, rows in rows_per_object(400, 9, 40_000, 16).items()}
    {'A': 16.0, 'B': 1.2, 'C': 3.0}
    """
    share = k / objects
    known, factors = zip(*_SENT, strict=True)
    factor = float(np.interp(math.log(k), np.log(known), factors))
    wanted = queries / workers * share * factor
    reached = workers * (1 - np.exp(-wanted))
    entering = 1.13 if k >= 40 else 1.36
    return {
        "A": float(workers),
        "B": float(min(workers, 1 + reached)),
        "C": float(1 + workers * queries * entering * share),
    }


def cheaper_plan(queries: int, k: float, objects: float, workers: int) -> Broadcast | Selective:
    """``selective`` where it shuffles less than half as much as ``broadcast``, else ``broadcast``.

    `k` is the mean over the queries. A second stateful operator makes micro-batches longer, so a
    few rows less are not worth it.

    Examples
    --------
    >>> print(cheaper_plan(400, 9, 40_000, workers=16))
    selective(16)
    >>> print(cheaper_plan(400, 9, 40_000, workers=2), cheaper_plan(1_000_000, 9, 40_000, 16))
    broadcast(2, side=right) broadcast(16, side=right)
    """
    rows = rows_per_object(queries, k, objects, workers)
    return selective(workers) if rows["B"] < _WORTH_IT * rows["A"] else broadcast(workers)
