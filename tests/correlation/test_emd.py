"""Earth Mover's Distances, bounds and searches against the linear program that defines them."""

from __future__ import annotations

import itertools
import pickle
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.correlation.call import plan_correlation
from anabranch.correlation.emd import bounds
from anabranch.correlation.emd import search as searching
from anabranch.correlation.emd.bounds import (
    cheapest_first,
    independent,
    regretted,
    routes_of,
    source_order,
)
from anabranch.correlation.emd.chain import Chain
from anabranch.correlation.emd.circle import circle_distances
from anabranch.correlation.emd.filters import CHAINS, CLOSED, GENERAL
from anabranch.correlation.emd.ground import Ground, read_ground
from anabranch.correlation.emd.limit import Limit
from anabranch.correlation.emd.line import line_distances
from anabranch.correlation.emd.methods.exchange import exchanged
from anabranch.correlation.emd.potentials import standing
from anabranch.correlation.emd.search import EmdSearch, forget
from anabranch.correlation.emd.solve import solve
from anabranch.correlation.emd.tally import Tally
from anabranch.correlation.filters.tiles import Pair
from anabranch.flow.blocks import Block
from anabranch.flow.cache import Cache
from anabranch.flow.kernel import Task, owner_of
from anabranch.flow.slices import Slices
from anabranch.testing import InProcess
from tests.correlation import emd_twin, twin
from tests.examples import examples

SCHEMA = pa.schema({"id": pa.int64(), "ts": pa.timestamp("us", "UTC"), "h": pa.list_(pa.float32())})
BASE = 1_700_000_000_000_000


def shortest(random: np.random.Generator, n: int) -> np.ndarray:
    """Distances along a random graph: a metric without places."""
    costs = random.integers(1, 20, (n, n)).astype(float)
    costs = np.minimum(costs, costs.T)
    np.fill_diagonal(costs, 0)
    for k in range(n):
        costs = np.minimum(costs, costs[:, k, None] + costs[None, k])
    return costs


@st.composite
def grounds(draw: st.DrawFn) -> Any:
    """What a user may give as ground=, with its other arguments."""
    n = draw(st.integers(1, 7))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["line", "positions", "circle", "points", "manhattan", "matrix"]))
    scale = draw(st.sampled_from([None, "max", 2.5]))
    if kind in ("line", "circle"):
        return {"ground": kind, "dim": n, "scale": scale}
    if kind == "positions":
        return {"ground": random.integers(-9, 9, n).astype(float), "scale": scale}
    if kind == "matrix":
        return {"ground": shortest(random, n), "scale": scale}
    points = random.integers(-5, 6, (n, draw(st.sampled_from([2, 3])))).astype(float)
    metric = "manhattan" if kind == "manhattan" else "euclidean"
    return {"ground": points, "metric": metric, "scale": scale}


def ground_of(given_: dict[str, Any]) -> Ground:
    found, problems = read_ground(
        given_["ground"], given_.get("metric"), given_["scale"], given_.get("dim")
    )
    assert problems == []
    return found


def histograms(random: np.random.Generator, rows: int, bins: int) -> np.ndarray:
    """Counts with many empty bins, some of one bin alone, some equal to others."""
    table = random.integers(0, 6, (rows, bins)) * (random.random((rows, bins)) < 0.6)
    table[:, random.integers(0, bins)] += table.sum(axis=1) == 0
    single = random.random(rows) < 0.1
    table[single] = 0
    table[single, random.integers(0, bins, int(single.sum()))] = 3
    if rows > 2:
        table[rows - 1] = table[0]
    return table.astype(np.float32)


def block(table: np.ndarray) -> Block:
    return Block.of(np.zeros(len(table)), {"id": np.arange(len(table)), "s0": table})


seeds = st.integers(0, 2**32)


@settings(max_examples=examples(30))
@given(grounds(), seeds)
def test_solver_and_closed_forms_equal_the_program(given_, seed):
    ground, random = ground_of(given_), np.random.default_rng(seed)
    p, q = histograms(random, 2, len(ground.costs))
    truth = emd_twin.emd(p, q, ground.costs)
    near = pytest.approx(truth, abs=1e-9 * max(ground.largest, 1))
    assert solve(p / p.sum(dtype=float), q / q.sum(dtype=float), ground.costs).value == near
    one = np.zeros(1, np.int64)
    a, b = block(p[None]), block(q[None])
    if ground.kind == "line":
        assert line_distances(a, b, "s0", ground, one, one)[0] == near
    if ground.kind == "circle":
        assert circle_distances(a, b, "s0", ground, one, one)[0] == near


