"""One stream against itself: every two rows once, the earlier on the left, whatever happens."""

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
from anabranch.correlation.call import plan_correlation
from anabranch.correlation.filters import apart
from anabranch.correlation.filters.tiles import Pair
from anabranch.correlation.matching import Matcher
from anabranch.errors import InvalidCall
from anabranch.flow.blocks import Block
from anabranch.plans.plan import Plan
from anabranch.plans.routing import LivePlans
from anabranch.plans.segments import Segments
from anabranch.testing import InProcess, check_plan
from tests.correlation.test_laws import SCHEMA, alike_and_same, cosine, streams, table
from tests.examples import examples

WHERE = ab.cosine("v") >= 0.5
Row = dict[str, Any]

plans = st.one_of(
    st.builds(ab.triangle, st.integers(1, 4)),
    st.builds(ab.broadcast, st.integers(1, 5), st.sampled_from(["left", "right"])),
    st.builds(ab.grid, st.integers(1, 3), st.integers(1, 3)),
    st.builds(
        Segments, st.integers(1, 4), st.integers(1000, 50_000), st.sampled_from(["left", "right"])
    ),
)


keyed_plans = plans | st.builds(ab.keyed, st.integers(1, 5))


def condition(by_key: bool) -> tuple[Any, Any, Any]:
    """A predicate, its twin, and the plans under which it may run."""
    if by_key:
        return WHERE & ab.same("k"), alike_and_same, keyed_plans
    return WHERE, cosine, plans


def rows_of(batch: Any) -> list[Row]:
    return [*batch[0], *batch[1]]


def pairs(rows: list[Row], window: int, good: Any = cosine) -> Counter[tuple[int, int]]:
    """The twin: every two rows, in order."""
    ordered = sorted(rows, key=lambda row: (row["t"], row["id"]))
    return Counter(
        (a["id"], b["id"])
        for a, b in combinations(ordered, 2)
        if b["t"] - a["t"] <= window and good(a, b) is not None
    )


def found(process: InProcess) -> Counter[tuple[int, int]]:
    return Counter((pair["left_id"], pair["right_id"]) for pair in process.pairs)


@settings(max_examples=examples(150), deadline=None)
@given(streams(), st.data(), st.integers(0, 60), st.booleans())
def test_in_batch_every_two_rows_come_once(batches, data, window: int, by_key: bool) -> None:
    where, good, drawn = condition(by_key)
    plan = data.draw(drawn)
    process = InProcess(SCHEMA, None, where=where, window=f"{window} ms", plan=plan)
    for batch in batches:
        process.step(table(rows_of(batch)))
    rows = [row for batch in batches for row in rows_of(batch)]
    assert found(process) == pairs(rows, window * 1000, good)
    for pair in process.pairs:
        assert pair["left_t"] <= pair["right_t"]


@settings(max_examples=examples(150), deadline=None)
@given(streams(), st.data(), st.integers(0, 60), st.integers(0, 40), st.booleans())
def test_plans_change_in_a_stream_with_late_rows(
    batches, data, window: int, late: int, by_key: bool
) -> None:
    where, good, drawn = condition(by_key)
    process = InProcess(
        SCHEMA, None, where=where, window=f"{window} ms", watermark=f"{late} ms", streaming=True
    )
    live: dict[int, Plan] = {0: data.draw(drawn)}
    taken: list[Row] = []
    for batch in batches:
        if data.draw(st.booleans()):
            live[max(live) + 1] = data.draw(drawn)
        mark = process.watermark
        taken += [row for row in rows_of(batch) if row["t"] > mark]
        process.step(table(rows_of(batch)), live=(LivePlans(dict(live)),) * 2)
    assert found(process) == pairs(taken, window * 1000, good)
    given_rows = sum(len(rows_of(batch)) for batch in batches)
    assert sum(load.late for load in process.loads) == given_rows - len(taken)
    assert sum(load.rows_left for load in process.loads) == given_rows


@settings(max_examples=examples(80), deadline=None)
@given(streams(), st.integers(0, 60), st.sampled_from(["x", "k"]), st.booleans())
def test_differs_and_same_and_bands(batches, window: int, column: str, by_key: bool) -> None:
    where = ab.within("x", 3) & ab.differs(column)
    if by_key:
        where = where & ab.same("k" if column == "x" else "x")
    process = InProcess(SCHEMA, None, where=where, window=f"{window} ms")

    def good(a: Row, b: Row) -> float | None:
        other = "k" if column == "x" else "x"
        alike = not by_key or a[other] == b[other]
        return 1.0 if abs(a["x"] - b["x"]) <= 3 and a[column] != b[column] and alike else None

    for batch in batches:
        process.step(table(rows_of(batch)))
    rows = [row for batch in batches for row in rows_of(batch)]
    assert found(process) == pairs(rows, window * 1000, good)


