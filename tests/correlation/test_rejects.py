"""Which rows a correlation rejects, by a twin that knows: late and bad ones, each once."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.correlation.call import plan_correlation
from anabranch.correlation.kernel import CorrelateJob
from anabranch.correlation.packing import SidePacking
from anabranch.flow.blocks import Block
from anabranch.flow.kernel import Task
from anabranch.flow.rejects import Rejecting, accepted, commit, counted_files
from anabranch.flow.sides import WHOLE
from anabranch.plans.plan import SIDES
from anabranch.plans.routing import LivePlans
from anabranch.testing import prepare, simple_types
from anabranch.testing.workers import Workers
from tests.correlation import twin
from tests.examples import examples

MS = 1000
SCHEMA = pa.schema({"id": pa.int64(), "ts": pa.timestamp("us", "UTC"), "v": pa.list_(pa.float32())})
PLANS = {
    "broadcast": LivePlans({0: ab.broadcast(3)}),
    "segments": LivePlans({0: ab.segments(3, "20 ms")}),
    "in change": LivePlans({0: ab.grid(2, 2), 1: ab.broadcast(2, "left"), 3: ab.grid(1, 3)}),
    "one stream": LivePlans({0: ab.triangle(2), 1: ab.segments(3, "20 ms")}),
}


ALIKE = ab.cosine("v", dim=2) >= 0.5


class Run:
    """A correlation in one process, which keeps what it rejects."""

    def __init__(self, path: str, live: LivePlans, one_stream: bool, where: Any = ALIKE) -> None:
        types = simple_types(SCHEMA)
        call: dict[str, Any] = {"where": where, "window": "30 ms"}
        found, problems = plan_correlation(
            types, None if one_stream else types, watermark="10 ms", bad_rows="drop", **call
        )
        assert found is not None, problems
        self.call, self.live, self.path = found, live, path
        self.workers = Workers(CorrelateJob(found))
        names = ("stream",) if one_stream else SIDES
        vectors = tuple(side.vectors for side in found.sides)
        self.rejecting = Rejecting(path, "correlate", names, "call", vectors=vectors)

    def step(self, number: int, sides: twin.Batch, watermark: int) -> None:
        """One micro-batch, whose tasks are all run twice."""
        inbox: dict[int, list[Block]] = {}
        for side, rows in enumerate(sides):
            if not rows:
                continue
            texts = [{"{}": json.dumps({"id": row["id"]}), "v": True} for row in rows]
            columns = {name: [row[name] for row in rows] for name in ("id", "v")}
            times = pa.array([row["t"] for row in rows], SCHEMA.field("ts").type)
            table = pa.table({**columns, "ts": times}, schema=SCHEMA)
            batch = prepare(self.call.sides[side], table).append_column(WHOLE, pa.array(texts))
            packed = SidePacking(self.call, side, streaming=True).pack(batch, self.live)
            cells = [*packed.cells.items(), *[(0, packed.rejects)] * (packed.rejects is not None)]
            for worker, cell in cells:
                inbox.setdefault(worker, []).append(Block.decode(cell))
        for worker, blocks in inbox.items():
            for _ in range(2):
                kernel = self.workers.kernel(worker)
                list(kernel.step(accepted(blocks), watermark))
                task = Task(worker, "query", number, "run")
                self.rejecting.keep(blocks, kernel.late_until, watermark, task)
            list(self.workers.step(worker, accepted(blocks), watermark))
        commit(self.path, "query", "run", number)

    def rejected(self) -> Counter[tuple[Any, ...]]:
        return Counter(
            (row["side"], json.loads(row["row"])["id"], row["reason"], row["batch"])
            for row in self.kept()
        )

    def kept(self) -> list[dict[str, Any]]:
        names = counted_files(self.path)
        files = [pq.read_table(Path(self.path) / name, partitioning=None) for name in names]
        return [row for table in files for row in table.to_pylist()]


def twin_rejects(batches: list[twin.Batch], sides: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
    """Bad rows, which say nothing of time, and rows that are not after the watermark."""
    good = [tuple([r for r in rows if sound(r)] for rows in batch) for batch in batches]
    found: Counter[tuple[Any, ...]] = Counter()
    for number, (batch, mark) in enumerate(
        zip(batches, twin.watermarks(good, 10 * MS), strict=True)
    ):
        for side, rows in zip(sides, batch, strict=False):
            for row in rows:
                if not sound(row):
                    reason = (
                        "'v' is null" if row["v"] is None else "'v' holds null, NaN or infinity"
                    )
                    found[side, row["id"], reason, number] += 1
                elif row["t"] <= mark:
                    found[side, row["id"], "late", number] += 1
    return found


def sound(row: twin.Row) -> bool:
    return row["v"] is not None and bool(np.isfinite(row["v"]).all())


@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=examples(8))
@given(seed=st.integers(0, 2**32 - 1))
def test_late_and_bad_rows_are_kept_once_under_any_plan(name: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    vectors = [[1.0, 0.0], [0.6, 0.8], None, [float("nan"), 1.0]]
    one_stream = name == "one stream"
    ids = iter(range(10**6))

    def rows(batch: int) -> list[twin.Row]:
        return [
            {
                "id": next(ids),
                "t": 10**6 + 15 * MS * batch - int(random.integers(0, 45 * MS)),
                "v": vectors[random.choice(4, p=[0.4, 0.4, 0.1, 0.1])],
            }
            for _ in range(random.integers(0, 7))
        ]

    batches: list[twin.Batch] = [(rows(n), [] if one_stream else rows(n)) for n in range(5)]
    with tempfile.TemporaryDirectory() as path:
        run = Run(path, PLANS[name], one_stream)
        good = [tuple([r for r in side if sound(r)] for side in batch) for batch in batches]
        for number, mark in enumerate(twin.watermarks(good, 10 * MS)):
            run.step(number, batches[number], mark)
        want = twin_rejects(batches, run.rejecting.sides)
        assert run.rejected() == want
        loads = run.workers.loads
        assert sum(load.late + load.rejected for load in loads) == want.total()


def test_a_late_row_keeps_a_vector_that_is_null(tmp_path: Path) -> None:
    """Inside | it is no bad row, and is compared and stored as something harmless."""
    run = Run(str(tmp_path), PLANS["broadcast"], True, ALIKE | ab.same("id"))
    rows = [{"id": n, "t": 10**6, "v": v} for n, v in enumerate(([0.5, 1.0], None))]
    run.step(0, (rows, []), 10**7)
    assert sorted(row["row"] for row in run.kept()) == [
        '{"id": 0,"v":[0.5,1]}',
        '{"id": 1,"v":null}',
    ]


def test_late_rows_keep_vectors_that_are_all_null(tmp_path: Path) -> None:
    run = Run(str(tmp_path), PLANS["broadcast"], True, ALIKE | ab.same("id"))
    run.step(0, ([{"id": 1, "t": 10**6, "v": None}], []), 10**7)
    assert [row["row"] for row in run.kept()] == ['{"id": 1,"v":null}']


def test_counts_go_along_whole() -> None:
    """They are compared as floats, which do not hold all of them."""
    types = {"id": "bigint", "ts": "timestamp", "v": "array<bigint>", "w": "array<double>"}
    where = (ab.emd("v", dim=2) <= 1) & (ab.emd("w", dim=2) <= 1)
    found, _ = plan_correlation(types, None, where=where, window="1 s")
    assert found is not None and found.left.vectors == {"w": "s1"}
