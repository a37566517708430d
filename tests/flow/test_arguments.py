"""What a custom function receives does not depend on which rows share a block."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.flow.arguments import null_elements, plain
from anabranch.testing import InProcess

STAMP = datetime(2024, 5, 1, tzinfo=UTC)
BIG = 1_700_000_000_000_000_000
FORMS: dict[str, tuple[Any, list[Any], str]] = {
    "bigint": (pa.int64(), [BIG, BIG + 1, 3], "int64"),
    "tinyint": (pa.int8(), [1, 2, 3], "int8"),
    "float": (pa.float32(), [0.5, float("nan"), 3.0], "float32"),
    "boolean": (pa.bool_(), [True, False, True], "bool"),
    "date": (pa.date32(), [date(2024, 5, n) for n in (1, 2, 3)], "datetime64[D]"),
    "timestamp": (pa.timestamp("us", "UTC"), [STAMP] * 3, "datetime64[us]"),
    "string": (pa.string(), ["a", "bc", ""], "object"),
    "binary": (pa.binary(), [b"a", b"", b"bc"], "object"),
    "decimal": (pa.decimal128(9, 2), [Decimal("1.50")] * 3, "object"),
    "array of bigint": (pa.list_(pa.int64()), [[BIG, 1], [2, 3], [BIG + 1]], "int64"),
    "array of float": (pa.list_(pa.float32()), [[0.5], [1.5], []], "float32"),
    "array of string": (pa.list_(pa.string()), [["a"], ["b", None], []], "object"),
    "array of arrays": (pa.list_(pa.list_(pa.int64())), [[[1]], [[2]], [[BIG, 1], [2]]], "list"),
    "struct": (pa.struct({"a": pa.int64()}), [{"a": BIG + 1}, {"a": None}, {"a": 2}], "dict"),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_form_of_a_value_is_that_of_its_type(name: str):
    type_, values, form = FORMS[name]
    whole = pa.array(values, type_)
    for rows in ([0], [1], [0, 1], [1, 2], [0, 1, 2], [0, 2]):
        for column in (whole.take(pa.array(rows)), whole[rows[0] : rows[-1] + 1]):
            found = plain(column)
            assert found.shape == (len(column),)
            if pa.types.is_nested(type_):
                assert found.dtype == object
                kinds = {
                    v.dtype.name if isinstance(v, np.ndarray) else type(v).__name__ for v in found
                }
                assert kinds == {form}
                assert [v.tolist() if isinstance(v, np.ndarray) else v for v in found] == (
                    column.to_pylist()
                )
            else:
                assert found.dtype == np.dtype(form)


MOMENTS = [0, 253_402_300_799_000_000, -(2**61), 2**61, None]
SAID = [None if m is None else np.datetime64(m, "us") for m in MOMENTS]


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo", "America/Los_Angeles"])
def test_moments_beyond_python_are_shown_inside_structs_maps_and_arrays(zone: Any):
    """9999-12-31 23:59:59 is in the year 10000 in Tokyo, which Python's datetime cannot say."""
    stamps = pa.array(MOMENTS, pa.int64()).cast(pa.timestamp("us", zone))
    days = pa.array([2**31 - 1, -(2**31), 0, None, 1], pa.int32()).cast(pa.date32())
    dates = [
        None if d is None else np.datetime64(d, "D") for d in (2**31 - 1, -(2**31), 0, None, 1)
    ]
    mask = pa.array([False, False, True, False, False])
    struct = pa.StructArray.from_arrays(
        [stamps, days, pa.array([1, 2, 3, 4, 5])], ["at", "day", "n"], mask=mask
    )
    want: list[Any] = [
        {"at": at, "day": day, "n": n} for at, day, n in zip(SAID, dates, range(1, 6), strict=True)
    ]
    want[2] = None
    assert list(plain(struct)) == want
    assert list(plain(struct.slice(1, 3))) == want[1:4]
    offsets = pa.array([0, 2, 2, 5])
    nested = pa.ListArray.from_arrays(offsets, struct)
    assert list(plain(nested)) == [want[:2], [], want[2:]]
    assert list(plain(nested.slice(2))) == [want[2:]]
    keyed = pa.MapArray.from_arrays(offsets, pa.array(list("abcde")), stamps)
    entries = list(zip("abcde", SAID, strict=True))
    assert list(plain(keyed)) == [entries[:2], [], entries[2:]]
    assert list(plain(keyed.slice(1))) == [[], entries[2:]]


