"""Matches with long kept columns leave in pieces that Arrow can hold, and all of them do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.correlation import gathering
from anabranch.correlation.kernel import CorrelateJob, CorrelateKernel, CorrelateNotes
from anabranch.correlation.packing import SidePacking
from anabranch.flow import blocks
from anabranch.flow.blocks import Block
from anabranch.flow.instants import BEGINNING
from anabranch.flow.slices import Slices
from anabranch.plans.plan import LEFT, RIGHT
from anabranch.plans.routing import LivePlans
from anabranch.testing import InProcess, prepare

BASE = 1_700_000_000_000_000
CALL: dict[str, Any] = {"where": ab.within("x", 1), "window": "1 second", "plan": ab.broadcast(1)}


def table(first: int, kept: pa.Array, **columns: Any) -> pa.Table:
    n = len(kept)
    return pa.table(
        {
            "id": pa.array(range(first, first + n)),
            "ts": pa.array([BASE + i % 7 for i in range(n)], pa.timestamp("us", "UTC")),
            "x": pa.array([0] * n),
            "s": kept,
            **columns,
        }
    )


def batches_of(left: pa.Table, right: pa.Table, pieces: int = 1) -> list[pa.RecordBatch]:
    """What a kernel yields for rows that arrive in so many blocks a side."""
    correlation = InProcess(left.schema, right.schema, keep=["s"], **CALL).correlation
    live = LivePlans({0: ab.broadcast(1)})
    arrivals = []
    for side, rows in ((LEFT, left), (RIGHT, right)):
        step = -(-len(rows) // pieces)
        for start in range(0, len(rows), step):
            batch = prepare(correlation.sides[side], rows.slice(start, step))
            packed = SidePacking(correlation, side).pack(batch, live)
            arrivals.append(Block.decode(packed.cells[0]))
    kernel = CorrelateKernel(
        CorrelateJob(correlation), Slices(correlation.window, CorrelateNotes())
    )
    found = list(kernel.step(arrivals, BEGINNING))
    assert kernel.load.pairs == sum(batch.num_rows for batch in found)
    return found


def pairs(batches: list[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(
        (r["left_id"], r["right_id"], str(r["left_k0"]), str(r["right_k0"])) for r in rows
    )


KEPT = {
    "strings": pa.array(["y" * 200, None, "", "z" * 50] * 10),
    "one long string": pa.array(["y" * 5_000] + ["z"] * 39),
    "bytes": pa.array([b"y" * 200, b"z"] * 20),
    "lists of strings": pa.array([["y" * 90] * 3, [], None, ["z"]] * 10),
    "structs": pa.array([{"a": "y" * 200, "b": 1}, {"a": None, "b": 2}] * 20),
    "maps": pa.array([[("k", "y" * 200)], []] * 20, pa.map_(pa.string(), pa.string())),
    "numbers": pa.array(range(40)),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_tile_of_matches_is_cut_by_what_it_carries(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    left, right = table(0, KEPT[name]), table(1000, KEPT[name])
    whole = batches_of(left, right)
    assert len(whole) == 1 and len(pairs(whole)) == 1600
    monkeypatch.setattr(gathering, "BYTES_AT_ONCE", 8_000)
    cut = batches_of(left, right)
    assert pairs(cut) == pairs(whole)
    longest = max(batch.slice(n, 1).nbytes for batch in cut for n in range(batch.num_rows))
    assert len(cut) >= whole[0].nbytes / 16_000 > 1
    assert max(batch.nbytes for batch in cut) <= 1.25 * 8_000 + longest


def test_kept_columns_of_a_side_are_put_together_only_as_far_as_arrow_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, right = table(0, KEPT["strings"]), table(1000, KEPT["lists of strings"])
    whole = pairs(batches_of(left, right, pieces=8))
    monkeypatch.setattr(blocks, "TOGETHER_BYTES", 1_000)
    joined = []
    real = blocks.together
    monkeypatch.setattr(
        "anabranch.correlation.kernel.together",
        lambda some: joined.append(real(some)) or joined[-1],  # type: ignore[func-returns-value]
    )
    assert pairs(batches_of(left, right, pieces=8)) == whole
    assert len(whole) == 1600 and all(len(groups) > 1 for groups in joined)


def test_stored_rows_of_several_blocks_meet_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "TOGETHER_BYTES", 1)
    left, right = table(0, KEPT["strings"]), table(1000, KEPT["strings"])
    call = {**CALL, "plan": ab.grid(2, 2), "watermark": "1 second", "keep": ["s"]}
    run = InProcess(left.schema, right.schema, streaming=True, **call)
    for start in range(0, 40, 10):
        run.step(left.slice(start, 10), None)
        run.step(None, right.slice(start, 10))
    found = [(pair["left_id"], pair["right_id"]) for pair in run.pairs]
    assert len(found) == len(set(found)) == 1600


def test_few_pairs_of_short_rows_leave_together() -> None:
    block = Block.of(t=np.zeros(3, np.int64), columns={"id": np.arange(3)})
    side = InProcess(*[table(0, KEPT["numbers"]).schema] * 2, **CALL).correlation.left
    pending = gathering.Gathering(side, side)
    some = gathering.Matches(np.array([0, 1]), np.array([1, 2]), np.zeros(2))
    assert [*pending.add(block, block, some), *pending.add(block, block, some)] == []
    (batch,) = pending.rest()
    assert batch.num_rows == 4 and list(pending.rest()) == []
