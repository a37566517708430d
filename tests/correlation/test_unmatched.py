"""What found no partner: each such row once, and no other, whatever the plan and the batching."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.correlation import waiting
from anabranch.errors import InvalidCall, StateMismatch
from anabranch.plans.plan import Plan
from anabranch.plans.routing import LivePlans
from anabranch.testing import InProcess
from tests.correlation import twin
from tests.correlation.test_laws import (
    SCHEMA,
    alike_and_same,
    cosine,
    keyed_plans,
    micros,
    plans,
    streams,
    table,
    windows,
)
from tests.correlation.test_one_stream import condition as condition_of_one
from tests.correlation.test_one_stream import rows_of
from tests.examples import examples

WHERE = ab.cosine("v") >= 0.5
HOW = ["left", "right", "full", "anti"]
Found = Counter[tuple[Any, Any]]


def found(process: InProcess) -> Found:
    return Counter((pair["left_id"], pair["right_id"]) for pair in process.pairs)


def condition(by_key: bool) -> tuple[Any, Any, Any]:
    """A predicate, its twin, and the plans under which it may run."""
    if by_key:
        return WHERE & ab.same("k"), alike_and_same, keyed_plans
    return WHERE, cosine, plans


def expected(left: Any, right: Any, window: tuple[int, int], how: str, good: Any = cosine) -> Found:
    """The twin: all pairs, and the rows that are in none."""
    pairs = twin.pairs(left, right, window, good)
    want: Found = Counter() if how == "anti" else Counter(pairs.keys())
    if how in ("left", "full", "anti"):
        want += Counter((row["id"], None) for row in left if row["id"] not in {a for a, _ in pairs})
    if how in ("right", "full"):
        want += Counter(
            (None, row["id"]) for row in right if row["id"] not in {b for _, b in pairs}
        )
    return want


@settings(max_examples=examples(100), deadline=None)
@given(streams(), st.data(), windows, st.sampled_from(HOW), st.booleans())
def test_in_batch(batches, data, window, how: str, by_key: bool) -> None:
    where, good, drawn = condition(by_key)
    plan = data.draw(drawn)
    process = InProcess(SCHEMA, SCHEMA, where=where, window=window, plan=plan, how=how)
    for left, right in batches:
        process.step(table(list(left)), table(list(right)))
    process.finish()
    left, right = ([row for batch in batches for row in batch[side]] for side in (0, 1))
    assert found(process) == expected(left, right, micros(window), how, good)


@settings(max_examples=examples(150), deadline=None)
@given(
    *(streams(), st.data(), windows, st.integers(0, 40), st.sampled_from(HOW)),
    *(st.booleans(), st.sampled_from([0, 2, 10**9])),
)
def test_plans_change_in_streams_with_late_rows(
    batches, data, window, late: int, how: str, by_key: bool, few: int
) -> None:
    """After the last row the watermark goes on until every row is decided."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "FEW_NOTICES", few)
        changing_plans(batches, data, window, late, how, by_key)


def changing_plans(batches, data, window, late: int, how: str, by_key: bool) -> None:
    where, good, drawn = condition(by_key)
    call = {"where": where, "window": window, "watermark": f"{late} ms", "how": how}
    process = InProcess(SCHEMA, SCHEMA, streaming=True, **call)
    live: dict[int, Plan] = {0: data.draw(drawn)}
    left: list[twin.Row] = []
    right: list[twin.Row] = []
    for lefts, rights in batches:
        if data.draw(st.booleans()):
            live[max(live) + 1] = data.draw(drawn)
        mark = process.watermark
        left += [row for row in lefts if row["t"] > mark]
        right += [row for row in rights if row["t"] > mark]
        tables = table(list(lefts)), table(list(rights))
        process.step(*tables, live=(LivePlans(dict(live)),) * 2)
        if data.draw(st.booleans()):  # as a new process would
            again = InProcess(SCHEMA, SCHEMA, streaming=True, **call)
            again.take_up(process)
            again.pairs, again._newest = process.pairs, process._newest
            process = again
    for mark in range(0, 500_000, 20_000):
        process.step(None, None, watermark=1_700_000_000_000_000 + mark)
    assert found(process) == expected(left, right, micros(window), how, good)
    assert process.state_rows == 0