def test_a_custom_function_sees_structs_with_moments_beyond_python():
    at = pa.array([253_402_300_799_000_000], pa.int64()).cast(pa.timestamp("us", "Asia/Tokyo"))
    rows = pa.table(
        {
            "id": [1],
            "ts": pa.array([STAMP], pa.timestamp("us", "UTC")),
            "st": pa.StructArray.from_arrays([at], ["z"]),
        }
    )
    seen = []

    def same(left: Any, right: Any) -> np.ndarray:
        seen.extend(left["st"])
        return np.ones((len(left["st"]), len(right["st"])), bool)

    run = InProcess(rows.schema, rows.schema, where=ab.custom(same, "st", "st"), window="1 second")
    run.step(rows, rows)
    assert len(run.pairs) == 1
    assert seen[0] == {"z": np.datetime64("9999-12-31T23:59:59", "us")}


def test_null_elements_are_found_also_in_a_part_of_a_column():
    column = pa.array([[1], [None, 2], None, [], [3]], pa.list_(pa.int64()))
    assert null_elements(column).to_pylist() == [False, True, False, False, False]
    assert null_elements(column[1:]).to_pylist() == [True, False, False, False]
    assert not any(null_elements(pa.array([["a", None]])).to_pylist())
    assert not any(null_elements(pa.array([1, None])).to_pylist())


def rows(ids: list[int], column: pa.Array) -> pa.Table:
    stamps = pa.array([STAMP] * len(ids), pa.timestamp("us", "UTC"))
    return pa.table({"id": pa.array(ids, pa.int64()), "ts": stamps, "k": column})


def equal(left, right):
    return np.array([[np.array_equal(a, b) for b in right["k"]] for a in left["k"]], bool)


def run(where: Any, bad_rows: str, *steps: tuple[pa.Table | None, pa.Table | None]) -> InProcess:
    schema = next(table for table in steps[0] if table is not None).schema
    process = InProcess(schema, schema, where=where, window="1 s", workers=1, bad_rows=bad_rows)
    for step in steps:
        process.step(*step)
    return process


@pytest.mark.parametrize(
    ("type_", "near", "bad"),
    [
        (pa.int64(), [BIG + 1, BIG], None),
        (pa.list_(pa.int64()), [[BIG + 1, 1], [BIG, 1]], [1, None]),
        (pa.list_(pa.int64()), [[BIG + 1], [BIG]], None),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_a_null_beside_them_does_not_make_two_numbers_equal(type_, near, bad, together: bool):
    where = ab.custom(equal, ["k"], ["k"])
    left, right = (rows([n], pa.array([near[n]], type_)) for n in (0, 1))
    nothing = rows([9], pa.array([bad], type_))
    if together:
        both = pa.concat_tables([left, nothing]), pa.concat_tables([right, nothing])
        steps: list[Any] = [both]
    else:
        steps = [(left, right), (nothing, None), (None, nothing)]
    process = run(where, "drop", *steps)
    assert process.pairs == []
    assert sum(load.rejected for load in process.loads) == 2
    reason = "'k' is null" if bad is None else "'k' holds null"
    with pytest.raises(ab.errors.BadRow, match=f"row with id 9 cannot be compared: {reason}"):
        run(where, "fail", *steps)


@pytest.mark.parametrize("together", [True, False])
def test_arrays_have_one_form_whatever_their_lengths(together: bool):
    seen = set()

    def note(left, right):
        seen.update((side["k"].ndim, side["k"].dtype.name) for side in (left, right))
        return equal(left, right)

    long, short = (rows([n], pa.array([[1, 2], [3]][n : n + 1])) for n in (0, 1))
    both = pa.concat_tables([long, short])
    steps = [(both, both)] if together else [(long, long), (short, None), (None, short)]
    process = run(ab.custom(note, ["k"], ["k"]), "fail", *steps)
    assert sorted((p["left_id"], p["right_id"]) for p in process.pairs) == [(0, 0), (1, 1)]
    assert seen == {(1, "object")}