@given(grounds())
def test_closed_forms_need_no_table_of_all_distances(given_):
    ground = ground_of(given_)
    known = ground.divisor, ground.largest, ground.potential.tolist()
    if ground.kind in ("line", "circle"):
        assert not {"_distances", "costs"} & set(ground.__dict__)
    table = ground._distances
    if ground.scale == "max":
        assert known[0] == (table.max() or 1.0)
    if ground.kind == "circle":
        assert known[1:] == (table.max() / known[0], (table[0] / known[0]).tolist())
    ground = pickle.loads(pickle.dumps(ground))
    assert not {"_distances", "costs", "potential"} & set(ground.__dict__)
    assert (ground.divisor, ground.largest, ground.potential.tolist()) == known


def test_a_long_circle_is_small_on_the_wire():
    schema = {"id": "bigint", "ts": "timestamp", "h": "array<float>"}
    where = ab.emd("h", ground="circle", dim=86_400, scale="max") <= 0.01
    found, _ = plan_correlation(schema, schema, where=where, window="1 second", plan=ab.ranges(8))
    assert len(pickle.dumps(found)) < 10_000


@settings(max_examples=examples(20))
@given(grounds(), seeds)
def test_it_is_a_metric(given_, seed):
    ground, random = ground_of(given_), np.random.default_rng(seed)
    table = histograms(random, 3, len(ground.costs)).astype(float)
    p, q, r = table / table.sum(axis=1, keepdims=True)

    def d(u: np.ndarray, v: np.ndarray) -> float:
        return solve(u, v, ground.costs).value

    assert d(p, p) == 0
    assert d(p, q) == pytest.approx(d(q, p), abs=1e-9)
    assert d(p, r) <= d(p, q) + d(q, r) + 1e-9
    assert d(p, q) <= ground.largest + 1e-9


@settings(max_examples=examples(30))
@given(grounds(), seeds)
def test_every_lower_bound_is_below_and_every_upper_bound_above(given_, seed):
    ground, random = ground_of(given_), np.random.default_rng(seed)
    table = histograms(random, 2, len(ground.costs)).astype(float)
    p, q = table / table.sum(axis=1, keepdims=True)
    truth, slack = emd_twin.emd(p, q, ground.costs), 1e-9 * max(ground.largest, 1)
    routes, room = routes_of(ground), (np.empty(len(p)), np.empty(len(p)))
    uppers = [f(p, q, routes, np.inf, *room) for f in (cheapest_first, source_order)]
    plain, cancelled = (independent(p, q, routes, np.inf, c, *room) for c in (False, True))
    for bound in (exchanged, regretted):
        for limit in (np.inf, uppers[0], truth * (1 + 1e-6), 1e-3 * truth):
            assert bound(p, q, routes, limit, *room) >= truth - slack
    assert np.isfinite(regretted(p, q, routes, np.inf, *room))
    assert min(uppers) >= truth - slack
    assert plain - slack <= cancelled <= truth + slack
    pool = standing(ground)
    assert (np.abs(pool[:, :, None] - pool[:, None]).max(axis=0) <= ground.costs + slack).all()
    assert np.abs(pool @ (p - q)).max() <= truth + slack
    key = ground.potential
    assert abs(key @ (p - q)) <= truth + slack
    assert (np.abs(key[:, None] - key[None]) <= ground.costs + slack).all()
    low, high = ground.key_range
    assert low - slack <= key @ p <= high + slack


@settings(max_examples=examples(20))
@given(grounds(), seeds)
def test_a_potential_dominates_the_dual_it_is_made_of(given_, seed):
    """Equation 5 of the paper for any feasible dual, and the better one for its potential."""
    ground, random = ground_of(given_), np.random.default_rng(seed)
    costs = ground.costs
    table = histograms(random, 4, len(costs)).astype(float)
    p, q, r, s = table / table.sum(axis=1, keepdims=True)
    slack = 1e-7 * max(ground.largest, 1)
    phi, pi = emd_twin.dual(r, s, costs)
    phi -= random.random(len(phi))  # feasible still, and surely not conjugate
    truth = emd_twin.emd(p, q, costs)
    assert (phi + pi).min() + phi @ q - truth - slack <= phi @ p <= truth - pi @ q + slack
    f = (costs - pi[None]).min(axis=1)
    assert (np.abs(f[:, None] - f[None]) <= costs + slack).all()
    assert (f >= phi - slack).all() and (-f >= pi - slack).all()
    assert abs(f @ (p - q)) <= truth + slack
    solved = solve(p, q, costs)
    if solved.potential is not None:
        assert solved.potential @ (p - q) == pytest.approx(truth, abs=slack)


