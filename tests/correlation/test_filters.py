"""Filters propose every pair that the float64 decision accepts, at any scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.search import EmdSearch
from anabranch.correlation.filters.apart import taken_apart
from anabranch.correlation.filters.bands import Band, band_candidates
from anabranch.correlation.filters.dots import available
from anabranch.correlation.filters.equality import all_alike, key_candidates
from anabranch.correlation.filters.exact import measure
from anabranch.correlation.filters.loops import loop_candidates
from anabranch.correlation.filters.products import product_candidates
from anabranch.correlation.filters.quantised import byte_candidates, work_of
from anabranch.correlation.filters.tiles import Pair, comparisons
from anabranch.flow.blocks import Block
from anabranch.testing import InProcess
from tests.examples import examples

BASE = 1_700_000_000_000_000
PRODUCTS = ("cosine", "dot", "euclidean")
# Of the largest element, as powers of two; a squared norm must not overflow.
EXPONENTS = {"f4": (-149, 120), "f8": (-1074, 505)}


def block(values: np.ndarray) -> Block:
    return Block.of(np.zeros(len(values)), {"s": values})


def every(pair: Pair) -> tuple[np.ndarray, np.ndarray]:
    grid = np.indices((len(pair.left), len(pair.right)))
    return grid[0].ravel(), grid[1].ravel()


def proposed(found: Any) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for part in found for i, j in zip(*part, strict=True)}


def vectors(seed: int, d: int, dtype: str, exponent: int, spread: int) -> np.ndarray:
    """A few rows about 2**exponent, some smaller by up to 2**spread, whole and other numbers."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(6, d))
    rows = np.where(random.random((6, 1)) < 0.3, np.round(rows * 4), rows)
    shift = random.integers(-spread, 1, (6, 1)) + exponent
    return np.ldexp(rows, shift).astype(dtype)


@st.composite
def operands(draw: Callable[..., Any]) -> tuple[np.ndarray, np.ndarray]:
    d = draw(st.sampled_from([1, 2, 3, 8, 17, 64]))
    found = []
    for _ in range(2):
        dtype = draw(st.sampled_from(["f4", "f8"]))
        exponent = draw(st.sampled_from([0, 30, 39, -39]) | st.integers(*EXPONENTS[dtype]))
        spread, seed = draw(st.sampled_from([0, 0, 20, 200])), draw(st.integers(0, 2**32))
        found.append(vectors(seed, d, dtype, exponent, spread))
    a, b = found
    if draw(st.booleans()):
        with np.errstate(over="ignore", under="ignore"):
            alike = a.astype(b.dtype)
        if np.isfinite(alike).all():
            b = np.concatenate([alike[:3], b[:3]])
    return a, b


@settings(max_examples=examples(120))
@given(
    operands=operands(),
    kind=st.sampled_from(["cosine", "dot", "euclidean", "manhattan", "hamming"]),
    upward=st.booleans(),
    which=st.integers(0, 35),
    factor=st.sampled_from([1, 1, 0, 2, 1e6, 1e-6, -1]),
)
@example((np.full((1, 2), 2e9, "f4"),) * 2, "dot", False, 0, 2)
@example((np.full((1, 2), 2e9, "f4"), np.full((1, 2), -2e9, "f4")), "dot", True, 0, 2)
@example((np.full((1, 2), 1e-170),) * 2, "dot", False, 0, 0)
@example((np.full((1, 2), 1e-170), np.full((1, 2), 1e150)), "dot", True, 0, 1)
@example((np.full((1, 1), 9e153), np.full((1, 1), -9e153)), "euclidean", False, 0, 1)
def test_filters_propose_what_the_decision_accepts(
    operands: tuple[np.ndarray, np.ndarray], kind: str, upward: bool, which: int, factor: float
):
    if kind == "cosine":  # the intake gives it vectors that have a squared norm in float64
        operands = tuple(_directed(rows) for rows in operands)  # type: ignore[assignment]
    if not all(map(len, operands)):
        return
    pair = Pair(*map(block, operands), (0, 0))
    i, j = every(pair)
    values = measure(kind, "s", pair.left, pair.right, i, j)
    assert np.isfinite(values).all()
    threshold = float(values[which % len(values)]) * factor
    if not np.isfinite(threshold):
        return
    if kind not in ("cosine", "dot"):
        threshold = abs(threshold)  # a call with a negative distance is refused
    good = values >= threshold if upward else values <= threshold
    wanted = set(zip(i[good].tolist(), j[good].tolist(), strict=True))
    call = (pair, "s", kind, upward, threshold)
    propose = product_candidates if kind in PRODUCTS else loop_candidates
    assert wanted <= proposed(propose(*call))
    for by in available()[:1] if kind in PRODUCTS else ():
        if (work := work_of(*call, by)) is not None:
            assert wanted <= proposed(byte_candidates(pair, work) or ())


