"""A view's condition decides as `ab.correlate` does, to the last bit, and is data."""

from __future__ import annotations

import json
import math
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import InvalidCall
from anabranch.predicates.conditions import PairConditions, RowConditions, predicate_of, to_form
from anabranch.testing import InProcess

TYPES = {
    "v": "array<double>",
    "f": "array<float>",
    "x": "double",
    "k": "bigint",
    "i": "int",
    "s": "string",
    "b": "boolean",
}
WHERE = [
    ab.euclidean("v", dim=11) <= 9.5,
    ab.euclidean("f") < 9,
    ab.euclidean("v", "f") <= 9,
    ab.cosine("v") >= 0.3,
    ab.cosine("f") < 0.1,
    ab.dot("v") > 20,
    ab.euclidean("v") <= 1e-169,
    ab.manhattan("f") <= 25,
    ab.within("x", 0.5),
    ab.within("k", 2),
    ab.within("k", 1.5) & ab.within("i", 10),
    ab.within("x", "i", 3),
    ab.same("s"),
    ab.same("i") & ab.same("k"),
    ab.differs("b") & (ab.euclidean("v", dim=11) <= 9),
    (ab.cosine("v", dim=11) >= 0.5) | ab.same("s"),
    ~(ab.within("x", 1) | ab.same("s")),
    ~((ab.dot("v", dim=11) > 0) & ab.same("b")),
]


def rows(count: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    # Squared norms of some are extreme.
    scale = random.choice([1e120, 1e-170, 1.0], count, p=[0.1, 0.1, 0.8])
    return {
        "v": random.normal(0, 2, (count, 11)) * scale[:, None],
        "f": random.normal(0, 2, (count, 11)).astype(np.float32),
        "x": random.integers(-8, 8, count) / 2,
        "k": random.integers(-(2**62), 2**62, 1) + random.integers(0, 9, count),
        "i": random.integers(-9, 9, count).astype(np.int32),
        "s": random.choice(np.array(["a", "bc", "ü"], object), count),
        "b": random.random(count) < 0.5,
    }


def table(columns: dict[str, np.ndarray]) -> pa.Table:
    count = len(columns["x"])
    arrays: dict[str, Any] = {
        "id": np.arange(count),
        "ts": pa.array([10**15] * count, pa.timestamp("us", "UTC")),
    }
    for name, values in columns.items():
        kind = {"v": pa.float64(), "f": pa.float32()}.get(name)
        arrays[name] = pa.array(list(values), pa.list_(kind)) if kind else pa.array(values.tolist())
    arrays["i"] = arrays["i"].cast(pa.int32())
    return pa.table(arrays)


@pytest.mark.parametrize("where", WHERE, ids=repr)
def test_pairs_and_scores_are_those_of_correlate(where: Any) -> None:
    left, right = rows(60, 1), rows(50, 2)
    left["k"] = left["k"] - left["k"].min() + right["k"].min()
    run = InProcess(table(left).schema, table(right).schema, where=where, window="1 second")
    run.step(table(left), table(right))
    key = "left_id", "right_id"
    wanted = {tuple(pair[name] for name in key): pair.get("score") for pair in run.pairs}
    form = msgpack.unpackb(msgpack.packb(json.loads(json.dumps(to_form(where)))))
    i, j = (part.ravel() for part in np.meshgrid(np.arange(60), np.arange(50), indexing="ij"))
    good, score = PairConditions(form, TYPES, TYPES).decide(left, right, i, j)
    found = dict(zip(zip(i[good].tolist(), j[good].tolist(), strict=True), score, strict=True))
    assert found.keys() == wanted.keys()
    assert 0 < len(found) < len(i)
    scored = [pair for pair, value in wanted.items() if value is not None]
    mine, yours = np.array([[found[p], wanted[p]] for p in scored], float).reshape(-1, 2).T
    assert np.array_equal(mine, yours, equal_nan=True)


@pytest.mark.parametrize("where", WHERE, ids=repr)
def test_a_form_is_read_back(where: Any) -> None:
    assert repr(predicate_of(to_form(where))) == repr(where)


@pytest.mark.parametrize(
    "where",
    [ab.custom(lambda l, r: True, "x", "x"), ab.edit("s") <= 2, ab.hamming("v") <= 2],  # noqa: E741
)
def test_what_cannot_be_shipped_is_rejected(where: Any) -> None:
    with pytest.raises(InvalidCall, match="cannot be shipped to devices: use euclidean"):
        to_form(where)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (["eval", "x"], "is no condition; there are euclidean"),
        (["within", "x"], "is no condition"),
        (["same", "x", "nothing"], "there is no column 'nothing'; the feed has v, f, x"),
        (["euclidean", "x", "v", None, "<=", 3], "compares array<float> or array<double>"),
        (["euclidean", "v", "v", None, "<=", -3], "never negative"),
        (["within", "s", "s", 3], "compares numbers"),
        (["same", "s", "k"], "same type"),
    ],
)
def test_a_form_that_fits_no_columns_is_rejected(form: list[Any], words: str) -> None:
    with pytest.raises(InvalidCall, match=words):
        PairConditions(form, TYPES, TYPES)