def rows_of(random: np.random.Generator, n: int, bins: int, side: int) -> list[dict[str, Any]]:
    table = histograms(random, n, bins) if n else np.zeros((0, bins), np.float32)
    t = np.sort(random.integers(0, 40, n)) * 1000 + BASE
    return [{"id": 2 * i + side, "t": int(t[i]), "h": table[i].tolist()} for i in range(n)]


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([row["id"] for row in rows], pa.int64()),
            "ts": pa.array([row["t"] for row in rows], SCHEMA.field("ts").type),
            "h": pa.array([row["h"] for row in rows], SCHEMA.field("h").type),
        }
    )


def compared(measure: Any, op: str, threshold: float) -> Any:
    return {
        "<=": lambda: measure <= threshold,
        "<": lambda: measure < threshold,
        ">=": lambda: measure >= threshold,
        ">": lambda: measure > threshold,
    }[op]()


def pairs_of(process: InProcess) -> dict[tuple[int, int], float]:
    found = {(pair["left_id"], pair["right_id"]): pair["score"] for pair in process.pairs}
    assert len(found) == len(process.pairs), "a pair came twice"
    return found


@st.composite
def filters(draw: st.DrawFn, kind: str) -> Any:
    if draw(st.booleans()):
        return draw(st.sampled_from(list(CHAINS)))
    closed = kind in ("line", "circle") and draw(st.booleans())
    names = [n for n in (CLOSED if closed else GENERAL)]
    if kind in ("circle", "matrix"):
        names = [n for n in names if n not in ("centroid", "normal", "projections")]
    return draw(st.lists(st.sampled_from(names), unique=True))


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(grounds(), seeds, st.data())
def test_a_search_finds_the_pairs_of_the_program(given_, seed, data):
    ground, random = ground_of(given_), np.random.default_rng(seed)
    bins = len(ground.costs)
    left = rows_of(random, data.draw(st.integers(0, 9)), bins, 0)
    right = rows_of(random, data.draw(st.integers(0, 9)), bins, 1)
    truth = emd_twin.distances(left, right, ground.costs)
    threshold = emd_twin.clear_threshold(list(truth.values()), data.draw(st.floats(0, 1)))
    op = data.draw(st.sampled_from(["<=", "<", ">=", ">"]))
    chosen = data.draw(filters(ground.kind))
    scores = data.draw(st.sampled_from(["exact", "bound"]))
    measure = ab.emd("h", **given_, filters=chosen, scores=scores)
    where = compared(measure, op, threshold)
    cuts = sorted(data.draw(st.lists(st.integers(0, 9), max_size=2)))
    process = InProcess(SCHEMA, SCHEMA, where=where, window="15 ms", workers=2)
    edges = [0, *cuts, 9]
    for start, stop in itertools.pairwise(edges):
        process.step(table_of(left[start:stop]), table_of(right[start:stop]))
    holds = twin.when(
        lambda a, b: truth[a["id"], b["id"]],
        lambda d: d < threshold if op[0] == "<" else d > threshold,
    )
    expected = twin.pairs(left, right, (15_000, 15_000), holds)
    found = pairs_of(process)
    assert found.keys() == expected.keys()
    slack = 1e-9 * max(ground.largest, 1)
    for pair, distance in expected.items():
        if scores == "exact" or where.measure.filters in (CLOSED, ()):
            assert found[pair] == pytest.approx(distance, abs=slack)
        else:
            assert distance - slack <= found[pair] <= max(threshold, distance) + slack