def _directed(rows: np.ndarray) -> np.ndarray:
    norms = np.square(rows, dtype=float).sum(axis=1)
    return rows[(norms > 0) & np.isfinite(norms)]


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.5, -0.5, 0.0, 1.0])


@settings(max_examples=examples(100))
@given(
    st.lists(numbers, min_size=1, max_size=6),
    st.lists(numbers, min_size=1, max_size=6),
    st.floats(0, allow_infinity=False) | st.sampled_from([0.5, 1.0]),
    st.booleans(),
    st.booleans(),
)
@example([0.5], [-2.7e-17], 0.5, False, False)
@example([0.5], [-2.7e-17], 0.5, False, True)
def test_bands_of_floats_propose_what_the_decision_accepts(left, right, limit, touching, scan):
    if touching:  # right rows about the edge of what the left ones may meet
        with np.errstate(over="ignore"):
            edges = [np.nextafter(x - limit, way) for x in left for way in (-np.inf, x, np.inf)]
        right = [float(x) for x in edges if np.isfinite(x)] or right
    pair = Pair(block(np.array(left)), block(np.array(right)), (0, 0))
    i, j = every(pair)
    with np.errstate(over="ignore"):
        good = np.abs(np.array(left)[i] - np.array(right)[j]) <= limit
    found = proposed(band_candidates(pair, [Band("s", limit)], scan))
    assert set(zip(i[good].tolist(), j[good].tolist(), strict=True)) <= found


whole = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [-(2**63), -(2**63) + 1, -(2**53) - 1, -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1]
)


@settings(max_examples=examples(60))
@given(
    st.lists(whole, min_size=1, max_size=6),
    st.lists(whole, min_size=1, max_size=6),
    st.integers(0, 2**65) | st.sampled_from([2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]),
    st.booleans(),
)
def test_whole_numbers_are_compared_as_such(left, right, limit, keyed):
    where = ab.within("n", limit) & ab.same("k") if keyed else ab.within("n", limit)
    got = pairs(rows(n=pa.array(left, pa.int64())), rows(n=pa.array(right, pa.int64())), where)
    expected = [(i, j) for i, a in enumerate(left) for j, b in enumerate(right)]
    assert got == [(i, j) for i, j in expected if abs(left[i] - right[j]) <= limit]


@pytest.mark.parametrize("limit", [np.int64(2**53 + 1), 2**53 + 1, 2.0**53 + 2, np.float64(1e300)])
def test_a_limit_may_be_any_number(limit: Any):
    zero, far = rows(n=pa.array([0])), rows(n=pa.array([2**53 + 1]))
    assert pairs(zero, far, ab.within("n", limit)) == [(0, 0)]
    assert pairs(zero, far, ab.within("n", 2**53)) == []
    assert pairs(zero, far, ab.within("n", 2.0**53) & ab.same("k")) == []


