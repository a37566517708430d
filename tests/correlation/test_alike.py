"""Texts and sets: every pair that the plain definitions give, and no other; filters lose none."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.correlation.filters import bags, overlap
from anabranch.correlation.filters.tiles import Pair
from anabranch.errors import BadRow, InvalidCall
from anabranch.flow.blocks import Block
from anabranch.testing import InProcess
from tests.correlation import alike_twin as twin
from tests.examples import examples

BASE = 1_700_000_000_000_000
OPS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}


def table(column: str, values: list[Any], type_: pa.DataType) -> pa.Table:
    return pa.table(
        {
            "id": np.arange(len(values)),
            "ts": pa.array([BASE + n for n in range(len(values))], pa.timestamp("us", "UTC")),
            column: pa.array(values, type_),
        }
    )


def found(
    left: pa.Table, right: pa.Table | None, where: Any, plan: Any, parts: int = 1
) -> dict[tuple[int, int], float]:
    """Pairs and scores of a run in so many batches, taken up from its state in between."""
    schemas = left.schema, None if right is None else right.schema
    call = {"where": where, "window": "1 minute", "plan": plan}
    run = InProcess(*schemas, **call)
    pairs = []
    for part in range(parts):
        again = InProcess(*schemas, **call)
        again.take_up(run)
        run = again
        run.step(
            *(
                None if t is None else t.take(pa.array(range(part, len(t), parts), pa.int64()))
                for t in (left, right)
            )
        )
        pairs += run.pairs
    got = {(pair["left_id"], pair["right_id"]): pair["score"] for pair in pairs}
    assert len(got) == len(pairs), "a pair came twice"
    return got


def check(
    measure: Any, truth: Callable[[Any, Any], Any], op: str, limit: Any, tables: tuple[Any, ...]
) -> None:
    """All plans, two streams and one, give what the definition says."""
    left, right = tables
    where = OPS[op](measure, limit)
    exact = Fraction(str(limit)) if isinstance(limit, float) else limit
    values = [t[t.column_names[-1]].to_pylist() for t in (left, right)]
    want = {}
    for i, a in enumerate(values[0]):
        for j, b in enumerate(values[1]):
            value = truth(a, b)
            if OPS[op](value, exact if isinstance(value, Fraction) else limit):
                want[i, j] = float(value)
    for plan, parts in ((ab.grid(2, 2), 1), (ab.broadcast(2), 2), (ab.segments(2, "1 minute"), 3)):
        assert found(left, right, where, plan, parts) == want
    own = {
        (i, j): float(truth(a, values[0][j]))
        for j in range(len(values[0]))
        for i, a in enumerate(values[0][:j])
        if OPS[op](truth(a, values[0][j]), exact if left.column_names[-1] == "words" else limit)
    }
    assert found(left, None, where, ab.triangle(2), 2) == own


letters = st.text(st.sampled_from("abcAé ßü漢𝄞"), max_size=12)
words = st.one_of(
    letters, letters.map(lambda text: text[:1] + "ab" + text[1:]), st.text(max_size=9)
)
names = st.lists(st.one_of(words, st.sampled_from(["", "a", "b", "Acme", "Acme Ltd"])), max_size=8)


@settings(max_examples=examples(12))
@given(names, names, st.sampled_from(sorted(OPS)), st.sampled_from([0, 1, 2, 2.5, 5, 1e300]))
@example(["", "a"], ["a"], "<", 1e300)
def test_edit_distances_are_those_of_the_table(
    left: list[str], right: list[str], op: str, limit: float
) -> None:
    tables = tuple(table("name", side, pa.string()) for side in (left, right))
    check(ab.edit("name"), twin.edit, op, limit, tables)


@settings(max_examples=examples(12))
@given(
    names,
    names,
    st.sampled_from(sorted(OPS)),
    st.sampled_from([0, 0.4, 0.7, 0.8, 0.92, 1]),
    st.data(),
)
def test_jaro_winkler_is_that_of_rapidfuzz(
    left: list[str], right: list[str], op: str, limit: float, data: st.DataObject
) -> None:
    values = sorted({twin.jaro_winkler(a, b) for a in left for b in right} | {limit})
    tables = tuple(table("name", side, pa.string()) for side in (left, right))
    check(
        ab.jaro_winkler("name"), twin.jaro_winkler, op, data.draw(st.sampled_from(values)), tables
    )


limits = st.sampled_from([0, 0.2, 0.5, 0.8, 0.6666666666666666, Fraction(2, 3), Fraction(1, 3), 1])
sets = st.one_of(
    st.lists(st.sampled_from(["a", "b", "ab", "", "é", "漢"]), max_size=8),
    st.lists(st.text(max_size=2), max_size=8),
)
numbers = st.lists(
    st.one_of(st.integers(-2, 4), st.sampled_from([-(2**63), 2**63 - 1])), max_size=8
)


@settings(max_examples=examples(12))
@given(st.lists(sets, max_size=7), st.lists(sets, max_size=7), st.sampled_from(sorted(OPS)), limits)
@example([["a", "b"]], [["a", "b", "c"]], ">=", Fraction(2, 3))  # a hair above any float below it
@example([["a", "a"]], [["a"]], ">=", 1)
def test_shares_of_texts_are_those_of_sets(
    left: list[list[str]], right: list[list[str]], op: str, limit: Any
) -> None:
    tables = tuple(table("words", side, pa.list_(pa.string())) for side in (left, right))
    check(ab.jaccard("words"), twin.jaccard, op, limit, tables)


@settings(max_examples=examples(10))
@given(
    st.lists(numbers, max_size=7),
    st.lists(numbers, max_size=7),
    st.sampled_from(sorted(OPS)),
    limits,
)
def test_shares_of_numbers_are_those_of_sets(
    left: list[list[int]], right: list[list[int]], op: str, limit: Any
) -> None:
    tables = tuple(table("words", side, pa.list_(pa.int64())) for side in (left, right))
    check(ab.jaccard("words"), twin.jaccard, op, limit, tables)


def test_texts_of_one_hash_are_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    same = lambda bounds, data: np.zeros(len(bounds) - 1, np.int64)  # noqa: E731
    monkeypatch.setattr(bags, "_hashes", same)
    rows = [["a", "b", "c"], ["c", "a"], ["d"], []]
    sides = tuple(table("words", rows, pa.list_(pa.string())) for _ in range(2))
    check(ab.jaccard("words"), twin.jaccard, ">=", 0.5, sides)
    check(ab.jaccard("words"), twin.jaccard, "<", 0.5, sides)


KINDS = {
    "edit": (2.0, twin.edit, operator.le),
    "jaro_winkler": (0.9, twin.jaro_winkler, operator.ge),
    "jaccard": (0.6, twin.jaccard, operator.ge),
}


@pytest.mark.parametrize("kind", KINDS)
def test_filters_propose_every_match_and_few_others(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the room for proposals is short, and bags are larger than their bits."""
    draw = np.random.default_rng(7)
    limit, truth, holds = KINDS[kind]
    stems = ["".join(draw.choice(list("abcdefghijklmnop "), n)) for n in draw.integers(4, 60, 60)]
    texts = [t[: draw.integers(3, 60)] + "x" * draw.integers(0, 3) for t in stems * 4]
    values: Any = texts if kind != "jaccard" else [list(t[: draw.integers(0, 60)]) for t in texts]
    type_ = pa.list_(pa.string()) if kind == "jaccard" else pa.string()
    sides = values[:120], values[120:]
    if kind == "jaccard":
        sides = tuple([sorted(set(v)) for v in side] for side in sides)  # as the intake leaves them
    left, right = (Block.of(np.arange(120), {"s0": pa.array(side, type_)}) for side in sides)
    room = overlap.scratch()[1].first(500)
    monkeypatch.setattr(overlap, "scratch", lambda: (None, room))
    what = overlap.Overlap("s0", kind, limit)
    proposed = [
        pair
        for found in what.candidates(Pair(left, right, (500, 500)))
        for pair in zip(found.left.tolist(), found.right.tolist(), strict=True)
    ]
    matches = {
        (i, j)
        for i, a in enumerate(sides[0])
        for j, b in enumerate(sides[1])
        if holds(truth(a, b), limit)
    }
    assert len(matches) > 20
    assert len(proposed) == len(set(proposed))
    assert matches <= set(proposed)
    assert len(proposed) < 120 * 120 / 4
    i, j = (np.array(side, np.int32) for side in zip(*sorted(set(proposed)), strict=True))
    assert what.likely(left, right, i, j).all()


