"""Selective routing: homes withhold what cannot matter, and every answer stays exact."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import StateMismatch
from anabranch.flow.cache import Cache
from anabranch.flow.kernel import Task, fingerprint_of, owner_of
from anabranch.flow.slices import Slices
from anabranch.neighbours.lists.algorithm import METRICS, Queries
from anabranch.neighbours.queries import fixed_queries
from anabranch.neighbours.selective import jobs
from anabranch.neighbours.selective.horizons import Merger
from anabranch.neighbours.selective.jobs import HomeJob
from anabranch.neighbours.selective.mergers import Mergers
from anabranch.neighbours.selective.routing import rows_per_object
from anabranch.plans.hashed import broadcast
from anabranch.plans.log import PlanLog, User
from anabranch.predicates import VectorMeasure
from anabranch.testing.workers import LivingWorkers, Workers
from tests.examples import examples
from tests.neighbours.runs import START, call_of, expected, query_table
from tests.neighbours.selective_runs import KeptControl, SelectiveRun
from tests.neighbours.test_kernel import MS, in_batches

STREAMS = ("uniform", "drifting", "worsening", "tied", "clustered")


def points_of(kind: str, n: int, dim: int, random: np.random.Generator) -> np.ndarray:
    """Points in the order of time; no query lies at the origin."""
    if kind == "uniform":
        return random.random((n, dim)) + 0.01
    if kind == "drifting":  # past the queries, and away
        return random.random((n, dim)) + np.linspace(0.01, 3, n)[:, None]
    if kind == "worsening":
        return np.linspace(3, 6, n)[:, None] + 0.01 * random.random((n, dim))
    if kind == "tied":
        return random.integers(1, 4, (n, dim)) * 1.0
    middle = random.integers(1, 4, (3, dim))
    return middle[random.integers(0, 3, n)] + 0.05 * random.random((n, dim))


def stream_of(kind: str, n: int, dim: int, random: np.random.Generator) -> list[Any]:
    """Objects (t, id, point) over 400 ms, some at one instant; perhaps nothing for 100 ms."""
    t = np.sort(random.integers(0, 400, n))
    if random.random() < 0.3:
        t = t + np.where(t > 200, 100, 0)
    fine = random.integers(0, MS, n) if random.random() < 0.3 else np.zeros(n, int)
    times = np.sort(START + t * MS + fine)
    ids = random.permutation(10 * n)[:n]
    points = points_of(kind, n, dim, random)
    return [(int(a), int(b), c.tolist()) for a, b, c in zip(times, ids, points, strict=True)]


def asked(n: int, dim: int, random: np.random.Generator) -> list[dict[str, Any]]:
    """Queries with windows of 1 to 150 ms, some of which begin later."""
    same = random.random() < 0.5
    made = []
    for ident in range(n):
        span = 80 if same else int(random.integers(1, 150))
        query = {"id": ident, "k": int(random.integers(1, 5)), "span": span * MS}
        query["v"] = (random.integers(1, 4, dim) + 0.25 * random.integers(0, 2, dim)).tolist()
        if random.random() < 0.2:
            query["t"] = START + int(random.integers(0, 300)) * MS
        made.append(query)
    return made


@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(STREAMS),
    metric=st.sampled_from(METRICS),
    workers=st.integers(1, 5),
    disorder=st.sampled_from([0, 0, 20, 60]),
    mergers=st.sampled_from(["newest", "newest", "lost", "stale"]),
    lean=st.sampled_from([True, True, False]),
    spare=st.sampled_from([None, 1, 2]),
    kind_of=st.sampled_from([Workers, LivingWorkers]),
)
def test_equals_brute_force(
    seed: int,
    kind: str,
    metric: str,
    workers: int,
    disorder: int,
    mergers: str,
    lean: bool,
    spare: int | None,
    kind_of: type[Workers],
) -> None:
    random = np.random.default_rng(seed)
    dim = int(random.choice([1, 2, 3, 6]))
    objects = stream_of(kind, int(random.integers(1, 240)), dim, random)
    queries = asked(int(random.integers(1, 8)), dim, random)

    def choose(files: list[tuple[int, bytes]]) -> bytes | None:
        if mergers == "lost" and random.random() < 0.5:
            return None
        at = random.integers(len(files)) if mergers == "stale" else -1
        return files[at][1]

    call = call_of(by=VectorMeasure(metric, "v", "v"))
    run = SelectiveRun(call, queries, (disorder + 1) * MS, workers, choose, lean, spare, kind_of)
    for batch in in_batches(objects, disorder * MS, random):
        run.step(batch)
        assert all(row["entered_t"] <= run.watermark for row in run.rows)
    run.finish()
    assert run.total("late") == 0
    assert run.hits() == expected(objects, queries, metric)
    latest = {load.worker: load.state_rows for load in run.homes.loads}
    assert not any(latest.values())
    copies = run.total("sent_at_once") + run.total("sent_later") + run.total("dropped")
    idle = sum(not len(queries) for queries in run.owners.queries)
    assert copies == (workers - idle) * len(objects)


def scattered(n: int, seed: int = 3) -> list[Any]:
    random = np.random.default_rng(seed)
    points = random.random((n, 2))
    return [(START + i * MS, i, points[i].tolist()) for i in range(n)]


def test_it_sends_a_fraction_of_what_sending_everything_does(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    queries = [
        {"id": i, "v": random.random(2).tolist(), "k": 5, "span": 2_000 * MS} for i in range(24)
    ]
    run = KeptControl(str(tmp_path), call_of(), queries, MS, 8)
    objects = scattered(8_000)
    for at in range(0, 8_000, 100):
        run.step(objects[at : at + 100])
    assert run.total("rows_right") == 8_000
    sent = (run.total("sent_at_once") + run.total("sent_later")) / 8_000
    assert sent < 0.1 * 8
    assert run.total("sent_later") > 0
    assert run.total("looks") < 6 * 8 * 8_000


def test_an_object_comes_when_a_nearer_one_leaves() -> None:
    """k = 1, window 80 ms: b is withheld from 10 on and enters when a leaves.

    ms      0    10            80      90
    a at 1  a------------------|
    b at 20      b---------------------|
    """
    queries = [{"id": 7, "v": [0.0], "k": 1, "span": 80 * MS}]
    run = SelectiveRun(call_of(), queries, 0, 1)
    run.step([(START, 1, [1.0])])
    for at in range(1, 12):
        moment = START + at * 10 * MS
        run.step([(moment, at + 1, [20.0 if at == 1 else 50.0 + at])])
        if at == 3:
            assert (run.total("withheld"), run.total("sent_later")) == (2, 0)
    assert run.total("sent_later") >= 1
    hits = {hit[1]: hit[3] for hit in run.hits()}
    assert hits[1] == START and hits[2] == START + 80 * MS


@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(STREAMS),
    workers=st.integers(1, 4),
    disorder=st.sampled_from([0, 0, 20]),
    lean=st.booleans(),
    spare=st.sampled_from([None, 1]),
)
def test_a_checkpoint_may_be_taken_back_though_mergers_are_kept(
    seed: int, kind: str, workers: int, disorder: int, lean: bool, spare: int | None
) -> None:
    """State goes back to some batch, twice, and other batches follow; the control directory stays.

    What was undone had other batches, or other objects too, in better places.
    """
    random = np.random.default_rng(seed)
    dim = int(random.choice([1, 2, 6]))
    objects = stream_of(kind, int(random.integers(40, 240)), dim, random)
    queries = asked(int(random.integers(1, 6)), dim, random)
    with tempfile.TemporaryDirectory() as folder:
        run = KeptControl(
            folder, call_of(), queries, (disorder + 1) * MS, workers, lean=lean, spare=spare
        )
        batches = in_batches(objects, disorder * MS, random)
        for _ in range(2):
            first = int(random.integers(0, len(batches) + 1))
            for batch in batches[:first]:
                run.step(batch)
            saved, left = run.save(), [row for batch in batches[first:] for row in batch]
            undone = left
            if random.random() < 0.5:
                near = queries[0]["v"] + 0.01 * random.random((len(left), dim))
                undone = [(t, -1 - i, near[n].tolist()) for n, (t, i, _) in enumerate(left)]
            for batch in in_batches(undone, disorder * MS, random):
                run.step(batch)
            run.take_back(saved)
            batches = in_batches(left, disorder * MS, random)
        for batch in batches:
            run.step(batch)
        run.finish()
    assert run.total("late") == 0
    assert run.hits() == expected(objects, queries)


def test_a_home_that_was_passed_by_is_noticed() -> None:
    queries = [{"id": 7, "v": [0.0], "k": 1, "span": 80 * MS}]
    run = SelectiveRun(call_of(), queries, 0, 2)
    for at in range(6):
        run.step([(START + at * 10 * MS + i, 10 * at + i, [1.0 + at]) for i in range(4)])
    run.homes.timers = dict.fromkeys(run.homes.timers)
    with pytest.raises(RuntimeError, match="no timer fired"):
        run.finish()


def some_merger() -> Merger:
    queries = Queries.of([[0.0, 1.0], [2.0, 2.0]], k=[1, 2], window=80)
    points, none = np.array([[0.5, 1.0], [1.0, 2.0]]), np.empty((2, 0), np.int64)
    return Merger.of(queries, 101, np.array([90, 99]), points, none)


def test_mergers_pass_through_bytes() -> None:
    merger = some_merger()
    again = Merger.decode(merger.encode())
    assert again.reached == merger.reached
    for name in ("ends", "scores", "wanted"):
        assert np.array_equal(getattr(again, name), getattr(merger, name))
    with pytest.raises(StateMismatch, match="another version"):
        Merger.decode(b"\x09" + merger.encode()[1:])


def test_an_owner_keeps_its_newest_mergers(tmp_path: Path) -> None:
    mergers = Mergers(str(tmp_path), User("q", "a"))
    kept: dict[int, list[str]] = {0: [], 1: []}
    for batch in range(20):
        owner = batch % 2
        merger = replace(some_merger(), reached=batch)
        kept[owner] = mergers.publish(owner, batch, merger, kept[owner])
    assert len(list((tmp_path / "mergers").iterdir())) == 16
    newest = mergers.newest(lambda merger: merger.reached < 17)
    assert {owner: merger.reached for owner, merger in newest.items()} == {0: 16, 1: 15}
    assert mergers.newest(lambda merger: False) == {}


def test_mergers_of_batches_that_were_undone_go_when_it_is_their_turn(tmp_path: Path) -> None:
    mergers = Mergers(str(tmp_path), User("q", "a"))

    def published(batches: range, kept: list[str], reached: int) -> list[str]:
        for batch in batches:
            merger = replace(some_merger(), reached=reached)
            kept = mergers.publish(0, batch, merger, kept)
        return kept

    undone = published(range(20), [], reached=7)
    kept = published(range(13, 15), [], reached=8)
    left = {path.name for path in (tmp_path / "mergers").iterdir()}
    assert left == {*kept, *undone[3:]}  # those of batches 15 to 19 may be somebody's newest
    kept = published(range(15, 30), kept, reached=8)
    assert {path.name for path in (tmp_path / "mergers").iterdir()} == set(kept)
    assert len(kept) == 8


def test_queries_and_mergers_are_kept_within_the_bounds_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(100_000)
    monkeypatch.setattr(jobs, "CACHE", cache)
    merger = some_merger()
    for number in range(10):
        queries = [{"id": n, "v": [n + 0.1 * number], "k": 1, "span": MS} for n in range(400)]
        block = fixed_queries(call_of(), query_table(queries))[0]
        job = HomeJob(call_of(), block.encode(**block.meta), 2, str(tmp_path / str(number)))
        home, again = (job.kernel(Slices(job.stays, job.notes()), Task(n, "q")) for n in (0, 1))
        assert again.owners is home.owners and home.owners.nbytes > 400 * 4 * 8
        mergers = Mergers(job.control, User("q", fingerprint_of(job.base.settings)))
        mergers.publish(0, 1, merger, [])
        before = cache.nbytes
        home._mergers(lambda merger: True)
        job.kernel(home.slices, Task(0, "q"))
        assert cache.nbytes == before + merger.nbytes
    assert cache.nbytes <= cache.budget
    cache.disown(owner_of(job, "q"))
    assert cache.get(f"owners {owner_of(job, 'q')}") is None


def test_a_control_directory_has_one_owner(tmp_path: Path) -> None:
    Mergers(str(tmp_path), User("q", "a"))
    with pytest.raises(StateMismatch, match="belongs to query q, this is query r"):
        Mergers(str(tmp_path), User("r", "a"))
    with pytest.raises(StateMismatch, match="belongs to another verb"):
        Mergers(str(tmp_path), User("q", "b"))
    PlanLog(str(tmp_path / "log")).begin(broadcast(2))
    with pytest.raises(StateMismatch, match="holds a plan log"):
        Mergers(str(tmp_path / "log"), User("q", "a"))


def test_scores_too_large_for_a_limit_let_everything_through() -> None:
    queries = Queries.of([[0.0]], k=1, window=80)
    t, none = np.array([105]), np.empty((1, 0), np.int64)
    merger = Merger.of(queries, 101, np.array([100]), np.array([[1.5e308]]), none)
    assert merger.clear_until(queries, t, t, np.array([[1.0]]), none)[0] < 101


def test_a_restart_with_another_number_of_workers_is_refused() -> None:
    queries = [{"id": 7, "v": [0.0], "k": 1, "span": 80 * MS}]
    run = SelectiveRun(call_of(), queries, 0, 2)
    run.step([(START, 1, [1.0])])
    run.homes.job = replace(run.homes.job, owners=3)
    with pytest.raises(StateMismatch, match="begun with workers='2', and the call now says"):
        run.step([(START + MS, 2, [1.0])])


def test_what_plans_cost() -> None:
    rows = rows_per_object(400, 81, 40_000, 16)
    assert rows["A"] == 16 and 1.5 <= rows["B"] <= 2 and 14 <= rows["C"] <= 18
    assert rows_per_object(10**6, 9, 40_000, 16)["B"] == pytest.approx(16)


def test_two_alike_calls_of_a_query_do_not_share_a_control_directory(tmp_path: Path) -> None:
    Mergers(str(tmp_path), User("q", "a", "run", "one"))
    with pytest.raises(StateMismatch, match="two calls in this query"):
        Mergers(str(tmp_path), User("q", "a", "run", "two"))
    Mergers(str(tmp_path), User("q", "a", "next run", "two"))