@pytest.mark.parametrize("filters", ["default", "paper", "head-sj", list(GENERAL), []])
@pytest.mark.parametrize("kind", ["points", "line", "matrix"])
def test_larger_blocks_in_the_same_answer(kind, filters):
    """Enough rows for runs, learnt potentials and triangles to matter."""
    random = np.random.default_rng(5)
    places = random.random((12, 2)) * 10
    costs = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=2))
    given_: dict[str, Any] = {"ground": places}
    if kind == "line":
        given_, costs = {"ground": places[:, 0]}, np.abs(places[:, None, 0] - places[None, :, 0])
    if kind == "matrix":
        given_ = {"ground": costs}
        if not isinstance(filters, str):
            filters = [f for f in filters if f not in ("centroid", "normal", "projections")]
    steps = random.random((2, 150, 12)) < 0.03
    walks = np.cumsum(random.integers(-2, 3, (2, 150, 12)) * steps, axis=1) + 8
    tables = [np.maximum(walk, 0).astype(np.float32) for walk in walks]
    shares = [t / t.sum(axis=1, keepdims=True, dtype=float) for t in tables]
    truth = np.array([[solve(p, q, costs).value for q in shares[1]] for p in shares[0]])
    known = np.sort(truth.ravel())
    at = len(known) // 10
    at += int(np.argmax(np.diff(known[at : at + 200])))
    threshold = (known[at] + known[at + 1]) / 2
    rows = [
        [{"id": i, "t": BASE + i, "h": list(h)} for i, h in enumerate(table)] for table in tables
    ]
    where = ab.emd("h", **given_, filters=filters, scores="exact") <= threshold
    process = InProcess(SCHEMA, SCHEMA, where=where, window="1 second", workers=1)
    process.step(*[table_of(side) for side in rows])
    found = pairs_of(process)
    assert found.keys() == {(i, j) for i, j in np.argwhere(truth <= threshold)}
    for (i, j), score in found.items():
        assert score == pytest.approx(truth[i, j], abs=1e-9)


def test_a_stored_block_serves_searches_with_other_references():
    random = np.random.default_rng(8)
    places = random.random((6, 2))
    ground, _ = read_ground(places)
    stored = block(histograms(random, 40, 6))
    for _ in range(6):
        fresh = block(histograms(random, 30, 6))
        search = EmdSearch("s0", ground, "<=", 0.2, ("reference",))
        found = {
            (int(i), int(j))
            for part in search.matches(Pair(fresh, stored, (1, 1)))
            for i, j in zip(part.left, part.right, strict=True)
        }
        x, y = (b.columns["s0"] / b.columns["s0"].sum(1, keepdims=True) for b in (fresh, stored))
        truth = np.array([[solve(p, q, ground.costs).value for q in y] for p in x])
        assert found == {(i, j) for i, j in np.argwhere(truth <= 0.2)}


def test_equal_to_the_threshold_counts():
    """Counts of one total: distances are whole numbers of tenths, and ties are common."""
    random = np.random.default_rng(3)
    table = np.array([np.bincount(random.integers(0, 8, 10), minlength=8) for _ in range(60)])
    rows = [{"id": i, "t": BASE, "h": h.tolist()} for i, h in enumerate(table)]
    cumulated = table.cumsum(axis=1)
    tenths = np.abs(cumulated[:, None] - cumulated[None]).sum(axis=2)
    for op, test in (("<=", np.less_equal), ("<", np.less), (">=", np.greater_equal)):
        where = compared(ab.emd("h"), op, 0.7)
        process = InProcess(SCHEMA, SCHEMA, where=where, window="1 ms", workers=1)
        process.step(table_of(rows), table_of(rows))
        assert pairs_of(process).keys() == {(i, j) for i, j in np.argwhere(test(tenths, 7))}


def test_where_the_bins_lie_does_not_matter_but_how_far_apart_they_are():
    """Places far from zero: a centroid computed there would be off by more than the tolerance."""
    random = np.random.default_rng(6)
    places = np.outer(
        random.permutation(12), [1.0, 2.0]
    )  # all mass moves one way: bounds are tight
    one, two = (histograms(random, 40, 12) for _ in range(2))
    x, y = (table / table.sum(axis=1, keepdims=True, dtype=float) for table in (one, two))
    for offset in (0.0, 2.0**40):
        ground, problems = read_ground(places + offset)
        assert problems == []
        exact = np.array([[solve(p, q, ground.costs).value for q in y] for p in x])
        for threshold in np.sort(exact.ravel())[50::150]:  # distances that occur
            search = EmdSearch("s0", ground, "<=", float(threshold), CHAINS["default"])
            pairs = search.matches(Pair(block(one), block(two), (1, 1)))
            found = {(int(i), int(j)) for f in pairs for i, j in zip(f.left, f.right, strict=True)}
            assert found == set(map(tuple, np.argwhere(exact <= threshold + ground.epsilon)))


