"""``|`` and ``~`` are SQL's: null matches nothing, also turned round; every pair comes once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import BadRow, InvalidCall
from anabranch.predicates import Predicate
from anabranch.predicates.naming import columns_of, with_names
from anabranch.testing import InProcess
from tests.correlation import alike_twin as twin
from tests.examples import examples

BASE = 1_700_000_000_000_000
TYPES = {
    "name": pa.string(),
    "words": pa.list_(pa.string()),
    "key": pa.string(),
    "code": pa.int64(),
    "n": pa.int64(),
    "x": pa.float64(),
    "v": pa.list_(pa.float32()),
    "bits": pa.binary(),
}
Row = dict[str, Any]
Holds = Callable[[Row, Row], bool | None]


class Case(NamedTuple):
    """A predicate, and what SQL would say of two rows."""

    where: Any
    holds: Holds


def larger(left: Any, right: Any) -> np.ndarray:
    assert left["n"].dtype == np.int64, "nulls are not shown"
    return left["n"][:, None] > right["n"][None]


def leaf(where: Any, column: str, test: Callable[[Any, Any], bool]) -> Case:
    def holds(a: Row, b: Row) -> bool | None:
        known = a[column] is not None and b[column] is not None
        return test(a[column], b[column]) if known else None

    return Case(where, holds)


LEAVES = [
    leaf(ab.edit("name") <= 1, "name", lambda a, b: twin.edit(a, b) <= 1),
    leaf(ab.jaro_winkler("name") >= 0.8, "name", lambda a, b: twin.jaro_winkler(a, b) >= 0.8),
    leaf(ab.jaccard("words") >= 0.5, "words", lambda a, b: 2 * twin.jaccard(a, b) >= 1),
    leaf(ab.same("key"), "key", lambda a, b: a == b),
    leaf(ab.same("code"), "code", lambda a, b: a == b),
    leaf(ab.differs("key"), "key", lambda a, b: a != b),
    leaf(ab.within("n", 1), "n", lambda a, b: abs(a - b) <= 1),
    leaf(ab.within("x", 0.5), "x", lambda a, b: abs(a - b) <= 0.5),
    leaf(ab.euclidean("v", dim=2) <= 1, "v", lambda a, b: math.dist(a, b) <= 1),
    leaf(ab.cosine("v", dim=2) > 0.5, "v", lambda a, b: cosine(a, b) > 0.5),
    leaf(ab.hamming("bits", dim=1) <= 1, "bits", lambda a, b: (a[0] ^ b[0]).bit_count() <= 1),
    leaf(ab.emd("v", dim=2) <= 0.3, "v", lambda a, b: abs(share(a) - share(b)) <= 0.3),
    leaf(ab.custom(larger, ["n"], ["n"]), "n", lambda a, b: a > b),
]


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    dot, *norms = (
        sum(x * y for x, y in zip(u, v, strict=True)) for u, v in ((a, b), (a, a), (b, b))
    )
    return dot / math.sqrt(math.prod(norms))


def share(v: Sequence[float]) -> float:
    return v[0] / sum(v)


def combined(parts: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    def both(a: Case, b: Case) -> Case:
        return Case(a.where & b.where, lambda x, y: twin.all_of([a.holds(x, y), b.holds(x, y)]))

    def either(a: Case, b: Case) -> Case:
        return Case(a.where | b.where, lambda x, y: twin.any_of([a.holds(x, y), b.holds(x, y)]))

    def turned(a: Case) -> Case:
        return Case(~a.where, lambda x, y: twin.not_(a.holds(x, y)))

    two = st.tuples(parts, parts)
    return st.one_of(two.map(lambda p: both(*p)), two.map(lambda p: either(*p)), parts.map(turned))


cases = st.recursive(st.sampled_from(LEAVES), combined, max_leaves=5)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.integers(0, 4),
            "name": st.sampled_from([None, "", "Acme", "Acne", "Akme Ltd", "Zürich"]),
            "words": st.sampled_from([None, [], ["a"], ["a", "b", "a"], ["b", "c"]]),
            "key": st.sampled_from([None, "", "k", "l"]),
            "code": st.sampled_from([None, 0, 1]),
            "n": st.sampled_from([None, 0, 1, 2, 5]),
            "x": st.sampled_from([None, 0.0, 0.5, 2.0]),
            "v": st.sampled_from([None, [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [3.0, 0.0]]),
            "bits": st.sampled_from([None, b"\0", b"\1", b"\7"]),
        }
    ),
    max_size=9,
)
plans = st.sampled_from([ab.broadcast(2), ab.grid(2, 2), ab.grid(1, 1), ab.segments(2, "1 minute")])


def table(some: list[Row]) -> pa.Table:
    columns = {name: pa.array([row[name] for row in some], kind) for name, kind in TYPES.items()}
    times = pa.array([BASE + row["t"] for row in some], pa.timestamp("us", "UTC"))
    ids = pa.array([row["id"] for row in some], pa.int64())
    return pa.table({"id": ids, "ts": times, **columns})


SCHEMA = table([]).schema


def numbered(some: list[Row]) -> list[Row]:
    return [{**row, "id": number} for number, row in enumerate(some)]


@settings(max_examples=examples(40))
@given(rows, rows, cases, plans, st.booleans())
def test_what_is_true_matches_and_what_is_unknown_does_not(
    left: list[Row], right: list[Row], case: Case, plan: Any, one: bool
) -> None:
    sides = numbered(left), numbered(right)
    right_schema = None if one else SCHEMA
    call = {"where": case.where, "window": "2 us", "plan": plan, "bad_rows": "drop"}
    process = InProcess(SCHEMA, right_schema, **call)
    process.step(table(sides[0][::2]), None if one else table(sides[1][::2]))
    again = InProcess(SCHEMA, right_schema, **call)
    again.take_up(process)
    again.step(table(sides[0][1::2]), None if one else table(sides[1][1::2]))
    got = [(pair["left_id"], pair["right_id"]) for pair in (*process.pairs, *again.pairs)]
    ordered = sorted(sides[0], key=lambda row: (row["t"], row["id"]))
    pairs = [(a, b) for n, b in enumerate(ordered) for a in ordered[:n]]
    if not one:
        pairs = [(a, b) for a in sides[0] for b in sides[1]]
    want = [
        (a["id"], b["id"])
        for a, b in pairs
        if abs(a["t"] - b["t"]) <= 2 and case.holds(a, b) is True
    ]
    assert sorted(got) == sorted(want)


def run(where: Any, left: list[Row], right: list[Row], **call: Any) -> list[dict[str, Any]]:
    empty = dict.fromkeys(TYPES)
    tables = [table(numbered([{"t": 0, **empty, **row} for row in side])) for side in (left, right)]
    process = InProcess(SCHEMA, SCHEMA, where=where, window="1 s", **call)
    process.step(*tables)
    return process.pairs


def test_the_score_is_the_first_measure_where_its_condition_holds() -> None:
    where = ab.same("key") | (ab.edit("name") <= 2) | ab.within("n", 1)
    left = [{"key": "k", "name": "Acme", "n": 5}]
    right = [
        {"key": "k", "name": "Acne"},
        {"key": "k", "name": "Zürich"},
        {"key": "k", "name": None},
        {"key": None, "name": "Acmes"},
        {"key": "l", "name": "Zürich", "n": 6},
    ]
    scores = {pair["right_id"]: pair["score"] for pair in run(where, left, right)}
    assert scores == {0: 1.0, 1: None, 2: None, 3: 1.0, 4: None}


@pytest.mark.parametrize("deeper", [False, True])
def test_a_score_does_not_depend_on_what_else_is_null(deeper: bool) -> None:
    named = (ab.edit("name") <= 1) & ab.within("n", 5)
    if deeper:  # an alternative inside an alternative
        named = (named | ab.within("x", 9)) & ab.differs("code")
    left = [{"key": "k", "name": "Acme", "n": n, "code": 1} for n in (None, 500)]
    right = [{"key": "k", "name": "Acne", "n": 2, "code": 1}]
    found = run(named | ab.same("key"), left, right)
    assert [(pair["left_id"], pair["score"]) for pair in found] == [(0, 1.0), (1, 1.0)]


def test_null_is_a_bad_row_only_where_it_rules_every_match_out() -> None:
    rows_ = [{"name": None, "key": "k"}]
    with pytest.raises(BadRow, match="'name' is null"):
        run(~(ab.edit("name") <= 1), rows_, rows_)
    with pytest.raises(BadRow, match="'name' is null"):
        run((ab.edit("name") <= 1) & (ab.same("key") | ab.same("code")), rows_, rows_)
    assert len(run((ab.edit("name") <= 1) | ab.same("key"), rows_, rows_)) == 1
    # What is wrong and not merely unknown is still a bad row.
    with pytest.raises(BadRow, match="'v' is a zero vector"):
        run((ab.cosine("v", dim=2) > 0.5) | ab.same("key"), [{"v": [0.0, 0.0]}], rows_)
    for wrong in (math.nan, math.inf):
        with pytest.raises(BadRow, match="'x' is not finite"):
            run(ab.within("x", 1) | ab.same("key"), [{"x": wrong}], rows_)


def test_what_cannot_stay_exact_is_refused_with_the_reason() -> None:
    def call(where: Any, plan: Any = None) -> InProcess:
        return InProcess(SCHEMA, SCHEMA, where=where, window="1 s", plan=plan)

    keyed = ab.keyed(2)
    with pytest.raises(InvalidCall, match=r"rows that match by another side of \| have other keys"):
        call(ab.same("key") | (ab.edit("name") <= 1), keyed)
    with pytest.raises(InvalidCall, match=r"spreads by key: add ab\.same"):
        call(~ab.same("key"), keyed)
    with pytest.raises(InvalidCall, match=r"another side of \| may have any keys"):
        call((ab.emd("v", dim=2) <= 1) | ab.same("key"), ab.ranges(2))
    with pytest.raises(InvalidCall, match=r"inside \| a value may be null, .* dim=64"):
        call((ab.cosine("v") > 0.5) | ab.same("key"))
    beside = call(ab.same("key") & ((ab.edit("name") <= 1) | ab.within("n", 1)), keyed)
    assert beside.correlation.has_key
    assert not call(ab.same("key") | ab.same("code")).correlation.has_key


def test_a_checkpoint_knows_which_columns_may_be_null() -> None:
    where = ab.same("key") & (ab.within("n", 1) | ~ab.within("x", 1))
    found = InProcess(SCHEMA, SCHEMA, where=where, window="1 s").correlation.settings
    assert found["where[0]"] == "same: key string, key string"
    assert found["where[1]"] == "within or null: n bigint, n bigint"
    assert found["where[2]"] == "within or null: x double, x double"


def test_points_on_the_globe_are_found_inside() -> None:
    where = ~((ab.haversine("lat", "lon") > 5) & ab.within("n", 1)) & ab.same("key")
    named = with_names(where, lambda side, name: f"{name}{side}", lambda side, lat, lon: f"p{side}")
    assert isinstance(named, Predicate)
    near, far, same = named.leaves[0], named.leaves[2], named.leaves[3]
    assert columns_of(near) == (("p0",), ("p1",)), "a chord, and a band of latitudes beside it"
    assert repr(named.leaves[1]) == "haversine's latitudes ('lat0', 'lat1')"
    assert named.leaves[1].limit == pytest.approx(4.4966e-5, rel=1e-4)
    assert (repr(far), repr(same)) == ("~within('n0', 'n1', 1)", "same('key0', 'key1')")
    assert len(named.terms) == 2


def test_misuse_is_explained() -> None:
    predicate = ab.same("key") | ab.within("n", 1)
    for wrong, says in (
        (lambda: predicate | 5, r"\| combines predicates, got 5"),
        (lambda: predicate | ab.cosine("v"), "not compared with anything yet"),
        (lambda: ~ab.cosine("v"), "not compared with anything yet"),
        (lambda: ab.cosine("v") | predicate, "not compared with anything yet"),
        (lambda: 0.9 | predicate, "put each comparison in brackets"),
        (lambda: predicate ^ predicate, r"write \(a \| b\) & ~\(a & b\)"),
        (lambda: predicate or predicate, "no truth value"),
    ):
        with pytest.raises(InvalidCall, match=says):
            wrong()
    assert repr(~predicate) == "differs('key') & ~within('n', 1)"
    assert repr(~~predicate) == repr(predicate)


def test_a_distance_beside_alternatives_is_found_by_its_own_column() -> None:
    from anabranch.correlation.suited import locality_of

    where = (ab.same("a") | ab.same("b")) & (ab.emd("h", dim=4) <= 0.5)
    found = locality_of(where)
    assert found is not None and found.slot == "s2"
    assert locality_of(ab.same("a") | (ab.emd("h", dim=4) <= 0.5)) is None
