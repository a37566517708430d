"""A join by Earth Mover's Distance over simulated workers: real kernels, one after the other.

Every worker's step runs in this process on the real router, kernel and state, and is timed by the
processor's clock. Throughput is what the workers would reach side by side, each on a core of its
own: left rows over the time of the slowest worker. Network, serialisation and Spark are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.correlation.emd.search import forget
from anabranch.correlation.kernel import CorrelateJob
from anabranch.flow.blocks import Block
from anabranch.flow.kernel import Job, Kernel, Task
from anabranch.flow.load import Load
from anabranch.flow.slices import Slice
from anabranch.plans.plan import LEFT, Plan, Routes, Rows
from anabranch.plans.ranges import Ranges, balance, imbalance
from anabranch.plans.routing import LivePlans
from anabranch.testing import InProcess, Workers

__all__ = ["METHODS", "Method", "Outcome", "Setting", "TimedWorkers", "simulate"]

SCHEMA = pa.schema({"id": pa.int64(), "ts": pa.timestamp("us", "UTC"), "h": pa.list_(pa.float32())})
_START = 1_700_000_000_000_000
_SECOND = 1_000_000
_UNEVEN = 0.2  # imbalance from which on cuts are moved, if that halves it
_PERIOD = 2.5  # seconds over which the load of workers is compared


@dataclass(frozen=True)
class Method:
    """How rows are split, which filters run, and when cuts follow the load.

    With `everywhere` right rows go to all workers, as in the papers; else to those within reach.
    `feedback` is never (cuts stay even), ``"once"`` (after the first period) or ``"always"``.
    """

    name: str
    filters: str
    local: bool
    everywhere: bool = True
    feedback: str = "never"


METHODS = {
    method.name: method
    for method in (
        Method("ShuffleJ", "paper", local=False),
        Method("Head-SJ", "head-sj", local=True, feedback="once"),
        Method("EMD-DDSJ", "paper", local=True, feedback="always"),
        Method("ours", "default", local=True, everywhere=False, feedback="always"),
    )
}


@dataclass(frozen=True)
class Everywhere(Plan):
    """Left rows go where `cuts` say, right rows to all workers: EMD-DDSJ and Head-SJ as published.

    A left row has one worker and meets every right row there, so cuts may change at any time
    without a log of plans, and act at once on the left rows that come.
    """

    cuts: Ranges
    name: ClassVar[str] = "everywhere"
    needs: ClassVar[str] = "value"
    workers: int = field(init=False)
    ranges: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", self.cuts.workers)
        object.__setattr__(self, "ranges", self.cuts.ranges)

    def route(self, side: int, rows: Rows, window: tuple[int, int]) -> Routes:
        if side == LEFT:
            return self.cuts.route(side, rows, window)
        k, n = self.workers, len(rows.h)
        return Routes(np.arange(n + 1) * k, np.tile(np.arange(k, dtype="i4"), n))

    def to_dict(self) -> dict[str, Any]:
        return {"plan": self.name, "workers": self.workers}  # cuts do not matter to stored rows


@dataclass(frozen=True)
class Setting:
    """One point of a figure; times in seconds, `rate` in rows per second and side.

    Every setting is measured over the same rows, from `begins` on for `measured` seconds, so that
    points of a figure differ by their settings alone.
    """

    left: np.ndarray
    right: np.ndarray
    threshold: float
    ground: Any = "line"
    window: float = 5.0
    workers: int = 5
    rate: int = 200
    period: float = 2.5
    ranges: int = 68
    begins: float = 27.0
    measured: float = 10.0
    step: float = 0.5

    def warm_up(self, method: Method) -> float:
        """How long to run before that: until windows are full and cuts have been made.

        Rows stay where they are when cuts move, so new cuts take a window to act in full.
        """
        settled = {"never": 0.0, "once": self.period, "always": self.window + self.period}
        return self.window + settled[method.feedback]


@dataclass
class Outcome:
    """What a method did in the measured time, once windows were full."""

    throughput: float
    delay: float
    imbalance: float
    imbalance_of_solved: float
    solved: int
    accepted: int
    pairs: int
    comparisons: int
    copies_per_row: float
    seconds: float
    pruned: dict[str, int] = field(default_factory=dict)


class TimedWorkers(Workers):
    """Workers that keep their slices, as a Spark worker's cache does, and are timed."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.kept: dict[tuple[int, int], Block] = {}
        self.spent: dict[int, float] = {}
        self.found = 0

    def step(
        self, worker: int, arrivals: Sequence[Block], now: int, task: Task | None = None
    ) -> list[pa.RecordBatch]:
        """One step of one worker; its pairs are counted and dropped."""
        kernel = self.kernel(worker, task)
        began = time.process_time()
        for batch in kernel.step(arrivals, now):
            self.found += batch.num_rows
        self.spent[worker] = time.process_time() - began
        self.store(worker, kernel)
        return []

    def store(self, worker: int, kernel: Kernel) -> None:
        """Keep what a step has left, as it is."""
        slices = kernel.slices
        for entry in slices.dropped:
            del self.kept[worker, entry.number]
        for entry, block in slices.added.values():
            self.kept[worker, entry.number] = block
        self.timers[worker] = kernel.due()
        self.heads[worker] = slices.head()
        self.loads.append(kernel.load)

    def _fetch(self, worker: int, entry: Slice) -> Block:
        return self.kept[worker, entry.number]


