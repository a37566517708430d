"""Rows that cannot be compared: named, or dropped and counted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.correlation.packing import SidePacking
from anabranch.flow.blocks import Block
from anabranch.flow.intake import FAR, Faults, Intake
from anabranch.neighbours.call import plan_nearest
from anabranch.neighbours.packing import ObjectPacking
from anabranch.plans.routing import LivePlans
from anabranch.testing import InProcess, prepare

TYPES = {
    "id": pa.int64(),
    "ts": pa.timestamp("us", "UTC"),
    "v": pa.list_(pa.float32()),
    "w": pa.list_(pa.float64()),
    "x": pa.float64(),
    "k": pa.string(),
    "b": pa.binary(),
}
SCHEMA = pa.schema(list(TYPES.items()))
GOOD = {
    "id": 1,
    "ts": datetime(2024, 5, 1, tzinfo=UTC),
    "v": [1.0, 2.0],
    "w": [1.0, 2.0],
    "x": 0.5,
    "k": "a",
    "b": b"abc",
}
WHERE = (
    (ab.cosine("v", dim=2) >= -1)
    & (ab.euclidean("w", dim=2) <= 100)
    & ab.within("x", 10)
    & ab.same("k")
    & (ab.hamming("b", dim=3) <= 24)
)


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([{**GOOD, **row} for row in rows], SCHEMA)


def run(left: pa.Table, bad_rows: str) -> InProcess:
    process = InProcess(SCHEMA, SCHEMA, where=WHERE, window="1 day", bad_rows=bad_rows, workers=2)
    process.step(left, table({"id": 100}))
    return process


BAD = [
    ({"id": None}, "id column 'id' is null"),
    ({"ts": None}, "time column 'ts' is null"),
    ({"v": None}, "'v' is null"),
    ({"v": [1.0, None]}, "'v' holds null, NaN or infinity"),
    ({"v": [float("nan"), 1.0]}, "'v' holds null, NaN or infinity"),
    ({"v": [float("inf"), 1.0]}, "'v' holds null, NaN or infinity"),
    ({"v": [1.0]}, "'v' has 1 elements where 2 are expected"),
    ({"v": []}, "'v' is empty"),
    ({"v": [0.0, 0.0]}, "'v' is a zero vector"),
    ({"w": [1e200, 1.0]}, "'w' is too large"),
    ({"x": None}, "'x' is null"),
    ({"x": float("nan")}, "'x' is not finite"),
    ({"k": None}, "'k' is null"),
    ({"b": b"abcd"}, "'b' has 4 bytes where 3 are expected"),
]


@pytest.mark.parametrize(("fault", "reason"), BAD)
def test_a_bad_row_is_named(fault, reason):
    with pytest.raises(ab.errors.BadRow) as error:
        run(table({}, {"id": 2, **fault}), "fail")
    ident = None if "id" in fault else 2
    assert f"left row with id {ident!r} cannot be compared: {reason}" in str(error.value)
    assert "bad_rows='drop'" in str(error.value)


@pytest.mark.parametrize(("fault", "_reason"), BAD)
def test_a_bad_row_is_dropped_and_counted(fault, _reason):
    process = run(table({}, {"id": 2, **fault}, {"id": 3}), "drop")
    assert sorted(pair["left_id"] for pair in process.pairs) == [1, 3]
    assert sum(load.rows_left for load in process.loads) == 2
    assert sum(load.rejected for load in process.loads) == 1


def test_bad_rows_are_counted_by_row():
    everything = [{"id": n, **fault} for n, (fault, _) in enumerate(BAD, 10) if "id" not in fault]
    process = run(table({}, *everything), "drop")
    assert [pair["left_id"] for pair in process.pairs] == [1]
    assert sum(load.rejected for load in process.loads) == len(everything)


def test_the_length_is_that_of_earlier_rows_or_the_one_given():
    process = InProcess(SCHEMA, SCHEMA, where=ab.dot("w") >= 0, window="1 day")
    process.step(table({}), None)
    with pytest.raises(
        ab.errors.BadRow, match="length 3 where earlier rows, of either side, have 2"
    ):
        process.step(None, table({"id": 7, "w": [1.0, 2.0, 3.0]}))
    process = InProcess(SCHEMA, SCHEMA, where=ab.dot("w", dim=3) >= 0, window="1 day")
    with pytest.raises(ab.errors.BadRow, match="2 elements where 3 are expected"):
        process.step(table({}), None)


def test_of_two_lengths_none_is_blamed():
    process = InProcess(SCHEMA, SCHEMA, where=ab.dot("w") >= 0, window="1 day")
    with pytest.raises(
        ab.errors.BadRow, match="'w' has 1 elements in the row with id 7 and 2 in that"
    ):
        process.step(table({"id": 7, "w": [1.0]}, {}), None)


def test_the_length_may_be_named_later_but_not_another():
    process = InProcess(SCHEMA, SCHEMA, where=ab.dot("w") >= 0, window="1 day")
    process.step(table({}), None)
    for dim, goes_on in ((2, True), (3, False)):
        again = InProcess(SCHEMA, SCHEMA, where=ab.dot("w", dim=dim) >= 0, window="1 day")
        again.take_up(process)
        good = table({"id": 7, "w": [1.0] * dim})
        if goes_on:
            again.step(None, good)
            assert len(again.pairs) == 1
        else:
            with pytest.raises(
                ab.errors.StateMismatch, match="holds 'w' of length 2, and the call says"
            ):
                again.step(None, good)


@pytest.mark.parametrize("long", [b"\xff\x00\x00\x00", b"\xff" + bytes(11)])
def test_bits_of_unequal_lengths_are_not_compared(long: bytes):
    """Neither in one batch nor in two, nor after a restart; a short one is not padded."""
    short, other = table({"b": b"\xff"}), table({"id": 7, "b": long})

    def fresh(dim: int | None = None) -> InProcess:
        where = ab.hamming("b", dim=dim) <= 0
        return InProcess(SCHEMA, SCHEMA, where=where, window="1 day", plan=ab.broadcast(1))

    with pytest.raises(
        ab.errors.BadRow, match=f"'b' has length {len(long)} where earlier rows.*have 1"
    ):
        fresh().step(short, other)
    process = fresh()
    process.step(short, None)
    with pytest.raises(
        ab.errors.BadRow, match=f"'b' has length {len(long)} where earlier rows.*have 1"
    ):
        process.step(other, None)
    again = fresh(dim=len(long))
    again.take_up(process)
    with pytest.raises(ab.errors.StateMismatch, match="holds 'b' of 1 bytes, and the call says"):
        again.step(None, other)
    again = fresh(dim=1)
    again.take_up(process)
    again.step(None, short)
    assert len(again.pairs) == 1


NOW = 1_700_000_000_000_000
FAR_TIMES = [(1 << 63) - 1, -(1 << 63), (1 << 62), -(1 << 62), FAR + 1, -FAR - 1]


def at(*times: int, first: int = 0) -> pa.Table:
    rows = {"id": range(first, first + len(times)), "ts": pa.array(times, TYPES["ts"])}
    return pa.table({**rows, "w": [[1.0, 2.0]] * len(times), "x": [0.5] * len(times)})


def timed(where: Any, bad_rows: str = "drop", **more: Any) -> InProcess:
    schema = at(0).schema
    call = {"where": where, "window": "5 seconds", "bad_rows": bad_rows, "plan": ab.broadcast(1)}
    return InProcess(schema, schema, **call, **more)


@pytest.mark.parametrize("far", FAR_TIMES)
@pytest.mark.parametrize("where", [ab.euclidean("w", dim=2) <= 1, ab.within("x", 1)])
def test_a_far_off_time_costs_no_other_row_its_pairs(where: Any, far: int):
    usual = [NOW + n * 1_000_000 for n in range(20)]
    alone, disturbed = timed(where), timed(where)
    alone.step(at(*usual), at(*usual))
    disturbed.step(at(*usual, far), at(far, *usual, first=100))
    assert len(disturbed.pairs) == len(alone.pairs) > 0
    assert sum(load.rejected for load in disturbed.loads) == 2
    assert sum(load.late for load in disturbed.loads) == 0
    with pytest.raises(
        ab.errors.BadRow, match=r"left row with id 1 .*73,000 years from 1970.*shift all"
    ):
        timed(where, bad_rows="fail").step(at(NOW, far), None)


def test_times_at_the_edge_are_good():
    edge = timed(ab.within("x", 1))
    edge.step(at(FAR, -FAR), at(-FAR, FAR, FAR - 5_000_000, FAR - 5_000_001))
    assert sorted((pair["left_id"], pair["right_id"]) for pair in edge.pairs) == [
        *((0, 1), (0, 2)),
        (1, 0),
    ]


def test_a_stream_begins_after_1970():
    side = timed(ab.within("x", 1)).correlation.left
    batch = prepare(side, at(-1, 0, 1, NOW))
    assert Intake(side).admit(batch).block.t.tolist() == [-1, 0, 1, NOW]
    found = Intake(side, drop_bad_rows=True, streaming=True).admit(batch)
    assert found.block.t.tolist() == [1, NOW] and found.rejected == 2
    (reason,) = found.reasons
    assert "not after 1970-01-01" in reason and "use a batch query" in reason
    with pytest.raises(
        ab.errors.BadRow, match=r"left row with id 0 .*not after 1970-01-01 00:00:00 UTC"
    ):
        Intake(side, streaming=True).admit(batch)


@pytest.mark.parametrize(("streaming", "times"), [(False, [-1, 0, 1, NOW]), (True, [1, NOW])])
def test_packings_know_whether_they_stream(streaming: bool, times: list[int]):
    call = timed(ab.within("x", 1)).correlation
    batch = prepare(call.left, at(-1, 0, 1, NOW))
    live = LivePlans({0: ab.broadcast(1)})
    block = Block.decode(SidePacking(call, 0, streaming).pack(batch, live).cells[0])
    assert block.t.tolist() == times and block.meta["rejected"] == 4 - len(times)
    types = {"id": "int", "query_id": "int", "ts": "timestamp", "w": "array<double>"}
    by = {"by": ab.euclidean("w", dim=2), "bad_rows": "drop"}
    near, problems = plan_nearest(types, types, k=1, rows=5, **by, streaming=streaming)
    assert near is not None, problems
    batch = batch.append_column("v", pa.array([[1.0, 2.0]] * 4))
    assert Block.decode(ObjectPacking(near).pack(batch, live).cells[0]).t.tolist() == times


def test_each_bad_row_counts_under_its_first_reason():
    process = timed(ab.within("x", 1))
    rows = at(NOW, FAR + 1, FAR + 2, NOW)
    rows = rows.set_column(3, "x", pa.array([0.5, None, 0.5, None]))
    found = Intake(process.correlation.left, drop_bad_rows=True).admit(
        prepare(process.correlation.left, rows)
    )
    assert list(found.reasons.values()) == [2, 1] and found.rejected == 3
    assert list(found.reasons)[1] == "'x' is null"


def test_faults_keep_masks_of_their_own():
    mask = np.array([True, False, False, False, False])
    faults = Faults("query", pa.array([1, 2, 3, 4, 5]), drop=True)
    faults.where(mask, "first")
    mask[:] = True
    assert faults.good.tolist() == [1, 2, 3, 4]
    faults.where(pa.array([None, True, True, True, True]), "second")
    assert faults.problems == ["query 1: first", "query 2, query 3, query 4 and 1 more: second"]
    assert (faults.reasons, faults.count, faults.good.tolist()) == (
        {"first": 1, "second": 4},
        5,
        [],
    )


@pytest.mark.parametrize("scale", [1e-150, 1e-162, 1e-200, 5e-324])
@pytest.mark.parametrize("others", [0, 200])
def test_small_vectors_have_a_direction(scale: float, others: int):
    """Alone or beside many, however small: only all zeros have none."""
    count = others + 1
    rows = at(*[NOW] * count).drop_columns("w")
    vectors = [[scale, 0.0], *np.random.default_rng(1).standard_normal((others, 2)).tolist()]
    rows = rows.append_column("w", pa.array(vectors))
    process = InProcess(
        rows.schema, rows.schema, where=ab.cosine("w") >= 1, window="1 s", plan=ab.broadcast(1)
    )
    process.step(rows, rows)
    assert (0, 0) in {(pair["left_id"], pair["right_id"]) for pair in process.pairs}
