"""What a micro-batch takes on so many workers, and the highest rate that they sustain.

A worker has a core of its own. Rows are routed by the library's own plans, so that copies and
uneven shares are those of the plan and not of a formula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

import anabranch as ab
from anabranch.flow.hashing import mix
from anabranch.neighbours.selective.routing import rows_per_object
from anabranch.plans.costs import best_grid
from anabranch.plans.plan import LEFT, RIGHT, Plan, Rows
from anabranch.plans.ranges import Ranges, balance
from benchmarks.scale_costs import Cost, Spark

__all__ = ["BANDWIDTH", "INTERVAL", "WINDOW", "WORKLOADS", "Share", "parts", "sustained"]

INTERVAL = 10.0  # seconds between micro-batches
WINDOW = 60.0  # seconds, of either side
BANDWIDTH = 1e8  # bytes per second and worker: assumed, there is no network here to measure
QUERIES, K = 100_000, 10
_SAMPLE = 100_000
_REACH = 0.01  # of the range of keys of an Earth Mover's Distance


@dataclass(frozen=True)
class Share:
    """How a plan splits work over workers.

    `copies` are those of a row; `received` is the most that one worker receives, by input row;
    `compared` the largest part of all comparisons that falls to one worker, and `pairs` is how many
    comparisons there are for a row, at so many rows per second. `rounds` of tasks follow each
    other. Where copies depend on the rate, `sent` says how many there are, evenly spread.
    """

    copies: float
    received: float
    compared: float = 0.0
    pairs: Callable[[float], float] = lambda rate: 0.0
    rounds: int = 1
    cost: str = "correlate"
    sent: Callable[[float], float] | None = None


def _rows(count: int, side: int) -> Rows:
    random = np.random.default_rng(side)
    ids = np.arange(count) * 2 + side
    # A tenth of the rows have one of a hundred keys, the others any of a million.
    key = np.where(random.random(count) < 0.1, random.integers(0, 100, count), 0)
    key = np.where(key == 0, random.integers(100, 10**6, count), key)
    value = random.normal(0.5, 0.15, count).clip(0, 1)
    t = np.sort(random.integers(0, 10**7, count))
    return Rows(t, mix(ids), mix(key), value)


def _split(plan: Plan, count: int = _SAMPLE) -> tuple[float, np.ndarray, np.ndarray]:
    """Copies of a row, and the share of left and of right rows that each worker receives."""
    shares = []
    for side in (LEFT, RIGHT):
        routes = plan.route(side, _rows(count, side), (60_000_000, 60_000_000))
        shares.append(np.bincount(routes.workers, minlength=plan.workers) / count)
    return float(shares[0].sum() + shares[1].sum()) / 2, shares[0], shares[1]


def _met(rate: float) -> float:
    """Comparisons for each row of two equally fast streams, of so many rows per second together."""
    return rate / 4 * 2 * WINDOW


def _correlated(plan: Plan, cost: str = "correlate", count: int = _SAMPLE) -> Share:
    copies, left, right = _split(plan, count)
    # Left copies meet right copies wherever both are.
    return Share(
        copies, float((left + right).max()) / 2, float((left * right).max()), _met, 1, cost
    )


def _grid(workers: int) -> Share:
    return _correlated(best_grid(workers, (1, 1)))


def _broadcast(workers: int) -> Share:
    return _correlated(ab.broadcast(workers))


def _keyed(workers: int) -> Share:
    """Rows meet those of their own key only."""
    plan = ab.keyed(workers)
    copies, left, right = _split(plan)
    rows = _rows(_SAMPLE, LEFT)
    routes, key = plan.route(LEFT, rows, (0, 0)), rows.key
    assert key is not None
    _, first, each = np.unique(key, return_index=True, return_counts=True)
    met = np.bincount(routes.workers[first], (each / _SAMPLE) ** 2, workers)
    return Share(copies, float((left + right).max()) / 2, float(met.max()), _met)


def _ranges(workers: int) -> Share:
    """Ranges whose cuts have moved with the load, as ``ab.adaptive`` moves them."""
    count = max(64, 4 * workers)
    values = _rows(_SAMPLE, LEFT).value
    assert values is not None
    load = np.histogram(values, count, (0.0, 1.0))[0].astype(float) ** 2
    cuts, hot = balance(load, workers)
    plan = Ranges(workers, count, 0.0, 1.0, _REACH, cuts, hot, "s0")
    return _correlated(plan, "emd", 10_000)


def _nearest(workers: int) -> Share:
    """All objects to all workers, which have the queries among them."""
    return Share(workers, 1.0, 1 / workers, lambda rate: QUERIES, 1, "nearest")


def _selective(workers: int) -> Share:
    """Objects at home, then where they may matter; `WINDOW` times the rate are in a window."""

    def sent(rate: float) -> float:
        return rows_per_object(QUERIES, K, max(1.0, rate * WINDOW), workers)["B"]

    def pairs(rate: float) -> float:
        """What is sent on is compared with the queries of the workers that it is sent to."""
        return (sent(rate) - 1) * QUERIES / workers

    return Share(0.0, 0.0, 1 / workers, pairs, 2, "nearest", sent)


def _assemble(workers: int) -> Share:
    copies, left, _ = _split(ab.keyed(workers))
    return Share(copies, float(left.max()), cost="assemble")


def _groups(workers: int) -> Share:
    """One worker has them all, whatever their number."""
    return Share(1.0, 1.0, cost="groups")


WORKLOADS: Mapping[str, Callable[[int], Share]] = {
    "correlate, grid": _grid,
    "correlate, broadcast": _broadcast,
    "correlate, by key": _keyed,
    "emd, ranges": _ranges,
    "nearest, broadcast": _nearest,
    "nearest, selective": _selective,
    "assemble": _assemble,
    "groups": _groups,
}


def parts(
    rate: float, workers: int, share: Share, costs: Mapping[str, Cost], spark: Spark
) -> dict[str, float]:
    """Seconds of a micro-batch at so many rows per second, of its slowest worker, by part."""
    cost, rows = costs[share.cost], rate * INTERVAL
    stages = share.rounds + 1
    copies, received = share.copies, rows * share.received
    if share.sent is not None:
        copies = share.sent(rate)
        received = rows * copies / workers
    found = {
        "fixed": share.rounds * (spark.base + spark.task + workers * spark.block)
        + stages * workers * spark.schedule,
        "route": rows / workers * (cost.row + copies * cost.copy),
        "move": received * cost.bytes * (spark.byte + 1 / BANDWIDTH),
        "receive": received * cost.receive,
        "compare": rows * share.pairs(rate) * share.compared * cost.compare,
    }
    if share.rounds > 1:  # each home holds its objects against every worker
        found["route"] += rows * costs["homes"].compare
    return found


def sustained(
    workers: int, share: Share, costs: Mapping[str, Cost], spark: Spark
) -> tuple[float, dict[str, float]]:
    """The highest rate up to which a micro-batch is done before the next, and its parts.

    More is not always slower: the more objects a window has, the fewer of them matter to a query.
    A rate counts if all lower ones are sustained too, for a stream begins with an empty window.
    """
    rate = 0.0
    for trial in np.geomspace(1, 1e10, 2000):
        if sum(parts(trial, workers, share, costs, spark).values()) > INTERVAL:
            break
        rate = float(trial)
    return rate, parts(rate, workers, share, costs, spark)