def simulate(method: Method, setting: Setting) -> Outcome:
    """Run one method at one setting."""
    forget()
    s = setting
    plan: Plan = ab.ranges(s.workers, count=s.ranges) if method.local else ab.broadcast(s.workers)
    # A chain named on a line runs the solver, as in the paper; ours is the closed form.
    dim = s.left.shape[1] if isinstance(s.ground, str) else None
    cluster = InProcess(
        SCHEMA,
        SCHEMA,
        streaming=True,
        where=ab.emd("h", ground=s.ground, dim=dim, filters=method.filters, scores="bound")
        <= s.threshold,
        window=f"{round(s.window * 1000)} ms",
        watermark="0 ms",
        plan=plan,
    )
    workers = TimedWorkers(CorrelateJob(cluster.correlation))
    cluster.workers = workers
    feedback = _Feedback(method, s, cluster.plan)
    measured = _Measured(s)
    begin = s.begins - s.warm_up(method)
    for number, (left, right, now) in enumerate(_steps(s, begin)):
        live = feedback.live(_START + int((number + 1) * s.step * _SECOND), cluster.watermark)
        workers.spent, before = {}, workers.found
        loads = cluster.step(left, right, (live, live))
        feedback.hear(loads)
        if now >= s.begins - 1e-9:
            measured.add(loads, workers.spent, workers.found - before)
    return measured.outcome()


class _Feedback:
    """The plans in force, and the cuts that follow the load reported in each period."""

    def __init__(self, method: Method, setting: Setting, plan: Plan) -> None:
        self.method, self.setting = method, setting
        self.plans: dict[int, Plan] = {0: plan}
        self.last_row = {0: 0}
        self._work, self._since = np.zeros(setting.ranges), 0.0

    def live(self, until: int, watermark: int) -> LivePlans:
        """The plans of the rows up to this time."""
        epoch = max(self.plans)
        newest = self.plans[epoch]
        if isinstance(newest, Ranges) and self.method.everywhere:
            return LivePlans({0: Everywhere(newest)})
        self.last_row[epoch] = until
        kept = self.setting.window * _SECOND
        return LivePlans(
            {
                n: p
                for n, p in self.plans.items()
                if n == epoch or self.last_row[n] + kept > watermark
            }
        )

    def hear(self, loads: list[Load]) -> None:
        """Add the reports of a step; at the end of a period, cut anew."""
        s, epoch = self.setting, max(self.plans)
        for load in loads:
            if load.ranges:
                self._work += np.array(load.ranges)
        self._since += s.step
        done = self.method.feedback == "once" and epoch > 0
        if self._since < s.period - 1e-9 or self.method.feedback == "never" or done:
            return
        current, work = self.plans[epoch], self._work
        assert isinstance(current, Ranges)
        cuts, hot = balance(work, s.workers)
        better = replace(current, cuts=cuts, hot=hot)
        now, then = imbalance(current.shares(work)), imbalance(better.shares(work))
        if now > _UNEVEN and then < now / 2:
            self.plans[epoch + 1] = better
            self.last_row[epoch + 1] = self.last_row[epoch]
        self._work, self._since = np.zeros(s.ranges), 0.0


class _Measured:
    """What the workers did since windows were full."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._steps: list[np.ndarray] = []  # processor time by worker
        self._solved: list[np.ndarray] = []
        self._loads: list[Load] = []
        self._delay, self._pairs = 0.0, 0

    def add(self, loads: list[Load], spent: dict[int, float], pairs: int) -> None:
        """One step of all workers."""
        time_, solved = np.zeros((2, self._setting.workers))
        for load in loads:
            time_[load.worker] = spent[load.worker]
            solved[load.worker] = load.solved
            self._delay += load.copies_left * spent[load.worker]
        self._steps.append(time_)
        self._solved.append(solved)
        self._loads += loads
        self._pairs += pairs

    def outcome(self) -> Outcome:
        """The figures of one point."""
        loads, each = self._loads, round(_PERIOD / self._setting.step)
        busy = np.sum(self._steps, axis=0)
        left = sum(load.rows_left for load in loads)
        pruned: dict[str, int] = {}
        for load in loads:
            for name, pairs in load.pruned.items():
                pruned[name] = pruned.get(name, 0) + pairs
        return Outcome(
            throughput=left / max(float(busy.max()), 1e-9),
            delay=self._delay / max(left, 1),
            imbalance=_uneven(self._steps, each),
            imbalance_of_solved=_uneven(self._solved, each),
            solved=sum(load.solved for load in loads),
            accepted=sum(load.accepted for load in loads),
            pairs=self._pairs,
            comparisons=sum(load.comparisons for load in loads),
            copies_per_row=sum(load.copies_left + load.copies_right for load in loads)
            / max(left + sum(load.rows_right for load in loads), 1),
            seconds=float(busy.sum()),
            pruned=pruned,
        )


def _uneven(steps: list[np.ndarray], each: int) -> float:
    """The mean imbalance of runs of so many steps."""
    runs = [np.sum(steps[at : at + each], axis=0) for at in range(0, len(steps), each)]
    return float(np.mean([imbalance(run) for run in runs]))


def _steps(s: Setting, begin: float) -> Iterator[tuple[pa.Table, pa.Table, float]]:
    """Both sides, step by step, from second `begin` of the films on; and where a step begins."""
    rows, first = max(round(s.rate * s.step), 1), round(begin / s.step)
    for number in range(first, round((s.begins + s.measured) / s.step)):
        ids = np.arange(number * rows, (number + 1) * rows)
        t = _START + round((number - first) * s.step * _SECOND)
        times = pa.array(
            t + np.arange(rows) * int(s.step * _SECOND / rows), SCHEMA.field("ts").type
        )
        tables = []
        for table in (s.left, s.right):
            part = table[ids]
            cells = pa.FixedSizeListArray.from_arrays(part.ravel(), part.shape[1])
            h = cells.cast(SCHEMA.field("h").type)
            tables.append(pa.table({"id": ids, "ts": times, "h": h}))
        yield tables[0], tables[1], number * s.step