@settings(max_examples=examples(100), deadline=None)
@given(streams(), st.data(), windows, st.integers(0, 40), st.sampled_from(HOW), st.booleans())
def test_a_plan_that_cannot_change_needs_no_second_step(
    batches, data, window, late: int, how: str, compacted: bool
) -> None:
    where, good, drawn = condition(data.draw(st.booleans()))
    plan = data.draw(drawn)
    call = {"where": where, "window": window, "watermark": f"{late} ms", "how": how, "plan": plan}
    process = InProcess(SCHEMA, SCHEMA, streaming=True, fixed=True, **call)
    sides = {"left": (0,), "anti": (0,), "right": (1,), "full": (0, 1)}[how]
    assert (process.homes is None) == all(plan.once(side) for side in sides)
    left: list[twin.Row] = []
    right: list[twin.Row] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "FEW_NOTICES", 0 if compacted else 10**9)
        for lefts, rights in batches:
            mark = process.watermark
            left += [row for row in lefts if row["t"] > mark]
            right += [row for row in rights if row["t"] > mark]
            process.step(table(list(lefts)), table(list(rights)))
            if data.draw(st.booleans()):  # as a new process would, with a plan log or without
                fixed = data.draw(st.booleans())
                again = InProcess(SCHEMA, SCHEMA, streaming=True, fixed=fixed, **call)
                again.take_up(process)
                again.pairs, again._newest = process.pairs, process._newest
                process = again
        for mark in range(0, 500_000, 20_000):
            process.step(None, None, watermark=1_700_000_000_000_000 + mark)
    assert found(process) == expected(left, right, micros(window), how, good)
    assert process.state_rows == 0


@settings(max_examples=examples(100), deadline=None)
@given(streams(), st.data(), st.integers(0, 60), st.integers(0, 40), st.booleans(), st.booleans())
def test_rows_without_an_earlier_alike_one(
    batches, data, window: int, late: int, fixed: bool, by_key: bool
) -> None:
    """Each once, and later than all that earlier steps have emitted; plans change if they may."""
    where, good, drawn = condition_of_one(by_key)
    plan = data.draw(drawn)
    call = {"where": where, "window": f"{window} ms", "watermark": f"{late} ms", "how": "dedupe"}
    process = InProcess(SCHEMA, None, plan=plan, streaming=True, fixed=fixed, **call)
    live: dict[int, Plan] = {0: plan}
    rows: list[twin.Row] = []
    emitted = 0
    for batch in [*batches, None]:
        mark = process.watermark if batch is not None else 1_700_000_001_000_000
        before = len(process.pairs)
        if batch is None:
            process.step(None, watermark=mark)
        else:
            if not fixed and data.draw(st.booleans()):
                live[max(live) + 1] = data.draw(drawn)
            rows += [row for row in rows_of(batch) if row["t"] > mark]
            process.step(table(rows_of(batch)), live=(LivePlans(dict(live)),) * 2)
        times = [pair["right_t"] for pair in process.pairs[before:]]
        assert all(emitted < t <= mark for t in times)
        emitted = max([emitted, *times])

    def alike(a: twin.Row, b: twin.Row) -> bool:
        earlier = (a["t"], a["id"]) < (b["t"], b["id"]) and b["t"] - a["t"] <= window * 1000
        return earlier and good(a, b) is not None

    first = [b["id"] for b in rows if not any(alike(a, b) for a in rows)]
    assert found(process) == Counter((None, ident) for ident in first)
    # Every row in time is emitted or a duplicate, by the reports too.
    loads = process.loads
    alone = 0 if process.homes is None else len(process.pairs)  # which a home takes from the other
    assert sum(load.unmatched for load in loads) + alone == len(first)
    assert sum(load.matched for load in loads) - alone == len(rows) - len(first)
    assert sum(load.pairs for load in loads) == 0


def test_kept_columns_and_texts_as_ids() -> None:
    schema = SCHEMA.set(0, pa.field("id", pa.string()))
    base = 1_700_000_000_000_000
    rows = [{"id": 0, "t": base + n * 1000, "v": [1, 0, 0], "x": n, "k": f"k{n}"} for n in range(4)]
    sides = [
        table(rows[:3]).set_column(0, "id", pa.array(["a", "b", "c"])),
        table(rows[3:]).set_column(0, "id", pa.array(["a"])),
    ]
    process = InProcess(schema, schema, where=WHERE, window="1 ms", keep=["x", "k"], how="full")
    process.step(*sides)
    process.finish()
    lines = sorted(
        (
            (p["left_id"], p["right_id"], p["left_k0"], p["left_k1"], p["right_k1"])
            for p in process.pairs
        ),
        key=str,
    )
    assert lines == [
        ("a", None, 0, "k0", None),
        ("b", None, 1, "k1", None),
        ("c", "a", 2, "k2", "k3"),
    ]


@pytest.mark.parametrize(
    ("right", "how", "message"),
    [
        (
            SCHEMA,
            "outer",
            "how must be 'inner' or 'left' or 'right' or 'full' or 'anti', got 'outer'",
        ),
        (SCHEMA, "dedupe", "how must be"),
        (None, "left", "needs two streams; for rows of one stream"),
    ],
)
def test_wrong_calls(right: Any, how: str, message: str) -> None:
    with pytest.raises(InvalidCall) as error:
        InProcess(SCHEMA, right, where=WHERE, window="1 s", how=how)
    assert message in str(error.value)