def test_whole_numbers_beside_doubles_are_rounded_to_doubles():
    whole, double = rows(n=pa.array([2**53 + 1])), rows(n=pa.array([2.0**53]))
    assert pairs(whole, double, ab.within("n", 0)) == [(0, 0)]


@pytest.mark.parametrize("others", [0, 1, 4, 49, 399])
@pytest.mark.parametrize("keyed", [False, True])
def test_other_rows_of_a_block_do_not_decide_a_band(others: int, keyed: bool):
    def side(x: float) -> pa.Table:
        apart = [1e6 + 1e3 * n for n in range(others)]
        return rows(x=pa.array([x, *apart]), v=pa.array([[1.0] * 64] * (others + 1)))

    where = (ab.dot("v") >= 0) & ab.within("x", 0.5)
    assert (0, 0) in pairs(side(0.5), side(-2.7e-17), where & ab.same("k") if keyed else where)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("element", [5e8, 2e9, 1e11])
def test_dot_products_of_large_vectors(element: float, type_: Any, keyed: bool):
    def side(sign: int) -> pa.Table:
        return rows(v=pa.array([[sign * element] * 2], pa.list_(type_)))

    for sign in (1, -1):
        value = 2 * element**2
        where = ab.dot("v") <= 2 * value if sign > 0 else ab.dot("v") >= -2 * value
        assert pairs(side(1), side(sign), where & ab.same("k") if keyed else where) == [(0, 0)]


@pytest.mark.parametrize("scale", [1e-145, 1e-80, 1e-20, 1e150])
def test_a_vector_of_any_size_is_exactly_alike_to_itself(scale: float):
    random = np.random.default_rng(8)
    side = rows(v=pa.array((random.normal(size=(50, 3)) * scale).tolist()))
    assert {(n, n) for n in range(50)} <= set(pairs(side, side, ab.cosine("v") >= 1))


@pytest.mark.parametrize("where", [ab.cosine("v") >= 0.99, ab.same("k") & (ab.cosine("v") >= 0.99)])
@pytest.mark.parametrize("element", [2e-162, 3e-162, 1e-160, 1e-155, 1e150])
def test_a_cosine_does_not_depend_on_who_proposes_the_pair(element: float, where: Any):
    alone = rows(v=pa.array([[element, 0.0]]))
    beside = rows(v=pa.array([[element, 0.0]] + [[0.0, 1.0]] * 200))
    assert pairs(alone, alone, where) == [(0, 0)]
    assert (0, 0) in pairs(beside, beside, where)


@pytest.mark.parametrize("others", [0, 200])
def test_other_rows_of_a_block_do_not_decide_a_cosine(others: int):
    """With many others a band proposes the pair, alone a matrix product does."""
    values = [[3e-162, 0.0], *[[1.0, 0.0]] * others]
    side = rows(x=pa.array([1000.0 * n for n in range(others + 1)]), v=pa.array(values))
    assert (0, 0) in pairs(side, side, (ab.cosine("v") >= 0.99) & ab.within("x", 1.0))


@settings(max_examples=examples(60))
@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 2, 3, 8, 17]),
    st.lists(st.integers(-538, 505), min_size=2, max_size=2),
)
def test_cosines_at_any_scale_equal_exact_rationals(seed: int, d: int, exponents: list[int]):
    """The smallest have a squared norm of one bit, the largest one that is just finite."""
    a, b = (vectors(seed + k, d, "f8", e, 0) for k, e in enumerate(exponents))
    a, b = (side[(side * side).sum(axis=1) > 0] for side in (a, b))
    pair = Pair(block(a), block(b), (0, 0))
    i, j = every(pair)
    got = measure("cosine", "s", pair.left, pair.right, i, j)
    for value, u, v in zip(got, a[i], b[j], strict=True):
        dot, uu, vv = (_dot(*two) for two in ((u, v), (u, u), (v, v)))
        # Squares of rationals are compared, so that no root is needed.
        truth = math.copysign(float(dot * dot / (uu * vv)) ** 0.5, dot)
        scale = float(_dot(abs(u), abs(v)) ** 2 / (uu * vv)) ** 0.5
        assert abs(value - truth) <= 1e-14 * max(scale, abs(truth))


