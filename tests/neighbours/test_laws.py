"""RA and RAPF equal the brute force at every instant; PA misses no more than it may."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.correlation.filters.exact import measure
from anabranch.errors import InvalidCall, StateMismatch
from anabranch.flow.blocks import Block
from anabranch.neighbours.methods import (
    METRICS,
    Algorithm,
    Filtered,
    Probabilistic,
    Queries,
    Relaxed,
    reserve,
)
from tests.examples import examples
from tests.neighbours.runs import distances
from tests.neighbours.twin import reports

KINDS = ("uniform", "drifting", "worsening", "improving", "tied", "clustered", "identical")


def stream(kind: str, n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Points of a kind of stream; queries lie near the origin."""
    steps = np.linspace(0, 1, n)[:, None]
    if kind == "uniform":
        return rng.random((n, d)) + 0.01
    if kind == "drifting":
        return rng.random((n, d)) * 0.2 + 3 * np.sin(4 * steps) + 0.01
    if kind == "worsening":
        return np.ones((n, d)) * (0.5 + steps)
    if kind == "improving":
        return np.ones((n, d)) * (1.5 - steps)
    if kind == "tied":
        return rng.integers(1, 3, (n, d)).astype(float)
    if kind == "clustered":
        centres = rng.random((3, d)) + 0.5
        return centres[rng.integers(0, 3, n)] + rng.normal(0, 0.01, (n, d))
    return np.ones((n, d))


