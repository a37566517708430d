"""Any plan, any batching, any arrival order: the pairs of the brute-force twin, each once.

::

    left   ----a------b--c------------      arrival may swap neighbours within `late`,
    right  ------x-------y------z-----      batches may be cut anywhere, times may tie
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.flow.container import unpack
from anabranch.plans.hashed import keyed
from anabranch.plans.plan import Plan
from anabranch.plans.segments import Segments
from anabranch.testing import InProcess
from tests.correlation import twin
from tests.examples import examples

BASE = 1_700_000_000_000_000
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "ts": pa.timestamp("us", "UTC"),
        "v": pa.list_(pa.float32()),
        "x": pa.int64(),
        "k": pa.string(),
    }
)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([row["id"] for row in rows], pa.int64()),
            "ts": pa.array([row["t"] for row in rows], SCHEMA.field("ts").type),
            "v": pa.array([row["v"] for row in rows], SCHEMA.field("v").type),
            "x": pa.array([row["x"] for row in rows], pa.int64()),
            "k": pa.array([row["k"] for row in rows], pa.string()),
        }
    )


@st.composite
def streams(draw: st.DrawFn, unit: int = 1000) -> list[twin.Batch]:
    """Micro-batches of both sides, in an arrival order that need not be that of time.

    Times are small multiples of `unit`, so that ties and window ends are hit all the time.
    """
    n = draw(st.integers(0, 60))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([1, 5, 40, 300]))
    jitter = draw(st.sampled_from([0, 3, 30]))
    t = np.sort(random.integers(0, spread + 1, n))
    arrival = np.argsort(t + random.integers(0, jitter + 1, n), kind="stable")
    sides, vectors = random.integers(0, 2, n), random.integers(-2, 3, (n, 3))
    vectors[:, 0] = np.where((vectors == 0).all(axis=1), 1, vectors[:, 0])
    rows = [
        {
            "id": int(i),
            "t": BASE + int(t[i]) * unit,
            "v": vectors[i].tolist(),
            "x": int(random.integers(0, 8)),
            "k": f"k{random.integers(0, 4)}",
        }
        for i in range(n)
    ]
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=8)))
    batches = []
    for start, stop in zip([0, *cuts], [*cuts, n], strict=True):
        mine = arrival[start:stop]
        batches.append(
            ([rows[i] for i in mine if sides[i] == 0], [rows[i] for i in mine if sides[i] == 1])
        )
    return batches


def run(batches: list[twin.Batch], **call: Any) -> InProcess:
    process = InProcess(SCHEMA, SCHEMA, **call)
    for left, right in batches:
        process.step(table(list(left)), table(list(right)))
    return process


def found(process: InProcess) -> Counter[tuple[int, int]]:
    return Counter((pair["left_id"], pair["right_id"]) for pair in process.pairs)


def once(expected: twin.Pairs) -> Counter[tuple[int, int]]:
    return Counter(expected.keys())


def alike_and_same(a: twin.Row, b: twin.Row) -> float | None:
    return cosine(a, b) if a["k"] == b["k"] else None


def cosine(a: twin.Row, b: twin.Row) -> float | None:
    dot = sum(p * q for p, q in zip(a["v"], b["v"], strict=True))
    norms = sum(p * p for p in a["v"]) * sum(q * q for q in b["v"])
    value = dot / math.sqrt(norms)
    return value if value >= 0.5 else None


plans = st.one_of(
    st.builds(ab.broadcast, st.integers(1, 5), st.sampled_from(["left", "right"])),
    st.builds(ab.grid, st.integers(1, 3), st.integers(1, 3)),
    st.builds(
        Segments, st.integers(1, 4), st.integers(1000, 50_000), st.sampled_from(["left", "right"])
    ),
)
# With an equality in the predicate rows may also go by its key.
keyed_plans = plans | st.builds(ab.keyed, st.integers(1, 5))
windows = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(
    lambda w: (f"{w[0]} ms", f"{w[1]} ms")
)


def micros(window: tuple[str, str]) -> tuple[int, int]:
    return tuple(int(part.split()[0]) * 1000 for part in window)  # type: ignore[return-value]


@settings(max_examples=examples(150), deadline=None)
@given(streams(), plans, windows)
def test_in_batch_nothing_is_late_and_every_pair_comes_once(batches, plan: Plan, window):
    process = run(batches, where=ab.cosine("v") >= 0.5, window=window, plan=plan)
    left = [row for batch in batches for row in batch[0]]
    right = [row for batch in batches for row in batch[1]]
    expected = twin.pairs(left, right, micros(window), cosine)
    assert found(process) == once(expected)
    for pair in process.pairs:
        assert pair["score"] == pytest.approx(
            expected[pair["left_id"], pair["right_id"]], abs=1e-15
        )


@settings(max_examples=examples(150), deadline=None)
@given(streams(), plans, windows, st.integers(0, 40))
def test_streaming_drops_late_rows_counts_them_once_and_loses_nothing_else(
    batches, plan: Plan, window, late
):
    process = run(
        batches,
        where=ab.cosine("v") >= 0.5,
        window=window,
        plan=plan,
        watermark=f"{late} ms",
        streaming=True,
    )
    marks = list(twin.watermarks(batches, late * 1000))
    left, right, dropped = twin.in_time(batches, marks)
    assert found(process) == once(twin.pairs(left, right, micros(window), cosine))
    assert sum(load.late for load in process.loads) == dropped
    rows = sum(load.rows_left + load.rows_right for load in process.loads)
    assert rows == sum(len(a) + len(b) for a, b in batches)


@st.composite
def own_watermarks(draw: st.DrawFn) -> tuple[list[twin.Batch], list[int]]:
    """Micro-batches and the watermark of each, which may be later than some of its rows.

    ::

        watermark     W1        W2            an aggregate or an outer join upstream tells rows
        batch 2      --|--a--b---|--c---      between W1 and W2 in the batch whose watermark is W2
    """
    batches = draw(streams())
    newest = max((row["t"] for batch in batches for side in batch for row in side), default=BASE)
    reach = st.integers(-2, (newest - BASE) // 1000 + 5)
    moves = draw(st.lists(reach, min_size=len(batches), max_size=len(batches)))
    return batches, [BASE + 1000 * m for m in sorted(moves)]


def last_marks(batches: list[twin.Batch], marks: list[int]) -> list[int]:
    """What each batch's rows are judged by: the watermark before, once any worker has heard of one.

    Nothing is known of it before the first rows; with them, every worker hears of it.
    """
    begun = [any(map(any, batches[:n])) for n in range(len(batches))]
    return [mark if known else 0 for known, mark in zip(begun, [0, *marks], strict=False)]


BOTH = ab.same("k") & (ab.cosine("v") >= 0.5)


def run_behind(cls: type[InProcess], batches: Any, marks: Any, **call: Any) -> InProcess:
    process = cls(SCHEMA, SCHEMA, where=BOTH, streaming=True, **call)
    for (left, right), mark in zip(batches, marks, strict=True):
        process.step(table(list(left)), table(list(right)), watermark=mark)
    return process


class Lazy(InProcess):
    """Workers are called only if they have rows or something to free."""

    def __init__(self, *about: Any, **call: Any) -> None:
        super().__init__(*about, **call)
        self.workers.is_due = self._is_due  # type: ignore[method-assign]

    def _is_due(self, worker: int, watermark: int) -> bool:
        due = self.workers.kernel(worker).slices.next_expiry()
        return due is not None and due <= watermark


@settings(max_examples=examples(150), deadline=None)
@given(own_watermarks(), keyed_plans, windows)
def test_behind_an_operator_late_is_what_the_last_watermark_had_passed(given_, plan: Plan, window):
    batches, marks = given_
    process = run_behind(InProcess, batches, marks, plan=plan, window=window)
    left, right, dropped = twin.in_time(batches, last_marks(batches, marks))
    assert found(process) == once(twin.pairs(left, right, micros(window), alike_and_same))
    assert sum(load.late for load in process.loads) == dropped


@pytest.mark.parametrize(
    "plan", [ab.broadcast(1), ab.broadcast(4), *(ab.keyed(n) for n in range(1, 9))], ids=str
)
def test_behind_an_operator_a_worker_without_rows_judges_what_is_late_as_others_do(plan):
    """The first rows of a key come late, to a worker that may have had none before."""
    process = InProcess(
        SCHEMA, SCHEMA, streaming=True, plan=plan, where=ab.same("k"), window="1 minute"
    )
    for at, key, mark in [(60, "a", 0), (70, "a", 50), (10, "b", 60)]:
        rows = [{"id": at, "t": BASE + at * 1000, "v": [1], "x": 0, "k": key}]
        process.step(table(rows), table(rows), watermark=BASE + mark * 1000)
    assert found(process) == Counter(itertools.product([60, 70], repeat=2))
    assert sum(load.late for load in process.loads) == 2


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_behind_an_operator_workers_of_another_plan_judge_what_is_late_as_others_do(workers):
    """All rows have expired, and the query is restarted with more workers than it had."""
    call = {"streaming": True, "where": ab.same("k"), "window": "5 ms", "workers": 8}
    before = InProcess(SCHEMA, SCHEMA, plan=ab.keyed(1), **call)

    def step(run, at, key, mark):
        rows = table([{"id": at, "t": BASE + at * 1000, "v": [1], "x": 0, "k": key}])
        run.step(rows, rows, watermark=BASE + mark * 1000)

    step(before, 60, "a", 0)
    before.step(None, None, watermark=BASE + 500_000)
    after = InProcess(SCHEMA, SCHEMA, plan=ab.keyed(workers), **call)
    after.take_up(before)
    for n, key in enumerate("abcdefgh"):
        step(after, 100, key, 501 + n)
    assert not after.pairs and sum(load.late for load in after.loads) == 16


@pytest.mark.parametrize("how", ["inner", "full"])
def test_behind_an_operator_workers_that_know_no_watermark_are_refused_rows(how):
    """The same where only the restart brings room for the workers of the other plan."""
    call = {"streaming": True, "where": ab.same("k"), "window": "5 ms", "how": how, "fixed": False}
    before = InProcess(SCHEMA, SCHEMA, plan=ab.keyed(2), workers=2, **call)

    def step(run, at, key, mark):
        rows = table([{"id": at, "t": BASE + at * 1000, "v": [1], "x": 0, "k": key}])
        run.step(rows, rows, watermark=BASE + mark * 1000)

    step(before, 60, "a", 0)
    before.step(None, None, watermark=BASE + 500_000)
    at_once = InProcess(SCHEMA, SCHEMA, plan=ab.keyed(8), workers=8, **call)
    at_once.take_up(before)
    with pytest.raises(ab.errors.StateMismatch, match="has 8 workers, and 2 know the watermark"):
        step(at_once, 100, "b", 500)
    again = InProcess(SCHEMA, SCHEMA, plan=ab.keyed(2), workers=8, **call)
    again.take_up(before)
    step(again, 100, "b", 501)
    after = InProcess(SCHEMA, SCHEMA, plan=ab.keyed(8), workers=8, **call)
    after.take_up(again)
    for n, key in enumerate("abcdefgh"):
        step(after, 100, key, 502 + n)
    assert not after.pairs and sum(load.late for load in after.loads) == 2 + 16


@settings(max_examples=examples(150), deadline=None)
@given(own_watermarks(), keyed_plans, windows, st.sampled_from([InProcess, Lazy]))
def test_behind_an_operator_no_row_in_time_misses_a_partner(given_, plan: Plan, window, cls):
    """A worker that was not called before may take in more; of that, too, no pair comes twice."""
    batches, marks = given_
    process = run_behind(cls, batches, marks, plan=plan, window=window)
    left, right, dropped = twin.in_time(batches, last_marks(batches, marks))
    got = found(process)
    assert got.keys() >= twin.pairs(left, right, micros(window), alike_and_same).keys()
    everything = twin.in_time(batches, [0] * len(batches))[:2]
    every = twin.pairs(*everything, micros(window), alike_and_same)
    assert got <= once(every)
    assert sum(load.late for load in process.loads) <= dropped


@settings(max_examples=examples(150), deadline=None)
@given(own_watermarks(), keyed_plans, windows)
def test_behind_an_operator_state_is_freed_by_the_watermark(given_, plan: Plan, window):
    batches, marks = given_
    process = run_behind(InProcess, batches, marks, plan=plan, window=window)
    process.step(None, None, watermark=BASE + 10**9)
    assert process.state_rows == 0


@settings(max_examples=examples(50), deadline=None)
@given(streams(), windows, st.integers(1, 5))
def test_equality_and_a_band_meet_by_key(batches, window, workers):
    process = run(
        batches, where=ab.same("k") & ab.within("x", 2), window=window, plan=keyed(workers)
    )
    left = [row for batch in batches for row in batch[0]]
    right = [row for batch in batches for row in batch[1]]

    def score(a: twin.Row, b: twin.Row) -> float | None:
        return abs(a["x"] - b["x"]) if a["k"] == b["k"] and abs(a["x"] - b["x"]) <= 2 else None

    expected = twin.pairs(left, right, micros(window), score)
    assert found(process) == once(expected)
    assert {(p["left_id"], p["right_id"]): p["score"] for p in process.pairs} == expected


@settings(max_examples=examples(60), deadline=None)
@given(streams(), plans, windows)
def test_comparisons_count_every_joinable_pair_once(batches, plan: Plan, window):
    process = run(batches, where=ab.dot("v") > 100, window=window, plan=plan)
    left = [row for batch in batches for row in batch[0]]
    right = [row for batch in batches for row in batch[1]]
    due = twin.pairs(left, right, micros(window), lambda a, b: True)
    assert sum(load.comparisons for load in process.loads) == len(due)
    assert process.pairs == []


def test_state_is_bounded_by_window_and_lateness():
    process = InProcess(
        SCHEMA, SCHEMA, where=ab.dot("v") > 100, window="50 ms", watermark="10 ms", streaming=True
    )
    most = 0
    for batch in range(200):
        rows = [
            {
                "id": batch * 5 + i,
                "t": BASE + batch * 5000 + i * 1000,
                "v": [1, 0, 0],
                "x": 0,
                "k": "a",
            }
            for i in range(5)
        ]
        process.step(table(rows), table(rows))
        most = max(most, process.state_rows)
    # 50 ms of window, 10 ms of lateness and a slice of slack, one row per ms and side, in two
    # copies each; without expiry it would be 4000.
    assert 200 <= most <= 2 * 2 * (50 + 10 + 30)


def test_input_is_not_changed():
    rows = [{"id": 1, "t": BASE, "v": [3, 4, 0], "x": 1, "k": "a"}]
    before, same = table(rows), table(rows)
    run([(rows, rows)], where=ab.cosine("v") >= 0.5, window="1 ms")
    process = InProcess(SCHEMA, SCHEMA, where=ab.cosine("v") >= 0.5, window="1 ms")
    process.step(same, same)
    assert same.equals(before)
    assert process.pairs[0]["score"] == 1.0


def test_a_lateness_far_beyond_the_window_leaves_few_slices():
    """Rows stay for `late`, so an eighth of the window says nothing of how many there are."""
    call = {
        "where": ab.within("x", 0),
        "window": "1 second",
        "watermark": "1 hour",
        "plan": ab.broadcast(1),
    }
    run = InProcess(SCHEMA, SCHEMA, streaming=True, **call)
    for n in range(400):
        rows = table([{"id": n, "t": BASE + n * 1_000_000, "v": [1.0], "x": n, "k": "a"}])
        run.step(rows, rows)
        (head,) = run.workers.heads.values()
        assert len(unpack(head)[1]["slices"]) <= 130
    assert run.state_rows == 800 and len(head) < 12_000 and len(run.pairs) == 400