@settings(max_examples=examples(60))
@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 2, 3, 8, 17]),
    st.lists(st.integers(-1060, 505), min_size=2, max_size=2),
)
def test_distances_at_any_scale_equal_exact_rationals(seed: int, d: int, exponents: list[int]):
    a, b = (vectors(seed + k, d, "f8", e, 0) for k, e in enumerate(exponents))
    b = np.concatenate([b, a[:1], np.nextafter(a[:1], np.inf)])
    pair = Pair(block(a), block(b), (0, 0))
    i, j = every(pair)
    got = measure("euclidean", "s", pair.left, pair.right, i, j)
    for value, u, v in zip(got, a[i], b[j], strict=True):
        square = sum(((Fraction(x) - Fraction(y)) ** 2 for x, y in zip(u, v, strict=True)))
        root = Fraction(math.isqrt(int(square * 2**2400)), 2**1200)
        assert abs(Fraction(value) - root) <= root / 10**14 + Fraction(2) ** -1074
        assert (value == 0) == (square == 0)


@pytest.mark.parametrize("others", [0, 200])
@pytest.mark.parametrize("keyed", [False, True])
def test_vectors_that_differ_by_little_are_apart(others: int, keyed: bool):
    """Squares of such differences vanish in float64; other rows and other terms change nothing."""
    values = [[1e-170, 0.0], [2e-170, 0.0], *[[1.0, 0.0]] * others]
    side = rows(v=pa.array(values))

    def found(where: Any) -> set[Any]:
        both = pairs(side, side, where & ab.same("k") if keyed else where)
        return {(i, j) for i, j in both if i < 2 and j < 2}

    assert found(ab.euclidean("v") <= 0) == {(0, 0), (1, 1)}
    assert found(ab.euclidean("v") > 0) == {(0, 1), (1, 0)}
    assert found(ab.euclidean("v") >= 5e-171) == {(0, 1), (1, 0)}
    assert found(ab.euclidean("v") <= 1e-170) == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert found(ab.euclidean("v") < 1e-170) == {(0, 0), (1, 1)}


def _dot(u: np.ndarray, v: np.ndarray) -> Fraction:
    return sum((Fraction(x) * Fraction(y) for x, y in zip(u, v, strict=True)), Fraction(0))


END = 2**63 - 1
BOUND = 2**61  # rows with later or earlier times are bad rows
PROPOSERS: dict[str, Callable[[Pair], Any]] = {
    "cosine": lambda pair: product_candidates(pair, "v", "cosine", True, 0.5),
    "euclidean": lambda pair: product_candidates(pair, "v", "euclidean", False, 9.0),
    "manhattan": lambda pair: loop_candidates(pair, "v", "manhattan", False, 9.0),
    "hamming": lambda pair: loop_candidates(pair, "v", "hamming", False, 9.0),
    "band": lambda pair: band_candidates(pair, [Band("x", 9.0)], False),
    "scanned band": lambda pair: band_candidates(pair, [Band("x", 9.0)], True),
    "two bands": lambda pair: band_candidates(pair, [Band("x", 9.0)] * 2, False),
    "two scanned bands": lambda pair: band_candidates(pair, [Band("x", 9.0)] * 2, True),
    "key": lambda pair: key_candidates(pair, "k", np.zeros(len(pair.left), bool)),
    "line": lambda pair: _found("line", "mean", pair),
    "circle": lambda pair: _found("circle", "mean", pair),
    "chain": lambda pair: _found("line", "key", pair),
}