def test_bad_values_are_named() -> None:
    def run(value: Any, type_: pa.DataType, where: Any, column: str) -> None:
        rows = table(column, [value], type_)
        InProcess(rows.schema, rows.schema, where=where, window="1 s").step(rows, rows)

    texts, sets_ = ab.edit("name") <= 1, ab.jaccard("words") >= 0.5
    with pytest.raises(BadRow, match="'name' is null"):
        run(None, pa.string(), texts, "name")
    with pytest.raises(BadRow, match="'words' is null"):
        run(None, pa.list_(pa.string()), sets_, "words")
    with pytest.raises(BadRow, match="'words' holds null"):
        run(["a", None], pa.list_(pa.string()), sets_, "words")
    rows = table("name", [b"\xff"], pa.binary())
    raw = pa.Array.from_buffers(pa.string(), 1, rows["name"].chunk(0).buffers())
    wrong = rows.set_column(2, "name", raw)
    process = InProcess(wrong.schema, wrong.schema, where=texts, window="1 s")
    with pytest.raises(BadRow, match="'name' is no text in UTF-8"):
        process.step(wrong, wrong)
    nested = pa.StructArray.from_arrays([raw], ["part"])
    whole = ab.custom(lambda left, right: np.ones((1, 1), bool), left=["name"], right=["name"])
    for column in (raw, nested):
        odd = rows.set_column(2, "name", column)
        with pytest.raises(BadRow, match="'name' is no text in UTF-8"):
            InProcess(odd.schema, None, where=whole, window="1 s").step(odd)


def test_calls() -> None:
    (problem,) = (ab.edit("name") <= -1).problems()
    assert "a distance is never negative" in problem
    for measure in (ab.jaro_winkler("name"), ab.jaccard("words")):
        (problem,) = (measure >= 1.5).problems()
        assert "between 0 and 1" in problem
    rows = table("name", [1], pa.int64())
    for where, says in (
        (ab.edit("name") <= 1, r"edit\('name'\) <= 1 compares texts; left is bigint"),
        (ab.jaccard("name") >= 0.5, "make an array of a text with split"),
    ):
        with pytest.raises(InvalidCall, match=says):
            InProcess(rows.schema, rows.schema, where=where, window="1 s")