@settings(max_examples=examples(80), deadline=None)
@given(streams(), plans, plans, st.integers(0, 60), st.data())
def test_one_more_channel_removes_no_pair(batches, plan: Plan, other: Plan, window, data) -> None:
    """Pairs of all channels are those without one of them, and its own; under any two plans."""
    rows = [row for batch in batches for row in rows_of(batch)]
    added = data.draw(st.sampled_from(sorted({row["k"] for row in rows} or {"k"}, key=str)))
    call: dict[str, Any] = {"where": WHERE & ab.differs("k"), "window": f"{window} ms"}
    whole, before = (InProcess(SCHEMA, None, plan=of, **call) for of in (plan, other))
    for batch in batches:
        whole.step(table(rows_of(batch)))
        before.step(table([row for row in rows_of(batch) if row["k"] != added]))
    own = {row["id"] for row in rows if row["k"] == added}
    rest = {pair: n for pair, n in found(whole).items() if not own & {*pair}}
    assert Counter(rest) == found(before)


@pytest.mark.parametrize("groups", [1, 2, 3, 5])
def test_the_triangle_is_a_plan(groups: int) -> None:
    check_plan(ab.triangle(groups))
    check_plan(ab.triangle(groups, weights=[1 + n for n in range(groups)]))


def test_it_costs_half_of_the_stream_joined_with_itself() -> None:
    """Half the comparisons; of 8 workers 4 copies of a row against 2 + 4, so 0.67 of the state."""
    rows = [
        {"id": n, "t": 1_700_000_000_000_000 + n * 1000, "v": [1, n, 0], "x": n, "k": "k"}
        for n in range(600)
    ]
    cuts = [table(rows[start : start + 60]) for start in range(0, 600, 60)]
    call = {"where": WHERE, "window": "200 ms", "watermark": "0 s", "streaming": True}
    one = InProcess(SCHEMA, None, plan=ab.triangle(4), **call)
    two = InProcess(SCHEMA, SCHEMA, plan=ab.grid(2, 4), **call)
    for cut in cuts:
        one.step(cut)
        two.step(cut, cut)
    compared = [sum(load.comparisons for load in run.loads) for run in (one, two)]
    assert compared[0] < 0.52 * compared[1]
    assert one.state_rows < 0.67 * two.state_rows
    busiest = [max(load.comparisons for load in run.loads[-8:]) for run in (one, two)]
    assert busiest[0] < 0.65 * busiest[1]
    twice = found(two)
    assert found(one) == Counter({p: 1 for p in twice if p[0] < p[1]})


def test_texts_order_ids_of_one_time() -> None:
    import pyarrow as pa

    schema = SCHEMA.set(0, pa.field("id", pa.string()))
    rows = [
        {"id": 0, "t": 1_700_000_000_000_000, "v": [1, 0, 0], "x": 0, "k": "k"} for _ in range(3)
    ]
    names = pa.array(["b", "c", "a"])
    process = InProcess(schema, None, where=WHERE, window="1 s", plan=ab.triangle(2))
    process.step(table(rows).set_column(0, "id", names))
    assert found(process) == Counter([("a", "b"), ("a", "c"), ("b", "c")])


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("stream has no column 'w'", {"where": ab.cosine("w") >= 0.5}),
        ("compares two different columns", {"where": ab.within("x", "id", 1)}),
        ("ordered must be True or False, got 1", {"ordered": 1}),
        (
            "ab.same(...) of two columns of one stream gives a row two keys",
            {"where": ab.same("x", "id"), "ordered": True, "plan": ab.keyed(2)},
        ),
        ("device='gpu' knows windows of time", {"window": 9, "device": "gpu"}),
        ("one stream has one window", {"window": ("1 s", "2 s")}),
        ("time: one stream has one", {"time": ("ts", "at")}),
        ("keep: one stream has one", {"keep": (["x"], ["k"])}),
    ],
)
def test_wrong_calls(message: str, call: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall) as error:
        InProcess(SCHEMA, None, **{"where": WHERE, "window": "1 s", **call})
    assert str(error.value).count(message) == 1


def test_two_streams_have_their_order() -> None:
    with pytest.raises(InvalidCall, match="ordered=True is for one stream"):
        InProcess(SCHEMA, SCHEMA, where=WHERE, window="1 s", ordered=True)


def test_a_triangle_is_not_for_two_streams() -> None:
    with pytest.raises(InvalidCall, match="is for one stream against itself"):
        InProcess(SCHEMA, SCHEMA, where=WHERE, window="1 s", plan=ab.triangle(2))


