"""`nearest` on Spark with bad, reordered and idle input: named, counted, and no end of the stream.

The feeds are short: what is judged is what becomes of a query, not the hits of many.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import anabranch as ab
from anabranch.calls import Columns
from anabranch.plans.hashed import Broadcast
from anabranch.spark.nearest import _chosen
from anabranch.spark.nearest_checks import kind_problems
from tests.neighbours.runs import call_of
from tests.spark.feeds import SECOND, START, settings
from tests.spark.nearest_feed import closing, feed_of, fixed_queries, got, query_frame, want

OBJECTS = [[{"id": n, "t": START + 5 * n * SECOND, "v": [1.0, 9.0 - n]}] for n in range(6)]
TWO = ab.euclidean("v", dim=2)


def adding(ident: str, seconds: float, *point: float) -> dict[str, Any]:
    t = START + int(seconds * SECOND)
    return {
        "query_id": ident, "t": t, "v": list(point), "k": 1, "window": "60 seconds", "op": "add",
    }  # fmt: skip


def asked(op: dict[str, Any]) -> dict[str, Any]:
    """The same query as the brute force takes it."""
    return {"id": op["query_id"], "v": op["v"], "k": 1, "span": 60 * SECOND, "t": op["t"]}


@pytest.mark.slow
def test_a_query_of_wrong_length_is_dropped_and_the_stream_goes_on(
    spark: Any, tmp_path: Path
) -> None:
    good = [adding("a", 4, 0.0, 0.0), adding("b", 11, 1.0, 1.0)]
    ops = [[adding("bad", -1, 1.0, 2.0, 3.0)], good[:1], [adding("odd", 9, 7.0)], good[1:], [], []]
    feed = feed_of(tmp_path, OBJECTS, ops)
    streams = feed.streams(spark)
    call: dict[str, Any] = {"by": TWO, "bad_rows": "drop", "watermark": "3 seconds"}
    total = ab.metrics(feed.run(ab.nearest(streams[1], streams[0], **call)))["total"]
    assert total["rejected_rows"] == 2
    more = [[{"id": 50, "t": START + 31 * SECOND, "v": [0.0, 0.0]}], [closing()]]
    feed.add([([adding("bad", 30, 1.0, 2.0, 3.0)], more[0]), ([], more[1])])
    total = ab.metrics(feed.run(ab.nearest(streams[1], streams[0], **call)))["total"]
    assert total["rejected_rows"] == 1
    hits = got(feed.output(spark))
    assert hits == want(OBJECTS + more, [asked(op) for op in good])
    assert {hit[0] for hit in hits} == {"a", "b"}


@pytest.mark.slow
def test_a_stopped_stream_goes_on_once_the_length_is_named(spark: Any, tmp_path: Path) -> None:
    good = adding("a", -1, 0.0, 0.0)
    objects = [*OBJECTS[:3], [closing()]]
    feed = feed_of(tmp_path, objects, [[good], [adding("bad", 4, 1.0, 2.0, 3.0)], [], []])
    requests, things = feed.streams(spark)
    with pytest.raises(Exception, match=r"query 'bad' cannot be compared: .* length 3"):
        feed.run(ab.nearest(things, requests, by="v", watermark="3 seconds"))
    feed.run(ab.nearest(things, requests, by=TWO, bad_rows="drop", watermark="3 seconds"))
    assert got(feed.output(spark)) == want(objects, [asked(good)])


@pytest.mark.slow
def test_a_restart_takes_the_same_queries_in_any_order(spark: Any, tmp_path: Path) -> None:
    feed = feed_of(tmp_path, OBJECTS)
    queries = fixed_queries()
    call = {"by": "v", "watermark": "3 seconds", "plan": ab.broadcast(2)}
    feed.run(ab.nearest(feed.streams(spark)[1], query_frame(spark, queries), **call))
    feed.add([([], [closing()])])
    other = query_frame(spark, queries[::-1]).repartition(3)
    feed.run(ab.nearest(feed.streams(spark)[1], other, **call))
    assert got(feed.output(spark)) == want([*OBJECTS, [closing()]], queries)


def test_bad_fixed_queries_are_told_and_counted(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(
        [("bad", [1.0, 2.0, 3.0]), ("nan", [float("nan"), 0.0]), ("a", [0.0, 0.0])],
        "query_id string, v array<double>",
    )
    feed = feed_of(tmp_path, [*OBJECTS[:2], [closing()]])
    call: dict[str, Any] = {"by": TWO, "k": 1, "window": "60 seconds", "bad_rows": "drop"}
    with pytest.warns(UserWarning, match=r"leaves out 2 .* 'bad': 'v' has 3 .* 'nan'") as told:
        hits = ab.nearest(feed.streams(spark)[1], frame, watermark="3 seconds", **call)
    assert told[0].filename == __file__
    assert ab.metrics(feed.run(hits))["total"]["rejected_rows"] == 2
    assert {hit[0] for hit in got(feed.output(spark))} == {"a"}


@pytest.mark.slow
def test_time_goes_by_the_objects_where_queries_are_silent(spark: Any, tmp_path: Path) -> None:
    query = adding("a", -1, 0.0, 0.0)
    objects = [*OBJECTS, [closing()]]
    feed = feed_of(tmp_path, objects, [[query], *([] for _ in OBJECTS)])
    requests, things = feed.streams(spark)
    marked = things.withWatermark("ts", "3 seconds")
    for late in (None, "3 seconds"):
        with pytest.raises(ab.errors.InvalidCall, match="queries have a watermark of their own"):
            ab.nearest(marked, requests.withWatermark("ts", "3 seconds"), by="v", watermark=late)
    with pytest.raises(ab.errors.InvalidCall, match="objects already has a watermark"):
        ab.nearest(marked, requests, by="v", watermark="3 seconds")
    feed.run(ab.nearest(marked, requests, by="v"))
    assert got(feed.output(spark)) == want(objects, [asked(query)]) != []
    with settings(spark, streaming__multipleWatermarkPolicy="max"):
        both = ab.nearest(marked, requests.withWatermark("ts", "3 seconds"), by="v")
        feed.run(both, "most")
    assert got(feed.output(spark, "most")) == want(objects, [asked(query)])


@pytest.mark.parametrize(
    ("window", "seconds"),
    [
        ("INTERVAL 10 SECONDS", 10),
        ("INTERVAL '1' HOUR", 3600),
        ("INTERVAL '10:30' MINUTE TO SECOND", 630),
        ("make_dt_interval(180, 0, 0, 0)", 180 * 86_400),
    ],
)
def test_intervals_are_as_long_as_they_say_in_any_zone(
    spark: Any, window: str, seconds: int
) -> None:
    with settings(spark, session__timeZone="America/New_York"):
        things = spark.sql(
            "SELECT id, timestamp_seconds(1700000000 + id) AS ts, array(float(id)) AS v "
            "FROM range(2)"
        )
        frame = spark.sql(f"SELECT 'q' AS query_id, array(0D) AS v, 1 AS k, {window} AS window")
        hits = got(ab.nearest(things, frame, by="v"))
        added = frame.selectExpr("*", "'add' AS op", "timestamp_seconds(1) AS ts")
        assert got(ab.nearest(things, added, by="v")) == hits
    assert [(hit[1], hit[3] - hit[2]) for hit in hits] == [(0, 0), (1, (seconds - 1) * SECOND)]


def test_a_table_of_ops_gets_as_many_workers_as_pay(spark: Any) -> None:
    frame = spark.sql(
        "SELECT id AS query_id, array(0D) AS v, 100L AS k, 5L AS rows, "
        "make_dt_interval(0, 0, 0, 1) AS window, timestamp_seconds(id) AS ts, "
        "if(id % 2 = 0, 'add', 'cancel') AS op FROM range(2000)"
    )
    plans = [_chosen(call_of(ops=True), part, None, 200, None, None)
             for part in (frame.limit(2), frame, frame.limit(0))]  # fmt: skip
    assert [plan.workers for plan in plans if isinstance(plan, Broadcast)] == [1, 2, 1]


def test_a_column_of_ops_is_found_as_spark_finds_it() -> None:
    stream, table = SimpleNamespace(isStreaming=True), SimpleNamespace(isStreaming=False)
    upper = Columns({"query_id": "string", "OP": "string"})
    sensitive = Columns({"query_id": "string", "OP": "string"}, case_sensitive=True)
    assert kind_problems(stream, stream, upper) == []
    assert "have a column 'op' but are not streaming" in kind_problems(stream, table, upper)[0]
    assert kind_problems(stream, table, sensitive) == []
    assert "have no column 'op'" in kind_problems(stream, stream, sensitive)[0]
