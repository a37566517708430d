"""Queries of `nearest` as they come: bad ones named and counted, fixed ones in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.calls import LONGEST
from anabranch.errors import BadRow, InvalidCall, StateMismatch, changed_settings
from anabranch.neighbours.call import MOST_K, plan_nearest
from anabranch.neighbours.lists.zones import workers_for
from anabranch.neighbours.methods import Queries
from anabranch.neighbours.packing import QueryPacking
from anabranch.neighbours.queries import fixed_queries, read_queries
from anabranch.plans.routing import LivePlans
from tests.neighbours.runs import OBJECTS, START, Run, call_of, expected, query_table

MS = 1000


def asked(**more: Any) -> dict[str, Any]:
    return {"id": 1, "v": [1.0, 2.0], "k": 1, "span": 10**6, **more}


def adding(**more: Any) -> dict[str, Any]:
    return asked(t=START, op="add", **more)


@pytest.mark.parametrize(("watermark", "hearing"), [(None, 3), ("1 second", 1)])
def test_every_worker_hears_of_queries_where_late_is_what_the_last_step_passed(
    watermark: str | None, hearing: int
) -> None:
    """Else the same objects would be late for the queries of some workers and not of others."""
    call = call_of(ops=True, streaming=True, watermark=watermark)
    table = query_table([adding()]).append_column("h", pa.array([5]))
    (batch,) = table.combine_chunks().to_batches()
    packed = QueryPacking(call).pack(batch, LivePlans({0: ab.broadcast(3)}))
    assert len(packed.cells) == hearing


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_query_of_wrong_length_is_the_one_that_is_named(place: int) -> None:
    rows = [asked(id=7), asked(id=8)]
    rows.insert(place, asked(id=9, v=[1.0, 2.0, 3.0]))
    call = call_of(by=ab.euclidean("v", dim=2), bad_rows="drop")
    block, faults = read_queries(call, query_table(rows))
    assert block.columns["id"].tolist() == [7, 8]
    wrong = ["query 9: 'v' has 3 elements where 2 are expected"]
    assert (faults.problems, faults.count) == (wrong, 1)
    unsaid = read_queries(call_of(), query_table(rows))
    assert unsaid[1].problems == ["query 9: 'v' has 3 elements where other queries have 2"]


def test_a_query_of_wrong_length_leaves_no_trace_in_the_state() -> None:
    call = call_of(ops=True, by=ab.euclidean("v", dim=2), bad_rows="drop")
    run = Run(call, None, 10 * MS, 1)
    run.step([], [adding(v=[1.0, 2.0, 3.0])])
    run.newest = START + 100 * MS
    run.step([])
    query = adding(id=2) | {"t": START + 150 * MS}
    objects = [(START + (n + 200) * MS, n, [1.0, 2.0 + n % 3]) for n in range(9)]
    run.step(objects[:5], [query])
    run.step(objects[5:])
    run.finish()
    assert run.hits() == expected(objects, [query]) != []


def test_without_dim_what_came_first_counts_and_dim_is_the_way_out() -> None:
    good, bad = adding(), adding(id=2, v=[1.0, 2.0, 3.0])
    objects = [(START + (n + 1) * MS, n, [1.0, 2.0]) for n in range(3)]
    run = Run(call_of(ops=True), None, 10 * MS, 1)
    run.step(objects[:1], [good])
    for _ in range(2):
        with pytest.raises(
            BadRow, match=r"query 2 .* length 3 where objects and earlier .* have 2"
        ):
            run.step(objects[1:2], [bad])
    run.restart(call_of(ops=True, by=ab.euclidean("v", dim=2), bad_rows="drop"))
    run.step(objects[1:2], [bad])
    run.step(objects[2:])
    run.finish()
    assert run.hits() == expected(objects, [good])
    run.restart(call_of(ops=True, by=ab.euclidean("v", dim=3)))
    with pytest.raises(StateMismatch, match="begun with vectors of length 2, and the call says 3"):
        run.step([(run.newest + MS, 9, [1.0, 2.0, 3.0])])


def test_a_cancellation_before_anything_else_fits_any_length() -> None:
    run = Run(call_of(ops=True), None, 0, 1)
    run.step([], [{"id": 5, "t": START, "op": "cancel"}])
    query = adding() | {"t": START + MS}
    run.step([(START + 2 * MS, 1, [1.0, 2.0])], [query, {"id": 6, "t": START, "op": "cancel"}])
    run.finish()
    assert run.hits() == expected([(START + 2 * MS, 1, [1.0, 2.0])], [query])


BAD = [
    ({"v": [1e200, 0.0]}, {}, "'v' is too large: its squared norm overflows"),
    ({"v": [0.0, 0.0]}, {"by": ab.cosine("v", dim=2)}, "'v' is a zero vector"),
    ({"k": MOST_K + 1}, {}, "k must be at most 1,000,000"),
    ({"k": 2**62}, {}, "k must be at most 1,000,000"),
    ({"span": LONGEST + 1}, {}, "its window is longer than 3650000 days"),
    ({"span": None, "rows": 2**62}, {}, "rows must be at most 1,000,000,000,000,000"),
    ({"rows": 0}, {}, "rows must be at least 1"),
    ({"span": None, "rows": 0}, {"rows": 5}, "rows must be at least 1"),
    ({"span": 0}, {"window": "1 second"}, "its window is not positive"),
    ({"span": None, "rows": 1}, {"method": "filtered"}, "'filtered' needs a window of at least 2"),
    ({"span": 1}, {"method": "filtered"}, "'filtered' needs a window of at least 2"),
]


@pytest.mark.parametrize(("change", "call", "reason"), BAD)
def test_what_no_worker_could_do_is_refused_by_name(
    change: dict[str, Any], call: dict[str, Any], reason: str
) -> None:
    rows = query_table([asked(), asked(id=2, **change)])
    with pytest.raises(InvalidCall, match="query 2: ") as caught:
        fixed_queries(call_of(**call), rows)
    assert reason in str(caught.value)
    by = call.get("by", ab.euclidean("v", dim=2))
    block, faults = fixed_queries(call_of(**{**call, "by": by, "bad_rows": "drop"}), rows)
    assert (len(block), block.meta["rejected"], len(faults.problems)) == (1, 1, 1)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"k": 2 * 10**9}, "k must be at most 1,000,000, got 2000000000"),
        ({"window": "99999999 weeks"}, "window must be at most 3650000 days, got '99999999 weeks'"),
        (
            {"watermark": "99999999 weeks"},
            "watermark must be at most 3650000 days, got '99999999 weeks'",
        ),
        ({"rows": 1, "window": None, "method": "filtered"}, "needs a window of at least 2"),
    ],
)
def test_what_no_worker_could_do_is_refused_at_the_call(
    change: dict[str, Any], problem: str
) -> None:
    columns = {"query_id": "bigint", "v": "array<double>"}
    given = {"by": "v", "k": 1, "window": "1 second", **change}
    assert problem in str(plan_nearest(OBJECTS, columns, **given)[1])


def test_vectors_of_spark_ml_come_with_a_remedy() -> None:
    columns = {"query_id": "bigint", "v": "vector"}
    (problem,) = plan_nearest(OBJECTS, columns, by="v", k=1, window="1 second")[1]
    assert "is vector, not array<double> or array<float>; pyspark.ml.functions" in problem


def test_long_texts_and_texts_of_cancellations() -> None:
    columns = {"query_id": "bigint", "v": "array<double>", "window": "string"}
    columns |= {"op": "string", "ts": "timestamp"}
    call, _ = plan_nearest(OBJECTS, columns, by=ab.euclidean("v", dim=1), k=1, bad_rows="drop")
    assert call is not None
    texts = ["99999999 weeks", "-99999999 weeks", "1 second", "", ""]
    ops = ["add", "add", "add", "add", "cancel"]
    table = pa.table({"id": range(5), "v": [[1.0]] * 5, "t": [START] * 5, "text": texts, "op": ops})
    block, faults = read_queries(call, table)
    assert (block.columns["id"].tolist(), faults.count) == ([2, 4], 3)
    assert [problem.split(":")[0] for problem in faults.problems] == [
        "query 3",
        "query 1",
        "query 0",
    ]


@pytest.mark.parametrize("kind", ["day", "hour", "minute", "second", "day to second"])
def test_windows_of_every_day_time_interval(kind: str) -> None:
    columns = {"query_id": "bigint", "v": "array<double>", "window": f"interval {kind}"}
    assert plan_nearest(OBJECTS, columns, by="v", k=1)[1] == []
    for other in ("interval", "interval month", "interval year to month"):
        problems = plan_nearest(OBJECTS, {**columns, "window": other}, by="v", k=1)[1]
        assert "as make_dt_interval gives" in problems[0]


def test_windows_as_durations() -> None:
    rows = query_table([asked(), asked(id=2)])
    spans = pa.array([1500, 0], pa.duration("ms"))
    table = rows.set_column(rows.column_names.index("span"), "span", spans)
    block, faults = read_queries(call_of(), table)
    assert block.columns["window"].tolist() == [1_500_000]
    assert faults.problems == ["query 2: its window is not positive"]


def test_fixed_queries_are_the_same_in_any_order() -> None:
    random = np.random.default_rng(3)
    rows = [asked(id=n, v=random.random(2).tolist()) for n in range(30)]
    call = call_of()
    block, _ = fixed_queries(call, query_table(rows))
    for _ in range(3):
        mixed = [rows[n] for n in random.permutation(30)]
        again, _ = fixed_queries(call, query_table(mixed))
        assert call.settings(again) == call.settings(block)
        assert again.columns["v"].tolist() == block.columns["v"].tolist()
    rows[4]["k"] = 2
    changed = call.settings(fixed_queries(call, query_table(rows))[0])
    says = changed_settings(call.settings(block), changed)
    assert says is not None and says.startswith("this checkpoint was begun with queries='query_id ")


@pytest.mark.parametrize(
    ("changes", "now"),
    [
        ({"by": ab.cosine("v")}, "by='cosine: v array<double>'"),
        ({"method": "relaxed"}, "method='relaxed'"),
        ({"method": "probabilistic"}, "method='probabilistic', error='0.001'"),
        ({"output": "top"}, "output='top'"),
        ({"k": 7}, "k='7'"),
        ({"window": "5 seconds"}, "window='5 seconds'"),
        ({"ops": True}, "queries='query_id bigint, k, rows, ts, window'"),
    ],
)
def test_a_changed_setting_is_named(changes: dict[str, Any], now: str) -> None:
    begun = call_of().settings(None)
    says = changed_settings(begun, call_of(**changes).settings(None))
    assert says is not None and f"the call now says {now}: put" in says
    free = {
        "by": ab.euclidean("v", dim=2),
        "watermark": "1 s",
        "plan": ab.broadcast(3),
        "bad_rows": "drop",
    }
    assert changed_settings(begun, call_of(**free).settings(None)) is None


@pytest.mark.parametrize("t", [(1 << 63) - 1, -(1 << 63), 1 << 62])
def test_a_query_of_a_far_off_time_is_refused(t: int) -> None:
    rows = query_table([adding(), adding(id=2) | {"t": t}])
    call = call_of(ops=True)
    block, faults = read_queries(call, rows)
    assert (block.columns["id"].tolist(), faults.count) == ([1], 1)
    assert faults.problems[0].startswith("query 2: its time lies more than 73,000 years from 1970")


def test_fixed_queries_that_are_left_out_are_counted_once() -> None:
    call = call_of(by=ab.euclidean("v", dim=2), bad_rows="drop")
    rows = [asked(), asked(id=2, v=None), asked(id=3, v=[float("nan"), 0.0])]
    run = Run(call, rows, 0, 3)
    for n in range(4):
        run.step([(START + n * MS, n, [1.0, 2.0])])
    assert sum(load.rejected for load in run.loads) == 2
    with pytest.raises(InvalidCall, match=r"no queries(.|\n)*'v' is null"):
        fixed_queries(call, query_table(rows[1:2]))


def test_queries_that_overflow_are_refused_by_the_algorithms_too() -> None:
    with pytest.raises(InvalidCall, match="overflows"):
        Queries.of([[1e200]], k=1, window=1)
    with pytest.raises(InvalidCall, match="no direction"):
        Queries.of([[0.0]], k=1, window=1, metric="cosine")


def test_small_vectors_have_a_direction() -> None:
    """However small: the square of 1e-200 is no number, its direction is one."""
    query = asked(v=[3e-200, 4e-200])
    block, faults = fixed_queries(call_of(by=ab.cosine("v")), query_table([query]))
    assert (len(block), faults.problems) == (1, [])
    run = Run(call_of(by=ab.cosine("v")), [query], 0, 1)
    run.step([(START + MS, 1, [0.4, -0.3]), (START + MS + 1, 2, [3e200, 4e-200])])
    run.finish()
    assert [(hit[1], round(hit[4], 9)) for hit in run.hits()] == [(1, 1.0), (2, 0.4)]


def test_few_queries_get_one_worker() -> None:
    assert [workers_for(1, 5, 200), workers_for(0, 0, 200), workers_for(10**5, 10**6, 200)] == [
        1,
        1,
        20,
    ]
