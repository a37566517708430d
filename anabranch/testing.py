"""For tests, yours and ours: the law of plans, and whole correlations without Spark.

`check_plan` is the law suite that every plan must pass; run it on a plan of your own.
`InProcess` runs a correlation with the same intake, router, kernels and state layout as on Spark,
micro-batch by micro-batch, in one process and without a clock.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.correlation.call import Correlation, plan_correlation
from anabranch.correlation.kernel import CorrelateJob
from anabranch.correlation.packing import SidePacking
from anabranch.errors import InvalidCall
from anabranch.flow.blocks import Block
from anabranch.flow.hashing import mix
from anabranch.flow.kernel import Job, Kernel, Task, check_settings
from anabranch.flow.load import Load
from anabranch.flow.sides import Side, hash_column, keep_column
from anabranch.flow.slices import BEGINNING, Slice, Slices
from anabranch.plans.costs import choose
from anabranch.plans.hashed import keyed
from anabranch.plans.plan import LEFT, RIGHT, Plan, Rows, read_back
from anabranch.plans.ranges import Ranges
from anabranch.plans.routing import LivePlans

__all__ = ["InProcess", "Workers", "check_plan", "simple_types"]

_SNAPSHOT = -1


def check_plan(
    plan: Plan, window: tuple[int, int] = (60_000_000, 30_000_000), rows: int = 300, seed: int = 0
) -> None:
    """Raise `AssertionError` unless `plan` obeys the law of plans.

    Random rows of both sides are routed; every pair that the window lets join and that the plan
    says may match must meet in exactly one worker. The plan must also answer for a row alone, and
    survive pickling and its JSON form, if it has one. A plan of spans must be bound first.

    Examples
    --------
    >>> from anabranch.plans.hashed import grid
    >>> check_plan(grid(3, 2))
    """
    if not isinstance(plan, Plan):
        raise TypeError(f"check_plan takes a plan such as ab.grid(2, 2), got {plan!r}")
    random = np.random.default_rng(seed)
    left, right = (_drawn(plan, window, rows, random) for _ in (LEFT, RIGHT))
    homes = [_homes(plan, side, of, window) for side, of in ((LEFT, left), (RIGHT, right))]
    apart = left.t[:, None] - right.t[None, :]
    due = (apart >= -window[0]) & (apart <= window[1]) & plan.may_match(left, right)
    meetings = homes[LEFT].astype(np.int64) @ homes[RIGHT].T.astype(np.int64)
    wrong = np.argwhere(due & (meetings != 1))
    if len(wrong):
        i, j = wrong[0]
        raise AssertionError(
            f"{plan}: {len(wrong)} of {int(due.sum())} joinable pairs do not meet exactly once; "
            f"left t={left.t[i]} goes to {np.flatnonzero(homes[LEFT][i]).tolist()}, right "
            f"t={right.t[j]} to {np.flatnonzero(homes[RIGHT][j]).tolist()}"
        )
    # A plan class of one's own need not be fit for a log.
    twins = [pickle.loads(pickle.dumps(plan)), read_back(plan) or plan]
    for side, of in ((LEFT, left), (RIGHT, right)):
        some = random.permutation(rows)[: rows // 7]
        again = _homes(plan, side, of.take(some), window)
        assert (again == homes[side][some]).all(), f"{plan}: a row's workers depend on other rows"
        for twin in twins:
            same = _homes(twin, side, of, window)
            assert (same == homes[side]).all(), f"{plan}: a copy of the plan routes differently"


def _drawn(plan: Plan, window: tuple[int, int], rows: int, random: np.random.Generator) -> Rows:
    """Rows with few keys, and values within and beyond a plan's range and on its edges."""
    t = np.sort(random.integers(0, 6 * max(*window, 1), rows)) + 10**15
    low, high, spans = 0.0, 1.0, 10
    if isinstance(plan, Ranges):
        low, high, spans = plan.low or 0.0, plan.high or 0.0, plan.spans
    width = high - low
    anywhere = random.uniform(low - 0.1 * width, high + 0.1 * width, rows)
    edges = low + width * random.integers(0, spans + 1, rows) / spans
    value = np.where(random.random(rows) < 0.3, edges, anywhere)
    ids, keys = random.integers(0, 10**9, rows), random.integers(0, 20, rows)
    return Rows(t, mix(ids), mix(keys), value)


