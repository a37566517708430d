"""A join by Earth Mover's Distance over simulated workers: real kernels, one after the other.

Every worker's step runs in this process on the real router, kernel and state, and is timed by the
processor's clock. Throughput is what the workers would reach side by side, each on a core of its
own: left rows over the time of the slowest worker. Network, serialisation and Spark are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.blocks import Block
from anabranch.distances.emd.search import forget
from anabranch.kernels.correlate import CorrelateKernel
from anabranch.plans import Plan
from anabranch.routing import LivePlans
from anabranch.spans import Spans, balance, imbalance
from anabranch.testing import InProcess
from anabranch.windows import Slice, Window

__all__ = ["METHODS", "Method", "Outcome", "Setting", "simulate"]

SCHEMA = pa.schema({"id": pa.int64(), "ts": pa.timestamp("us", "UTC"), "h": pa.list_(pa.float32())})
_START = 1_700_000_000_000_000
_SECOND = 1_000_000
_UNEVEN = 0.2  # imbalance from which on cuts are moved, if that halves it
_PERIOD = 2.5  # seconds over which the load of workers is compared


@dataclass(frozen=True)
class Method:
    """How rows are split, which filters run, and whether cuts follow the load."""

    name: str
    filters: str
    local: bool
    feedback: bool = False


METHODS = {
    method.name: method
    for method in (
        Method("ShuffleJ", "paper", local=False),
        Method("Head-SJ", "head-sj", local=True),
        Method("EMD-DDSJ", "paper", local=True, feedback=True),
        Method("ours", "default", local=True, feedback=True),
    )
}


@dataclass(frozen=True)
class Setting:
    """One point of a figure; times in seconds, `rate` in rows per second and side."""

    left: np.ndarray
    right: np.ndarray
    threshold: float
    window: float = 5.0
    workers: int = 5
    rate: int = 200
    period: float = 2.5
    spans: int = 68
    measured: float = 5.0
    step: float = 0.5

    @property
    def warm_up(self) -> float:
        """Until windows are full and the first cuts made from a whole report have replaced others.

        Rows stay where they are when cuts move, so new cuts take a window to act in full.
        """
        return 2 * self.window + max(self.period, 2.5)


@dataclass
class Outcome:
    """What a method did in the measured time, once windows were full."""

    throughput: float
    delay: float
    imbalance: float
    solved: int
    accepted: int
    pairs: int
    comparisons: int
    copies_per_row: float
    seconds: float
    pruned: dict[str, int] = field(default_factory=dict)


class _Cluster(InProcess):
    """Workers that keep their slices, as a Spark worker's cache does, and are timed."""

    def __init__(self, **call: Any) -> None:
        super().__init__(SCHEMA, SCHEMA, streaming=True, **call)
        self.kept: dict[tuple[int, int], Block] = {}
        self.spent: dict[int, float] = {}
        self.found = 0

    def _work(self, worker: int, arrivals: list[tuple[int, Block]], watermark: int) -> None:
        def fetch(entry: Slice) -> Block:
            return self.kept[worker, entry.number]

        window = Window.open(self.correlation.window, self._heads.get(worker), fetch)
        kernel = CorrelateKernel(self.correlation, window, worker)
        began = time.process_time()
        for batch in kernel.step(arrivals, watermark):
            self.found += batch.num_rows
        self.spent[worker] = time.process_time() - began
        for number in window.dropped:
            del self.kept[worker, number]
        for number, (_, block) in window.added.items():
            self.kept[worker, number] = block
        self._heads[worker] = window.head()
        self.loads.append(kernel.load)


