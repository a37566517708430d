"""Behind aggregates and joins with watermarks of their own, which tell rows it has passed.

::

    watermark of the batch      W1           W2
    windows that close in it    |--[====][====]-|      their times lie between W1 and W2: not late
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.neighbours.runs import expected
from tests.spark.feeds import SECOND, START, Feed, agree, found, scripted
from tests.spark.nearest_feed import got, query_frame

CALL = {"where": ab.within("m", 100.0), "window": "2 seconds", "plan": ab.broadcast(2)}
BATCHES = scripted(6, rows=(8, 8), disorder=0.3, seed=3)


def by_second(frame: Any, watermark: bool = True) -> Any:
    """A row per second and room, told when the watermark has passed that second."""
    from pyspark.sql import functions as F

    frame = frame.withWatermark("ts", "1 second") if watermark else frame
    counted = frame.groupBy(F.window("ts", "1 second"), "room").agg(F.avg("x").alias("m"))
    ident = F.concat_ws("-", "room", F.unix_micros("window.end"))
    return counted.select(ident.alias("id"), F.window_time("window").alias("ts"), "m", "window")


def as_it_is(frame: Any) -> Any:
    from pyspark.sql import functions as F

    return frame.select(F.col("id").cast("string"), "ts", F.col("x").cast("double").alias("m"))


@pytest.mark.slow
@pytest.mark.parametrize("sides", ["both", "one"])
def test_aggregates_are_correlated_as_in_batch_across_a_restart(
    spark: Any, tmp_path: Path, sides: str
) -> None:
    feed = Feed(tmp_path, idle=True).add(BATCHES[:3])

    def pairs() -> Any:
        left, right = feed.streams(spark)
        other = by_second(right)
        if sides == "one":
            other = as_it_is(right.withWatermark("ts", "1 second"))
        return ab.correlate(by_second(left), other, **CALL)

    first = feed.run(pairs())
    feed.add(BATCHES[3:])
    second = feed.run(pairs())
    late = [ab.metrics(query)["total"]["late_rows"] for query in (first, second)]
    assert late == [0, 0]

    # The last windows are still open when the stream ends: no time after the watermark is told.
    from pyspark.sql import functions as F

    mark = second.lastProgress["eventTime"]["watermark"]
    left, right = feed.tables(spark)
    told = F.col("ts") <= F.to_timestamp(F.lit(mark))
    other = as_it_is(right) if sides == "one" else by_second(right, False).filter(told)
    want = ab.correlate(by_second(left, False).filter(told), other, **CALL)
    agree(found(feed.output(spark)), found(want))


def told_rows(feed: Feed, spark: Any, mark: str) -> list[Any]:
    """Id, time and mean of the rows of the left side that an aggregate told up to a watermark."""
    from pyspark.sql import functions as F

    rows = by_second(feed.tables(spark)[0], False).filter(
        F.col("ts") <= F.to_timestamp(F.lit(mark))
    )
    return [tuple(row) for row in rows.select("id", F.unix_micros("ts"), "m").collect()]


def micros(mark: str) -> int:
    return int(datetime.fromisoformat(mark).timestamp() * 1000) * 1000


@pytest.mark.slow
def test_queries_over_an_aggregate_are_answered(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    feed = Feed(tmp_path, idle=True).add(BATCHES)
    queries = [{"id": f"q{n}", "v": [10.0 * n], "k": 2, "span": 2 * SECOND} for n in range(5)]
    objects = by_second(feed.streams(spark)[0]).withColumn("v", F.array("m"))
    asked = query_frame(spark, queries)
    query = feed.run(ab.nearest(objects, asked, by="v", plan=ab.broadcast(2)))
    assert ab.metrics(query)["total"]["late_rows"] == 0
    mark = query.lastProgress["eventTime"]["watermark"]
    rows = [(t, ident, [m]) for ident, t, m in told_rows(feed, spark, mark)]
    want = [hit for hit in expected(rows, queries) if hit[3] <= micros(mark)]
    assert len(want) > 20
    assert got(feed.output(spark)) == want


@pytest.mark.slow
def test_an_aggregate_is_assembled(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    feed = Feed(tmp_path, idle=True).add(BATCHES)
    rows = by_second(feed.streams(spark)[0]).withColumn("room", F.split("id", "-")[0])
    gap = 3 * SECOND // 2
    close = ab.close.count(2, "1500 ms")
    query = feed.run(ab.assemble(rows, key="room", close=close, keep="m"))
    assert ab.metrics(query)["total"]["late_rows"] == 0
    mark = query.lastProgress["eventTime"]["watermark"]
    windows: dict[str, list[list[Any]]] = {}
    for ident, t, m in sorted(told_rows(feed, spark, mark), key=lambda row: row[1]):
        mine = windows.setdefault(ident.split("-")[0], [])
        if not mine or len(mine[-1]) == 2 or t - mine[-1][0][0] >= gap:
            mine.append([])
        mine[-1].append((t, m))
    want = [
        (room, each[0][0], closed, [m for _, m in each])
        for room, mine in windows.items()
        for each in mine
        if (closed := each[1][0] if len(each) == 2 else each[0][0] + gap) <= micros(mark)
    ]
    assert len(want) > 2
    found = feed.output(spark).select(
        "room", F.unix_micros("opened"), F.unix_micros("closed"), "items.m"
    )
    assert sorted(map(tuple, found.collect())) == sorted(want)


@pytest.mark.slow
def test_pairs_of_aggregates_are_counted_by_window(spark: Any, tmp_path: Path) -> None:
    """The pairs, too, are at or before the watermark; a further operator takes none for late."""
    from pyspark.sql import functions as F

    feed = Feed(tmp_path, idle=True).add(BATCHES)
    pairs = ab.correlate(*map(by_second, feed.streams(spark)), **CALL)
    feed.run(pairs.select("left_id", "right_id", "ts", "score"), "pairs")
    counts = pairs.groupBy(F.window("ts", "2 seconds")).count()
    query = feed.run(counts.select(F.unix_micros("window.end").alias("end"), "count"), "counts")
    mark = F.to_timestamp(F.lit(query.lastProgress["eventTime"]["watermark"]))
    table = feed.output(spark, "pairs").groupBy(F.window("ts", "2 seconds")).count()
    want = table.filter(F.col("window.end") <= mark)
    rows = want.select(F.unix_micros("window.end"), "count").collect()
    assert len(rows) >= 2
    assert sorted(map(tuple, feed.output(spark, "counts").collect())) == sorted(map(tuple, rows))


@pytest.fixture(scope="module")
def streams(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return Feed(tmp_path_factory.mktemp("behind")).add(BATCHES[:1]).streams(spark)


def computed(frame: Any) -> Any:
    """The same times in a column that Spark knows no watermark of."""
    from pyspark.sql import functions as F

    return frame.withColumn("ts", F.timestamp_micros(F.unix_micros("ts")))


def test_late_behind_what_waits_for_a_watermark_is_refused(streams: Any) -> None:
    from pyspark.sql import functions as F

    left, right = (frame.withWatermark("ts", "1 second") for frame in streams)
    on = F.expr("l.id = r.id AND l.ts BETWEEN r.ts AND r.ts + INTERVAL 1 SECOND")
    joined = left.alias("l").join(right.alias("r"), on, "left_outer").select("l.*")
    pages = ab.assemble(
        streams[0], key="room", close=ab.close.gap("1 second"), watermark="1 second"
    )
    waiting = {
        "an aggregate": by_second(streams[0]),
        "an outer join": joined.withColumn("m", F.col("x").cast("double")),
        "ab.assemble": pages.select("seq", "room", F.col("first_ts").alias("ts")).selectExpr(
            "room AS id", "ts", "double(seq) AS m"
        ),
    }
    for what, frame in waiting.items():
        with pytest.raises(
            ab.errors.InvalidCall, match=f"right comes out of {what} with a watermark"
        ):
            ab.correlate(as_it_is(streams[1]), computed(frame), **CALL, watermark="5 seconds")
    with pytest.raises(ab.errors.InvalidCall, match="input 0 comes out of an aggregate"):
        rows = computed(by_second(streams[0]))
        ab.assemble(rows, key="id", close=ab.close.gap("1 second"), watermark="5 seconds")
    with pytest.raises(ab.errors.InvalidCall, match="objects comes out of an aggregate"):
        objects = computed(by_second(streams[0])).withColumn("v", F.array("m"))
        queries = objects.sparkSession.sql("SELECT 'q' AS query_id, array(double(0)) AS v")
        ab.nearest(objects, queries, by="v", k=1, window="1 second", watermark="5 seconds")


def test_late_behind_what_waits_for_nothing_is_not_refused(streams: Any) -> None:
    from pyspark.sql import functions as F

    left, right = (frame.withWatermark("ts", "1 second") for frame in streams)
    on = F.expr("l.id = r.id AND l.ts BETWEEN r.ts AND r.ts + INTERVAL 1 SECOND")
    pairs = ab.correlate(*streams, where=ab.within("x", 1), window="1 second", watermark="1 second")
    ready = [
        as_it_is(computed(left)),
        as_it_is(computed(left.dropDuplicatesWithinWatermark(["id"]))),
        as_it_is(computed(left.alias("l").join(right.alias("r"), on).select("l.*"))),
        computed(pairs.selectExpr("string(left_id) AS id", "ts", "score AS m")),
    ]
    table = left.sparkSession.range(9)
    ready.append(as_it_is(computed(left.join(table, "id", "left_outer"))))
    for frame in ready:
        ab.correlate(as_it_is(streams[1]), frame, **CALL, watermark="5 seconds")
    seen = streams[0].withColumn("seen", F.timestamp_micros(F.unix_micros("ts")))
    looked_up = seen.withWatermark("seen", "1 second").join(table, "id", "left_outer")
    marked = as_it_is(looked_up.withWatermark("ts", "1 second"))
    ab.correlate(marked, **CALL | {"plan": None})


def twice(stream: Any, **watermark: str) -> Any:
    """Pairs of the rows that `dedupe` leaves."""
    first = ab.dedupe(stream, where=ab.same("x"), window="1 second", **watermark)
    return ab.correlate(first, where=ab.within("x", 2), window="2 seconds").select(
        "left_id", "right_id", "ts"
    )


def by_rows_in_groups(stream: Any, **watermark: str) -> Any:
    """Groups of pairs within a window of rows."""
    pairs = ab.correlate(stream, where=ab.same("x"), window=7, **watermark)
    closed = ab.groups(pairs, gap="1 second").filter("event = 'closed'")
    return closed.selectExpr("array_min(members) AS left_id", "rows AS right_id", "ts")


def counted(stream: Any, **watermark: str) -> Any:
    """How many rows `dedupe` leaves in each second, by Spark's own aggregate."""
    from pyspark.sql import functions as F

    first = ab.dedupe(stream, where=ab.same("x"), window="1 second", **watermark)
    count = first.groupBy(F.window("ts", "1 second")).count()
    return count.selectExpr("unix_micros(window.start) AS left_id", "count AS right_id")


