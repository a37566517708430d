"""The list with repair equals brute force, report for report, whatever the stream and batching."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import StateMismatch
from anabranch.flow.instants import FOREVER
from anabranch.neighbours.lists import grid as grids
from anabranch.neighbours.lists import matrix as matrix_module
from anabranch.neighbours.lists import repair
from anabranch.neighbours.lists import scan as scans
from anabranch.neighbours.lists.algorithm import METRICS, Queries
from anabranch.neighbours.lists.grid import Grid
from anabranch.neighbours.lists.repair import ListWithRepair
from tests.examples import examples
from tests.neighbours import twin as knn_twin

STREAMS = ("uniform", "tied", "worsening", "drifting", "clustered", "identical")


def objects_of(kind: str, n: int, dim: int, random: np.random.Generator) -> np.ndarray:
    """Points of a stream of a kind, none at the origin."""
    noise = random.random((n, dim)) + 0.01
    if kind == "uniform":
        return noise
    if kind == "tied":
        return random.integers(1, 4, (n, dim)).astype(float)
    if kind == "worsening":
        return 1 + 0.5 * np.arange(n)[:, None] + np.zeros((n, dim))
    if kind == "drifting":
        return noise + 0.07 * np.arange(n)[:, None]
    if kind == "clustered":
        return 0.02 * random.normal(size=(n, dim)) + random.integers(1, 4, (n, 1))
    return np.ones((n, dim))


def calls(t: np.ndarray, random: np.random.Generator, longest: int) -> list[int]:
    """Times to advance to, of which the last lies beyond every window."""
    stops, at = [], -1
    while at < (t[-1] if len(t) else 0):
        at += int(random.integers(1, longest + 1))
        stops.append(at)
    return [*stops, at + 10**6]


def played(
    lists: ListWithRepair, t: np.ndarray, points: np.ndarray, stops: list[int], reborn: Any
) -> list[knn_twin.Report]:
    """All reports of a stream cut at these times; `reborn` says when to go through bytes."""
    found: list[knn_twin.Report] = []
    at = 0
    for stop in stops:
        end = int(np.searchsorted(t, stop, "right"))
        part = slice(at, end)
        found += lists.advance(t[part], np.arange(at, end), points[part], stop).rows()
        at = end
        if reborn():
            lists = ListWithRepair.from_bytes(lists.to_bytes())
    return found


def wanted(t: np.ndarray, points: np.ndarray, queries: Queries) -> list[knn_twin.Report]:
    objects = list(zip(t.tolist(), range(len(t)), points.tolist(), strict=True))
    asked = [
        {
            "point": queries.points[q].tolist(),
            "k": int(queries.k[q]),
            "window": int(queries.window[q]),
            "since": int(queries.since[q]),
            "until": int(queries.until[q]),
        }
        for q in range(len(queries))
    ]
    return sorted(knn_twin.reports(objects, asked, queries.counted, queries.metric))


@settings(max_examples=examples(120))
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(STREAMS),
    metric=st.sampled_from(METRICS),
    counted=st.booleans(),
    dim=st.integers(1, 6),
    spare=st.integers(1, 4),
    index=st.sampled_from(["grid", "scan", "product"]),
    longest=st.sampled_from([1, 5, 40, 300]),
    by_stretches=st.booleans(),
)
def test_equals_brute_force(
    seed: int,
    kind: str,
    metric: str,
    counted: bool,
    dim: int,
    spare: int,
    index: str,
    longest: int,
    by_stretches: bool,
) -> None:
    random = np.random.default_rng(seed)
    n, count = int(random.integers(0, 90)), int(random.integers(1, 5))
    points = objects_of(kind, n, dim, random)
    t = np.sort(random.integers(0, 120, n)) if random.random() < 0.7 else np.arange(n)
    queries = Queries.of(
        objects_of(str(random.choice(STREAMS[:2])), count, dim, random),
        k=random.integers(1, 7, count),
        window=random.integers(1, 70, count),
        since=np.where(random.random(count) < 0.7, -FOREVER, random.integers(0, 80, count)),
        until=np.where(random.random(count) < 0.7, FOREVER, random.integers(0, 130, count)),
        counted=counted,
        metric=metric,
    )
    lists = ListWithRepair(queries, spare=spare, index=index)
    with mock.patch.object(repair, "LONG", 0 if by_stretches else 10**9):
        got = played(lists, t, points, calls(t, random, longest), lambda: random.random() < 0.2)
    assert len({(q, s) for q, s, *_ in got}) == len(got), "an object was reported twice"
    assert sorted(got) == wanted(t, points, queries)


@pytest.mark.parametrize("index", ["grid", "scan", "product"])
@pytest.mark.parametrize("metric", METRICS)
def test_a_longer_stream_with_repairs_and_cuts(metric: str, index: str) -> None:
    random = np.random.default_rng(5)
    n, count = 1500, 6
    points = random.random((n, 3)) + np.where(np.arange(n) > 700, 0.4, 0.0)[:, None]
    t = np.cumsum(random.integers(0, 3, n))
    queries = Queries.of(
        random.random((count, 3)), k=[1, 2, 5, 9, 9, 20], window=300, metric=metric
    )
    lists = ListWithRepair(queries, index=index)
    got = played(lists, t, points, calls(t, random, 400), lambda: False)
    assert sorted(got) == wanted(t, points, queries)
    assert lists.repairs > 0


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("gap", [1, 3])
@pytest.mark.parametrize("batch", [30, 700, 5000])
def test_long_lists_by_stretches_as_event_by_event(counted: bool, gap: int, batch: int) -> None:
    # Spares of 12 and 40: lists are cut, run short and are repaired, all within stretches.
    random = np.random.default_rng(batch + gap)
    n, count = 15_000, 40
    points = random.random((n, 2)) + 0.3 * np.sin(np.arange(n) / 900)[:, None]
    t = np.cumsum(random.integers(0 if gap == 1 else 1, gap + 1, n))
    for spare in (12, 40):
        queries = Queries.of(
            random.random((count, 2)), random.integers(20, 70, count), 900, counted=counted
        )
        found = []
        for longest in (0, 10**9):
            with mock.patch.object(repair, "LONG", longest):
                lists = ListWithRepair(queries, spare=spare)
                got, changed = [], []
                for at in range(0, n, batch):
                    part = slice(at, at + batch)
                    if counted or at + batch >= n:
                        upto = int(t[part][-1])
                    else:
                        upto = int(t[at + batch]) - 1
                        part = slice(*np.searchsorted(t, [lists.reached, upto], "right"))
                    rows = lists.advance(t[part], np.arange(n)[part], points[part], upto).rows()
                    got += rows
                    changed.append(lists.changed.copy())
                found.append(
                    (got, np.array(changed).tolist(), [lists.top(q) for q in range(count)])
                )
                assert lists.repairs > 0
        assert found[0][0] == found[1][0]
        assert found[0][1] == found[1][1]
        for ours, theirs in zip(found[0][2], found[1][2], strict=True):
            assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("at_once", [1, 7, 90])
def test_lists_of_hundreds_and_many_arrivals_at_one_instant(at_once: int) -> None:
    # Some lists are counted and some halved; 90 are more arrivals than a stretch has room for.
    random = np.random.default_rng(at_once)
    n, batch, count = 9_450, 1_890, 12
    points, t = random.random((n, 2)), np.arange(n) // at_once * at_once
    queries = Queries.of(random.random((count, 2)), random.integers(150, 500, count), 3_000)
    found = []
    for longest in (0, 10**9):
        with mock.patch.object(repair, "LONG", longest):
            lists, got = ListWithRepair(queries), []
            for at in range(0, n, batch):
                part = slice(at, at + batch)
                seq, upto = np.arange(at, at + batch), at + batch - 1
                got += lists.advance(t[part], seq, points[part], upto).rows()
                lists = ListWithRepair.from_bytes(lists.to_bytes())
            found.append((got, [list(map(list, lists.top(q))) for q in range(count)]))
    assert found[0] == found[1]
    assert len(found[0][0]) > 2 * n // 3


def test_a_checkpoint_holds_no_unused_room_of_the_log() -> None:
    random = np.random.default_rng(3)
    points, t = random.random((4_000, 2)), np.arange(4_000)
    lists = ListWithRepair(Queries.of(random.random((50, 2)), k=60, window=1_000), spare=2)
    got = lists.advance(t, t, points, 3_999)
    bare = sum(array.nbytes for array in (points[:1_000], t[:1_000], t[:1_000]))
    assert len(got) > 4_000  # so many are reported, and a part of them remembered
    assert len(lists.to_bytes()) < bare + 16 * len(got) + 50 * 80 * 16
    again = ListWithRepair.from_bytes(lists.to_bytes())
    more = [one.advance(t + 4_000, t + 4_000, points[::-1], 7_999).rows() for one in (lists, again)]
    assert more[0] == more[1]


def test_told_objects_that_were_cut_and_come_back_are_not_told_again() -> None:
    # k = 5, spare 1: lists are cut beyond 7 to 6. X, at distance 10, is told as the fifth best.
    # Three nearer ones push it out of the list. The first four expire at 10, 11, 12 and 13; the
    # list runs short at 11, is repaired, and holds X again, which is in the top-5 from 12 on.
    #
    #  t         0   1   2   3   4   5   6   7        10   11   12   13
    #  distance  1   2   3   4   X   5   6   7        -1   -2   -3   -4
    points = np.array([[1.0], [2.0], [3.0], [4.0], [10.0], [5.0], [6.0], [7.0]])
    t = np.arange(8)
    queries = Queries.of([[0.0]], k=5, window=10)
    lists = ListWithRepair(queries, spare=1)
    got = lists.advance(t, t, points, 12).rows()
    assert lists.repairs == 1
    assert 4 in lists.top(0)[0]
    assert sorted(got) == [row for row in wanted(t, points, queries) if row[2] <= 12]


def test_few_repairs_on_a_stream_in_random_order() -> None:
    random = np.random.default_rng(1)
    points, t = random.random((40_000, 4)), np.arange(40_000)
    lists = ListWithRepair(Queries.of(random.random((50, 4)), k=9, window=5_000, counted=True))
    lists.advance(t, t, points, int(t[-1]))
    assert lists.repairs < 40  # 2 million pairs; one in 2.4 million was measured in steady state


def test_far_from_the_origin_and_at_every_size() -> None:
    random = np.random.default_rng(2)
    t = np.arange(600)
    for scale, shift in ((1e-30, 0), (1, 1e6), (1e3, 1e9), (1e17, 0), (1e25, 0), (1, 0)):
        points = random.random((600, 5)) * scale + shift
        queries = Queries.of(random.random((4, 5)) * scale + shift, k=3, window=50)
        for index in ("grid", "scan", "product"):
            lists = ListWithRepair(queries, index=index)
            got = played(lists, t, points, calls(t, random, 90), lambda: False)
            assert sorted(got) == wanted(t, points, queries), (scale, shift, index)


def _alike(count: int, shift: float) -> tuple[ListWithRepair, np.ndarray]:
    """Lists with thresholds, and objects that float32 hardly tells apart: far from the origin."""
    random = np.random.default_rng(4)
    lists = ListWithRepair(Queries.of(shift + random.random((count, 8)), k=2, window=900))
    t = np.arange(400)
    lists.advance(t, t, shift + random.random((400, 8)), 399)
    assert lists._matrix is not None and lists._matrix.resting.next == 1
    return lists, shift + random.random((6000, 8))


def test_products_that_tell_nothing_apart_stop_early_and_rest() -> None:
    lists, points = _alike(700, 1000.0)
    matrix, t = lists._matrix, np.arange(400, 6400)
    looked: list[bool] = []
    with mock.patch.object(matrix_module, "_reaching", wraps=matrix_module._reaching) as tiles:
        for at in range(0, 6000, 400):
            part, before = slice(at, at + 400), tiles.call_count
            lists.advance(t[part], t[part], points[part], int(t[part][-1]))
            looked.append(tiles.call_count > before)
    # Of 15 batches it tries the 1st, 3rd, 6th and 11th, and each time two or three tiles of six.
    assert np.flatnonzero(looked).tolist() == [0, 2, 5, 10]
    assert matrix is not None and matrix.resting.next == 16
    assert tiles.call_count <= 3 * 4


@pytest.mark.parametrize("shift", [1000.0, 1e8], ids=["product", "scan"])
def test_memory_is_bounded_where_float32_tells_nothing_apart(
    shift: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scans, "_AT_ONCE", 1 << 18)
    lists, points = _alike(700, shift)
    t = np.arange(400, 6400)
    tracemalloc.start()
    lists.advance(t, t, points, int(t[-1]))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 21e6, "of 4.2 million pairs, each of which takes 21 bytes to be proposed"


def test_queries_come_and_go() -> None:
    random = np.random.default_rng(3)
    t, points = np.arange(300), random.integers(0, 6, (300, 2)).astype(float)
    first = Queries.of(random.integers(0, 6, (3, 2)), k=2, window=40)
    late = Queries.of([[2.0, 3.0]], k=3, window=25)
    lists = ListWithRepair(first)
    got = lists.advance(t[:100], t[:100], points[:100], 99).rows()
    place = lists.add(late)
    lists.cancel(np.array([1]), 150)
    got += lists.advance(t[100:200], t[100:200], points[100:200], 199).rows()
    lists.keep(np.array([0, 2, 3]))
    rest = lists.advance(t[200:], t[200:], points[200:], 10**6).rows()
    got += [([0, 2, 3][q], *row) for q, *row in rest]
    everything = first.followed_by(Queries.of([[2.0, 3.0]], k=3, window=25, since=99))
    everything.until[1] = 150
    assert place == 3
    assert sorted(got) == wanted(t, points, everything)


@pytest.mark.parametrize(
    ("metric", "dim"), [("euclidean", 1), ("manhattan", 2), ("cosine", 3), ("euclidean", 4)]
)
def test_many_queries_move_in_every_step(metric: str, dim: int) -> None:
    """Those that moved are registered in the grid that stands, and nobody's answers change."""
    random = np.random.default_rng(dim)
    count, moved, batch, steps = 60, 10, 80, 7
    t, points = np.arange(steps * batch), random.random((steps * batch, dim)) + 0.01
    first = Queries.of(random.random((count, dim)) + 0.01, 2, 160, metric=metric)
    lists, everything, numbers = ListWithRepair(first, index="grid"), first, np.arange(count)
    got = []
    # Few cells, so that to look at every object for those that moved would cost more.
    cells, register = {1: 40, 2: 6, 3: 3, 4: 2}[dim], Grid.registering
    with (
        mock.patch.object(grids, "cells_per_axis", lambda _: cells),
        mock.patch.object(Grid, "registering", autospec=True, side_effect=register) as registered,
    ):
        for step in range(steps):
            part = slice(step * batch, (step + 1) * batch)
            before = int(t[part][0]) - 1
            if step > 1:
                places = random.choice(count, moved, replace=False)
                others = Queries.of(random.random((moved, dim)) + 0.01, 2, 160, metric=metric)
                everything.until[numbers[places]] = before
                numbers = np.concatenate([numbers, len(everything) + np.arange(moved)])
                others = replace(others, since=np.full(moved, before))
                everything = everything.followed_by(others)
                lists.cancel(places, before)
                lists.add(others)
            rows = lists.advance(t[part], t[part], points[part], int(t[part][-1])).rows()
            got += [(int(numbers[q]), *row) for q, *row in rows]
            stay = np.flatnonzero(lists.queries.until > before)
            lists.keep(stay)
            numbers = numbers[stay]
    assert registered.call_count > 2
    rest = lists.advance([], [], [], 10**6).rows()
    got += [(int(numbers[q]), *row) for q, *row in rest]
    assert sorted(got) == wanted(t, points, everything)


