"""Behind aggregates and joins with watermarks of their own, which tell rows it has passed.

::

    watermark of the batch      W1           W2
    windows that close in it    |--[====][====]-|      their times lie between W1 and W2: not late
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.spark.feeds import Feed, agree, found, scripted

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


@pytest.mark.parametrize("sides", ["both", pytest.param("one", marks=pytest.mark.slow)])
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
        with pytest.raises(ab.InvalidCall, match=f"right comes out of {what} with a watermark"):
            ab.correlate(as_it_is(streams[1]), computed(frame), **CALL, watermark="5 seconds")
    with pytest.raises(ab.InvalidCall, match="input 0 comes out of an aggregate"):
        rows = computed(by_second(streams[0]))
        ab.assemble(rows, key="id", close=ab.close.gap("1 second"), watermark="5 seconds")
    with pytest.raises(ab.InvalidCall, match="objects comes out of an aggregate"):
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
    for frame in ready:
        ab.correlate(as_it_is(streams[1]), frame, **CALL, watermark="5 seconds")