def simulate(method: Method, setting: Setting) -> Outcome:
    """Run one method at one setting."""
    forget()
    s = setting
    plan: Plan = ab.spans(s.workers, count=s.spans) if method.local else ab.ssp(s.workers)
    # A chain named on a line runs the solver, as in the paper; ours is the closed form.
    cluster = _Cluster(
        where=ab.emd("h", dim=256, filters=method.filters) <= s.threshold,
        window=f"{round(s.window * 1000)} ms",
        late="0 ms",
        plan=plan,
    )
    plans: dict[int, Plan] = {0: cluster.plan}
    last_row = {0: 0}
    work, since = np.zeros(s.spans), 0.0
    busy, lately, shares = np.zeros(s.workers), np.zeros(s.workers), []
    totals = {"rows": 0, "delay": 0.0, "copies": 0, "both": 0}
    loads_from, found_from = 0, 0
    for number, (left, right, now) in enumerate(_steps(s)):
        if now >= s.warm_up and not busy.any():
            loads_from, found_from = len(cluster.loads), cluster.found
        epoch = max(plans)
        last_row[epoch] = _START + int((number + 1) * s.step * _SECOND)
        alive = {
            n: p
            for n, p in plans.items()
            if n == epoch or last_row[n] + s.window * _SECOND > cluster.watermark
        }
        live = LivePlans(alive)
        cluster.spent = {}
        loads = cluster.step(left, right, (live, live))
        for load in loads:
            if load.spans:
                work += np.array(load.spans)
        since += s.step
        if method.feedback and since >= s.period - 1e-9:
            current = cluster.plan if epoch == 0 else plans[epoch]
            assert isinstance(current, Spans)
            cuts, hot = balance(work, s.workers)
            better = replace(current, cuts=cuts, hot=hot)
            now_, then = imbalance(current.shares(work)), imbalance(better.shares(work))
            if now_ > _UNEVEN and then < now_ / 2:
                plans[epoch + 1] = better
                last_row[epoch + 1] = last_row[epoch]
            work, since = np.zeros(s.spans), 0.0
        if now >= s.warm_up:
            mine = np.zeros(s.workers)
            for worker, seconds in cluster.spent.items():
                mine[worker] = seconds
            busy += mine
            lately += mine
            if round((now - s.warm_up) / s.step + 1) % round(_PERIOD / s.step) == 0:
                shares.append(imbalance(lately))
                lately = np.zeros(s.workers)
            for load in loads:
                totals["rows"] += load.rows_left
                totals["delay"] += load.copies_left * cluster.spent[load.worker]
                totals["copies"] += load.copies_left + load.copies_right
                totals["both"] += load.rows_left + load.rows_right
    measured = cluster.loads[loads_from:]
    pruned: dict[str, int] = {}
    for load in measured:
        for name, pairs in load.pruned.items():
            pruned[name] = pruned.get(name, 0) + pairs
    return Outcome(
        throughput=totals["rows"] / max(float(busy.max()), 1e-9),
        delay=totals["delay"] / max(totals["rows"], 1),
        imbalance=float(np.mean(shares)),
        solved=sum(load.solved for load in measured),
        accepted=sum(load.accepted for load in measured),
        pairs=cluster.found - found_from,
        comparisons=sum(load.comparisons for load in measured),
        copies_per_row=totals["copies"] / max(totals["both"], 1),
        seconds=float(busy.sum()),
        pruned=pruned,
    )


def _steps(s: Setting) -> Iterator[tuple[pa.Table, pa.Table, float]]:
    rows = max(round(s.rate * s.step), 1)
    steps = round((s.warm_up + s.measured) / s.step)
    for number in range(steps):
        tables = []
        for table in (s.left, s.right):
            part = np.take(table, range(number * rows, (number + 1) * rows), axis=0, mode="wrap")
            t = _START + int(number * s.step * _SECOND)
            times = t + np.arange(rows) * int(s.step * _SECOND / rows)
            cells = pa.FixedSizeListArray.from_arrays(part.ravel(), part.shape[1])
            columns = {
                "id": pa.array(np.arange(rows) + number * rows),
                "ts": pa.array(times, SCHEMA.field("ts").type),
                "h": cells.cast(SCHEMA.field("h").type),
            }
            tables.append(pa.table(columns))
        yield tables[0], tables[1], number * s.step