@settings(max_examples=examples(50), deadline=None)
@given(streams(), st.integers(0, 60), plans)
def test_differs_alone(batches, window: int, plan: Plan) -> None:
    process = InProcess(SCHEMA, None, where=ab.differs("k"), window=f"{window} ms", plan=plan)
    for batch in batches:
        process.step(table(rows_of(batch)))
    rows = [row for batch in batches for row in rows_of(batch)]
    want = pairs(rows, window * 1000, lambda a, b: 1.0 if a["k"] != b["k"] else None)
    assert found(process) == want


DIFFERING: dict[str, tuple[Any, Any]] = {
    "vectors": (ab.cosine("v") >= 0.5, cosine),
    "loops": (ab.manhattan("v") <= 3, lambda a, b: _near(a, b, 3)),
    "own": (
        ab.custom(lambda a, b: a["x"][:, None] <= b["x"], left="x", right="x"),
        lambda a, b: 1.0 if a["x"] <= b["x"] else None,
    ),
    "all": (None, lambda a, b: 1.0),
}


def _near(a: Row, b: Row, limit: float) -> float | None:
    return 1.0 if sum(abs(p - q) for p, q in zip(a["v"], b["v"], strict=True)) <= limit else None


@settings(max_examples=examples(100), deadline=None)
@given(
    streams(),
    plans,
    st.integers(0, 60) | st.just("rows"),
    st.sampled_from(sorted(DIFFERING)),
    st.sampled_from(["x", "k"]),
    st.sampled_from([0, 10**18]),
)
def test_rows_of_one_channel_are_not_compared(
    batches, plan: Plan, window: Any, which: str, column: str, cost: int
) -> None:
    """Whether blocks are taken apart or not, by numbers and by texts: the same pairs."""
    term, good = DIFFERING[which]
    where = ab.differs(column) if term is None else term & ab.differs(column)
    span = 10**9 if window == "rows" else window * 1000
    if window == "rows" and isinstance(plan, Segments):
        plan = ab.triangle(2)
    within = 10**6 if window == "rows" else f"{window} ms"
    process = InProcess(SCHEMA, None, where=where, window=within, plan=plan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apart, "PART_NS", cost)
        for batch in batches:
            process.step(table(rows_of(batch)))
        process.finish()
    rows = [row for batch in batches for row in rows_of(batch)]

    def differ(a: Row, b: Row) -> float | None:
        return 1.0 if a[column] != b[column] else None

    assert found(process) == pairs(rows, span, lambda a, b: differ(a, b) and good(a, b))
    if not cost:
        compared = sum(load.comparisons for load in process.loads)
        assert compared == sum(pairs(rows, span, differ).values())


@pytest.mark.parametrize("channels", [2, 4])
def test_of_channels_in_turn_one_comparison_in_so_many_is_saved(channels: int) -> None:
    count = 3000
    call, _ = plan_correlation(
        {"id": "bigint", "ts": "timestamp", "v": "array<float>", "c": "bigint"},
        None,
        where=(ab.cosine("v") >= 0.99) & ab.differs("c"),
        window="1 hour",
    )
    assert call is not None
    ids = np.arange(2 * count)
    columns = {"s0": np.random.default_rng(3).normal(size=(2 * count, 256)), "s1": ids % channels}
    rows = Block.of(ids, {"id": ids, "s0": columns["s0"].astype("f4"), "s1": columns["s1"]})
    pair = Pair(rows.slice(0, count), rows.slice(count, 2 * count), call.window, ordered=True)
    assert Matcher(call).comparisons(pair) == count * count * (channels - 1) // channels
    few = Pair(rows.slice(0, 20), rows.slice(count, 2 * count), call.window, ordered=True)
    assert Matcher(call).comparisons(few) == 20 * count  # taking it apart would cost more


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("window", ["1 s", 50])
@pytest.mark.parametrize("plan", [ab.triangle(1), ab.triangle(3), ab.grid(2, 2)])
def test_rows_of_one_time_are_compared_once(plan: Plan, window: Any, texts: bool) -> None:
    """All rows have the same time, as in a table of days; they come in no order of ids."""
    count, base = 200, 1_700_000_000_000_000
    order = [(7 * n) % count for n in range(count)]
    rows = table([{"id": n, "t": base, "v": [1, 0, 0], "x": n % 3, "k": "k"} for n in order])
    if texts:
        rows = rows.set_column(0, "id", pa.array([f"é{n:03d}" for n in order]))
    where = ab.within("x", 0.5)
    process = InProcess(rows.schema, None, where=where, window=window, plan=plan)
    process.step(rows)
    process.finish()
    due = count * (count - 1) // 2 if window == "1 s" else sum(min(n, 50) for n in range(count))
    assert sum(load.comparisons for load in process.loads) == due
    ids = sorted(rows["id"].to_pylist())
    reach = count if window == "1 s" else 50
    assert found(process) == Counter(
        (ids[i], ids[j])
        for i in range(count)
        for j in range(i + 1, min(i + reach + 1, count))
        if i % 3 == j % 3
    )
