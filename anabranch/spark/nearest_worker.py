"""The two ends of `nearest` on Spark: rows packed where they are read, and a worker's state.

Every worker gets every object, so a batch of objects is encoded once and the same bytes are sent
to all. A worker's state is a window of slices, as in `correlate`, and one value that holds the
lists of its queries. A process keeps the kernels that it ran last, by a random token that is
written with the state: a kernel whose token is not the state's is never used.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from anabranch.correlation.kernel import BEGINNING
from anabranch.errors import InvalidCall
from anabranch.flow.blas import single_threaded
from anabranch.flow.blocks import Block
from anabranch.flow.hashing import MODULUS, murmur3, worker_keys
from anabranch.flow.heap import settle
from anabranch.flow.slices import Window
from anabranch.neighbours.call import Nearest
from anabranch.neighbours.interest.homes import HomeKernel
from anabranch.neighbours.kernel import NearestKernel
from anabranch.neighbours.queries import read_queries, refuse_bad_queries
from anabranch.plans.plan import LEFT, RIGHT, Plan, Ssp
from anabranch.plans.routing import LivePlans
from anabranch.spark.packing import live_plans
from anabranch.spark.processor import CorrelateProcessor, decode_arrivals

__all__ = [
    "NearestBatch",
    "NearestProcessor",
    "ObjectPacker",
    "QueryPacker",
    "packed_rows",
    "worker_of",
]

# By query and worker, with the token of the state that they wrote.
_KERNELS: OrderedDict[tuple[str, int], tuple[str, NearestKernel]] = OrderedDict()
_MOST_KERNELS = 8


@dataclass(frozen=True)
class ObjectPacker:
    """Packs objects for every worker; the function of a ``mapInArrow``."""

    nearest: Nearest
    plan: Plan
    control: str | None = None
    operator: str = ""  # what tells this `nearest` from others in the query

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One output row per worker for each input batch."""
        settle()
        live = live_plans(self.plan, self.control, self.operator)
        keys = worker_keys(live.workers)
        about = _about(live)
        for batch in batches:
            if batch.num_rows == 0:
                continue
            admitted = self.nearest.intake.admit(batch)
            block, rejected = admitted.block, admitted.rejected
            newest = int(block.t.max()) if len(block) else 0
            cell = block.encode(side=RIGHT, nearest=about, rejected=rejected)
            yield packed_rows(keys, [newest] * len(keys), [cell] * len(keys))