@pytest.mark.parametrize("ground", ["line", "circle", [[0, 0], [0, 1], [1, 0], [2, 2]]])
def test_zero_threshold_finds_equals_alone(ground):
    rows = [
        {"id": 0, "t": BASE, "h": [1, 2, 3, 0]},
        {"id": 1, "t": BASE, "h": [2, 4, 6, 0]},
        {"id": 2, "t": BASE, "h": [0, 0, 0, 5]},
        {"id": 3, "t": BASE, "h": [1, 2, 2.9, 0]},
    ]
    dim = 4 if isinstance(ground, str) else None
    process = InProcess(
        SCHEMA, SCHEMA, where=ab.emd("h", ground=ground, dim=dim) <= 0, window="1 ms"
    )
    process.step(table_of(rows), table_of(rows))
    equal = {(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (3, 3)}
    assert pairs_of(process).keys() == equal


def test_float32_decisions_near_the_threshold_are_made_again():
    """Distances a hair beside the threshold, far below what float32 can tell apart."""
    rows, expected = [], set()
    for i, shift in enumerate([-3e-6, -1e-6, 1e-6, 3e-6]):
        h = np.zeros(256)
        h[100] = 1 - abs(shift)
        h[101 if shift > 0 else 99] = abs(shift)
        rows.append({"id": i, "t": BASE, "h": h.tolist()})
        if shift < 0:
            expected.add((i, 0))
    flat = [{"id": 0, "t": BASE, "h": [1.0] + [0.0] * 255}]
    schema = pa.schema({**{f.name: f.type for f in SCHEMA}, "h": pa.list_(pa.float64())})
    process = InProcess(schema, schema, where=ab.emd("h") <= 100, window="1 ms")
    tables = [
        pa.Table.from_pylist([{**r, "ts": r["t"]} for r in side], schema) for side in (rows, flat)
    ]
    process.step(*tables)
    assert pairs_of(process).keys() == expected


@pytest.mark.parametrize("kind", ["line", "points"])
def test_the_answer_does_not_depend_on_who_proposes(kind):
    """With a band or a key in the predicate they propose; scores are the same to the last bit."""
    random = np.random.default_rng(1)
    given_ = {"ground": "line"} if kind == "line" else {"ground": random.random((6, 2))}
    schema = pa.schema({**{f.name: f.type for f in SCHEMA}, "x": pa.float64(), "k": pa.int64()})
    rows = [
        {"id": i, "ts": BASE, "h": h.tolist(), "x": float(i % 40), "k": i % 2}
        for i, h in enumerate(histograms(random, 80, 6))
    ]
    table = pa.Table.from_pylist(rows, schema)
    results = []
    near = ab.emd("h", **given_) <= (0.8 if kind == "line" else 0.2)
    for where in (near, near & ab.within("x", 100), near & ab.within("x", 0), near & ab.same("k")):
        process = InProcess(schema, schema, where=where, window="1 ms", workers=1)
        process.step(table, table)
        results.append(pairs_of(process))
    everything = results[0]
    assert len(everything) > 200
    assert results[1] == everything
    assert results[2] == {p: s for p, s in everything.items() if p[0] % 40 == p[1] % 40}
    assert results[3] == {p: s for p, s in everything.items() if p[0] % 2 == p[1] % 2}


BAD = [
    ([1.0, float("nan"), 0.0], "'h' holds null, NaN or infinity"),
    ([1.0, float("inf"), 0.0], "'h' holds null, NaN or infinity"),
    ([1.0, -0.5, 1.0], "'h' holds a negative mass"),
    ([0.0, 0.0, 0.0], "'h' has no mass: all bins are zero"),
    ([1.0, 1.0], "'h' has 2 elements where 3 are expected"),
    ([], "'h' is empty"),
]
GOOD = {"id": 1, "t": BASE, "h": [1.0, 2.0, 1.0]}


@pytest.mark.parametrize(("fault", "reason"), BAD)
def test_a_bad_histogram_is_named_or_dropped(fault, reason):
    bad = {**GOOD, "id": 2, "h": fault}
    for ground in ("line", "circle", [[0, 0], [1, 0], [0, 1]]):
        dim = 3 if isinstance(ground, str) else None
        call = {"where": ab.emd("h", ground=ground, dim=dim) <= 9, "window": "1 second"}
        with pytest.raises(
            ab.errors.BadRow, match=f"left row with id 2 cannot be compared: {reason}"
        ):
            InProcess(SCHEMA, SCHEMA, **call).step(table_of([GOOD, bad]), None)
        process = InProcess(SCHEMA, SCHEMA, **call, bad_rows="drop")
        process.step(table_of([GOOD, bad]), table_of([GOOD]))
        assert pairs_of(process).keys() == {(1, 1)}
        assert sum(load.rejected for load in process.loads) == 1


@pytest.mark.parametrize("type_", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_counts_are_histograms(type_):
    random = np.random.default_rng(7)
    counts = random.integers(0, 9, (20, 5))
    counts[:, 0] += counts.sum(axis=1) == 0
    found = []
    for kind in (type_, pa.float64()):
        table = pa.table(
            {
                "id": np.arange(20),
                "ts": pa.array([BASE] * 20, pa.timestamp("us", "UTC")),
                "h": pa.array(counts.tolist(), pa.list_(kind)),
            }
        )
        where = ab.emd("h", dim=5) <= 0.7
        run = InProcess(
            table.schema,
            table.schema,
            where=where,
            window="1 s",
            plan=ab.ranges(2),
            bad_rows="drop",
        )
        broken = table.slice(0, 1).set_column(
            2, "h", pa.array([[1, None, 1, 1, 1]], pa.list_(kind))
        )
        run.step(pa.concat_tables([table, broken]), table)
        assert sum(load.rejected for load in run.loads) == 1
        found.append(sorted((p["left_id"], p["right_id"], p["score"]) for p in run.pairs))
    assert found[0] == found[1] and len(found[0]) > 20


def test_masses_must_be_1_if_nothing_is_normalised():
    where = ab.emd("h", normalize=None) <= 1
    process = InProcess(SCHEMA, SCHEMA, where=where, window="1 second")
    process.step(table_of([{**GOOD, "h": [0.1] * 10}]), None)
    with pytest.raises(ab.errors.BadRow, match="'h' does not sum to 1, as normalize=None demands"):
        process.step(table_of([GOOD]), None)


WRONG = [
    ({"ground": "ring"}, "ground must be 'line', 'circle', positions"),
    ({"ground": [[0, 1], [2, 0]]}, "from bin 0 to bin 1 it is 1 and back 2"),
    ({"ground": [[0, 1], [1, 3]]}, "from bin 1 to itself it is 3, not 0"),
    ({"ground": [[0, -1], [-1, 0]]}, "from bin 0 to bin 1 it is -1, a negative distance"),
    ({"ground": [[0, 1, 9], [1, 0, 1], [9, 1, 0]]}, "from bin 0 to bin 2 it is 9 but by way"),
    ({"ground": [[0, float("nan")], [1, 0]]}, r"the entry at \[0, 1\] is not finite"),
    ({"ground": []}, "got list of shape"),
    ({"ground": "line", "metric": "manhattan"}, "metric= goes with positions"),
    ({"ground": [[0, 0]], "metric": "chess"}, "metric must be 'euclidean' or 'manhattan'"),
    ({"ground": [[0, 0], [1, 1]], "metric": "euclidean", "dim": 3}, "ground describes 2 bins"),
    ({"scale": np.ones(2)}, "scale must be a number above 0"),
    ({"ground": [1, 2], "metric": []}, "metric must be 'euclidean'"),
    ({"scale": 0}, "scale must be a number above 0, or 'max', got 0"),
    ({"normalize": "peak"}, "normalize must be 'mass' or None"),
    ({"scores": "fast"}, "scores must be 'bound' or 'exact'"),
    ({"filters": "quick"}, "filters must be a list of names or one of 'default', 'paper'"),
    ({"filters": ["speed"]}, "'speed' is not one; with ground='line' there are mean, blocks-8"),
    ({"ground": "circle", "filters": ["centroid"]}, "'centroid' needs bins with places"),
]


@pytest.mark.parametrize(("arguments", "says"), WRONG)
def test_wrong_measures_are_refused_at_once(arguments, says):
    with pytest.raises(ab.errors.InvalidCall, match=says):
        ab.emd("h", **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"ground": "circle", "dim": 7},
        {"ground": [0, 5, 9]},
        {"ground": [[0], [2.5]], "scale": np.float64(3), "normalize": None},
        {"ground": [[0, 1], [1, 0]]},
        {"ground": [[0, 1], [1, 0]], "metric": "euclidean"},
        {"ground": [[0, 1, 2], [1, 0, 4]], "metric": "manhattan", "scale": "max"},
        {"ground": [[0, 1, 2], [1, 0, 4]], "filters": "paper", "scores": "bound"},
        {"filters": ["mean"]},
    ],
)
def test_what_is_printed_is_the_same_measure_when_it_is_pasted(arguments):
    made = ab.emd("h", "g", **arguments)
    again = eval(repr(made), {"emd": ab.emd})
    for name in ("left", "right", "label", "ground", "filters", "exact_scores", "dim"):
        assert getattr(again, name) == getattr(made, name)


