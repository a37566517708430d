"""`nearest` on Spark: batch and streams equal brute force, instant by instant."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.neighbours.runs import expected
from tests.spark.driver import run_asking
from tests.spark.feeds import SECOND, START, Feed
from tests.spark.nearest_feed import (
    closing,
    feed_of,
    fixed_queries,
    got,
    objects_in_batches,
    query_frame,
    want,
)
from tests.spark.processes import driver

QUERIES = fixed_queries()


def test_batch_equals_brute_force(spark: Any, tmp_path: Path) -> None:
    objects = objects_in_batches(6)
    feed = feed_of(tmp_path, objects)
    table = feed.tables(spark)[1]
    hits = ab.nearest(table, query_frame(spark, QUERIES), by="v", plan=ab.broadcast(2))
    wanted = want(objects, QUERIES)
    assert len(wanted) > 100
    assert got(hits) == wanted
    assert hits.columns == [
        "query_id",
        "object_id",
        "object_ts",
        "entered_ts",
        "distance",
        "rank",
    ]


def test_a_largest_distance(spark: Any, tmp_path: Path) -> None:
    """As if farther objects were not there."""
    objects = objects_in_batches(4)
    table = feed_of(tmp_path, objects).tables(spark)[1]
    asked = query_frame(spark, QUERIES)
    hits = ab.nearest(table, asked, by="v", plan=ab.broadcast(2), within=Decimal("1.0"))

    def near(query: dict[str, Any]) -> list[list[dict[str, Any]]]:
        x, y = query["v"]
        return [
            [o for o in batch if (o["v"][0] - x) ** 2 + (o["v"][1] - y) ** 2 <= 1]
            for batch in objects
        ]

    wanted = sorted(hit for query in QUERIES for hit in want(near(query), [query]))
    assert len(wanted) > 20
    assert got(hits) == wanted
    far = query_frame(
        spark, [{"id": f"q{n}", "v": [n, n], "k": 2, "span": 60 * SECOND} for n in (2.0, 99.0)]
    )
    tops = ab.nearest(table, far, by="v", output="top", within=2)
    ends = tops.filter("query_id = 'q99.0'").collect()
    assert ends and all(row.rank == 0 and row.object_id is None for row in ends)
    assert {row.query_id for row in ab.top(tops).collect()} == {"q2.0"}


def test_stream_equals_brute_force(spark: Any, tmp_path: Path) -> None:
    objects = [*objects_in_batches(5, seed=3), [closing()]]
    feed = feed_of(tmp_path, objects)
    things, asked = feed.streams(spark)[1], query_frame(spark, QUERIES)
    query = feed.run(ab.nearest(things, asked, by="v", watermark="3 seconds", plan=ab.broadcast(2)))
    assert got(feed.output(spark)) == want(objects, QUERIES)
    figures = ab.metrics(query)
    assert figures["total"]["rows_in"] == 5 * 30 + 1
    assert figures["total"]["late_rows"] == 0


def test_hits_are_counted_as_they_are_emitted(spark: Any, tmp_path: Path) -> None:
    """What a largest distance leaves out is no hit, in figures as in the result."""
    feed = feed_of(tmp_path, [*objects_in_batches(3, seed=3), [closing()]])
    things, asked = feed.streams(spark)[1], query_frame(spark, QUERIES)
    hits = ab.nearest(things, asked, by="v", watermark="3 seconds", within=0.5)
    figures = ab.metrics(feed.run(hits))
    assert figures["total"]["hits"] == feed.output(spark).count() > 0


@pytest.mark.slow
def test_a_killed_driver_loses_and_repeats_nothing(spark: Any, tmp_path: Path) -> None:
    objects = [*objects_in_batches(6, seed=7), [closing()]]
    feed = feed_of(tmp_path, objects)
    with driver(tmp_path, "--nearest", "--hold", "object_id >= 1000") as run:
        run.kill_when_held()
    with driver(tmp_path, "--nearest") as run:
        run.finish()
    assert got(feed.output(spark)) == want(objects, QUERIES)


@pytest.mark.slow
def test_workers_join_and_leave_through_the_plan_log(spark: Any, tmp_path: Path) -> None:
    objects = [*objects_in_batches(18, rows=20, seed=8), [closing()]]
    feed = feed_of(tmp_path, objects)
    control = str(tmp_path / "control")
    short = [{**query, "span": SECOND} for query in QUERIES]
    hits = ab.nearest(
        feed.streams(spark)[1],
        query_frame(spark, short),
        by="v",
        watermark="3 seconds",
        plan=ab.broadcast(1),
        control=control,
    )
    log = ab.plans.PlanLog(control)
    run_asking(feed, spark, hits, log, {0: ab.broadcast(2), 7: ab.broadcast(1)})
    assert got(feed.output(spark)) == want(objects, short)
    plans = [(entry.epoch, entry.plan.workers, entry.live) for entry in log.entries()]
    assert {epoch: workers for epoch, workers, _ in plans} == {0: 1, 1: 2, 2: 1}
    assert any(0 not in live for _, _, live in plans), "the first plan was never retired"


def test_two_of_one_query_do_not_share_a_plan_log(spark: Any, tmp_path: Path) -> None:
    feed = feed_of(tmp_path, [*objects_in_batches(5, rows=5, seed=8), [closing()]])
    call: dict[str, Any] = {"by": "v", "watermark": "3 seconds", "plan": ab.broadcast(1)}
    call["control"] = str(tmp_path / "control")
    objects = feed.streams(spark)[1]
    one, other = (
        ab.nearest(objects, query_frame(spark, asked), **call)
        for asked in (QUERIES[:3], QUERIES[3:])
    )
    with pytest.raises(Exception, match="two calls in this query were given the control"):
        feed.run(one.union(other))


def scripted_ops() -> tuple[list[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Queries that begin and end during nine seconds, two of them told out of order."""
    queries = fixed_queries(5, seed=4)
    ops: list[list[dict[str, Any]]] = [[] for _ in range(9)]
    for number, query in enumerate(queries):
        query["t"] = START + (number * SECOND * 3) // 2
        row = {"query_id": query["id"], "t": query["t"], "v": query["v"], "k": query["k"]}
        row |= {"window": f"{query['span'] // SECOND} seconds", "op": "add"}
        ops[number + (number % 2)].append(row)
        if number < 3:
            query["until"] = query["t"] + 2 * SECOND
            gone = {"query_id": query["id"], "t": query["until"], "op": "cancel"}
            ops[number].append({**dict.fromkeys(("v", "k", "window")), **gone})
    return ops, queries


