"""Rows that cannot be compared: named, or dropped and counted."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.testing import InProcess

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
    "ts": datetime(2024, 5, 1, tzinfo=timezone.utc),
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
    with pytest.raises(ab.BadRow) as error:
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
    with pytest.raises(ab.BadRow, match="length 3 where earlier rows, of either side, have 2"):
        process.step(None, table({"id": 7, "w": [1.0, 2.0, 3.0]}))
    process = InProcess(SCHEMA, SCHEMA, where=ab.dot("w", dim=3) >= 0, window="1 day")
    with pytest.raises(ab.BadRow, match="2 elements where 3 are expected"):
        process.step(table({}), None)


def test_of_two_lengths_none_is_blamed():
    process = InProcess(SCHEMA, SCHEMA, where=ab.dot("w") >= 0, window="1 day")
    with pytest.raises(ab.BadRow, match="'w' has 1 elements in the row with id 7 and 2 in that"):
        process.step(table({"id": 7, "w": [1.0]}, {}), None)


def test_the_length_may_be_named_later_but_not_another():
    process = InProcess(SCHEMA, SCHEMA, where=ab.dot("w") >= 0, window="1 day")
    process.step(table({}), None)
    for dim, goes_on in ((2, True), (3, False)):
        again = InProcess(SCHEMA, SCHEMA, where=ab.dot("w", dim=dim) >= 0, window="1 day")
        again._heads, again._stored = dict(process._heads), dict(process._stored)
        good = table({"id": 7, "w": [1.0] * dim})
        if goes_on:
            again.step(None, good)
            assert len(again.pairs) == 1
        else:
            with pytest.raises(ab.StateMismatch, match="holds 'w' of length 2, and the call says"):
                again.step(None, good)


@pytest.mark.parametrize("long", [b"\xff\x00\x00\x00", b"\xff" + bytes(11)])
def test_bits_of_unequal_lengths_are_not_compared(long: bytes):
    """Neither in one batch nor in two, nor after a restart; a short one is not padded."""
    short, other = table({"b": b"\xff"}), table({"id": 7, "b": long})

    def fresh(dim: int | None = None) -> InProcess:
        where = ab.hamming("b", dim=dim) <= 0
        return InProcess(SCHEMA, SCHEMA, where=where, window="1 day", plan=ab.ssp(1))

    with pytest.raises(ab.BadRow, match=f"'b' has length {len(long)} where earlier rows.*have 1"):
        fresh().step(short, other)
    process = fresh()
    process.step(short, None)
    with pytest.raises(ab.BadRow, match=f"'b' has length {len(long)} where earlier rows.*have 1"):
        process.step(other, None)
    again = fresh(dim=len(long))
    again._heads, again._stored = dict(process._heads), dict(process._stored)
    with pytest.raises(ab.StateMismatch, match="holds 'b' of 1 bytes, and the call says"):
        again.step(None, other)
    again = fresh(dim=1)
    again._heads, again._stored = dict(process._heads), dict(process._stored)
    again.step(None, short)
    assert len(again.pairs) == 1