def _found(kind: str, name: str, pair: Pair) -> Any:
    search = EmdSearch("v", Ground(kind, 2), "<=", 9.0, (name,))
    return (found[:2] for found in search.matches(pair))


def at_times(times: list[int]) -> Block:
    n = len(times)
    columns = {"v": np.ones((n, 2)), "x": np.ones(n), "k": np.ones(n, np.int64)}
    return Block.of(sorted(times), columns)


@pytest.mark.parametrize("name", PROPOSERS)
@pytest.mark.parametrize("window", [(5, 5), (0, 0), (5, 2**61), (2**62, 2**70)])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([BASE + n for n in range(20)] + [END], [BASE + n for n in range(20)]),
        ([BASE], [BASE, END - 1, END]),
        ([END - 7, END - 3, END], [END - 4, END]),
        ([-END - 1, -END, 0], [-END - 1, -END + 9]),
        ([-BOUND, -BOUND + 9, BOUND], [-BOUND, BOUND - 9, BOUND]),
    ],
)
def test_times_at_the_ends_lose_no_pair(name, window, left, right):
    pair = Pair(at_times(left), at_times(right), window)
    due = [-window[0] <= t - s <= window[1] for t in sorted(left) for s in sorted(right)]
    i, j = every(pair)
    assert proposed(PROPOSERS[name](pair)) == set(
        zip(i[due].tolist(), j[due].tolist(), strict=True)
    )
    assert comparisons(pair) == sum(due)


def test_distances_whose_squares_overflow():
    left, right = rows(v=pa.array([[9e153]])), rows(v=pa.array([[-9e153]]))
    assert pairs(left, right, ab.euclidean("v") <= 1.8e154) == [(0, 0)]
    assert pairs(left, right, ab.euclidean("v") >= 1.8e154) == [(0, 0)]
    assert pairs(left, right, ab.euclidean("v") >= 1.9e154) == []


def rows(**columns: pa.Array) -> pa.Table:
    count = len(next(iter(columns.values())))
    stamps = pa.array([BASE] * count, pa.timestamp("us", "UTC"))
    return pa.table({"id": range(count), "ts": stamps, "k": [1] * count, **columns})


def pairs(left: pa.Table, right: pa.Table, where: Any) -> list[tuple[int, int]]:
    run = InProcess(left.schema, right.schema, where=where, window="1 second", workers=1)
    run.step(left, right)
    return sorted((pair["left_id"], pair["right_id"]) for pair in run.pairs)


def test_texts_that_are_not_utf8_are_compared_by_their_bytes() -> None:
    """Spark holds such, and takes them for equal or not as any others."""
    odd = pa.array([b"\xff", b"\xfe", b"\xff"]).view(pa.string())
    rows = Block.of(np.arange(3), {"s0": odd})
    found = taken_apart(Pair(rows, rows, (9, 9)), "s0", cell=1e7)
    assert found is not None and found.comparisons == 4
    one, other = rows.take(np.array([0, 2])), rows.take(np.array([1]))
    assert all_alike(Pair(one, one, (9, 9)), "s0")
    assert not all_alike(Pair(one, other, (9, 9)), "s0")


@pytest.mark.filterwarnings("error")
def test_differences_beyond_all_floats_are_beyond_every_limit() -> None:
    values = [-1.7e308, 1.7e308, 1.7e308]
    table = pa.table(
        {"id": [1, 2, 3], "ts": pa.array([1, 1, 1], pa.timestamp("us", "UTC")), "x": values}
    )
    near = ab.within("x", 1e308)
    for where, wanted in (
        (near, {(2, 3)}),
        (ab.same("id") | near, {(2, 3)}),
        (ab.differs("id") & near, {(2, 3)}),
        (~near, {(1, 2), (1, 3)}),
    ):
        run = InProcess(table.schema, None, where=where, window="1 s")
        run.step(table)
        assert {(pair["left_id"], pair["right_id"]) for pair in run.pairs} == wanted