def test_a_long_ground_is_shortened_for_all_to_see():
    texts = [repr(ab.emd("h", ground=np.arange(n))) for n in (64, 65)]
    assert all(
        "<" in text and f"{n} positions" in text for n, text in zip((64, 65), texts, strict=True)
    )
    moved = np.arange(64.0)
    moved[7] = 7.5
    assert repr(ab.emd("h", ground=moved)) not in texts
    assert ab.emd("h", scale=2).label == ab.emd("h", scale=2.0).label


def test_a_score_is_the_distance_unless_a_bound_is_asked_for():
    """Two small piles among many bins: a bound shows the match, and is not the distance."""
    random = np.random.default_rng(3)
    places = random.random((12, 2)) * 10
    costs = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=2))
    left, right = rows_of(random, 20, 12, 0), rows_of(random, 20, 12, 1)
    truth = emd_twin.distances(left, right, costs)
    found = {}
    for name, more in (("plain", {}), ("bound", {"scores": "bound"})):
        where = ab.emd("h", ground=places, **more) <= 100
        process = InProcess(SCHEMA, SCHEMA, where=where, window="1 second")
        process.step(table_of(left), table_of(right))
        found[name] = pairs_of(process)
    assert found["plain"] == pytest.approx(truth, abs=1e-9)
    assert found["bound"].keys() == truth.keys()
    assert any(found["bound"][pair] > truth[pair] + 1e-6 for pair in truth)


