"""Two columns of one stream: the first is that of the earlier row, whatever happens."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import BadRow
from anabranch.plans.plan import Plan
from anabranch.plans.routing import LivePlans
from anabranch.testing import InProcess
from tests.correlation.test_laws import SCHEMA, cosine, streams, table
from tests.correlation.test_one_stream import (
    alike_and_same,
    found,
    keyed_plans,
    pairs,
    plans,
    rows_of,
)
from tests.examples import examples

Row = dict[str, Any]


def second(rows: list[Row]) -> list[Row]:
    """The same rows with a second number, vector and text, none of them like the first."""
    return [
        {**row, "y": (3 * row["x"] + 1) % 8, "w": row["v"][::-1], "q": f"k{(row['x'] + 1) % 4}"}
        for row in rows
    ]


def wide(rows: list[Row]) -> pa.Table:
    more = {
        "y": pa.array([row["y"] for row in rows], SCHEMA.field("x").type),
        "w": pa.array([row["w"] for row in rows], SCHEMA.field("v").type),
        "q": pa.array([row["q"] for row in rows], pa.string()),
    }
    whole = table(rows)
    for name, column in more.items():
        whole = whole.append_column(name, column)
    return whole


WIDE = wide([]).schema


def drop(left: Any, right: Any) -> np.ndarray:
    """How far the right number lies below the left one; the text only makes the call longer."""
    assert set(left) == {"x"} and set(right) == {"y", "k"}
    return left["x"][:, None] - right["y"][None, :]


def near(a: Row, b: Row) -> float | None:
    return 1.0 if abs(a["x"] - b["y"]) <= 1 else None


def turned(a: Row, b: Row) -> float | None:
    return cosine(a, {"v": b["w"]})


CONDITIONS: dict[str, tuple[Any, Any, Any]] = {
    "numbers": (ab.within("x", "y", 1), near, plans),
    "vectors": (ab.cosine("v", "w") >= 0.5, turned, plans),
    "keys": (
        ab.same("k", "q") & ab.within("x", 3),
        lambda a, b: 1.0 if a["k"] == b["q"] and abs(a["x"] - b["x"]) <= 3 else None,
        plans,
    ),
    "beside a key": (
        ab.same("k") & ab.within("x", "y", 1),
        lambda a, b: near(a, b) if a["k"] == b["k"] else None,
        keyed_plans,
    ),
    "others": (
        ab.differs("k", "q") & (ab.cosine("v") >= 0.5),
        lambda a, b: cosine(a, b) if a["k"] != b["q"] else None,
        plans,
    ),
    "either": (
        ab.within("x", "y", 1) | ab.same("k", "q"),
        lambda a, b: 1.0 if near(a, b) or a["k"] == b["q"] else None,
        plans,
    ),
    "own": (
        ab.custom(drop, left="x", right=["y", "k"]) >= 1,
        lambda a, b: 1.0 if a["x"] - b["y"] >= 1 else None,
        plans,
    ),
    "one column": (ab.same("k") & (ab.cosine("v") >= 0.5), alike_and_same, keyed_plans),
}


@settings(max_examples=examples(120), deadline=None)
@given(
    streams(),
    st.data(),
    st.integers(0, 60),
    st.integers(0, 40),
    st.sampled_from(sorted(CONDITIONS)),
)
def test_the_first_column_is_that_of_the_earlier_row(
    batches, data, window: int, late: int, which: str
) -> None:
    where, good, drawn = CONDITIONS[which]
    call = {"where": where, "window": f"{window} ms", "watermark": f"{late} ms", "ordered": True}
    process = InProcess(WIDE, None, streaming=True, **call)
    live: dict[int, Plan] = {0: data.draw(drawn)}
    taken: list[Row] = []
    for batch in batches:
        if data.draw(st.booleans()):
            live[max(live) + 1] = data.draw(drawn)
        rows, mark = second(rows_of(batch)), process.watermark
        taken += [row for row in rows if row["t"] > mark]
        process.step(wide(rows), live=(LivePlans(dict(live)),) * 2)
    assert found(process) == pairs(taken, window * 1000, good)


@settings(max_examples=examples(50), deadline=None)
@given(streams(), st.integers(1, 9), st.sampled_from(sorted(CONDITIONS)))
def test_windows_of_rows(batches, window: int, which: str) -> None:
    where, good, _ = CONDITIONS[which]
    process = InProcess(WIDE, None, where=where, window=window, ordered=True)
    for batch in batches:
        process.step(wide(second(rows_of(batch))))
    process.finish()
    rows = second([row for batch in batches for row in rows_of(batch)])
    rows.sort(key=lambda row: (row["t"], row["id"]))
    assert found(process) == Counter(
        (a["id"], b["id"])
        for n, a in enumerate(rows)
        for b in rows[n + 1 : n + 1 + window]
        if good(a, b) is not None
    )


@settings(max_examples=examples(50), deadline=None)
@given(streams(), plans, st.integers(0, 60))
def test_a_function_of_one_column_has_the_earlier_row_on_the_left(
    batches, plan: Plan, window: int
) -> None:
    def rises(left: Any, right: Any) -> np.ndarray:
        return left["x"][:, None] < right["x"][None, :]

    where = ab.custom(rises, left="x", right="x")
    process = InProcess(SCHEMA, None, where=where, window=f"{window} ms", plan=plan)
    for batch in batches:
        process.step(table(rows_of(batch)))
    rows = [row for batch in batches for row in rows_of(batch)]
    want = pairs(rows, window * 1000, lambda a, b: 1.0 if a["x"] < b["x"] else None)
    assert found(process) == want


def test_both_columns_of_a_vector_have_one_length() -> None:
    row = {"id": 1, "t": 1_700_000_000_000_000, "v": [1, 0, 0], "x": 0, "k": "k"}
    rows = [{**second([row])[0], "w": [1.0, 0.0]}]
    call = {"where": ab.cosine("v", "w") >= 0.5, "window": "1 s", "ordered": True}
    with pytest.raises(BadRow, match="'w' has length 2 where earlier rows have 3"):
        InProcess(WIDE, None, **call).step(wide(rows))


def test_a_checkpoint_knows_both_columns() -> None:
    calls = [
        InProcess(WIDE, None, where=ab.within("x", other, 1), window="1 s", ordered=True)
        for other in ("x", "y")
    ]
    texts = [run.correlation.settings["where[0]"] for run in calls]
    assert texts == ["within: x bigint, x bigint", "within: x bigint, y bigint"]
