"""A worker that visits two Python processes in turn: neither keeps what the other has dropped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.assembly.call import plan_assembly
from anabranch.assembly.job import AssembleJob
from anabranch.assembly.packing import EventPacking
from anabranch.correlation.ordering import OrderPacking
from anabranch.flow.blocks import Block
from anabranch.flow.cache import Cache
from anabranch.flow.hashing import worker_keys
from anabranch.spark import operator
from anabranch.spark.operator import StreamWorker
from anabranch.testing import InProcess, prepare
from tests.spark.states import Map, Value

START = 1_700_000_000_000_000
SCHEMA = pa.schema({"id": "int64", "ts": pa.timestamp("us", "UTC"), "x": "int64"})


class Visits:
    """One worker whose micro-batches run in one of two processes, by chance."""

    def __init__(self, job: Any, monkeypatch: pytest.MonkeyPatch, by_clock: bool = False) -> None:
        self.job, self.by_clock, self._patch = job, by_clock, monkeypatch
        self.caches = [Cache(1 << 30), Cache(1 << 30)]
        self.head, self.pieces, self.batch = Value(), Map(), 0
        self._random = np.random.default_rng(0)

    def step(self, cells: list[bytes], now: int) -> None:
        """One micro-batch, at a time in milliseconds."""
        self._patch.setattr(operator, "CACHE", self.caches[self._random.integers(2)])
        self._patch.setattr(operator, "place", lambda: ("query", self.batch, "run", ()))
        worker = StreamWorker(self.job, self.by_clock)
        timers: Any = SimpleNamespace(registerTimer=lambda t: None, deleteTimer=lambda t: None)
        worker.begin(timers, self.head, self.pieces)
        values = SimpleNamespace(
            getCurrentWatermarkInMs=lambda: now, getCurrentProcessingTimeInMs=lambda: now
        )
        rows = iter([pd.DataFrame({"block": cells})])
        list(worker.take((worker_keys(1)[0],), rows, values))
        self.batch += 1

    @property
    def kept(self) -> list[int]:
        """How many slices and kernels either process keeps."""
        return [len(cache._entries) for cache in self.caches]


def rows_of(batch: int, count: int = 200) -> pa.Table:
    ids = np.arange(count) + batch * count
    times = pa.array(START + batch * 500_000 + np.arange(count) * 1000, SCHEMA.field("ts").type)
    return pa.table({"id": ids, "ts": times, "x": ids}, SCHEMA)


def test_windows_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks lie beyond all times, so no watermark ends them."""
    call = {"where": ab.within("x", 0), "window": (200, 200), "watermark": "0 s"}
    run = InProcess(SCHEMA, SCHEMA, streaming=True, plan=ab.broadcast(1), **call)
    visits = Visits(run.workers.job, monkeypatch)
    most = 0
    for batch in range(60):
        arrivals = [
            Block.decode(cell)
            for side in (0, 1)
            for cell in OrderPacking(run.correlation, side, True)
            .pack(prepare(run.correlation.sides[side], rows_of(batch)), None)  # type: ignore[arg-type]
            .cells.values()
        ]
        watermark = START + batch * 500_000 - 1000 if batch else 0
        sent = run.order.step(0, arrivals, watermark)
        cells = [cell for found in sent for cell in found["block"].to_pylist()]
        if cells:
            visits.step(cells, watermark // 1000)
        most = max(most, *visits.kept)
    assert len(visits.pieces) >= 2 and most <= 12


def test_instances_by_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows go by the clock of their arrival, of which their own times say nothing."""
    columns = {"id": "bigint", "ts": "timestamp", "x": "bigint"}
    call, problems = plan_assembly(
        [columns], key="x", close=ab.close.gap("2 seconds"), clock="processing"
    )
    assert call is not None, problems
    visits = Visits(AssembleJob(call, 1, True), monkeypatch, by_clock=True)
    random, most = np.random.default_rng(1), 0
    for batch in range(150):
        ids = random.integers(0, 2**62, 100)
        made = pa.record_batch(
            {
                "t": np.full(100, START + batch * 500_000),
                "end": pa.nulls(100, pa.int64()),
                **{name: ids for name in ("h1", "h2", "kind", "tie", "k0")},
            }
        )
        cells = EventPacking(call, 0, 1, True).pack(made).cells
        visits.step(list(cells.values()), (START + batch * 500_000) // 1000)
        most = max(most, *visits.kept)
    assert len(visits.pieces) >= 2 and most <= 16, most