def test_wrong_comparisons_are_refused():
    with pytest.raises(ab.errors.InvalidCall, match="a distance is never negative"):
        InProcess(SCHEMA, SCHEMA, where=ab.emd("h") <= -1, window="1 second")
    with pytest.raises(ab.errors.InvalidCall, match="is not compared with anything"):
        InProcess(SCHEMA, SCHEMA, where=ab.emd("h"), window="1 second")
    call = {"where": ab.emd("h") <= 1, "window": "1 second", "bad_rows": "drop"}
    with pytest.raises(
        ab.errors.InvalidCall, match=r"needs the length of 'h', ab.emd\(..., dim=64\)"
    ):
        InProcess(SCHEMA, SCHEMA, **call)


def test_what_was_learnt_saves_solutions():
    """Slowly changing streams: a dual that separates one pair separates its neighbours."""
    random = np.random.default_rng(2)
    places = np.stack(np.meshgrid(np.arange(4.0), np.arange(4.0)), axis=-1).reshape(-1, 2)
    ground, _ = read_ground(places)
    walk = np.maximum(np.cumsum(random.normal(0, 0.02, (2, 120, 16)), axis=1) + 0.5, 0.01)
    limit = Limit("<=", 0.12, ground.epsilon)

    def solved(filters: tuple[str, ...]) -> Tally:
        chain, tally = Chain("s0", ground, limit, filters, False), Tally()
        one, two = (block(side.astype(np.float32)) for side in walk)
        for _ in chain.matches(Pair(one, two, (10, 10)), tally):
            pass
        return tally

    alone, learning = solved(("key",)), solved(("key", "duals"))
    assert learning.pruned["duals"] > 0
    assert learning.solved < alone.solved / 3
    whole = solved(CHAINS["default"])
    assert whole.solved < learning.solved
    assert whole.accepted > 0