@given(st.integers(-5, 5), st.sampled_from([">=", ">", "<=", "<", "==", "!="]))
def test_single_rows_are_compared(limit: int, op: str) -> None:
    values = np.arange(-5, 6) / 2
    found = RowConditions([["x", op, limit]], TYPES).decide({"x": values}, len(values))
    assert found.tolist() == [k for k, v in enumerate(values) if eval(f"{v} {op} {limit}")]


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ([["y", ">", 3]], "there is no column 'y'"),
        ([["x", "~", 3]], "is no comparison"),
        ([["v", ">", 3]], "has no order"),
        ([["x", ">", "3"]], "compared with '3'"),
        ([[["x"], ">", 3]], "there is no column"),
        ([["x", [], 3]], "is no comparison"),
        ([["i", ">=", None]], "compared with None by >=; it is compared with a finite number"),
        ([["x", ">=", math.nan]], "compared with nan"),
        ([["x", "<", math.inf]], "compared with inf"),
        ([["i", ">=", [1]]], "compared with "),
        ([["i", ">=", True]], "compared with True"),
        ([["x", ">=", 10**400]], "compared with 1000"),
        ([["x", ">=", 1 << 63]], "a whole one of 64 bits at most"),
        ([["i", ">=", 2**70]], "a whole one of 64 bits at most"),
        ([["b", "==", 1]], "it is compared with True or False, by == or !="),
        ([["b", ">=", True]], "it is compared with True or False, by == or !="),
        ([["s", "==", None]], "it is compared with a text"),
    ],
)
def test_conditions_on_rows_are_checked(form: list[Any], words: str) -> None:
    feed = ab.feed("gps", by="user", columns=TYPES)
    with pytest.raises(InvalidCall, match=words):
        ab.view("v", {feed: None}, where=form)


def test_a_stored_view_may_have_any_constant() -> None:
    """It was taken once, and a device that refused it would stop."""
    found = RowConditions([["b", "==", 1], ["x", "<", math.inf], ["i", ">=", True]], TYPES)
    columns = {"b": np.array([True]), "x": np.array([2.0]), "i": np.array([1], np.int32)}
    assert found.decide(columns, 1).tolist() == [0]
    with pytest.raises(InvalidCall, match="there is no column 'y'"):
        RowConditions([["y", ">", 3]], TYPES)


@pytest.mark.parametrize(
    ("column", "comparison", "rows"),
    [
        (np.array([0.1, 0.5], np.float32), ["f1", "==", 0.1], []),
        (np.array([0.1, 0.5], np.float32), ["f1", "==", 0.5], [1]),
        (np.array([2**24, 5], np.float32), ["f1", "==", 2**24 + 1], []),
        (np.array([2**31 - 1, 5], np.int32), ["i", "<", 2**31], [0, 1]),
        (np.array([2**63 - 1, 5]), ["k", "==", 2**63 - 1], [0]),
        (np.array([True, False]), ["b", "!=", True], [1]),
    ],
)
def test_a_row_is_compared_with_the_constant_itself(
    column: Any, comparison: list[Any], rows: list[int]
) -> None:
    found = RowConditions([comparison], {**TYPES, "f1": "float"})
    assert found.decide({comparison[0]: column}, len(column)).tolist() == rows


def test_constants_of_a_view_can_be_sent() -> None:
    where = [("x", ">", np.float32(0.5)), ("i", "<", np.int16(3)), ("b", "==", True)]
    feed = ab.feed("gps", by="user", columns=TYPES)
    form = ab.view("v", {feed: None}, where=where).definition.where
    assert msgpack.unpackb(msgpack.packb(form)) == [
        ["x", ">", 0.5],
        ["i", "<", 3],
        ["b", "==", True],
    ]
