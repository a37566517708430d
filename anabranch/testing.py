"""For tests, yours and ours: the law of plans, and whole correlations without Spark.

`check_plan` is the law suite that every plan must pass; run it on a plan of your own.
`InProcess` runs a correlation with the same intake, router, kernels and state layout as on Spark,
micro-batch by micro-batch, in one process and without a clock.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.correlation.call import Correlation, Side, plan_correlation
from anabranch.correlation.kernel import BEGINNING, CorrelateKernel
from anabranch.correlation.packing import pack
from anabranch.errors import InvalidCall
from anabranch.flow.blocks import Block
from anabranch.flow.hashing import mix
from anabranch.flow.load import Load
from anabranch.flow.sides import hash_column, keep_column
from anabranch.flow.slices import Slice, Window
from anabranch.plans.plan import LEFT, RIGHT, Plan, choose, keyed, plan_from_dict
from anabranch.plans.routing import LivePlans
from anabranch.plans.spans import Spans

__all__ = ["InProcess", "check_plan", "simple_types"]


def check_plan(
    plan: Plan, window: tuple[int, int] = (60_000_000, 30_000_000), rows: int = 300, seed: int = 0
) -> None:
    """Raise `AssertionError` unless `plan` obeys the law of plans.

    Random rows of both sides are routed; every pair that the window lets join (and, for a plan
    that spreads by key, whose keys are equal, or by value, whose values are within reach) must meet
    in exactly one worker. The plan must also answer for a row alone, and survive pickling and its
    JSON form.

    Examples
    --------
    >>> from anabranch.plans.plan import grid
    >>> check_plan(grid(3, 2))
    """
    random = np.random.default_rng(seed)
    longest = max(*window, 1)
    t = [np.sort(random.integers(0, 6 * longest, rows)) + 10**15 for _ in (LEFT, RIGHT)]
    ids = [random.integers(0, 20 if plan.by_key else 10**9, rows) for _ in (LEFT, RIGHT)]
    h = [mix(values) for values in ids]
    v = [_values(plan, random, rows) for _ in (LEFT, RIGHT)]
    homes = [_homes(plan, side, t[side], h[side], v[side], window) for side in (LEFT, RIGHT)]
    apart = t[LEFT][:, None] - t[RIGHT][None, :]
    due = (apart >= -window[0]) & (apart <= window[1])
    if plan.by_key:
        due &= ids[LEFT][:, None] == ids[RIGHT][None, :]
    if isinstance(plan, Spans) and plan.reach is not None:
        due &= np.abs(v[LEFT][:, None] - v[RIGHT][None, :]) <= plan.reach * (1 - 1e-12)
    meetings = homes[LEFT].astype(np.int64) @ homes[RIGHT].T.astype(np.int64)
    wrong = np.argwhere(due & (meetings != 1))
    if len(wrong):
        i, j = wrong[0]
        raise AssertionError(
            f"{plan}: {len(wrong)} of {int(due.sum())} joinable pairs do not meet exactly once; "
            f"left t={t[LEFT][i]} goes to {np.flatnonzero(homes[LEFT][i]).tolist()}, right "
            f"t={t[RIGHT][j]} to {np.flatnonzero(homes[RIGHT][j]).tolist()}"
        )
    for side in (LEFT, RIGHT):
        some = random.permutation(rows)[: rows // 7]
        again = _homes(plan, side, t[side][some], h[side][some], v[side][some], window)
        assert (again == homes[side][some]).all(), f"{plan}: a row's workers depend on other rows"
        for twin in (pickle.loads(pickle.dumps(plan)), plan_from_dict(plan.to_dict())):
            same = _homes(twin, side, t[side], h[side], v[side], window)
            assert (same == homes[side]).all(), f"{plan}: a copy of the plan routes differently"


def _values(plan: Plan, random: np.random.Generator, rows: int) -> np.ndarray:
    """Numbers for a plan by value: in its range, beyond it, and on the edges of its spans."""
    if not isinstance(plan, Spans):
        return np.zeros(rows)
    low, high = plan.low or 0.0, plan.high or 0.0
    width = high - low
    anywhere = random.uniform(low - 0.1 * width, high + 0.1 * width, rows)
    edges = low + width * random.integers(0, plan.spans + 1, rows) / plan.spans
    return np.where(random.random(rows) < 0.3, edges, anywhere)


def _homes(
    plan: Plan,
    side: int,
    t: np.ndarray,
    h: np.ndarray,
    values: np.ndarray,
    window: tuple[int, int],
) -> np.ndarray:
    """A row by worker matrix of how many copies go there."""
    if plan.by_value:
        offsets, workers = plan.route_values(side, values, h)
    else:
        offsets, workers = plan.route(side, t, h, window)
    assert len(offsets) == len(t) + 1 and offsets[-1] == len(workers), f"{plan}: offsets do not fit"
    if len(workers):
        found = workers.min(), workers.max()
        assert found[0] >= 0 and found[1] < plan.workers, f"{plan}: worker out of range, {found}"
    homes = np.zeros((len(t), plan.workers), np.int8)
    np.add.at(homes, (np.repeat(np.arange(len(t)), np.diff(offsets)), workers), 1)
    assert homes.max(initial=0) <= 1, f"{plan}: a row goes to the same worker twice"
    return homes


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
        self.loads: list[Load] = []
        self._newest = BEGINNING
        self._heads: dict[int, bytes] = {}
        self._stored: dict[tuple[int, int], bytes] = {}

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
        inbox: dict[int, list[tuple[int, Block]]] = {}
        newest = self._newest
        for side, table in ((LEFT, left), (RIGHT, right)):
            if table is None or table.num_rows == 0:
                continue
            batch = prepare(self.correlation.sides[side], table)
            packed = pack(self.correlation, side, routers[side], batch)
            newest = max(newest, packed.newest or newest)
            for worker, coded in packed.blocks.items():
                inbox.setdefault(worker, []).append((side, Block.decode(coded)))
        watermark = self.watermark if watermark is None else watermark
        before = len(self.loads)
        for worker in sorted(set(self._heads) | set(inbox)):
            # As in Spark: a worker runs if it has rows, or if its timer is due.
            if worker in inbox or self._due(worker, watermark):
                self._work(worker, inbox.get(worker, []), watermark)
        self._newest = newest
        return self.loads[before:]

    def _due(self, worker: int, watermark: int) -> bool:
        window = Window.open(self.correlation.window, self._heads[worker], _nowhere)
        if self.streaming and self.correlation.late is None:
            return int(window.notes["freed"]) < watermark
        due = window.next_expiry()
        return due is not None and due <= watermark

    def _work(self, worker: int, arrivals: list[tuple[int, Block]], watermark: int) -> None:
        def fetch(entry: Slice) -> Block:
            return Block.decode(self._stored[worker, entry.number])

        window = Window.open(self.correlation.window, self._heads.get(worker), fetch)
        kernel = CorrelateKernel(self.correlation, window, worker)
        for batch in kernel.step(arrivals, watermark):
            self.pairs += batch.to_pylist()
        for number in window.dropped:
            del self._stored[worker, number]
        for number, (_, block) in window.added.items():
            self._stored[worker, number] = block.encode()
        self._heads[worker] = window.head()
        self.loads.append(kernel.load)

    @property
    def state_rows(self) -> int:
        """Rows stored in all workers after the last step."""
        latest = {load.worker: load.state_rows for load in self.loads}
        return sum(latest.values())


def _nowhere(entry: Slice) -> Block:
    raise LookupError(f"slice {entry.number} is not to be read")


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
        text = str(type_)
        return _ARROW_NAMES.get(text, text)

    return {field.name: name(field.type) for field in schema}
