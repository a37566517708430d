"""Windows that count rows: the newest so many of each side, whatever plan, batching and arrival."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.plans.plan import Plan
from anabranch.plans.routing import LivePlans
from anabranch.testing import InProcess
from tests.correlation import twin
from tests.correlation.test_laws import BASE, SCHEMA, cosine, found, once, streams, table
from tests.examples import examples

WHERE = ab.cosine("v") >= 0.5
Row = dict[str, Any]

plans = st.one_of(
    st.builds(ab.broadcast, st.integers(1, 5), st.sampled_from(["left", "right"])),
    st.builds(ab.grid, st.integers(1, 3), st.integers(1, 3)),
)
windows = st.tuples(st.integers(0, 12), st.integers(0, 12)).filter(any)


def sides(batches: list[twin.Batch]) -> tuple[list[twin.Row], list[twin.Row]]:
    left, right = ([row for batch in batches for row in batch[n]] for n in (0, 1))
    return left, right


@settings(max_examples=examples(50), deadline=None)
@given(streams(), plans, windows)
def test_in_batch_every_pair_comes_once(batches, plan: Plan, window: tuple[int, int]) -> None:
    process = InProcess(SCHEMA, SCHEMA, where=WHERE, window=window, plan=plan)
    for left, right in batches:
        process.step(table(list(left)), table(list(right)))
    process.finish()
    expected = twin.pairs_by_rows(*sides(batches), window, cosine)
    assert found(process) == once(expected)
    for pair in process.pairs:
        value = expected[pair["left_id"], pair["right_id"]]
        assert pair["score"] == pytest.approx(value, abs=1e-15)
    times = {row["id"]: row["t"] for rows in sides(batches) for row in rows}
    assert all(pair["left_t"] == times[pair["left_id"]] for pair in process.pairs)
    assert all(pair["right_t"] == times[pair["right_id"]] for pair in process.pairs)


@settings(max_examples=examples(40), deadline=None)
@given(streams(), st.data(), windows, st.integers(0, 40))
def test_plans_change_in_a_stream_with_late_rows(batches, data, window, late: int) -> None:
    """Also plans that are left out as soon as workers report that their rows have expired."""
    call: dict[str, Any] = {"where": WHERE, "window": window, "watermark": f"{late} ms"}
    process = InProcess(SCHEMA, SCHEMA, streaming=True, **call)
    live: dict[int, Plan] = {0: data.draw(plans)}
    newest: dict[int, int] = {}
    for left, right in [*batches, *end()]:
        if data.draw(st.booleans()):
            live[max(live) + 1] = data.draw(plans)
        for number in [n for n in live if n != max(live) and n in newest]:
            if newest[number] <= max((load.watermark for load in process.workers.loads), default=0):
                del live[number]
        if data.draw(st.booleans()):  # as after a restart
            other = InProcess(SCHEMA, SCHEMA, streaming=True, **call)
            other.take_up(process)
            other.pairs, other._newest = process.pairs, process._newest
            process = other
        process.step(table(list(left)), table(list(right)), live=(LivePlans(dict(live)),) * 2)
        for load in process.workers.loads:
            for number, time in load.newest.items():
                newest[int(number)] = max(newest.get(int(number), 0), time)
    marks = twin.watermarks([*batches, *end()], late * 1000)
    left, right, dropped = twin.in_time([*batches, *end()], marks)
    expected = twin.pairs_by_rows([row for row in left if row["id"] < 1000], right, window, cosine)
    assert Counter({p: n for p, n in found(process).items() if p[0] < 1000}) == once(expected)
    assert sum(load.late for load in process.loads) == dropped


def end() -> list[twin.Batch]:
    """What moves the watermark past all rows, and is itself alike nothing."""
    return [
        ([{"id": 1000 + n, "t": BASE + 10**9 * (n + 1), "v": [1, 1, 1], "x": 0, "k": ""}], [])
        for n in (0, 1)
    ]


@settings(max_examples=examples(30), deadline=None)
@given(streams(), st.data(), st.integers(1, 12), st.integers(0, 40), st.booleans())
def test_one_stream(batches, data, window: int, late: int, streaming: bool) -> None:
    call: dict[str, Any] = {"watermark": f"{late} ms", "streaming": True} if streaming else {}
    process = InProcess(SCHEMA, None, where=WHERE, window=window, **call)
    either = st.one_of(plans, st.builds(ab.triangle, st.integers(1, 4)))
    live: dict[int, Plan] = {0: data.draw(either)}
    taken: list[Row] = []
    for batch in [*batches, *end()]:
        if data.draw(st.booleans()):
            live[max(live) + 1] = data.draw(either)
        rows = [*batch[0], *batch[1]]
        taken += [row for row in rows if row["t"] > process.watermark]
        process.step(table(rows), live=(LivePlans(dict(live)),) * 2)
    process.finish()
    ordered = sorted(taken, key=lambda row: (row["t"], row["id"]))
    expected = Counter(
        (ordered[i]["id"], ordered[j]["id"])
        for i, j in combinations(range(len(ordered)), 2)
        if j - i <= window and cosine(ordered[i], ordered[j]) is not None
    )
    assert found(process) == expected


@pytest.mark.parametrize(
    ("where", "good"),
    [
        (ab.same("k") & WHERE, lambda a, b: a["k"] == b["k"] and cosine(a, b) is not None),
        (ab.within("x", 1), lambda a, b: abs(a["x"] - b["x"]) <= 1),
        (ab.manhattan("v") <= 3, lambda a, b: twin.manhattan(a["v"], b["v"]) <= 3),
        (ab.differs("k"), lambda a, b: a["k"] != b["k"]),
        (
            ab.custom(lambda a, b: a["x"][:, None] + b["x"] == 7, left=["x"], right=["x"]),
            lambda a, b: a["x"] + b["x"] == 7,
        ),
    ],
)
def test_every_kind_of_filter(where: Any, good: Any) -> None:
    @settings(max_examples=examples(12), deadline=None)
    @given(streams(), windows)
    def law(batches, window: tuple[int, int]) -> None:
        process = InProcess(SCHEMA, SCHEMA, where=where, window=window)
        for left, right in batches:
            process.step(table(list(left)), table(list(right)))
        process.finish()
        score = lambda a, b: 1.0 if good(a, b) else None  # noqa: E731
        assert found(process) == once(twin.pairs_by_rows(*sides(batches), window, score))

    law()


def rows_of(count: int, step: int = 1000, first: int = 0) -> list[Row]:
    return [
        {"id": first + n, "t": BASE + n * step, "v": [1, 0, 0], "x": n, "k": "k"}
        for n in range(count)
    ]


def test_state_is_that_of_the_window_and_an_idle_side_keeps_its_newest_rows() -> None:
    call: dict[str, Any] = {"where": WHERE, "window": (30, 20), "watermark": "0 s"}
    process = InProcess(SCHEMA, SCHEMA, streaming=True, plan=ab.grid(1, 1), **call)
    process.step(None, table(rows_of(50, first=5000)))
    rows = rows_of(2000)
    held = []
    for start in range(0, 2000, 40):
        process.step(table(rows[start : start + 40]))
        held.append(process.workers.state_rows)
    assert max(held[5:]) <= 30 + 50 + 80  # whole slices expire, of a step's rows or fewer
    last = {pair["right_id"] for pair in process.pairs if pair["left_id"] == 1900}
    assert last == set(range(5030, 5050))


def test_a_plan_is_retired_when_so_many_newer_rows_have_come() -> None:
    process = InProcess(SCHEMA, SCHEMA, streaming=True, where=WHERE, window=30, watermark="0 s")
    rows, expired = rows_of(600), []
    for start in range(0, 600, 10):
        part = rows[start : start + 10]
        process.step(table(part), table([{**row, "id": row["id"] + 5000} for row in part]))
        if start >= 100:
            expired.append((process.workers.loads[-1].watermark - part[-1]["t"]) // 1000)
    # The last 10 wait for the watermark, and 30 newer ones have come of the rows before these.
    assert set(expired) == {-40}
    notes = process.order.kernel(0).slices.notes
    assert len(notes.marks) <= 8


@settings(max_examples=examples(5), deadline=None)
@given(streams(), windows, st.booleans())
def test_histograms(batches, window: tuple[int, int], by_range: bool) -> None:
    batches = [
        tuple([{**row, "v": [abs(x) for x in row["v"]]} for row in side] for side in batch)
        for batch in batches
    ]
    plan = ab.ranges(2) if by_range else None
    where = ab.emd("v", dim=3) <= 0.4001
    process = InProcess(SCHEMA, SCHEMA, where=where, window=window, plan=plan)
    for left, right in batches:
        process.step(table(left), table(right))
    process.finish()

    def score(a: twin.Row, b: twin.Row) -> float | None:
        p, q = ([x / sum(row["v"]) for x in row["v"]] for row in (a, b))
        value = abs(p[0] - q[0]) + abs(p[0] + p[1] - q[0] - q[1])  # on a line of three bins
        return value if value <= 0.4001 else None

    assert found(process) == once(twin.pairs_by_rows(*sides(batches), window, score))


def test_many_rows_as_kernels_for_many_see_them() -> None:
    random = np.random.default_rng(3)
    count, window = 3000, (700, 400)
    v, t = random.normal(size=(2, count, 3)).round(2), np.sort(random.integers(0, 9000, (2, count)))
    stamps = pa.timestamp("us", "UTC")
    left, right = (
        pa.table(
            {
                "id": pa.array(np.arange(count)),
                "ts": pa.array(BASE + t[n] * 1000, stamps),
                "v": pa.array(v[n].tolist(), SCHEMA.field("v").type),
                "x": pa.array(np.zeros(count, int)),
                "k": pa.array([""] * count),
            }
        )
        for n in (0, 1)
    )
    process = InProcess(SCHEMA, SCHEMA, where=ab.dot("v") >= 6.005, window=window)
    process.step(left, right)
    process.finish()
    ranks, before = np.arange(count), np.searchsorted(t[0], t[1], "right")
    after = np.searchsorted(t[1], t[0], "left")
    near = (ranks >= after[:, None] - window[1]) & (before <= ranks[:, None] + window[0])
    a, b = v.astype(np.float32).astype(float)
    expected = np.argwhere(near & (a @ b.T >= 6.005))
    assert len(expected) > 1000
    assert found(process) == Counter(map(tuple, expected.tolist()))


def test_equal_times_are_ordered_by_side_and_id_and_texts_by_their_letters() -> None:
    schema = SCHEMA.set(0, pa.field("id", pa.string()))
    same = [{**rows_of(1)[0]} for _ in range(3)]
    left = table(same).set_column(0, "id", pa.array(["b", "c", "a"]))
    right = table(same).set_column(0, "id", pa.array(["y", "z", "x"]))
    process = InProcess(schema, schema, where=WHERE, window=(1, 3))
    process.step(left, right)
    process.finish()
    assert set(found(process)) == {("c", name) for name in "xyz"}  # left rows come first


def test_bad_and_late_rows_take_no_rank() -> None:
    rows = rows_of(6, step=1_000_000)
    rows[2]["v"] = [0, 0, 0]  # no direction
    call: dict[str, Any] = {"where": ab.cosine("v", dim=3) >= 0.5, "window": 2, "bad_rows": "drop"}
    process = InProcess(SCHEMA, None, streaming=True, watermark="0 s", **call)
    process.step(table(rows))
    process.step(table([{**rows[0], "id": 77}]))  # late
    process.step(table(end()[0][0]))
    assert set(found(process)) == {(0, 1), (0, 3), (1, 3), (1, 4), (3, 4), (3, 5), (4, 5)}
    assert sum(load.late for load in process.loads) == 1
    assert sum(load.rejected for load in process.loads) == 1
    assert sum(load.rows_left for load in process.loads) == 6  # the last waits


def test_no_row_comes_before_one_that_has_its_rank() -> None:
    """Not even if the watermark goes back: it would get a rank beyond that of later rows."""
    call = {"where": ab.same("k"), "window": 2, "watermark": "0 s"}
    process = InProcess(SCHEMA, None, streaming=True, plan=ab.broadcast(1), **call)
    for ident, t, mark in ((1, 10, 0), (2, 20, 20), (3, 5, 1), (4, 30, 9), (5, 40, 99)):
        row = {"id": ident, "t": BASE + t * 1000, "v": [1, 0, 0], "x": 0, "k": ""}
        process.step(table([row]), watermark=BASE + mark * 1000)
    process.step(None, watermark=BASE + 10**9)
    assert found(process) == Counter({(1, 4): 1})
    assert sum(load.late for load in process.loads) == 3


def test_a_window_of_time_does_not_become_one_of_rows_at_a_restart() -> None:
    timed = InProcess(SCHEMA, SCHEMA, streaming=True, where=WHERE, window="1 s", watermark="0 s")
    timed.step(table(rows_of(3)), table(rows_of(3)))
    counted = InProcess(SCHEMA, SCHEMA, streaming=True, where=WHERE, window=5, watermark="0 s")
    counted.order.heads = timed.workers.heads
    with pytest.raises(ab.errors.StateMismatch, match=r"window.*1 second.*5 rows"):
        counted.step(table(rows_of(3)))


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("two durations or two numbers of rows", {"window": (10, "1 minute")}),
        ("at least 1, got 0", {"window": 0}),
        ("at least 0, got -5", {"window": (10, -5)}),
        ("window must be a whole number of rows, or a duration, got 1.5", {"window": 1.5}),
        ("cuts time", {"window": 10, "plan": ab.segments(2)}),
        ("how='left' needs a window of time", {"window": 10, "how": "left"}),
    ],
)
def test_what_cannot_be_is_explained(message: str, call: dict[str, Any]) -> None:
    with pytest.raises(ab.errors.InvalidCall, match=message):
        InProcess(SCHEMA, SCHEMA, **{"where": WHERE, **call})
