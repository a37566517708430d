"""Every measure against a dense matrix in float64, alone and combined; thresholds hit exactly."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.correlation.filters import tiles
from anabranch.testing import InProcess

BASE = 10**15
N_LEFT, N_RIGHT, D = 400, 350, 11
WINDOW = (20_000_000, 10_000_000)


def vectors(array: np.ndarray, dtype: Any) -> pa.Array:
    return pa.array(list(array), pa.list_(dtype))


def side(n: int, seed: int) -> tuple[dict[str, np.ndarray], pa.Table]:
    random = np.random.default_rng(seed)
    whole = random.integers(-3, 4, (n, D)).astype(float)
    whole[:, 0] += 0.5  # no zero vectors; sums stay exact
    columns: dict[str, Any] = {
        "id": np.arange(n),
        "t": BASE + np.sort(random.integers(0, 100_000_000, n)),
        "v": whole,
        "x": random.random(n),
        "y": random.random(n),
        "n": random.integers(0, 1000, n),
        "k": random.integers(0, 10, n),
        "s": np.array([f"key {q}" for q in random.integers(0, 10, n)]),
        "b": random.integers(0, 256, (n, 5)).astype(np.uint8),
    }
    arrow = pa.table(
        {
            "id": columns["id"],
            "ts": pa.array(columns["t"], pa.timestamp("us", "UTC")),
            "f": vectors(whole, pa.float32()),
            "d": vectors(whole, pa.float64()),
            "x": columns["x"],
            "y": columns["y"],
            "n": columns["n"],
            "i": pa.array(columns["n"], pa.int32()),
            "day": pa.array(columns["n"].astype(np.int32), pa.date32()),
            "at": pa.array(columns["n"] * 1_000_000, pa.timestamp("us", "UTC")),
            "k": columns["k"],
            "s": pa.array(columns["s"]),
            "b": pa.array([bytes(q) for q in columns["b"]]),
            "word": columns["b"][:, 0].astype(np.int64),
        }
    )
    return columns, arrow


L, LEFT = side(N_LEFT, 1)
R, RIGHT = side(N_RIGHT, 2)
APART = L["t"][:, None] - R["t"][None]
DUE = (-WINDOW[0] <= APART) & (WINDOW[1] >= APART)
DOT = L["v"] @ R["v"].T
COS = DOT / np.sqrt((L["v"] ** 2).sum(1)[:, None] * (R["v"] ** 2).sum(1)[None])
DIFF = L["v"][:, None] - R["v"][None]
EUC, MAN, HAM = np.sqrt((DIFF**2).sum(2)), np.abs(DIFF).sum(2), (DIFF != 0).sum(2)
BITS = np.bitwise_count(L["b"][:, None] ^ R["b"][None]).sum(2)
WORD = np.bitwise_count(L["b"][:, None, 0] ^ R["b"][None, :, 0])


def apart(name: str) -> np.ndarray:
    return np.abs(L[name][:, None] - R[name][None])


def equal(name: str) -> np.ndarray:
    return L[name][:, None] == R[name][None]


def product(left, right):
    return left["x"][:, None] * right["y"][None]


def both_high(left, right):
    return (left["x"][:, None] > 0.7) & (right["y"][None] > 0.7)


def text_length(left, right):
    assert left["s"].dtype == object
    a, b = np.stack(left["f"]), np.stack(right["f"])
    return np.abs(a.sum(1)[:, None] - b.sum(1)[None])


PRODUCT = L["x"][:, None] * R["y"][None]
HIGH = (L["x"][:, None] > 0.7) & (R["y"][None] > 0.7)
SUMS = np.abs(L["v"].sum(1)[:, None] - R["v"].sum(1)[None])
MEASURES = {"cosine": COS, "dot": DOT, "euclidean": EUC, "manhattan": MAN, "hamming": HAM}
OPS = {">=": np.greater_equal, ">": np.greater, "<=": np.less_equal, "<": np.less}


def compared(measure: Any, op: str, threshold: float) -> Any:
    return {
        ">=": lambda: measure >= threshold,
        ">": lambda: measure > threshold,
        "<=": lambda: measure <= threshold,
        "<": lambda: measure < threshold,
    }[op]()


CASES: dict[str, tuple[Any, np.ndarray, np.ndarray | None]] = {}
for (kind, values), op, column in itertools.product(MEASURES.items(), OPS, ("f", "d")):
    # A threshold that some pairs hit exactly, on the selective side of the distribution.
    threshold = float(np.quantile(values[DUE], 0.9 if op in (">=", ">") else 0.1, method="lower"))
    if op == ">" and threshold == values[DUE].max():
        threshold = float(np.unique(values[DUE])[-2])
    CASES[f"{kind} {op} on {column}"] = (
        compared(getattr(ab, kind)(column), op, threshold),
        OPS[op](values, threshold),
        values,
    )
CASES |= {
    "float against double": (ab.cosine("f", "d") >= 0.5, COS >= 0.5, COS),
    "bits of bytes": (ab.hamming("b") <= 14, BITS <= 14, BITS),
    "bits of a long": (ab.hamming("word") >= 6, WORD >= 6, WORD),
    "band": (ab.within("x", 0.05), apart("x") <= 0.05, apart("x")),
    "wide band": (ab.within("x", 0.6), apart("x") <= 0.6, apart("x")),
    "two columns": (ab.within("x", "y", 0.1), np.abs(L["x"][:, None] - R["y"][None]) <= 0.1, None),
    "two bands": (
        ab.within("x", 0.2) & ab.within("y", 0.2),
        (apart("x") <= 0.2) & (apart("y") <= 0.2),
        apart("x"),
    ),
    "two wide bands": (
        ab.within("x", 0.6) & ab.within("y", 0.7),
        (apart("x") <= 0.6) & (apart("y") <= 0.7),
        apart("x"),
    ),
    "whole numbers": (ab.within("n", 3), apart("n") <= 3, apart("n")),
    "half of whole numbers": (ab.within("n", 3.5), apart("n") <= 3, apart("n")),
    "int against long": (ab.within("i", "n", 3), apart("n") <= 3, apart("n")),
    "days": (ab.within("day", 3), apart("n") <= 3, apart("n")),
    "days as a duration": (ab.within("day", "3 days"), apart("n") <= 3, apart("n")),
    "timestamps": (ab.within("at", "3 seconds"), apart("n") <= 3, None),
    "key": (ab.same("k"), equal("k"), None),
    "text key": (ab.same("s"), equal("s"), None),
    "key and cosine": (ab.same("s") & (ab.cosine("f") >= 0.3), equal("s") & (COS >= 0.3), COS),
    "narrow band first": (
        (ab.cosine("f") >= 0.1) & ab.within("x", 0.001),
        (COS >= 0.1) & (apart("x") <= 0.001),
        COS,
    ),
    "vector first": (
        ab.within("x", 0.5) & (ab.cosine("f") >= 0.6),
        (COS >= 0.6) & (apart("x") <= 0.5),
        COS,
    ),
    "two vectors": (
        (ab.manhattan("f") <= 20) & (ab.cosine("d") >= 0.4),
        (MAN <= 20) & (COS >= 0.4),
        MAN,
    ),
    "a range": ((ab.cosine("f") >= 0.4) & (ab.cosine("f") < 0.5), (COS >= 0.4) & (COS < 0.5), COS),
    "custom score": (ab.custom(product, ["x"], ["y"]) >= 0.8, PRODUCT >= 0.8, PRODUCT),
    "custom booleans": (ab.custom(both_high, ["x"], ["y"]), HIGH, None),
    "custom on arrays and text": (
        ab.custom(text_length, ["s", "f"], ["s", "f"]) <= 1,
        SUMS <= 1,
        SUMS,
    ),
    "custom after cosine": (
        (ab.cosine("f") >= 0.3) & (ab.custom(product, ["x"], ["y"]) >= 0.5),
        (COS >= 0.3) & (PRODUCT >= 0.5),
        COS,
    ),
    "custom after key": (
        ab.same("k") & ab.custom(both_high, ["x"], ["y"]),
        equal("k") & HIGH,
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_pairs_and_scores_equal_the_dense_matrix(name: str):
    where, matches, scores = CASES[name]
    expected = {(int(i), int(j)) for i, j in np.argwhere(matches & DUE)}
    assert 0 < len(expected) < DUE.sum()
    process = InProcess(
        LEFT.schema,
        RIGHT.schema,
        where=where,
        window=("20 seconds", "10 seconds"),
        plan=ab.grid(2, 2),
    )
    for start in range(0, N_LEFT, 100):
        process.step(LEFT.slice(start, 100), RIGHT.slice(start, 100))
    got = [(pair["left_id"], pair["right_id"]) for pair in process.pairs]
    assert len(got) == len(set(got))
    assert set(got) == expected
    if scores is not None:
        for pair in process.pairs:
            truth = scores[pair["left_id"], pair["right_id"]]
            assert pair["score"] == pytest.approx(truth, rel=1e-12, abs=1e-12)


def one_step(left: np.ndarray, right: np.ndarray, where: Any, dtype: Any = None) -> InProcess:
    def rows(array: np.ndarray) -> pa.Table:
        return pa.table(
            {
                "id": np.arange(len(array)),
                "ts": pa.array([BASE] * len(array), pa.timestamp("us", "UTC")),
                "v": vectors(array, dtype or pa.from_numpy_dtype(array.dtype)),
            }
        )

    a, b = rows(left), rows(right)
    process = InProcess(a.schema, b.schema, where=where, window="0 seconds", plan=ab.broadcast(1))
    process.step(a, b)
    return process


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1.0, 1e30, 1e150])
@pytest.mark.parametrize("kind", ["cosine", "dot", "euclidean", "manhattan"])
def test_doubles_far_beyond_float32_are_decided_rightly(kind: str, scale: float):
    random = np.random.default_rng(3)
    a, b = random.standard_normal((60, 5)) * scale, random.standard_normal((50, 5)) * scale
    values = {
        "cosine": (a @ b.T) / np.outer(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)),
        "dot": a @ b.T,
        "euclidean": np.sqrt(((a[:, None] - b[None]) ** 2).sum(2)),
        "manhattan": np.abs(a[:, None] - b[None]).sum(2),
    }[kind]
    for op in OPS:
        threshold = float((np.sort(values.ravel())[[900, 901]]).mean())
        process = one_step(a, b, compared(getattr(ab, kind)("v"), op, threshold))
        assert len(process.pairs) == OPS[op](values, threshold).sum()


def test_a_vector_is_exactly_alike_to_itself_and_its_multiples():
    random = np.random.default_rng(4)
    a = random.standard_normal((500, 64)).astype(np.float32)
    process = one_step(a, a, ab.cosine("v") >= 1)
    assert {(p["left_id"], p["right_id"]) for p in process.pairs} == {(n, n) for n in range(500)}
    assert {p["score"] for p in process.pairs} == {1.0}
    assert len(one_step(a, a * 4, ab.cosine("v") >= 1).pairs) == 500
    assert len(one_step(a, a, ab.euclidean("v") <= 0).pairs) == 500


def test_scores_do_not_depend_on_tiles(monkeypatch: pytest.MonkeyPatch):
    random = np.random.default_rng(5)
    a, b = (random.standard_normal((700, 64)).astype(np.float32) for _ in range(2))

    def pairs() -> list[tuple[int, int, float]]:
        found = one_step(a, b, ab.cosine("v") >= 0.2).pairs
        return sorted((p["left_id"], p["right_id"], p["score"]) for p in found)

    whole = pairs()
    assert len(whole) > 100
    real = tiles.tiles
    from anabranch.correlation.filters import products

    monkeypatch.setattr(
        products, "tiles", lambda pair, between: real(pair, 37, 101, between=between)
    )
    assert pairs() == whole


def test_integers_at_the_ends_of_their_range():
    ends = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]
    rows = pa.table(
        {
            "id": range(len(ends)),
            "ts": pa.array([BASE] * len(ends), pa.timestamp("us", "UTC")),
            "n": pa.array(ends, pa.int64()),
        }
    )
    process = InProcess(rows.schema, rows.schema, where=ab.within("n", 1), window="0 seconds")
    process.step(rows, rows)
    got = {(ends[p["left_id"]], ends[p["right_id"]]) for p in process.pairs}
    assert got == {(a, b) for a in ends for b in ends if abs(a - b) <= 1}


def test_one_key_with_many_rows_goes_through_the_product():
    random = np.random.default_rng(6)
    n = 400
    whole = random.integers(-2, 3, (n, 6)).astype(float) + 0.25
    keys = np.where(np.arange(n) < 350, "hot", [f"cold {q % 7}" for q in range(n)])
    rows = pa.table(
        {
            "id": np.arange(n),
            "ts": pa.array([BASE] * n, pa.timestamp("us", "UTC")),
            "v": vectors(whole, pa.float32()),
            "k": pa.array(keys),
        }
    )
    where = ab.same("k") & (ab.euclidean("v") <= 2)
    process = InProcess(rows.schema, rows.schema, where=where, window="0 seconds", workers=3)
    process.step(rows, rows)
    near = np.sqrt(((whole[:, None] - whole[None]) ** 2).sum(2)) <= 2
    expected = np.argwhere(near & (keys[:, None] == keys[None]))
    assert sorted([p["left_id"], p["right_id"]] for p in process.pairs) == expected.tolist()


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda left, right: left["x"], r"returned shape \(\d+,\)"),
        (lambda left, right: product(left, right), "not booleans: compare it"),
    ],
)
def test_a_custom_function_that_returns_nonsense_is_refused(function, says):
    process = InProcess(
        LEFT.schema, RIGHT.schema, where=ab.custom(function, ["x"], ["y"]), window="1 second"
    )
    with pytest.raises(ab.errors.InvalidCall, match=says):
        process.step(LEFT, RIGHT)