def drifting(steps: int, rows: int) -> list[tuple[pa.Table, pa.Table]]:
    """Two streams of 16 bins whose histograms change slowly, a second of them per step."""
    random = np.random.default_rng(2)
    walk = np.cumsum(random.normal(0, 0.02, (2, steps * rows, 16)), axis=1) + 0.5
    walk = np.maximum(walk, 0.01).astype(np.float32)
    ids = np.arange(steps * rows)
    times = pa.array(BASE + ids * (1_000_000 // rows), SCHEMA.field("ts").type)
    sides = [
        pa.table({"id": ids, "ts": times, "h": pa.array(list(side), SCHEMA.field("h").type)})
        for side in walk
    ]
    return [(sides[0].slice(n * rows, rows), sides[1].slice(n * rows, rows)) for n in range(steps)]


@pytest.mark.parametrize("filters", [["key", "duals"], ["key", "latest-duals"], "paper", "default"])
def test_what_was_learnt_serves_the_next_micro_batch(filters):
    """The same rows, with and without what earlier micro-batches have left in the process."""
    places = np.stack(np.meshgrid(np.arange(4.0), np.arange(4.0)), axis=-1).reshape(-1, 2)
    call = {"where": ab.emd("h", ground=places, filters=filters) <= 0.12, "plan": ab.broadcast(1)}

    def run(remember: bool) -> tuple[list[int], set[tuple[int, int]]]:
        forget()
        workers = InProcess(
            SCHEMA, SCHEMA, window="2 seconds", watermark="0 s", streaming=True, **call
        )
        solved = []
        for left, right in drifting(4, 40):
            if not remember:
                forget()
            solved.append(sum(load.solved for load in workers.step(left, right)))
        return solved, {(pair["left_id"], pair["right_id"]) for pair in workers.pairs}

    (kept, pairs), (lost, same) = run(True), run(False)
    assert pairs == same
    assert kept[0] == lost[0]
    assert sum(kept[1:]) < sum(lost[1:])


def test_each_worker_of_a_query_learns_for_itself_and_few_bytes_are_remembered(monkeypatch):
    forget()
    ground, _ = read_ground(np.eye(3), "euclidean")
    one, two = (block(histograms(np.random.default_rng(n), 5, 3)) for n in (1, 2))

    def chain(owner: Any) -> Chain:
        search = EmdSearch("s0", ground, "<=", 0.2, CHAINS["default"])
        search.owner = owner
        list(search.matches(Pair(one, two, (10, 10))))
        found = search._chain
        assert found is not None
        return found

    assert chain(("query", 0)) is chain(("query", 0))
    assert chain(("query", 0)) is not chain(("query", 1))
    assert chain(None) is not chain(None)
    size = chain(("query", 0)).nbytes
    assert size > 3 * 3 * 8
    cache = Cache(10 * size)
    monkeypatch.setattr(searching, "CACHE", cache)
    first = chain(("query", 0))
    for number in range(100):
        chain(("another", number))
    assert chain(("another", 99)) is chain(("another", 99))
    assert chain(("query", 0)) is not first
    assert cache.nbytes <= 10 * size
    kept = chain(("query", 0))
    cache.disown("another")
    assert cache.nbytes == kept.nbytes, "chains go with the query that has learnt them"
    cache.disown("query")
    assert cache.nbytes == 0


def test_what_is_learnt_belongs_to_an_operator_of_a_query():
    places = np.array([[0.0], [1.0]])
    call = {"where": ab.emd("h", ground=places) <= 0.1, "window": "1 second"}
    job = InProcess(SCHEMA, SCHEMA, **call).workers.job
    kernel = job.kernel(Slices(job.stays, job.notes()), Task(3, "query"))
    assert [search.owner for search in kernel._matcher.searches] == [(owner_of(job, "query"), 3)]


def test_routes_are_kept_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch):
    """Each of these takes 800 kB; were all kept, a process would grow by every ground it sees."""
    cache = Cache(64 << 20)
    monkeypatch.setattr(bounds, "CACHE", cache)
    ages = [routes_of(Ground("line", 200, scale=float(scale))) for scale in range(1, 201)]
    assert sum(routes.nbytes for routes in ages) > cache.budget
    assert cache.nbytes <= cache.budget
    assert routes_of(Ground("line", 200, scale=200.0)) is ages[-1]
    assert routes_of(Ground("line", 200, scale=1.0)) is not ages[0]
    monkeypatch.setattr(time, "monotonic", lambda: 1e12)
    routes_of(Ground("line", 200, scale=200.0))
    cache.hear("query", 0)
    assert cache.nbytes == ages[-1].nbytes, "what nobody has asked for in a long time goes"


def test_equal_grounds_share_what_is_derived_of_them():
    places = np.random.default_rng(1).random((9, 2))
    one, two = (read_ground(places)[0] for _ in range(2))
    assert one is not two and one.shared() is two.shared()
    assert one.shared() is not read_ground(places, None, 2.0)[0].shared()