@dataclass(frozen=True)
class QueryPacker:
    """Packs queries that begin or end, each for its worker; the function of a ``mapInArrow``."""

    nearest: Nearest
    plan: Plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One output row per worker that gets queries, for each input batch."""
        live = LivePlans({0: self.plan})
        keys = worker_keys(live.workers)
        about = _about(live)
        for batch in batches:
            if batch.num_rows == 0:
                continue
            table = pa.Table.from_batches([batch])
            block, problems, rejected = read_queries(self.nearest, table)
            refuse_bad_queries(self.nearest, problems)
            homes = _homes(self.plan, table["h"].combine_chunks().to_numpy(), block)
            chosen, cells = [], []
            for worker in sorted({0, *homes.tolist()}) if rejected else np.unique(homes):
                part = block.take(np.flatnonzero(homes == worker))
                count = 0 if worker else rejected
                chosen.append(keys[worker])
                cells.append(part.encode(side=LEFT, nearest=about, rejected=count))
            # A query may be told of its end long before; only objects say how far time is.
            yield packed_rows(chosen, [0] * len(chosen), cells)


def _homes(plan: Plan, h: np.ndarray, block: Block) -> np.ndarray:
    """The worker of each query in a block, whose column `row` says which input row it was."""
    rows = block.columns["row"]
    return np.asarray(plan.route(LEFT, block.t, h[rows], (0, 0)).workers, np.int64)


def _about(live: LivePlans) -> dict[str, Any]:
    """The live plans as workers need to know them."""
    for number, plan in live.plans.items():
        if not isinstance(plan, Ssp) or plan.master != "left":
            raise InvalidCall(
                "nearest",
                [f"plan {number} in the plan log is {plan}; nearest takes ab.ssp(workers)"],
            )
    return {
        str(number): [plan.workers, plan.to_dict().get("weights")]
        for number, plan in live.plans.items()
    }


def packed_rows(
    keys: Sequence[int], newest: Sequence[int], cells: Sequence[bytes]
) -> pa.RecordBatch:
    """Cells for workers, as `PACKED` has them."""
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.int32()), pa.array(newest, pa.int64()), pa.array(cells, pa.binary())],
        ["worker", "newest", "block"],
    )


def worker_of(key: int) -> int:
    """The worker that a key of `worker_keys` stands for.

    Examples
    --------
    >>> [worker_of(key) for key in worker_keys(4)]
    [0, 1, 2, 3]
    """
    return int(murmur3(np.array([key])).astype(np.int32).astype(np.int64)[0] % MODULUS)


class NearestProcessor(CorrelateProcessor):
    """Runs `NearestKernel` inside ``transformWithStateInPandas``."""

    def __init__(self, nearest: Nearest, queries: bytes | None, schema: pa.Schema) -> None:
        self.nearest = nearest
        self.queries = queries
        self.schema = schema
        self.fingerprint = nearest.fingerprint(None if queries is None else Block.decode(queries))
        self.span = _longest(nearest, queries)

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self._lists = handle.getValueState("lists", "lists binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Any:
        settle()
        cells = [cell for frame in rows for cell in frame["block"]]
        return self._work(key, cells, timerValues.getCurrentWatermarkInMs() * 1000)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        return self._work(key, [], timerValues.getCurrentWatermarkInMs() * 1000)

    def _work(self, key: Any, cells: Sequence[Any], watermark: int) -> Iterator[pd.DataFrame]:
        began = time.perf_counter()
        arrivals = decode_arrivals(cells)
        window, before = self._window()
        kernel = self._kernel(int(key[0]), window)
        opening = time.perf_counter() - began
        hits = 0
        with single_threaded():
            for batch in kernel.step(arrivals, watermark):
                hits += batch.num_rows
                yield self._frame(batch, None)
        began = time.perf_counter()
        self._after(kernel)
        self._set_timer(kernel, watermark)
        token = secrets.token_hex(8)
        window.notes["token"] = token
        self._lists.update((kernel.snapshot(),))
        self._write(window, before)
        _KERNELS[self.fingerprint, kernel.worker] = (token, kernel)
        while len(_KERNELS) > _MOST_KERNELS:
            _KERNELS.popitem(last=False)
        kernel.load.busy_seconds += opening + time.perf_counter() - began
        if arrivals or hits or window.dropped:
            empty = pa.RecordBatch.from_pydict({"rank": pa.array([0], pa.int32())})
            yield self._frame(empty, kernel.load.to_json())

    def _window(self) -> tuple[Window, dict[int, str]]:
        """The stored window, and the tokens of its slices."""
        stored = self._head.get()
        head = bytes(stored[0]) if stored is not None else None
        window = Window.open((self.span, self.span), head, self._fetch)
        return window, {entry.number: entry.token for entry in window.slices}

    def _make(self, queries: Block | None, window: Window, worker: int) -> NearestKernel:
        return NearestKernel(self.nearest, queries, window, worker, self.fingerprint)

    def _after(self, kernel: NearestKernel) -> None:
        """What else is to be done after a step, before state is written."""

    def _kernel(self, key: int, window: Window) -> NearestKernel:
        """The kernel as the state has it: the very one that wrote it, if it is in this process."""
        worker = worker_of(key)
        token, cached = _KERNELS.pop((self.fingerprint, worker), ("", None))
        if cached is not None and token == window.notes.get("token"):
            cached.window = window
            return cached
        queries = None if self.queries is None else Block.decode(self.queries)
        kernel = self._make(queries, window, worker)
        lists = self._lists.get()
        if lists is not None:
            kernel.restore(bytes(lists[0]))
        return kernel

    def _set_timer(self, kernel: NearestKernel | HomeKernel, watermark: int) -> None:
        """Make sure that a timer is set for the next thing to do."""
        due = kernel.due()
        if due is None:
            return
        timer = max(-(-due // 1000), watermark // 1000 + 1)
        known = kernel.window.notes.get("timer", BEGINNING)
        if known * 1000 <= watermark or timer < known:
            self._handle.registerTimer(timer)
            kernel.window.notes["timer"] = timer


class NearestBatch:
    """Runs one kernel step over all rows of a worker; the function of ``applyInArrow``."""

    def __init__(self, nearest: Nearest, queries: bytes | None, schema: pa.Schema) -> None:
        self.nearest = nearest
        self.queries = queries
        self.schema = schema

    def run(self, key: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The results of one worker."""
        cells = [cell for batch in batches for cell in batch.column("block").to_pylist()]
        queries = None if self.queries is None else Block.decode(self.queries)
        span = _longest(self.nearest, self.queries)
        kernel = NearestKernel(self.nearest, queries, Window((span, span)), worker_of(key))
        with single_threaded():
            for batch in kernel.step(decode_arrivals(cells), BEGINNING, whole=True):
                arrays = [batch.column(field.name).cast(field.type) for field in self.schema]
                yield pa.RecordBatch.from_arrays(arrays, self.schema.names)


def _longest(nearest: Nearest, queries: bytes | None) -> int:
    """About how long objects stay; slices are merged up to an eighth of it."""
    if queries is not None:
        block = Block.decode(queries)
        spans = block.columns["window"][~block.columns["counted"]]
        if len(spans):
            return int(spans.max())
    return nearest.window or 60_000_000