@st.composite
def worlds(draw: Any, least_window: int = 1) -> dict[str, Any]:
    """A stream, queries, and the batches in which the stream comes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(0, 60)), draw(st.sampled_from([1, 2, 4, 9]))
    counted = draw(st.booleans())
    gaps = draw(st.sampled_from(["one", "ties", "sparse"]))
    steps = {"one": np.ones(n), "ties": rng.integers(0, 3, n), "sparse": rng.integers(1, 40, n)}
    t = np.cumsum(steps[gaps]).astype(np.int64)
    metric = draw(st.sampled_from(METRICS))
    m = draw(st.integers(1, 4))
    window = rng.integers(least_window, 30, m)
    end = int(t[-1]) if n else 0
    since = np.where(rng.random(m) < 0.6, -1, rng.integers(-1, end + 1, m))
    until = np.where(rng.random(m) < 0.6, 10**9, since + rng.integers(0, end + 2, m))
    points = stream(draw(st.sampled_from(KINDS)), n, d, rng)
    centres = rng.choice([0.01, 0.5, 1.0, 2.0], (m, d))
    ks = rng.choice([1, 2, 3, 8, 50], m)
    cuts = sorted(draw(st.lists(st.integers(0, end + 30), max_size=4)))
    return {
        "t": t,
        "points": points,
        "queries": Queries.of(centres, ks, window, since, until, counted, metric),
        "cuts": [*cuts, end + 31 if draw(st.booleans()) else max([end, *cuts])],
        "reload": draw(st.booleans()),
    }


def expected(world: dict[str, Any]) -> list[tuple]:
    of = world["queries"]
    rows = [
        {"point": p, "k": int(k), "window": int(w), "since": int(a), "until": int(z)}
        for p, k, w, a, z in zip(
            of.points.tolist(), of.k, of.window, of.since, of.until, strict=True
        )
    ]
    objects = [
        (int(t), s, p)
        for s, (t, p) in enumerate(zip(world["t"], world["points"].tolist(), strict=True))
    ]
    return reports(objects, rows, of.counted, of.metric, upto=world["cuts"][-1])


def told(algorithm: Algorithm, world: dict[str, Any]) -> list[tuple]:
    """What the algorithm says, batch after batch, perhaps through bytes between two."""
    found, begin = [], 0
    for upto in world["cuts"]:
        end = int(np.searchsorted(world["t"], upto, side="right"))
        seq = np.arange(begin, end)
        found += algorithm.advance(
            world["t"][begin:end], seq, world["points"][begin:end], upto
        ).rows()
        begin = end
        if world["reload"]:
            algorithm = type(algorithm).from_bytes(algorithm.to_bytes())
    return sorted(found, key=lambda report: report[0])


LAWS = settings(
    max_examples=examples(75), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@LAWS
@given(worlds(), st.sampled_from([0.0, 0.2, 3.0]))
def test_ra_equals_the_brute_force(world, gamma):
    assert told(Relaxed(world["queries"], gamma), world) == expected(world)


@LAWS
@given(worlds(least_window=2), st.sampled_from([0.5, 0.1, 0.0]), st.sampled_from([0.9, 1e-3]))
def test_rapf_equals_the_brute_force_whatever_its_filter(world, share, error):
    buffer = np.maximum((world["queries"].window * share).astype(int), 1)
    assert told(Filtered(world["queries"], buffer, error), world) == expected(world)


@LAWS
@given(worlds(), st.sampled_from([1e-2, 1e-6]))
def test_pa_is_exact_while_the_reserve_holds_the_window(world, error):
    algorithm = Probabilistic(world["queries"], error)
    algorithm.sizes[:] = 100
    assert told(algorithm, world) == expected(world)


def test_rapf_loses_objects_if_the_buffer_is_too_long():
    with pytest.raises(InvalidCall, match="at most half the window, 10"):
        Filtered(Queries.of([[0.0]], k=1, window=20), buffer=11)
    wrong = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        world = {
            "t": np.arange(300),
            "points": rng.random((300, 1)),
            "queries": Queries.of([[0.0]], k=1, window=20),
            "cuts": [300],
            "reload": False,
        }
        algorithm = Filtered(world["queries"], buffer=10)
        algorithm.buffer[:] = 13
        wrong += told(algorithm, world) != expected(world)
    assert wrong > 5


@pytest.mark.parametrize("error", [0.1, 0.01, 1e-3])
def test_pa_misses_no_more_than_allowed_on_shuffled_streams(error):
    n, window = 12_000, 1_000
    missed = due = false = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        points = rng.permutation(
            np.concatenate([rng.random((n // 2, 2)), rng.normal(0.3, 0.1, (n // 2, 2))])
        )
        queries = Queries.of(
            rng.random((8, 2)), k=[1, 1, 3, 3, 9, 9, 27, 27], window=window, counted=True
        )
        seq = np.arange(n)
        exact = {r[:2] for r in Relaxed(queries).advance(seq, seq, points, n).rows()}
        ours = [r[:2] for r in Probabilistic(queries, error).advance(seq, seq, points, n).rows()]
        assert len(ours) == len(set(ours))
        missed += len(exact - set(ours))
        false += len(set(ours) - exact)
        due += len(exact)
    assert due > 30_000
    assert missed <= error * due
    assert false <= error * due


def test_pa_misses_more_if_objects_get_worse_and_the_docs_say_so():
    seq = np.arange(2_000)
    points = (1 + seq / 2_000)[:, None]
    queries = Queries.of([[0.0]], k=1, window=500, counted=True)
    exact = {r[:2] for r in Relaxed(queries).advance(seq, seq, points, 2_000).rows()}
    ours = {r[:2] for r in Probabilistic(queries).advance(seq, seq, points, 2_000).rows()}
    assert len(exact - ours) > 0.5 * len(exact)


def test_pa_misses_more_if_many_objects_are_equally_far():
    seq = np.arange(2_000)
    points = np.random.default_rng(3).integers(1, 4, (2_000, 1)).astype(float)
    queries = Queries.of([[0.0]], k=1, window=500, counted=True)
    exact = {r[:2] for r in Relaxed(queries).advance(seq, seq, points, 2_000).rows()}
    ours = {r[:2] for r in Probabilistic(queries).advance(seq, seq, points, 2_000).rows()}
    assert len(exact - ours) > 0.1 * len(exact)


def test_pa_misses_more_if_fewer_objects_come_within_a_window_and_the_docs_say_so():
    """Random order; windows of time, and a rate that falls to a tenth or keeps on."""
    missed = {}
    for late_rate in (1.0, 0.1):
        lost = due = 0
        for seed in range(5):
            rng = np.random.default_rng(seed)
            t = np.sort(rng.integers(0, 40_000, 8_000))
            t = t[(t < 20_000) | (rng.random(len(t)) < late_rate)]
            seq, points = np.arange(len(t)), rng.random((len(t), 2))
            queries = Queries.of(rng.random((4, 2)), k=27, window=10_000)
            exact = {r[:2] for r in Relaxed(queries).advance(t, seq, points, 40_000).rows()}
            ours = {r[:2] for r in Probabilistic(queries).advance(t, seq, points, 40_000).rows()}
            lost, due = lost + len(exact - ours), due + len(exact)
        missed[late_rate] = lost / due
    assert missed[1.0] <= 1e-3 and missed[0.1] > 0.05


def test_the_reserve_is_that_of_the_derivation():
    assert reserve([1, 9, 81], 0.1).tolist() == [4, 9, 23]
    assert reserve([1, 9, 81], 0.01).tolist() == [7, 15, 37]
    with pytest.raises(InvalidCall, match="between 0 and 1"):
        reserve(3, 0.0)


@pytest.mark.parametrize("make", [Relaxed, Filtered, Probabilistic])
def test_queries_come_and_go(make):
    rng = np.random.default_rng(5)
    points, t = rng.random((300, 2)), np.arange(300)
    algorithm = make(Queries.of([[0.1, 0.1], [0.9, 0.9]], k=2, window=50))
    found = algorithm.advance(t[:100], t[:100], points[:100], 99).rows()
    assert algorithm.add(Queries.of([[0.5, 0.5]], k=3, window=40)) == 2
    algorithm.cancel(np.array([0]), at=150)
    found += algorithm.advance(t[100:200], t[100:200], points[100:200], 199).rows()
    assert algorithm.held[0] == 0
    algorithm.keep(np.array([1, 2]))
    later = algorithm.advance(t[200:], t[200:], points[200:], 299).rows()
    found += [(q + 1, *rest) for q, *rest in later]
    rows = [
        {"point": [0.1, 0.1], "k": 2, "window": 50, "until": 150},
        {"point": [0.9, 0.9], "k": 2, "window": 50},
        {"point": [0.5, 0.5], "k": 3, "window": 40, "since": 99},
    ]
    objects = [(int(s), int(s), p) for s, p in enumerate(points.tolist())]
    assert sorted(found) == sorted(reports(objects, rows, upto=299))


def test_scores_are_those_of_correlate_to_the_last_bit():
    rng = np.random.default_rng(1)
    for d in (1, 2, 3, 4, 5, 8, 11, 64):
        x, y = rng.normal(size=(6, d)), rng.normal(size=(7, d))
        left, right = (Block.of(np.zeros(len(rows)), {"v": rows}) for rows in (x, y))
        for code, metric in enumerate(METRICS):
            ours = distances(code, x, y)
            i, j = (places.ravel() for places in np.indices((6, 7)))
            theirs = measure(metric, "v", left, right, i, j)
            assert (ours.ravel() == (1 - theirs if metric == "cosine" else theirs)).all()


def test_state_says_whose_it_is_and_survives_pickle():
    algorithm = Relaxed(Queries.of([[0.0]], k=1, window=5))
    algorithm.advance([1, 2], [0, 1], [[1.0], [0.5]], 2)
    again = pickle.loads(pickle.dumps(algorithm))
    assert again.to_bytes() == algorithm.to_bytes()
    with pytest.raises(StateMismatch, match="relaxed, not of probabilistic"):
        Probabilistic.from_bytes(algorithm.to_bytes())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (([3, 2], [2, 3], [[1.0], [1.0]], 9), "sorted"),
        (([1], [2], [[1.0]], 9), "after 2"),
        (([3], [1], [[1.0]], 9), "ascend"),
        (([3], [2], [[np.nan]], 9), "finite"),
        (([], [], np.empty((0, 1)), 1), "go back"),
    ],
)
def test_wrong_arrivals_are_refused(call, message):
    algorithm = Relaxed(Queries.of([[0.0]], k=1, window=5))
    algorithm.advance([1, 2], [0, 1], [[1.0], [0.5]], 2)
    with pytest.raises(ValueError, match=message):
        algorithm.advance(*call)


def test_wrong_queries_are_refused_with_all_reasons():
    with pytest.raises(InvalidCall) as caught:
        Queries.of([[0.0, np.inf]], k=0, window=0, metric="hamming")
    assert len(caught.value.problems) == 4
