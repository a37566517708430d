"""Decimals are compared exactly, at any scale."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import BadRow
from anabranch.plans.hashed import keyed
from anabranch.testing import InProcess

NOON = 1_700_000_000_000_000
WINDOW = "1 minute"


def rows(values: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(len(values)), pa.int64()),
            "ts": pa.array([NOON] * len(values), pa.timestamp("us", "UTC")),
            "x": pa.array(values, kind),
        }
    )


def pairs(left: pa.Table, right: pa.Table, limit: Any, **more: Any) -> dict[Any, float]:
    call = {"where": ab.within("x", limit), "window": WINDOW, **more}
    process = InProcess(left.schema, right.schema, **call)
    process.step(left, right)
    return {(pair["left_id"], pair["right_id"]): pair["score"] for pair in process.pairs}


@pytest.mark.parametrize("limit", [0.01, "0.01", Decimal("0.01"), "1e-2"])
def test_a_cent_is_a_cent(limit: Any) -> None:
    """As doubles 100.00 and 100.01 are 0.010000000000005116 apart."""
    money = pa.decimal128(10, 2)
    left = rows([Decimal("100.00"), Decimal("55.49")], money)
    right = rows([Decimal("100.01"), Decimal("55.50"), Decimal("100.02")], money)
    assert pairs(left, right, limit) == {(0, 0): 0.01, (1, 1): 0.01}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[pa.Table, pa.Table, Decimal]:
    tables = []
    for _ in range(2):
        scale = draw(st.integers(0, 6))
        kind = draw(st.sampled_from([pa.decimal128(18, scale), pa.decimal128(38, scale)]))
        numbers = st.integers(-400 * 10**scale, 400 * 10**scale)
        near = st.integers(-30, 30)
        found = draw(st.lists(st.one_of(numbers, near), max_size=12))
        values: list[Any] = [Decimal(n).scaleb(-scale) for n in found]
        if draw(st.booleans()) and not scale:
            values, kind = [int(v) for v in values], pa.int64()
        tables.append(rows(values, kind))
    digits = draw(st.integers(0, 7))
    limit = Decimal(draw(st.integers(0, 300 * 10**digits))).scaleb(-digits)
    return tables[0], tables[1], limit


@given(worlds(), st.sampled_from(["decimal", "text"]), st.sampled_from([None, "grid", "ssp"]))
def test_decimals_are_decided_as_python_does(world: Any, form: str, plan: str | None) -> None:
    left, right, limit = world
    plans = {None: None, "grid": ab.grid(2, 2), "ssp": ab.broadcast(3)}
    kinds = {table.schema.field("x").type for table in (left, right)}
    found = pairs(left, right, limit if form == "decimal" else str(limit), plan=plans[plan])
    want = {
        (i, j): abs(Decimal(a) - Decimal(b))
        for i, a in enumerate(left["x"].to_pylist())
        for j, b in enumerate(right["x"].to_pylist())
        if abs(Decimal(a) - Decimal(b)) <= limit
    }
    assert set(found) == set(want), kinds
    for key, apart in want.items():
        assert found[key] == pytest.approx(float(apart), rel=1e-15)


def test_beside_an_equality() -> None:
    money = pa.decimal128(10, 2)
    left, right = rows([Decimal("1.00")], money), rows([Decimal("1.01")], money)
    where = ab.within("x", "0.01") & ab.same("id")
    assert pairs(left, right, 0, where=where, plan=keyed(2)) == {(0, 0): 0.01}


def test_what_64_bits_do_not_hold_is_refused_loudly() -> None:
    wide = pa.decimal128(38, 2)
    most = Decimal(2**63 - 1).scaleb(-2)
    near = [most, -most, most - Decimal("0.01"), None]
    with pytest.raises(BadRow, match="'x' is null"):
        pairs(rows(near, wide), rows([most], wide), "0.01")
    assert set(pairs(rows(near[:3], wide), rows([most], wide), "0.01")) == {(0, 0), (2, 0)}
    for value in (most + Decimal("0.01"), -(Decimal(10) ** 35), Decimal(10) ** 30):
        with pytest.raises(BadRow, match="'x' is too large: with 2 digits after the point numbers"):
            pairs(rows([value], wide), rows([most], wide), 1)
    kept = pairs(rows([Decimal(10) ** 30, most], wide), rows([most], wide), 1, bad_rows="drop")
    assert set(kept) == {(1, 0)}


def test_a_double_is_not_exact() -> None:
    left, right = rows([Decimal(1)], pa.decimal128(10, 2)), rows([1.0], pa.float64())
    with pytest.raises(ab.errors.InvalidCall, match="cast both to decimal, or both to double"):
        pairs(left, right, 1)


def test_errors_say_what_to_write() -> None:
    left = rows([Decimal(1)], pa.decimal128(10, 2))
    with pytest.raises(ab.errors.InvalidCall, match=r"write within\('amount', 'total', 0.01\)"):
        ab.within("amount", 0.01, "total")
    with pytest.raises(ab.errors.InvalidCall, match=r"for example within\('bid', 'ask', 0.5\)"):
        ab.within("amount")
    with pytest.raises(ab.errors.InvalidCall, match=r"the limit must be a number such as 0.5"):
        pairs(left, left, "1 day")
    with pytest.raises(ab.errors.InvalidCall, match=r"the limit must be a number \(0.5, Decimal"):
        pairs(left, left, [1])
    with pytest.raises(ab.errors.InvalidCall, match="the limit must not be negative"):
        pairs(left, left, "-0.01")


def test_another_scale_is_another_state() -> None:
    left = rows([Decimal(1)], pa.decimal128(10, 2))
    finer = rows([Decimal(1)], pa.decimal128(10, 3))
    call = {"where": ab.within("x", 1), "window": WINDOW}
    first, second = (InProcess(left.schema, t.schema, **call) for t in (left, finer))
    settings = [p.correlation.settings["where[0]"] for p in (first, second)]
    assert settings == [f"within: {', '.join([f'x decimal of scale {n}'] * 2)}" for n in (2, 3)]
