"""Every verb on the Spark that is installed, as stream, as batch, across a restart, by Connect.

`make compat` runs this file once for each Spark version. The answers are those of the twins, so
they are the same on all of them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.spark.versions import repartition_problems
from tests.cluster import driver as on_cluster
from tests.correlation import twin
from tests.spark import (
    emd_driver,
    nearest_feed,
    test_groups,
    test_one_stream,
    test_rejects,
    test_rescale,
    test_unmatched,
)
from tests.spark import test_follow as follow
from tests.spark.driver import LATE, SPANS, score
from tests.spark.events import CALL, alike, collected, events, expected
from tests.spark.feeds import SECOND, Feed, agree, found, scripted, settings
from tests.spark.modes import MODES, batches_of
from tests.spark.processes import driver
from tests.spark.test_killed_modes import rows_of

pytestmark = [pytest.mark.slow, pytest.mark.spark]

JOIN = {"where": ab.cosine("v") >= 0.6, "window": ("3 seconds", "2 seconds")}
SHAPE = {"key": ["page", "client"], "keep": ["service", "ms"], "response": "ms"}
COUNTED = ab.close.count(3, "2500 ms")
LEARNED = ab.close.learned("300 ms", risk=0.4, after=4, remember="900 ms")


def restarted(feed: Feed, script: list[Any], result: Any) -> Any:
    """Run a query over the first files, and again from its checkpoint over all of them."""
    half = len(script) // 2
    idle, feed.idle = feed.idle, False  # a batch without rows in between would be one too many
    feed.run(result(feed.add(script[:half])))
    feed.idle = idle
    return feed.run(result(feed.add(script[half:])))


def test_correlate(spark: Any, tmp_path: Path) -> None:
    script = scripted(4, rows=(10, 12), seed=5)
    feed = Feed(tmp_path)

    def result(feed: Feed) -> Any:
        call = {**JOIN, "plan": ab.grid(1, 2), "keep": (["name"], [])}
        return ab.correlate(*feed.streams(spark), **call, watermark="3 seconds")

    query = restarted(feed, script, result)
    agree(found(feed.output(spark)), twin.pairs_in_time(script, SPANS, score, LATE))
    assert ab.metrics(query)["total"]["rows_in"] == 2 * 22
    batch = ab.correlate(*feed.tables(spark), **JOIN, plan=ab.broadcast(2))
    sides = [[row for rows in script for row in rows[side]] for side in (0, 1)]
    agree(found(batch), twin.pairs(*sides, SPANS, score))


def test_emd(spark: Any, tmp_path: Path) -> None:
    script = emd_driver.batches(4, rows=10, seed=8)
    feed = Feed(tmp_path, (emd_driver.SCHEMA, emd_driver.SCHEMA))
    where = ab.emd("h", dim=emd_driver.BINS) <= emd_driver.THRESHOLD
    call = {"where": where, "window": ("3 seconds", "2 seconds"), "plan": ab.ranges(2)}

    def rounded(frame: Any) -> dict[Any, float]:
        return {pair: round(value, 9) for pair, value in found(frame).items()}

    restarted(
        feed,
        script,
        lambda feed: ab.correlate(*feed.streams(spark), **call, watermark="3 seconds"),
    )
    want = twin.pairs_in_time(script, SPANS, emd_driver.score, LATE)
    agree(rounded(feed.output(spark)), want)
    sides = [[row for rows in script for row in rows[side]] for side in (0, 1)]
    everything = twin.pairs(*sides, SPANS, emd_driver.score)
    agree(rounded(ab.correlate(*feed.tables(spark), **call)), everything)


def test_one_stream_and_rows_without_a_partner(spark: Any, tmp_path: Path) -> None:
    test_unmatched.test_in_a_stream_that_is_restarted_under_another_plan(spark, tmp_path / "alone")
    test_unmatched.test_in_one_step_under_a_plan_that_cannot_change(spark, tmp_path / "left")
    test_unmatched.test_all_workers_decide_when_the_watermark_is_just_there(spark, tmp_path / "at")
    test_unmatched.test_in_batch(spark, tmp_path / "batch")
    test_one_stream.test_in_a_stream_that_is_restarted_under_other_plans(spark, tmp_path / "one")


def test_one_stream_as_a_table(spark: Any, tmp_path: Path) -> None:
    test_one_stream.test_in_batch(spark, tmp_path)


def test_dedupe(spark: Any, tmp_path: Path) -> None:
    test_one_stream.test_rows_without_an_earlier_alike_one(spark, tmp_path / "first")
    test_one_stream.test_plans_change_while_rows_are_deduped(spark, tmp_path / "plans")


def test_groups_of_pairs(spark: Any, tmp_path: Path) -> None:
    test_groups.test_a_stream_gives_the_groups_of_the_table(spark, tmp_path)


def test_rows_that_are_rejected(spark: Any, tmp_path: Path) -> None:
    test_rejects.test_a_stream_keeps_what_it_rejects(spark, tmp_path / "stream", "2 seconds")
    test_rejects.test_tables_keep_what_they_reject(spark, tmp_path / "tables")


def test_nearest_and_top(spark: Any, tmp_path: Path) -> None:
    asked = nearest_feed.fixed_queries()
    objects = [*nearest_feed.objects_in_batches(3, rows=20, seed=3), [nearest_feed.closing()]]
    script = [([], made) for made in objects]
    feed = Feed(tmp_path, (nearest_feed.OP, nearest_feed.OBJECT), idle=True)

    def result(feed: Feed) -> Any:
        queries = nearest_feed.query_frame(spark, asked)
        call = {"by": "v", "watermark": "3 seconds", "plan": ab.broadcast(2)}
        return ab.nearest(feed.streams(spark)[1], queries, **call)

    restarted(feed, script, result)
    want = nearest_feed.want(objects, asked)
    assert nearest_feed.got(feed.output(spark)) == want
    table = feed.tables(spark)[1]
    queries = nearest_feed.query_frame(spark, asked)
    hits = ab.nearest(table, queries, by="v", plan=ab.broadcast(2))
    assert [hit for hit in nearest_feed.got(hits) if hit[1] < 10**9] == want
    lists = ab.nearest(table, queries, by="v", output="top", plan=ab.broadcast(2))
    assert 0 < ab.top(lists).count() <= sum(query["k"] for query in asked)


def test_assemble_and_compliance(spark: Any, tmp_path: Path) -> None:
    script = events(4, rows=20, seed=3)
    feed = Feed(tmp_path, (CALL, CALL), idle=True)
    restarted(
        feed,
        script,
        lambda feed: ab.assemble(feed.streams(spark), **SHAPE, close=LEARNED, watermark="1 second"),
    )
    alike(collected(feed.output(spark)), expected(spark, script, LEARNED, SECOND))
    instances = ab.assemble(feed.tables(spark), **SHAPE, close=COUNTED)
    alike(collected(instances), expected(spark, script, COUNTED, 0, flush=True))
    verdicts = ab.sla(instances, "2 seconds", service="page").collect()
    assert len(verdicts) == len({row["page"] for row in instances.collect()})
    assert ab.rank_services(instances, "2 seconds", service="page").count() == len(verdicts)
    made = ab.fit_windows(feed.tables(spark)[0], key=["page", "client"], settle="3 seconds")
    assert made.instances > 0


def test_a_checkpoint_is_rescaled_or_says_why_not(spark: Any, tmp_path: Path) -> None:
    if repartition_problems():
        with pytest.raises(
            ab.errors.InvalidCall, match=r"Spark is 4\.1.* only 4\.2 or newer can repart"
        ):
            ab.rescale(tmp_path, 4, spark=spark)
    else:
        test_rescale.test_correlate_with_a_plan_log(spark, tmp_path)


def test_place(spark: Any) -> None:
    rows = [("news", "p", 9.0, 1.0), ("p", "q", 5.0, 1.0)]
    frame = spark.createDataFrame(rows, "a string, b string, rate_a double, rate_b double")
    call = {"upload_cost": 1.0, "download_cost": 1.0}
    placed = ab.place_pairs(frame, {"news": "cloud"}, **call).orderBy("a").collect()
    assert [row["location"] for row in placed] == ["cloud", "p"]
    inputs = spark.createDataFrame(
        [("v", "s", 3.0), ("v", "t", 1.0)], "view string, input string, rate double"
    )
    assert ab.place(inputs, {"s": "phone", "t": "watch"}).optimal


def test_times_and_types_come_out_as_they_went_in(spark: Any) -> None:
    """Kept columns of the types that Spark versions hand to Python in different ways."""
    noon = datetime(2024, 3, 31, 12, 0, 0, 123456)
    kinds = "id long, ts timestamp, x long, n timestamp_ntz, s string, d decimal(20,5), b binary"
    rows = [
        (1, noon, 1, noon, "é", None, b"\0"),
        (2, noon + timedelta(seconds=1), 1, noon, "", None, b""),
    ]
    frame = spark.createDataFrame(rows, kinds)
    pairs = ab.correlate(
        frame, frame, where=ab.within("x", 0), window="2 seconds", keep=(["n", "s", "d", "b"], [])
    )
    got = {(row["left_id"], row["right_id"]): row for row in pairs.collect()}
    assert len(got) == 4
    first = got[1, 2]
    assert (first["left_ts"], first["left_n"]) == (noon, noon)
    assert (first["left_s"], bytes(first["left_b"]), first["left_d"]) == ("é", b"\0", None)


def test_follow(spark: Any, tmp_path: Path) -> None:
    """As a table, and from frames as devices send them; the broker is left out."""
    follow.test_the_batch_answer_equals_brute_force(spark, [])
    follow.test_the_stream_equals_the_batch_answer_across_moves_and_a_restart(spark, tmp_path)


def test_spans_of_messages(spark: Any, tmp_path: Path) -> None:
    """Traces out of a stream, and the same spans out of a table."""
    from tests.spark import test_spans

    test_spans.test_a_stream_of_messages_becomes_traces(spark, tmp_path)
    messages = spark.read.schema("value binary").parquet(str(tmp_path / "in"))
    spans = ab.spans_of(messages, bad_rows="drop").groupBy("trace_id").count().collect()
    assert sorted(row["count"] for row in spans) == [1, 1, 3, 3]


def test_video(spark: Any, tmp_path: Path) -> None:
    """A film that PyAV makes here, as a table and as a stream that is restarted."""
    pytest.importorskip("av")
    from tests.spark import test_video as video

    films = video.of_channels(tmp_path / "films")
    call: dict[str, Any] = {"start": video.START, "picture": (64, 36)}
    want = video.keys(ab.video.shots(ab.video.table(spark, str(films), **call)))
    assert len(want) == 3 * len(video.CUTS)
    with settings(spark, shuffle__partitions=1):
        for count in (2, 4):
            video.listed(films, count)
            video.run(ab.video.shots(ab.video.frames(spark, str(films), **call)), tmp_path)
    assert video.keys(spark.read.parquet(str(tmp_path / "out"))) == want


def test_connect(spark: Any, tmp_path: Path) -> None:
    """`correlate` as stream and batch, then the other streaming verbs, through a server."""
    folder = tmp_path / "correlate"
    folder.mkdir()
    script = scripted(3, rows=(10, 10), seed=14)
    feed = Feed(folder).add(script)
    with driver(folder, "--remote", "local[2]", "--batch") as run:
        assert run.finish()["total"]["rows_in"] == 60
    agree(found(feed.output(spark)), twin.pairs_in_time(script, SPANS, score, LATE))
    sides = [[row for rows in script for row in rows[side]] for side in (0, 1)]
    agree(found(feed.output(spark, "batch")), twin.pairs(*sides, SPANS, score))


def test_connect_other_results_of_pairs(spark: Any, tmp_path: Path) -> None:
    for name in ("one", "dedupe", "left", "anti", "groups"):
        mode, folder = MODES[name], tmp_path / name
        folder.mkdir()
        feed = Feed(folder).add(batches_of(mode))
        with driver(folder, "--remote", "local[2]", "--mode", name) as run:
            run.finish()
        want = rows_of(mode.query(*feed.tables(spark)))
        assert rows_of(feed.output(spark)) == want and len(want) > 10, name


def test_connect_nearest_and_assemble(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "nearest"
    folder.mkdir()
    objects = [*nearest_feed.objects_in_batches(2, seed=7), [nearest_feed.closing()]]
    feed = nearest_feed.feed_of(folder, objects)
    with driver(folder, "--remote", "local[2]", "--nearest") as run:
        run.finish()
    want = nearest_feed.want(objects, nearest_feed.fixed_queries())
    assert nearest_feed.got(feed.output(spark)) == want
    folder = tmp_path / "assemble"
    folder.mkdir()
    script = events(3, rows=20, seed=3)
    feed = Feed(folder, (CALL, CALL), idle=True).add(script)
    with driver(folder, "--remote", "local[2]", "--assemble") as run:
        run.finish()
    alike(collected(feed.output(spark)), expected(spark, script, LEARNED, SECOND))


def test_connect_emd_and_verbs_of_tables(spark: Any, tmp_path: Path) -> None:
    script = emd_driver.batches(3, rows=10, seed=8)
    calls = events(4, rows=20, seed=3)
    feeds = {verb: on_cluster.feed_of(tmp_path, verb).add(calls) for verb in on_cluster.OF_TABLES}
    emd = on_cluster.feed_of(tmp_path, "emd").add(script)
    verbs = ("emd", *feeds)
    with driver(tmp_path, *verbs, "--remote", "local[2]", script="../cluster/driver.py") as run:
        run.finish()
    pairs = {pair: round(value, 9) for pair, value in found(emd.output(spark)).items()}
    agree(pairs, twin.pairs_in_time(script, SPANS, emd_driver.score, LATE))
    for verb, feed in feeds.items():
        wanted = sorted(map(str, on_cluster.OF_TABLES[verb](spark, feed).collect()))
        assert sorted(map(str, feed.output(spark).collect())) == wanted and wanted, verb
