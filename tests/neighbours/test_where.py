"""A condition between object and query: the k nearest among those that pass, by brute force."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.correlation.call import plan_correlation
from anabranch.flow.blocks import Block
from anabranch.flow.sides import UNKNOWN
from anabranch.neighbours.call import plan_nearest
from anabranch.neighbours.marking import Marking, _around, _ordered
from anabranch.neighbours.methods import Queries
from anabranch.testing.workers import LivingWorkers, Workers
from tests.examples import examples
from tests.neighbours.runs import (
    OBJECTS,
    QUERIES,
    START,
    Meets,
    Run,
    Timed,
    call_of,
    expected,
    table,
    top_of,
)
from tests.neighbours.selective_runs import SelectiveRun
from tests.neighbours.test_kernel import MS, in_batches, objects_of, queries_of
from tests.neighbours.twin import distance

Random = np.random.Generator

TERMS: dict[str, tuple[Any, Meets]] = {
    "kind": (ab.same("kind"), lambda o, q: o["kind"] == q["kind"]),
    "size": (ab.same("size"), lambda o, q: o["size"] == q["size"]),
    "owner": (ab.differs("owner"), lambda o, q: o["owner"] != q["owner"]),
    "near": (ab.within("price", 0.5), lambda o, q: abs(o["price"] - q["price"]) <= 0.5),
    "whole": (ab.within("size", 1), lambda o, q: abs(o["size"] - q["size"]) <= 1),
    "both": (
        ab.within("price", low="least", high="most"),
        lambda o, q: q["least"] <= o["price"] <= q["most"],
    ),
    "most": (ab.within("price", high="most"), lambda o, q: o["price"] <= q["most"]),
    "cost": (
        ab.within("cost", "2e-18"),
        lambda o, q: abs(o["cost"] - q["cost"]) <= Decimal("2e-18"),
    ),
    "costs": (
        ab.within("cost", low="floor", high="roof"),
        lambda o, q: q["floor"] <= o["cost"] <= q["roof"],
    ),
}
COLUMNS = {"owner": ("owner",), "near": ("price",), "whole": ("size",), "most": ("price", "most")}
COLUMNS |= {"both": ("price", "least", "most"), "kind": ("kind",), "size": ("size",)}
COLUMNS |= {"cost": ("cost",), "costs": ("cost", "floor", "roof")}


def condition(names: list[str]) -> tuple[Any, Meets]:
    """A predicate, and the same in plain words: what is null never passes."""
    where = TERMS[names[0]][0]
    for name in names[1:]:
        where = where & TERMS[name][0]

    def meets(thing: dict[str, Any], query: dict[str, Any]) -> bool:
        for name in names:
            row = {**query, **{f"o.{key}": value for key, value in thing.items()}}
            needed = [f"o.{COLUMNS[name][0]}", *COLUMNS[name][len(COLUMNS[name]) > 1 :]]
            if any(row.get(column) is None for column in needed):
                return False
            if not TERMS[name][1](thing, query):
                return False
        return True

    return where, meets


def attributes(random: Random) -> dict[str, Any]:
    """What a row has to compare: few values, some at the edge of a limit, some null."""
    prices = [0.1, 0.3, 0.6, 0.8, 1.1, 1.0 + 1e-16]
    found: dict[str, Any] = {
        "kind": str(random.choice(["a", "b", "ä:1"])),
        "size": int(random.integers(0, 3)),
        "owner": int(random.integers(0, 2)),
        "price": float(random.choice(prices)),
        "least": float(random.choice([-math.inf, 0.1, 0.3])),
        "most": float(random.choice([math.inf, 0.6, 0.8])),
        # Beyond 64 bits, and a last digit apart.
        "cost": Decimal(random.choice(COSTS)),
        "floor": Decimal(random.choice(["-99999999", "7.000000000000000000999999999999"])),
        "roof": int(random.choice([-(2**63), 7, 2**63 - 1])),
    }
    return {name: None if random.random() < 0.05 else value for name, value in found.items()}


def world(random: Random, dim: int, counts: bool = True) -> tuple[list[Any], list[Any]]:
    objects = objects_of(random, int(random.integers(1, 120)), dim, bool(random.integers(2)))
    queries = queries_of(random, int(random.integers(1, 7)), dim, counts)
    for query in queries:
        query |= attributes(random)
    return [(*thing, attributes(random)) for thing in objects], queries


COSTS = ["7", "7.000000000000000001", "7.000000000000000002", "7.000000000000000003", "-7"]
COSTS += ["9223372036854775807", "9223372036854775807.000000000000000001"]

names = st.lists(st.sampled_from(sorted(TERMS)), min_size=1, max_size=3, unique=True)
seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=examples(30))
@given(
    seed=seeds,
    names=names,
    method=st.sampled_from(["exact", "exact", "relaxed", "filtered", "probabilistic"]),
    workers=st.integers(1, 3),
    disorder=st.sampled_from([0, 20]),
    dim=st.sampled_from([1, 2, 6]),
)
def test_any_batching_equals_brute_force(
    seed: int, names: list[str], method: str, workers: int, disorder: int, dim: int
) -> None:
    random = np.random.default_rng(seed)
    objects, queries = world(random, dim, counts=method != "filtered")
    if method == "filtered":
        queries = [{**query, "span": query["span"] + MS} for query in queries]
    where, meets = condition(names)
    run = Run(call_of(where=where, method=method), queries, (disorder + 1) * MS, workers)
    for batch in in_batches(objects, disorder * MS, random):
        run.step(batch)
    run.finish()
    if method == "probabilistic":  # it may miss some, but takes none that do not pass
        passing = {(q["id"], o[1]) for q in queries for o in objects if meets(o[3], q)}
        assert {hit[:2] for hit in run.hits()} <= passing
    else:
        assert run.hits() == expected(objects, queries, meets=meets)


@settings(max_examples=examples(25))
@given(
    seed=seeds,
    limit=st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0]),
    workers=st.integers(1, 3),
    output=st.sampled_from(["hits", "top"]),
)
def test_the_nearest_within_a_distance(seed: int, limit: float, workers: int, output: str) -> None:
    """They are the nearest of all that are within it, with the same ranks and at the same times.

    No others are counted.
    """
    random = np.random.default_rng(seed)
    things, queries = world(random, 2)
    objects = [(*thing[:3], {"at": thing[2]}) for thing in things]
    run = Run(call_of(within=limit, output=output), queries, 21 * MS, workers)

    def near(thing: dict[str, Any], query: dict[str, Any]) -> bool:
        return distance("euclidean", query["v"], thing["at"]) <= limit

    for batch in in_batches(objects, 20 * MS, random):
        now = run.watermark
        run.step(batch)
        for query in queries if output == "top" else ():
            assert table(run.rows, query["id"]) == top_of(objects, query, now, near)
    run.finish()
    if output == "hits":
        assert run.hits() == expected(objects, queries, meets=near)
    assert sum(load.pairs for load in run.loads) == len(run.rows)


@settings(max_examples=examples(25))
@given(seed=seeds, names=names, workers=st.integers(1, 3), top=st.booleans())
def test_queries_that_come_go_and_move(
    seed: int, names: list[str], workers: int, top: bool
) -> None:
    """A query moves by an `add` of its id: another point, and other values to compare."""
    random = np.random.default_rng(seed)
    objects, _ = world(random, 2)
    lives, ops = [], []
    for ident in range(int(random.integers(1, 6))):
        times = np.unique(START + random.integers(0, 300, int(random.integers(1, 6))) * MS)
        ended = random.random() < 0.4
        for n, t in enumerate(times.tolist()):
            life = {**queries_of(random, 1, 2, counts=True)[0], **attributes(random)}
            life |= {"id": ident, "t": t}
            if n + 1 < len(times):
                life["until"] = int(times[n + 1])
            if ended and n + 1 == len(times) and n:
                ops.append({"id": ident, "t": t, "op": "cancel"})
                continue
            lives.append(life)
            ops.append({**life, "op": "add"})
    where, meets = condition(names)
    call = call_of(ops=True, where=where, output="top" if top else "hits")
    run = (Timed if top else Run)(call, None, 21 * MS, workers)
    arriving = [(o[0], o) for o in objects] + [(p["t"], p) for p in ops]
    for batch in in_batches(arriving, 20 * MS, random):
        now = run.watermark
        run.step(
            [x for _, x in batch if isinstance(x, tuple)],
            [x for _, x in batch if isinstance(x, dict)],
        )
        for ident in {life["id"] for life in lives} if top else ():
            mine = [q for q in lives if q["id"] == ident]
            current = [q for q in mine if q["t"] <= now < q.get("until", 2**62)]
            wanted = top_of(objects, current[0], now, meets) if current else []
            assert table(run.rows, ident) == wanted
    run.finish()
    if not top:
        assert run.hits() == expected(objects, lives, meets=meets)


@settings(max_examples=examples(15))
@given(seed=seeds, names=names)
def test_workers_join_and_leave(seed: int, names: list[str]) -> None:
    random = np.random.default_rng(seed)
    objects, queries = world(random, 2, counts=False)
    queries = [{**query, "span": int(random.integers(1, 30)) * MS} for query in queries]
    where, meets = condition(names)
    run = Run(call_of(where=where, watermark="31 ms"), queries, 31 * MS, 2)
    for number, batch in enumerate(in_batches(objects, 30 * MS, random)):
        if number % 4 == 3:
            run.plans = {**run.plans, str(len(run.plans)): [int(random.integers(1, 5)), None]}
        run.step(batch)
    run.finish()
    assert run.hits() == expected(objects, queries, meets=meets)


@settings(max_examples=examples(25))
@given(
    seed=seeds,
    names=names,
    workers=st.integers(1, 4),
    spare=st.sampled_from([None, 1]),
    dim=st.sampled_from([2, 6]),
    kind=st.sampled_from([Workers, LivingWorkers]),
)
def test_selective_routing(
    seed: int, names: list[str], workers: int, spare: int | None, dim: int, kind: type[Workers]
) -> None:
    random = np.random.default_rng(seed)
    objects, queries = world(random, dim, counts=False)
    where, meets = condition(names)
    run = SelectiveRun(
        call_of(where=where), queries, 21 * MS, workers, lean=True, spare=spare, kind=kind
    )
    for batch in in_batches(objects, 20 * MS, random):
        run.step(batch)
    run.finish()
    assert run.hits() == expected(objects, queries, meets=meets)


def test_objects_of_a_part_without_queries_go_to_nobody() -> None:
    query = {"id": 1, "v": [0.0], "k": 3, "span": 80 * MS, "kind": "car"}
    run = SelectiveRun(call_of(where=ab.same("kind")), [query], 0, 1)
    for n in range(60):
        kind = "car" if n % 10 == 0 else f"bus {n}"
        run.step([(START + n * 10 * MS, n, [1.0], {"kind": kind})])
    run.finish()
    assert {hit[1] for hit in run.hits()} == {0, 10, 20, 30, 40, 50}
    assert run.total("dropped") >= 40, "once the owner has told what it wants"


floats = st.floats(allow_nan=False, allow_infinity=False)


@given(
    centre=floats,
    limit=st.floats(0, allow_nan=False, allow_infinity=False),
    value=floats,
    edge=st.booleans(),
)
def test_a_limit_of_floats_is_that_of_correlate(
    centre: float, limit: float, value: float, edge: bool
) -> None:
    value = centre + limit if edge and math.isfinite(centre + limit) else value
    low, high = _around(np.array([centre]), limit)
    for other in (value, math.nextafter(value, math.inf), math.nextafter(value, -math.inf)):
        mark = _ordered(np.array([other]))
        with np.errstate(over="ignore"):
            near = abs(np.float64(other) - np.float64(centre)) <= limit
        assert bool(low[0] <= mark[0] <= high[0]) == bool(near)


@given(
    centre=st.integers(-(2**63) + 1, 2**63 - 1),
    limit=st.integers(0, 2**65),
    value=st.integers(-(2**63) + 1, 2**63 - 1),
)
def test_a_limit_of_whole_numbers_is_exact_at_the_ends(centre: int, limit: int, value: int) -> None:
    low, high = _around(np.array([centre]), limit)
    for other in (value, centre - limit, centre - limit - 1, centre + limit, centre + limit + 1):
        if -(2**63) < other < 2**63:
            assert bool(low[0] <= other <= high[0]) == (abs(other - centre) <= limit)


def test_codes_of_texts_are_used_again() -> None:
    """Queries that come and go with ever new texts leave nothing behind."""
    call = call_of(ops=True, where=ab.same("kind"))
    run = Run(call, None, 0, 1)
    for n in range(1, 40):
        t = START + n * 10 * MS
        asked = {"id": 1, "v": [0.0], "k": 1, "span": 5 * MS, "kind": f"kind {n}", "op": "add"}
        run.step([(t + MS, n, [1.0], {"kind": f"kind {n}"})], [{**asked, "t": t}])
    run.finish()
    assert [hit[1] for hit in run.hits()] == list(range(1, 40))
    kernel = run.workers.kernel(0)
    assert len(kernel._marking.codes["where0"].values) <= 4


@pytest.mark.parametrize(
    ("where", "name", "values"),
    [
        (ab.same("kind"), "kind", "ab"),
        (ab.within("cost", 0), "cost", [Decimal(7), Decimal("7.000000000000000001")]),
    ],
)
def test_two_adds_at_one_time_that_compare_other_values_are_two(
    where: Any, name: str, values: Any
) -> None:
    run = Run(call_of(ops=True, where=where), None, 0, 1)
    query = {"id": 1, "v": [0.0], "k": 1, "span": 50 * MS, "op": "add", "t": START}
    run.step([], [{**query, name: values[n]} for n in (0, 1, 0)])
    run.step([(START + n * MS, n, [1.0], {name: values[n % 2]}) for n in (1, 2, 3)])
    run.finish()
    assert [hit[1] for hit in run.hits()] == [1, 3], "the last that is new holds"


def problems_of(where: Any, **types: str) -> list[str]:
    both = {**QUERIES, "window": "string", **types}
    return plan_nearest(OBJECTS, both, by="v", k=1, where=where)[1]


@pytest.mark.parametrize(
    ("where", "types", "words"),
    [
        ("kind", {}, "where must be a condition such as ab.same('category'), got 'kind'"),
        (ab.cosine("v") >= 0.5, {}, "nearest takes ab.same(...), ab.differs(...) and ab.within"),
        (ab.custom(len, "price", "price"), {}, "nearest takes ab.same(...)"),
        (ab.same("kind") | ab.same("owner"), {}, "joined by &, and neither | nor ~ab.within(...)"),
        (~ab.within("price", 1), {}, "ask each side in a query of its own"),
        (ab.same("colour"), {}, "objects have no column 'colour' (needed by same('colour'))"),
        (ab.same("kind"), {"kind": "int"}, "objects have string, queries int: cast one"),
        (ab.same("price"), {}, "equality of floating-point numbers"),
        (ab.within("kind", 1), {}, "compares numbers, dates or timestamps"),
        (ab.within("price", "1 hour"), {}, "the limit must be a number"),
        (ab.within("price", low="kind"), {}, "objects have double, queries string: cast one"),
        (
            ab.within("price", low="least", high="most"),
            {"most": "decimal(9,2)"},
            "objects have double, queries double and decimal(9,2)",
        ),
        (ab.within("price", -1), {}, "the limit must not be negative"),
    ],
)
def test_what_cannot_be_compared_is_said_at_the_call(
    where: Any, types: dict[str, str], words: str
) -> None:
    assert words in "\n".join(problems_of(where, **types))


def test_bounds_in_columns_are_for_nearest() -> None:
    with pytest.raises(ab.errors.InvalidCall, match="a limit and bounds were both given"):
        ab.within("price", 5, low="least")
    types = {"id": "bigint", "ts": "timestamp", "price": "double", "most": "double"}
    where = ab.within("price", high="most")
    assert "for ab.nearest" in plan_correlation(types, types, where=where, window="1 s")[1][0]


def test_decimals_dates_and_numbers_of_other_widths_are_compared_exactly() -> None:
    objects = {**OBJECTS, "cost": "decimal(9,2)", "day": "date", "n": "int"}
    asked = {**QUERIES, "window": "string", "cost": "decimal(12,4)", "day": "date", "n": "bigint"}
    where = ab.within("cost", Decimal("0.01")) & ab.within("day", "2 days") & ab.same("n")
    call, problems = plan_nearest(objects, asked, by="v", k=1, where=where)
    assert problems == [] and call is not None
    assert [test.limit for test in call.where] == [0, 100, 2]
    assert call.settings(None)["where[1]"] == (
        "within: cost decimal of scale 4 | cost decimal of scale 4 within 100"
    )


@pytest.mark.parametrize("least", [-(2**63), -(2**63) + 1])
def test_a_bound_of_the_least_number_is_open(least: int) -> None:
    query = {"id": 1, "v": [0.0], "k": 9, "span": 900 * MS, "owner": least, "size": 2**63 - 1}
    objects = [
        (START + n * MS, n, [float(n)], {"size": size})
        for n, size in enumerate([7, 2**63 - 1, -(2**63) + 1, None])
    ]
    for where in (
        ab.within("size", low="owner"),
        ab.within("size", low="owner", high="size"),
    ):
        run = Run(call_of(where=where), [query, {**query, "id": 2, "owner": None}], MS, 1)
        run.step(objects)
        run.finish()
        assert [hit[:2] for hit in run.hits()] == [(1, 0), (1, 1), (1, 2)]


def test_what_a_query_lacks_is_passed_by_nothing() -> None:
    tests = call_of(where=ab.differs("owner") & ab.within("price", low="least")).where
    lacking = {"where0": pa.array([None], pa.string()), "where1_low": np.array([np.nan])}
    bound = Marking(tests).bound(Queries.of([[0.0]], 1, 1), Block.of([0], lacking))
    assert not bound.parted
    assert (bound.low[0, 0], bound.high[0, 1]) == (UNKNOWN, UNKNOWN)