def _homes(plan: Plan, side: int, rows: Rows, window: tuple[int, int]) -> np.ndarray:
    """A row by worker matrix of how many copies go there."""
    offsets, workers = plan.route(side, rows, window)
    n = len(rows.t)
    assert len(offsets) == n + 1 and offsets[-1] == len(workers), f"{plan}: offsets do not fit"
    if len(workers):
        found = workers.min(), workers.max()
        assert found[0] >= 0 and found[1] < plan.workers, f"{plan}: worker out of range, {found}"
    homes = np.zeros((n, plan.workers), np.int8)
    np.add.at(homes, (np.repeat(np.arange(n), np.diff(offsets)), workers), 1)
    assert homes.max(initial=0) <= 1, f"{plan}: a row goes to the same worker twice"
    return homes


class Workers:
    """The workers of a job in one process, their state kept as bytes from step to step.

    It does what the operator does on Spark, without Spark: opens a kernel from what is stored,
    runs a step, stores what the step added, and remembers when the worker is next due.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.heads: dict[int, bytes] = {}
        self.pieces: dict[tuple[int, int], bytes] = {}
        self.timers: dict[int, int | None] = {}
        self.loads: list[Any] = []

    def kernel(self, worker: int, task: Task | None = None) -> Kernel:
        """The kernel of a worker, as stored."""

        def fetch(entry: Slice) -> Block:
            return Block.decode(self.pieces[worker, entry.number])

        head = self.heads.get(worker)
        slices = Slices.open(self.job.stays, self.job.notes, head, fetch)
        settings = dict(self.job.settings)
        if head is None:
            slices.notes.settings = settings
        check_settings(slices.notes.settings, settings)
        kernel = self.job.kernel(slices, task or Task(worker))
        if (worker, _SNAPSHOT) in self.pieces:
            kernel.restore(self.pieces[worker, _SNAPSHOT])
        return kernel

    def step(
        self, worker: int, arrivals: Sequence[Block], now: int, task: Task | None = None
    ) -> list[pa.RecordBatch]:
        """One step of one worker; what it yields."""
        kernel = self.kernel(worker, task)
        found = list(kernel.step(arrivals, now))
        self.store(worker, kernel)
        return found

    def store(self, worker: int, kernel: Kernel) -> None:
        """Keep what a step has left."""
        slices = kernel.slices
        for entry in slices.dropped:
            del self.pieces[worker, entry.number]
        for entry, block in slices.added.values():
            self.pieces[worker, entry.number] = block.encode(small=self.job.small)
        snapshot = kernel.snapshot()
        if snapshot is not None:
            self.pieces[worker, _SNAPSHOT] = snapshot
        self.timers[worker] = kernel.due()
        self.heads[worker] = slices.head()
        self.loads.append(kernel.load)

    def is_due(self, worker: int, now: int) -> bool:
        """Whether a timer of the worker fires at a watermark or clock."""
        due = self.timers.get(worker)
        return due is not None and due <= now

    def copy(self) -> Workers:
        """The same state, to go on from twice."""
        twin = Workers(self.job)
        twin.heads, twin.pieces = dict(self.heads), dict(self.pieces)
        twin.timers, twin.loads = dict(self.timers), list(self.loads)
        return twin

    @property
    def state_rows(self) -> int:
        """Rows stored in all workers after the last step."""
        return sum({load.worker: load.state_rows for load in self.loads}.values())


class InProcess:
    """A correlation in one process.

    Takes what `correlate` takes, with Arrow schemas in place of DataFrames.

    Examples
    --------
    >>> from anabranch import predicates
    >>> table = pa.table({"id": [1, 2], "ts": pa.array([10, 20], pa.timestamp("us", "UTC")),
    ...                   "x": [1.0, 5.0]})
    >>> where = predicates.within("x", 1)
    >>> run = InProcess(table.schema, table.schema, where=where, window="1 second")
    >>> _ = run.step(table, table)
    >>> [(pair["left_id"], pair["right_id"]) for pair in run.pairs]
    [(1, 1), (2, 2)]
    """

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        workers: int = 4,
        streaming: bool = False,
        **call: Any,
    ) -> None:
        found, problems = plan_correlation(simple_types(left), simple_types(right), **call)
        if found is None:
            raise InvalidCall("correlate", problems)
        self.correlation: Correlation = found
        self.plan = found.plan or (keyed(workers) if found.has_key else choose(workers))
        self.streaming = streaming
        self.pairs: list[dict[str, Any]] = []
        self.workers = Workers(CorrelateJob(found))
        self._newest = BEGINNING

    @property
    def watermark(self) -> int:
        """What Spark's would be: newest time of earlier batches less `late`, in milliseconds."""
        if not self.streaming or self._newest == BEGINNING:
            return 0 if self.streaming else BEGINNING
        return (self._newest // 1000 - -(-(self.correlation.late or 0) // 1000)) * 1000

    def step(
        self,
        left: pa.Table | None,
        right: pa.Table | None,
        live: tuple[LivePlans, LivePlans] | None = None,
        watermark: int | None = None,
    ) -> list[Load]:
        """One micro-batch; `live` are the plans that the left and the right router hold live.

        `watermark` is that of the inputs, of a call without `late`.
        """
        routers = live or (LivePlans({0: self.plan}),) * 2
        inbox: dict[int, list[Block]] = {}
        newest = self._newest
        for side, table in ((LEFT, left), (RIGHT, right)):
            if table is None or table.num_rows == 0:
                continue
            batch = prepare(self.correlation.sides[side], table)
            packing = SidePacking(self.correlation, side, self.streaming)
            packed = packing.pack(batch, routers[side])
            newest = max(newest, packed.newest or newest)
            for worker, cell in packed.cells.items():
                inbox.setdefault(worker, []).append(Block.decode(cell))
        watermark = self.watermark if watermark is None else watermark
        before = len(self.workers.loads)
        for worker in sorted(set(self.workers.heads) | set(inbox)):
            # As in Spark: a worker runs if it has rows, or if its timer is due.
            if worker in inbox or self.workers.is_due(worker, watermark):
                for found in self.workers.step(worker, inbox.get(worker, []), watermark):
                    self.pairs += found.to_pylist()
        self._newest = newest
        return self.workers.loads[before:]

    def take_up(self, other: InProcess) -> None:
        """Go on with the state of another run, as a restarted query does."""
        found = other.workers.copy()
        found.job = self.workers.job
        self.workers = found

    @property
    def loads(self) -> list[Load]:
        """The reports of all steps."""
        return self.workers.loads

    @property
    def state_rows(self) -> int:
        """Rows stored in all workers after the last step."""
        return self.workers.state_rows


def prepare(side: Side, table: pa.Table) -> pa.RecordBatch:
    """The columns that `Intake` reads, as Spark would prepare them."""
    columns: dict[str, Any] = {"t": table[side.time], "id": table[side.id]}
    keys = []
    for slot in side.slots:
        columns[slot.name] = table[slot.column]
        if slot.kind == "text":
            columns[slot.name] = table[slot.column].cast(pa.string())
            columns[hash_column(slot)] = _text_hash(columns[slot.name].to_pylist())
        if slot.kind in ("code", "text"):
            keys.append([str(value) for value in table[slot.column].to_pylist()])
    ids = [str(value) for value in table[side.id].to_pylist()]
    columns["h"] = _text_hash(ids)
    texts = ["|".join(parts) for parts in zip(*keys, strict=True)] if keys else ids
    columns["key"] = _text_hash(texts)
    for number, name in enumerate(side.keep):
        columns[keep_column(number)] = table[name]
    whole = pa.table(columns).combine_chunks()
    return whole.to_batches()[0]


def _text_hash(texts: Iterable[str | None]) -> pa.Array:
    digests = [hashlib.blake2b(str(text).encode(), digest_size=8).digest() for text in texts]
    return pa.array(np.frombuffer(b"".join(digests), np.int64))


_ARROW_NAMES: Mapping[str, str] = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "bool": "boolean",
    "date32[day]": "date",
    "timestamp[us]": "timestamp_ntz",
}


def simple_types(schema: pa.Schema) -> dict[str, str]:
    """Spark's short names of the types of an Arrow schema.

    Examples
    --------
    >>> simple_types(pa.schema({"id": pa.int64(), "v": pa.list_(pa.float32())}))
    {'id': 'bigint', 'v': 'array<float>'}
    """

    def name(type_: pa.DataType) -> str:
        if pa.types.is_list(type_):
            return f"array<{name(type_.value_type)}>"
        if pa.types.is_timestamp(type_) and type_.tz is not None:
            return "timestamp"
        if pa.types.is_decimal(type_):
            return f"decimal({type_.precision},{type_.scale})"
        text = str(type_)
        return _ARROW_NAMES.get(text, text)

    return {field.name: name(field.type) for field in schema}