def test_queries_come_and_go_in_a_stream(spark: Any, tmp_path: Path) -> None:
    objects = [*objects_in_batches(8, seed=5), [closing()]]
    ops, queries = scripted_ops()
    feed = feed_of(tmp_path, objects, ops)
    asked, things = feed.streams(spark)
    # A cancellation is told up to three seconds ahead, which must not make objects late.
    feed.run(ab.nearest(things, asked, by="v", watermark="3 seconds"))
    assert got(feed.output(spark)) == want(objects, queries)
    asked, things = feed.tables(spark)
    batch = ab.nearest(things, asked, by="v")
    assert [hit for hit in got(batch) if hit[1] < 10**9] == want(objects, queries)


def test_the_current_top_k(spark: Any, tmp_path: Path) -> None:
    objects = objects_in_batches(4, seed=6)
    feed = feed_of(tmp_path, objects)
    frame = query_frame(spark, [{"id": "q", "v": [2.0, 2.0], "k": 3, "span": 60 * SECOND}])
    rows = ab.nearest(feed.tables(spark)[1], frame, by="v", output="top")
    flat = [o for batch in objects for o in batch]
    far = lambda o: ((o["v"][0] - 2) ** 2 + (o["v"][1] - 2) ** 2, o["t"], o["id"])  # noqa: E731
    best = [o["id"] for o in sorted(flat, key=far)[:3]]
    assert [r.object_id for r in ab.top(rows).orderBy("rank").collect()] == best
    stream = ab.nearest(feed.streams(spark)[1], frame, by="v", output="top", watermark="0 seconds")
    feed.run(stream, "tops")
    assert [
        r.object_id for r in ab.top(feed.output(spark, "tops")).orderBy("rank").collect()
    ] == best


@pytest.mark.slow
def test_ids_of_text_counted_windows_and_other_measures(spark: Any) -> None:
    things = spark.sql(
        "SELECT concat('o', id) AS name, timestamp_seconds(1700000000 + id) AS at, "
        "array(1 + id % 5D, 2D) AS p FROM range(60)"
    )
    asked = spark.sql("SELECT 7 AS query_id, array(1D, 1D) AS q")
    objects = [(START + n * SECOND, f"o{n}", [1 + n % 5.0, 2.0]) for n in range(60)]
    query = {"id": 7, "v": [1.0, 1.0], "k": 1, "rows": 3}
    call: dict[str, Any] = {"id": "name", "time": "at", "k": 1, "rows": 3}
    for by in (ab.cosine("p", "q"), ab.manhattan("p", "q")):
        wanted = expected(objects, [query], by.kind)
        assert len(wanted) > 20
        for method in ("exact", "relaxed", "probabilistic"):
            hits = ab.nearest(things, asked, by=by, method=method, **call)
            assert got(hits) == wanted, method
    assert hits.schema["query_id"].dataType.simpleString() == "int"