def test_a_grid_without_room_is_made_again() -> None:
    """It has no cells of a part that is new."""
    points, parts = np.array([[0.0], [5.0]]), np.array([0, 1])
    grid = Grid.of(0, points, np.ones(2), np.array([0]), points, parts)
    assert grid.registering(0, points, np.ones(2), np.array([1]), parts) is None
    with mock.patch.object(grids, "_ENTRIES", 1):
        assert grid.registering(0, points, np.ones(2), np.array([0]), parts) is None
    assert grid.registering(0, points, np.ones(2), np.array([0]), parts) is not None


def test_the_current_top_k() -> None:
    random = np.random.default_rng(4)
    points, t = random.random((500, 2)), np.arange(500)
    query = np.array([0.5, 0.5])
    lists = ListWithRepair(Queries.of([query], k=5, window=100))
    for at in range(0, 500, 50):
        lists.advance(t[at : at + 50], t[at : at + 50], points[at : at + 50], at + 49)
        inside = np.arange(max(0, at + 50 - 100), at + 50)
        far = np.sqrt(((points[inside] - query) ** 2).sum(axis=1))
        best = inside[np.argsort(far, kind="stable")[:5]]
        assert lists.top(0)[0].tolist() == best.tolist()
        assert lists.changed[0]


def test_the_window_may_be_kept_elsewhere() -> None:
    random = np.random.default_rng(6)
    points, t = random.random((400, 2)) + 0.01 * np.arange(400)[:, None], np.arange(400)
    queries = Queries.of(random.random((3, 2)), k=4, window=60)
    lists = ListWithRepair(queries, spare=2)
    got = []
    for at in range(0, 400, 20):
        lists.detach()
        lists = ListWithRepair.from_bytes(lists.to_bytes())
        held = slice(max(0, at - 70), at)  # more than the window does no harm
        none = np.empty((len(t[held]), 0), np.int64)
        lists.attach(t[held], t[held], points[held], none)
        part = slice(at, at + 20)
        got += lists.advance(t[part], t[part], points[part], at + 19).rows()
    got += lists.advance([], [], [], 10**6).rows()
    assert sorted(got) == wanted(t, points, queries)


def test_state_of_another_method_is_refused() -> None:
    lists = ListWithRepair(Queries.of([[0.0]], k=1, window=10))
    other = lists.to_bytes().replace(b'"algorithm": "exact"', b'"algorithm": "other"')
    with pytest.raises(StateMismatch, match="other"):
        ListWithRepair.from_bytes(other)