@pytest.mark.parametrize("fixed", [True, False])
def test_an_id_may_come_again_at_another_time(fixed: bool) -> None:
    base = 1_700_000_000_000_000

    def rows(*given: tuple[int, int]) -> pa.Table:
        return table([{"id": n, "t": base + t, "v": [1, 0, 0], "x": 0, "k": "k"} for n, t in given])

    for batches in ([rows((1, 0), (1, 1000))], [rows((1, 0)), rows((2, 900)), rows((1, 1000))]):
        call = {"where": ab.same("x"), "window": "10 s", "watermark": "0 s", "how": "dedupe"}
        process = InProcess(SCHEMA, None, streaming=True, fixed=fixed, **call)
        for batch in batches:
            process.step(batch)
        process.step(None, watermark=base + 10**9)
        assert [(p["right_id"], p["right_t"] - base) for p in process.pairs] == [(1, 0)]


@pytest.mark.parametrize("plan", [ab.grid(2, 2), ab.broadcast(4)])
def test_nothing_is_stored_of_a_row_but_that_it_has_met_someone(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = 1_700_000_000_000_000
    monkeypatch.setattr(waiting, "FEW_NOTICES", 0)
    call = {"where": ab.within("x", 9), "window": "1 min", "watermark": "1 s", "how": "left"}
    process = InProcess(SCHEMA, SCHEMA, streaming=True, fixed=True, plan=plan, **call)
    inner = InProcess(SCHEMA, SCHEMA, streaming=True, plan=plan, **{**call, "how": "inner"})
    for n in range(30):
        rows = [
            {"id": n * 20 + i, "t": base + n * 10**6 + i, "v": [1, 0, 0], "x": i * 100, "k": "k"}
            for i in range(20)
        ]
        for run in (process, inner):
            run.step(table(rows), table(rows[:10]))
    held = process.state_rows - inner.state_rows
    # 300 of 600 have met someone: at one worker, or at each of two of a grid. Notices come again
    # with every partner, and of those that do, as many are stored as half of the others.
    met = 300 if process.homes is None else 600
    assert met <= held <= met * 3 // 2
    assert all(load.unmatched == 0 for load in process.loads)
    assert process.pairs and all(pair["right_id"] is not None for pair in process.pairs)


def test_a_watermark_that_goes_back_decides_nothing_again() -> None:
    base = 1_700_000_000_000_000
    call = {"where": ab.within("x", 0), "window": "1 s", "watermark": "0 s", "how": "left"}
    process = InProcess(SCHEMA, SCHEMA, streaming=True, fixed=True, plan=ab.broadcast(1), **call)
    rows = [
        {"id": n, "t": base + n * 10**6, "v": [1, 0, 0], "x": n, "k": "k"} for n in range(0, 9, 4)
    ]
    process.step(table(rows), None)
    for mark in (3, 1, 3, 6, 2, 20):
        process.step(
            None, table([{**rows[0], "x": -1, "t": base + 10**9}]), watermark=base + mark * 10**6
        )
    assert [pair["left_id"] for pair in process.pairs] == [0, 4, 8]


@pytest.mark.parametrize("plan", [ab.grid(2, 2), ab.broadcast(4)])
def test_rows_that_wait_take_no_room_of_their_own(plan: Plan) -> None:
    base = 1_700_000_000_000_000
    call = {"where": ab.within("x", 0), "window": "10 s", "watermark": "1 s", "plan": plan}
    runs = {
        how: InProcess(SCHEMA, SCHEMA, streaming=True, fixed=True, **call, how=how)
        for how in ("inner", "left", "full")
    }
    for n in range(30):
        row = {"id": n, "t": base + n * 10**6, "v": [1, 0, 0], "x": n, "k": "k"}
        for run in runs.values():
            run.step(table([row]), table([{**row, "x": -1}]))
    assert len({run.state_rows for run in runs.values()}) == 1
    assert len(runs["left"].pairs) == 18  # those that the watermark has passed by ten seconds
    assert len(runs["full"].pairs) == 36


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ab.grid(2, 2), ab.broadcast(4)),
        (ab.broadcast(4, "left"), ab.broadcast(4, "right")),
    ],
)
def test_what_another_plan_has_sent_is_not_decided(before: Any, after: Any) -> None:
    """All rows were met, elsewhere than where they wait; the first step after a restart is one
    without rows.
    """
    call = {"where": ab.within("x", 0), "window": "1 s", "watermark": "0 s", "how": "left"}
    process = InProcess(SCHEMA, SCHEMA, streaming=True, fixed=True, plan=before, **call)
    now = 1_700_000_000_000_000
    rows = [{"id": n, "t": now, "v": [1.0], "x": n, "k": ""} for n in range(8)]
    process.step(table([*rows, {**rows[0], "id": 99, "t": now + 10**9}]), table(rows))
    again = InProcess(SCHEMA, SCHEMA, streaming=True, fixed=True, plan=after, **call)
    again.take_up(process)
    again._newest = process._newest
    with pytest.raises(StateMismatch, match="another plan has sent"):
        again.step(None, None)
