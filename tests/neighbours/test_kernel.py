"""Workers of `nearest`: any batching, disorder, queries that come and go, workers that change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import BadRow, StateMismatch
from anabranch.flow.blocks import Block
from anabranch.neighbours.kernel import END
from anabranch.neighbours.lists.algorithm import METRICS
from anabranch.neighbours.queries import fixed_queries
from anabranch.plans.controller import Controller, Report
from anabranch.plans.log import Entry, live_at
from anabranch.plans.plan import RIGHT
from anabranch.predicates import VectorMeasure
from anabranch.testing import Workers
from tests.examples import examples
from tests.neighbours.runs import (
    START,
    Run,
    ShortStays,
    Timed,
    call_of,
    expected,
    query_table,
    table,
    top_of,
)

MS = 1000


def objects_of(random: np.random.Generator, n: int, dim: int, tied: bool) -> list[Any]:
    """Objects (t, id, point) over 300 ms, some at the same instant."""
    t = START + random.integers(0, 300, n) * MS
    ids = random.permutation(10 * n)[:n]
    points = random.integers(1, 4, (n, dim)) if tied else random.random((n, dim)) + 0.01
    return [(int(a), int(b), c.tolist()) for a, b, c in zip(t, ids, points, strict=True)]


def queries_of(random: np.random.Generator, n: int, dim: int, counts: bool) -> list[Any]:
    made = []
    for ident in range(n):
        query: dict[str, Any] = {"id": ident, "v": (random.integers(1, 4, dim) * 1.0).tolist()}
        query["k"] = int(random.integers(1, 5))
        if counts and random.random() < 0.5:
            query["rows"] = int(random.integers(1, 30))
        else:
            query["span"] = int(random.integers(1, 120)) * MS
        made.append(query)
    return made


def in_batches(objects: list[Any], disorder: int, random: np.random.Generator) -> list[list[Any]]:
    """Objects as they arrive: up to `disorder` late, in batches of any size."""
    shift = random.integers(0, disorder + 1, len(objects)) if disorder else np.zeros(len(objects))
    arrival = np.array([o[0] for o in objects]) + shift
    queue = [objects[i] for i in np.argsort(arrival, kind="stable")]
    batches = []
    while queue:
        size = int(random.integers(1, 25))
        batches.append(queue[:size])
        queue = queue[size:]
    return batches


@settings(max_examples=examples(60))
@given(
    seed=st.integers(0, 2**32 - 1),
    metric=st.sampled_from(METRICS),
    method=st.sampled_from(["exact", "exact", "relaxed", "filtered"]),
    workers=st.integers(1, 3),
    disorder=st.sampled_from([0, 20, 60]),
    tied=st.booleans(),
)
def test_any_batching_and_disorder_equals_brute_force(
    seed: int, metric: str, method: str, workers: int, disorder: int, tied: bool
) -> None:
    random = np.random.default_rng(seed)
    dim = int(random.integers(1, 4))
    objects = objects_of(random, int(random.integers(1, 80)), dim, tied)
    queries = queries_of(random, int(random.integers(1, 6)), dim, counts=True)
    for query in queries:
        if method == "filtered":
            query.pop("rows", None)
            query["span"] = 2 * MS * int(random.integers(1, 40))
        if random.random() < 0.3:
            query["t"] = START + int(random.integers(0, 200)) * MS
    by = VectorMeasure(metric, "v", "v")
    # Objects of one instant may be parted by a batch: one millisecond more than the disorder.
    run = Run(call_of(by=by, method=method), queries, (disorder + 1) * MS, workers)
    for batch in in_batches(objects, disorder * MS, random):
        run.step(batch)
        assert all(row["entered_t"] <= run.watermark for row in run.rows)
    run.finish()
    assert sum(load.late for load in run.loads) == 0
    assert run.hits() == expected(objects, queries, metric)


@settings(max_examples=examples(50))
@given(seed=st.integers(0, 2**32 - 1), workers=st.integers(1, 3))
def test_queries_that_are_added_and_cancelled(seed: int, workers: int) -> None:
    random = np.random.default_rng(seed)
    objects = objects_of(random, 100, 2, tied=bool(random.integers(2)))
    queries = queries_of(random, 8, 2, counts=True)
    ops = []
    for query in queries:
        query["t"] = START + int(random.integers(0, 250)) * MS
        ops.append({**query, "op": "add"})
        if random.random() < 0.5:
            query["until"] = query["t"] + int(random.integers(1, 150)) * MS
            ops.append({"id": query["id"], "t": query["until"], "op": "cancel"})
    # A query of the same id that begins when the first one ends, or before.
    again = {**queries_of(random, 1, 2, counts=False)[0], "id": 0}
    again["t"] = queries[0]["t"] + int(random.integers(1, 100)) * MS
    queries[0]["until"] = min(queries[0].get("until", END), again["t"])
    cancel = [op for op in ops if op["id"] == 0 and op["op"] == "cancel"]
    if cancel and cancel[0]["t"] > again["t"]:
        again["until"] = cancel[0]["t"]
    queries.append(again)
    ops.append({**again, "op": "add"})
    everything = in_batches(
        [(o[0], o) for o in objects] + [(p["t"], p) for p in ops], 40 * MS, random
    )
    run = Run(call_of(ops=True), None, 41 * MS, workers)
    for batch in everything:
        run.step(
            [x for _, x in batch if isinstance(x, tuple)],
            [x for _, x in batch if isinstance(x, dict)],
        )
    run.finish()
    assert run.hits() == expected(objects, queries)


@settings(max_examples=examples(50))
@given(seed=st.integers(0, 2**32 - 1))
def test_workers_join_and_leave(seed: int) -> None:
    random = np.random.default_rng(seed)
    objects = objects_of(random, 250, 2, tied=bool(random.integers(2)))
    queries = queries_of(random, 6, 2, counts=False)
    for query in queries:
        query["span"] = int(random.integers(1, 30)) * MS
    call = call_of(watermark="31 milliseconds")
    run = Run(call, queries, 31 * MS, int(random.integers(1, 4)))
    for number, batch in enumerate(in_batches(objects, 30 * MS, random)):
        if number % 4 == 3:
            run.plans = {**run.plans, str(len(run.plans)): [int(random.integers(1, 5)), None]}
        run.step(batch)
    run.finish()
    assert len(run.plans) > 2
    assert run.hits() == expected(objects, queries)


def test_a_kernel_weighs_its_lists_and_objects() -> None:
    """By its bytes a process decides how many it keeps."""
    random = np.random.default_rng(3)

    def weight(objects: int, queries: int) -> int:
        asked = [{"id": n, "v": random.random(16), "k": 10, "span": 10**9} for n in range(queries)]
        run = Run(call_of(), asked, 0, 1)
        run.step([(START + n * MS, n, random.random(16)) for n in range(objects)])
        kernel = run.workers.kernel(0)
        list(kernel.step([], START + 10**8))
        return int(kernel.nbytes)

    one, more, wider = weight(100, 10), weight(2000, 10), weight(100, 500)
    assert more - one >= 1900 * 16 * 8
    assert wider - one >= 490 * (16 + 2 * 10) * 8


class Held(Run):
    """Another watermark of the query holds this one back."""

    held = 0

    @property
    def watermark(self) -> int:
        return min(super().watermark, self.held) if self.held else super().watermark


@settings(max_examples=examples(10))
@given(seed=st.integers(0, 2**32 - 1))
def test_workers_join_and_leave_while_time_is_held_back(seed: int) -> None:
    """Objects far ahead of the watermark have come, of which a new owner has had none.

    A controller writes the log: it must not retire a plan before its queries have changed hands.
    """
    random = np.random.default_rng(seed)
    objects = [(START + n * MS, n, random.random(2).round(1)) for n in range(600)]
    queries = queries_of(random, 6, 2, counts=False)
    for query in queries:
        query["span"] = int(random.integers(1, 60)) * MS
    longest = 2 * max(query["span"] for query in queries) + 3000
    first = ab.broadcast(int(random.integers(1, 5)))
    entries = [Entry(0, 0, first, 0, (0,), {"rule": "start"})]
    controller = Controller(entries, (longest, longest), 5 * MS, None)
    run = Held(call_of(watermark="5 milliseconds"), queries, 5 * MS, first.workers)
    # Time is held back for long, the plan changes towards the end of that, and then all is let go.
    held = [int(random.integers(3, 8)), int(random.integers(30, 35))]
    changes = [start + int(random.integers(8, 15)) for start in held]
    freed = [change + int(random.integers(1, 6)) for change in changes]
    for number in range(60):
        run.held = run.watermark if number in held else 0 if number in freed else run.held
        live = live_at(controller._entries, number)
        assert live is not None
        run.plans = {str(n): [plan.workers, None] for n, plan in live.plans.items()}
        mark, before = run.watermark, len(run.loads)
        run.step(objects[10 * number : 10 * number + 10])
        wish = [(ab.broadcast(int(random.integers(1, 5))), "")] if number in changes else []
        report = Report(number, 1.0, mark, tuple(run.loads[before:]))
        if (change := controller.handle(report, wish)) is not None:
            controller.written(change.entry(number + 2))
    run.held = 0
    run.finish()
    assert run.hits() == expected(objects, queries)


@settings(max_examples=examples(50))
@given(seed=st.integers(0, 2**32 - 1), coarse=st.booleans())
def test_the_table_of_tops_while_workers_join_and_leave(seed: int, coarse: bool) -> None:
    random = np.random.default_rng(seed)
    objects = objects_of(random, int(random.integers(20, 150)), 2, tied=bool(random.integers(2)))
    if coarse:  # times and handovers fall on the same instants, and there are leaps between them
        objects = [(START + (o[0] - START) // 10_000 * 10_000, *o[1:]) for o in objects]
    queries = queries_of(random, 5, 2, counts=False)
    for query in queries:
        query["span"] = int(random.integers(1, 5)) * 10 * MS if coarse else query["span"] // 4 + MS
    disorder = int(random.choice([8, 18]))
    late = disorder + 1  # with the millisecond that bounds have more, a multiple of ten
    run = Timed(call_of(output="top", watermark=f"{late} milliseconds"), queries, late * MS, 2)
    for number, batch in enumerate(in_batches(objects, disorder * MS, random)):
        if number % 3 == 2:
            run.plans = {**run.plans, str(len(run.plans)): [int(random.integers(1, 5)), None]}
        for part in (batch, []):
            now = run.watermark
            run.step(part)
            for query in queries:
                assert table(run.rows, query["id"]) == top_of(objects, query, now)


def test_the_top_k_as_it_is_now() -> None:
    random = np.random.default_rng(8)
    objects = sorted(objects_of(random, 120, 2, tied=False))
    queries = [{"id": 1, "v": [0.5, 0.5], "k": 3, "span": 40 * MS}]
    run = Run(call_of(output="top"), queries, 0, 2)
    for at in range(0, 120, 10):
        run.step(objects[at : at + 10])
    run.step([])
    now = run.watermark
    inside = [o for o in objects if o[0] <= now < o[0] + 40 * MS]
    best = sorted(inside, key=lambda o: (np.hypot(o[2][0] - 0.5, o[2][1] - 0.5), o[0], o[1]))
    latest = max(row["as_of"] for row in run.rows)
    got = [row for row in run.rows if row["as_of"] == latest]
    assert [row["object_id"] for row in got] == [o[1] for o in best[:3]]
    run.finish()
    assert [(row["rank"], row["object_id"]) for row in run.rows[-1:]] == [(0, None)]


def test_late_objects_are_counted_once_and_left_out() -> None:
    queries = [{"id": 1, "v": [0.0], "k": 1, "span": 50 * MS}]
    run = Run(call_of(), queries, 10 * MS, 3)
    run.step([(START + 100 * MS, 1, [5.0])])
    run.step([(START + 90 * MS, 2, [1.0]), (START + 91 * MS, 3, [2.0])])
    run.finish()
    assert sum(load.late for load in run.loads) == 1
    assert [hit[1] for hit in run.hits()] == [1, 3]  # 1 enters when 3 expires


def test_state_is_freed() -> None:
    random = np.random.default_rng(9)
    queries = [
        {"id": 1, "v": [0.5], "k": 2, "span": 20 * MS},
        {"id": 2, "v": [0.5], "k": 1, "rows": 7},
    ]
    run = Run(call_of(), queries, 0, 1)
    sizes = []
    for at in range(60):
        run.step([(START + (at * 5 + n) * MS, at * 5 + n, [random.random()]) for n in range(5)])
        sizes.append(run.state_rows)
    assert max(sizes[20:]) <= 60
    ended = Run(call_of(ops=True), None, 0, 1)
    ended.step([], [{"id": 1, "v": [0.5], "k": 1, "span": 10**9, "t": START, "op": "add"}])
    for at in range(1, 40):
        ended.step([(START + at * MS, at, [random.random()])])
    before = len(ended.workers.pieces[0, -1])
    ended.step([], [{"id": 1, "t": START + 40 * MS, "op": "cancel"}])
    ended.step([(START + 50 * MS, 50, [0.0])])
    ended.step([(START + 60 * MS, 60, [0.0])])
    assert ended.state_rows <= 3
    assert len(ended.workers.pieces[0, -1]) < before


def test_a_sparse_stream_is_kept_in_few_slices() -> None:
    """One object in each batch, ten seconds apart, and a window of rows."""
    random = np.random.default_rng(10)
    objects = [(START + n * 10_000 * MS, n, [random.random()]) for n in range(400)]
    queries = [{"id": 1, "v": [0.5], "k": 2, "rows": 150}]
    run = Run(call_of(), queries, 0, 1)
    for thing in objects:
        run.step([thing])
        assert sum(worker == 0 for worker, _ in run.workers.pieces) <= 66
        assert run.state_rows <= 2.5 * 150
    run.finish()
    assert run.hits() == expected(objects, queries)


def test_wrong_lengths_and_other_state_are_refused() -> None:
    queries = [{"id": 1, "v": [0.0], "k": 1, "span": 50 * MS}]
    run = Run(call_of(), queries, 0, 1)
    with pytest.raises(BadRow, match="length 2 where queries"):
        run.step([(START, 7, [1.0, 2.0])])
    run.step([(START, 7, [1.0])])
    other = fixed_queries(run.call, query_table([{**queries[0], "k": 2}]))[0]
    run.workers.job = ShortStays(run.call, other.encode(**other.meta))
    with pytest.raises(StateMismatch, match="begun with queries="):
        run.step([(START + 1, 8, [1.0])])
    with pytest.raises(StateMismatch, match=r"begun with ab.broadcast\(1\) as plan 0"):
        run = Run(call_of(), queries, 0, 1)
        run.step([(START, 7, [1.0])])
        run.plans = {"0": [2, None]}
        run.step([(START + 1, 8, [1.0])])


def test_behind_an_operator_late_is_what_the_last_watermark_had_passed() -> None:
    # watermark        0          10          20
    # arrives          | 5        | 4, 12     | 9 (late), 15
    queries = [{"id": 1, "v": [0.0], "k": 9, "span": 50 * MS}]
    call = call_of()
    fixed = fixed_queries(call, query_table(queries))[0]
    workers = Workers(ShortStays(call, fixed.encode(**fixed.meta)))
    seen: list[tuple[int, int, list[float]]] = []
    hits = []
    for now, times in ((0, [5]), (10, [4, 12]), (20, [9, 15]), (900, [])):
        rows = [(START + t * MS, t, [float(t)]) for t in times]
        arrivals = []
        if rows:
            t, ids, points = zip(*rows, strict=True)
            block = Block.of(t, {"id": np.array(ids), "v": np.array(points)})
            cell = block.in_time_order().encode(side=RIGHT, nearest={"0": [1, None]})
            arrivals = [Block.decode(cell)]
        seen += rows
        mark = START + now * MS if now else 0
        for batch in workers.step(0, arrivals, mark):
            hits += batch.to_pylist()
        assert workers.timers[0] == mark + 1, "called at every watermark, rows or not"
    in_time = [thing for thing in seen if thing[1] != 9]
    assert sorted(hit["object_id"] for hit in hits) == [thing[1] for thing in sorted(in_time)]
    assert [load.late for load in workers.loads] == [0, 0, 1, 0]