def test_late_and_bad_objects_are_counted(spark: Any, tmp_path: Path) -> None:
    objects = [
        [{"id": 1, "t": START + 10 * SECOND, "v": [1.0, 1.0]}],
        [{"id": 2, "t": START + SECOND, "v": [1.0, 1.0]}],
        [{"id": 3, "t": START + 12 * SECOND, "v": [1.0]}],
        [closing()],
    ]
    feed = feed_of(tmp_path, objects)
    frame = query_frame(spark, QUERIES)
    call = {"watermark": "3 seconds", "by": ab.euclidean("v", dim=2), "bad_rows": "drop"}
    query = feed.run(ab.nearest(feed.streams(spark)[1], frame, **call))
    total = ab.metrics(query)["total"]
    assert (total["late_rows"], total["rejected_rows"]) == (1, 1)
    assert {hit[1] for hit in got(feed.output(spark))} == {1}


WRONG = [
    ({"by": "v", "within": -1}, "within must be a number of at least 0"),
    ({"by": "w"}, "objects have no column 'w'"),
    ({"by": ab.hamming("v")}, "by must be"),
    ({"by": "v", "method": "fast"}, "method must be 'exact' or"),
    ({"by": "v", "error": 0.1}, "error= is for method='probabilistic'"),
    ({"by": "v", "output": "changes"}, "output must be 'hits' or 'top'"),
    ({"by": "v", "plan": ab.grid(2, 2)}, "plan must be ab.broadcast"),
    ({"by": "v", "plan": ab.broadcast(500)}, "has 500 workers"),
    (
        {"by": "v", "plan": ab.broadcast(3, side="left")},
        r"has side='left', and nearest has one way .* write ab.broadcast\(3\)",
    ),
    ({"by": "v", "control": "x"}, "control= is for streaming"),
    ({"by": "v", "watermark": "soon"}, "is not a duration"),
    ({"by": "v", "bad_rows": "drop"}, "needs the length"),
]


def test_wrong_calls(spark: Any) -> None:
    things = spark.sql("SELECT 1L AS id, timestamp_seconds(1) AS ts, array(1.0F) AS v")
    asked = query_frame(spark, [{**QUERIES[0], "v": [1.0]}])
    for call, message in WRONG:
        with pytest.raises(ab.errors.InvalidCall, match=message):
            ab.nearest(things, asked, **call)


def test_wrong_queries(spark: Any, tmp_path: Path) -> None:
    things = spark.sql("SELECT 1L AS id, timestamp_seconds(1) AS ts, array(1.0F) AS v")
    good = {"id": "a", "v": [1.0], "k": 1, "span": SECOND}
    for change, message in (
        ({"k": 0}, "query 'a': k must be at least 1"),
        ({"span": 0}, "query 'a': its window is not positive"),
        ({"v": None}, "query 'a': 'v' is null"),
        ({"v": [float("nan")]}, "query 'a': 'v' holds null, NaN"),
    ):
        with pytest.raises(ab.errors.InvalidCall, match=message):
            ab.nearest(things, query_frame(spark, [{**good, **change}]), by="v")
    with pytest.raises(ab.errors.InvalidCall, match="'a' is there more than once"):
        ab.nearest(things, query_frame(spark, [good, good]), by="v")
    with pytest.raises(ab.errors.InvalidCall, match="no queries"):
        ab.nearest(things, query_frame(spark, [good]).filter("k > 5"), by="v")
    feed = feed_of(tmp_path, objects_in_batches(1), [[]])
    asked, stream = Feed(tmp_path, feed.schemas).streams(spark)
    with pytest.raises(ab.errors.InvalidCall, match="watermark='10 seconds'"):
        ab.nearest(stream, query_frame(spark, QUERIES), by="v")
    with pytest.raises(ab.errors.InvalidCall, match="queries are streaming and objects are not"):
        ab.nearest(things, asked, by="v")
    with pytest.raises(ab.errors.InvalidCall, match="have no column 'op'"):
        ab.nearest(stream, asked.drop("op"), by="v", watermark="1 second")
    with pytest.raises(ab.errors.InvalidCall, match="output='top'"):
        ab.top(things)
