"""Decimals are compared exactly, at any scale."""

from __future__ import annotations

from decimal import Context, Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.correlation.filters.bands import Band, band_candidates
from anabranch.correlation.filters.tiles import Pair
from anabranch.errors import BadRow
from anabranch.flow.blocks import Block
from anabranch.plans.hashed import keyed
from anabranch.testing import InProcess
from tests.flow.test_words import column

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


WIDE = Context(prec=200)


def apart(a: Any, b: Any) -> Decimal:
    """The distance of two numbers, to the last digit."""
    return WIDE.subtract(Decimal(a), Decimal(b)).copy_abs()


@st.composite
def decimals(draw: st.DrawFn) -> tuple[pa.DataType, Any]:
    """A type of Spark's decimals, or a whole number, and its values: small, any, the greatest."""
    if draw(st.integers(0, 5)) == 0:
        return pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9)
    precision = draw(st.sampled_from([4, 18, 19, 38]) | st.integers(1, 38))
    scale = draw(st.sampled_from([0, precision]) | st.integers(0, precision))
    most = 10**precision - 1
    numbers = st.integers(-most, most) | st.integers(-9, 9) | st.sampled_from([most, -most])
    kind = pa.decimal128(precision, scale)
    return kind, numbers.map(lambda n: Decimal(n).scaleb(-scale, WIDE))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[pa.Table, pa.Table, Decimal]:
    """Two tables, and a limit that is often the distance of two rows or misses it by a digit."""
    kinds, numbers = zip(*(draw(decimals()) for _ in range(2)), strict=True)
    values = [draw(st.lists(of, min_size=1, max_size=8)) for of in numbers]
    limits = st.sampled_from([Decimal(0), Decimal("0.01"), Decimal(10) ** 39, Decimal("1e300")])
    far = apart(*(draw(st.sampled_from(of)) for of in values))
    limits |= st.sampled_from([far, far.next_minus(WIDE), far.next_plus(WIDE)])
    tables = [rows(of, kind) for of, kind in zip(values, kinds, strict=True)]
    return tables[0], tables[1], max(Decimal(0), draw(limits))


@given(worlds(), st.sampled_from(["decimal", "text"]), st.sampled_from([None, "grid", "ssp"]))
def test_decimals_are_decided_as_python_does(world: Any, form: str, plan: str | None) -> None:
    left, right, limit = world
    plans = {None: None, "grid": ab.grid(2, 2), "ssp": ab.broadcast(3)}
    kinds = [table.schema.field("x").type for table in (left, right)]
    if kinds == [pa.int64()] * 2:
        return  # which are no decimals
    found = pairs(left, right, limit if form == "decimal" else str(limit), plan=plans[plan])
    want = {
        (i, j): apart(a, b)
        for i, a in enumerate(left["x"].to_pylist())
        for j, b in enumerate(right["x"].to_pylist())
        if apart(a, b) <= limit
    }
    assert set(found) == set(want), kinds
    for key, distance in want.items():
        assert found[key] == pytest.approx(float(distance), rel=4e-15, abs=0)


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("words", [2, 3, 4])
def test_the_ends_of_a_band_are_proposed(words: int, scan: bool) -> None:
    """Long numbers are searched by floats near to them, which must not hide a pair."""
    random = Random(words)
    for _ in range(150):
        most = 10 ** random.randrange(19 * words - 19, 19 * words)
        middle, limit = random.randrange(-most, most), random.randrange(most)
        numbers = [[middle], [middle - limit, middle + limit]]
        blocks = [Block.of([0] * len(of), {"s0": column(of, words)}) for of in numbers]
        found = band_candidates(Pair(*blocks, (0, 0)), [Band("s0", limit)], scan)
        assert sum(len(at.left) for at in found) == 2, (middle, limit)


def test_beside_an_equality() -> None:
    money = pa.decimal128(10, 2)
    left, right = rows([Decimal("1.00")], money), rows([Decimal("1.01")], money)
    where = ab.within("x", "0.01") & ab.same("id")
    assert pairs(left, right, 0, where=where, plan=keyed(2)) == {(0, 0): 0.01}


@pytest.mark.parametrize("precision, scale", [(38, 2), (38, 18), (38, 38), (20, 4)])
def test_the_last_digit_counts_in_the_greatest_numbers(precision: int, scale: int) -> None:
    """64 bits hold none of these, and floats cannot tell one from the next."""
    kind, unit = pa.decimal128(precision, scale), Decimal(1).scaleb(-scale)
    most = Decimal(10**precision - 1).scaleb(-scale, WIDE)
    left = rows([most, WIDE.subtract(most, unit), WIDE.minus(most)], kind)
    right = rows([WIDE.subtract(most, 2 * unit)], kind)
    assert set(pairs(left, right, unit)) == {(1, 0)}
    assert set(pairs(left, right, 2 * unit)) == {(0, 0), (1, 0)}
    assert set(pairs(left, right, 0, where=~ab.within("x", unit))) == {(0, 0), (2, 0)}
    with pytest.raises(BadRow, match="'x' is null"):
        pairs(rows([None], kind), right, unit)


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


def test_another_scale_or_width_is_another_state() -> None:
    left = rows([Decimal(1)], pa.decimal128(10, 2))
    others = [rows([Decimal(1)], pa.decimal128(*kind)) for kind in ((12, 2), (10, 3), (20, 2))]
    call = {"where": ab.within("x", 1), "window": WINDOW}
    found = [InProcess(left.schema, other.schema, **call).correlation for other in others]
    words = ["x decimal of scale 2", "x decimal of scale 3", "x decimal of scale 2 in 128 bits"]
    assert [of.settings["where[0]"] for of in found] == [f"within: {w}, {w}" for w in words]