@pytest.mark.slow
@pytest.mark.parametrize("chain", [twice, by_rows_in_groups, counted])
def test_verbs_that_wait_follow_each_other_as_in_batch_across_a_restart(
    spark: Any, tmp_path: Path, chain: Any
) -> None:
    feed = Feed(tmp_path, idle=True)
    ends: list[Any] = [
        ([{**BATCHES[0][0][0], "id": 90_000 + n, "x": -1000, "t": START + (60 + 60 * n) * SECOND}],
         [])
        for n in (0, 1)
    ]  # fmt: skip
    for part in (BATCHES[:3], BATCHES[3:] + ends):
        feed.run(chain(feed.add(part).streams(spark)[0], watermark="1 second"))
    kept = [row for left, _ in BATCHES for row in left]
    table = Feed(tmp_path / "whole").add([(kept, kept)]).tables(spark)[0]
    wanted = sorted((row.left_id, row.right_id) for row in chain(table).collect())
    rows = [(row.left_id, row.right_id) for row in feed.output(spark).collect()]
    own = START + 60 * SECOND if chain is counted else 90_000
    assert sorted(row for row in rows if row[0] < own) == wanted
    assert len(wanted) > 5


def test_a_second_watermark_behind_what_waits_for_one_is_refused(streams: Any) -> None:
    call = {"where": ab.within("x", 1), "window": "1 second", "watermark": "1 second"}
    left = ab.correlate(*streams, how="left", **call)
    few = ab.correlate(*streams, **{**call, "window": 5})
    once = ab.dedupe(streams[0], **call)
    words = "write these rows to a table or topic"
    for pairs, more in (
        (left, {}),
        (left, {"watermark": "1 second"}),
        (left.withWatermark("ts", "1 second"), {}),
        (few.selectExpr("left_id", "right_id", "ts + interval 0 seconds AS ts"), {}),
        (few.withWatermark("left_ts", "1 second").drop("ts"), {}),
    ):
        time = "ts" if "ts" in pairs.columns else "left_ts"
        with pytest.raises(
            ab.errors.InvalidCall, match=r"pairs comes out of ab\.correlate"
        ) as error:
            ab.groups(pairs, gap="1 second", time=time, streams=2, **more)
        assert words in str(error.value)
    with pytest.raises(ab.errors.InvalidCall, match="stream already has a watermark"):
        ab.correlate(once, **call)
    later = once.selectExpr("id", "x", "ts", "ts + interval 1 second AS seen")
    with pytest.raises(ab.errors.InvalidCall, match="leave watermark= out and take as time"):
        ab.correlate(later, **call, time="seen")
    ab.correlate(once, where=ab.within("x", 1), window="1 second")
    ab.groups(few, gap="1 second")
