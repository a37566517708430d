"""`ab.video.topics` on Spark: behind `correlate`, as stream with a restart and as batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.errors import InvalidCall
from tests.spark.feeds import SECOND, START, Feed, scripted, settings
from tests.spark.processes import driver

BATCHES = [([*left, *right], []) for left, right in scripted(6, rows=(6, 6), seed=4)]
END = [([{**BATCHES[0][0][0], "id": 90_000, "t": START + 600 * SECOND}], [])]
CALL: dict[str, Any] = {"window": "2 seconds", "keep": ["channel"]}
TOPICS: dict[str, Any] = {"near": "100 ms", "gap": "1 second", "alone": 0.95}


def topics(rows: Any, **watermark: str) -> Any:
    """Topics of rows that are on three channels."""
    keys = rows.selectExpr("*", "concat('c', id % 3) AS channel")
    alike = ab.cosine("v") >= 0.9
    pairs = ab.correlate(keys, where=alike & ab.differs("channel"), **CALL, **watermark)
    repeats = ab.correlate(keys, where=alike & ab.same("channel"), **CALL, **watermark)
    return ab.video.topics(pairs, repeats=repeats, **TOPICS)


def closed(frame: Any) -> Counter[tuple[Any, ...]]:
    rows = frame.filter("event = 'closed'").collect()
    return Counter((r.topic, r.shots, r.pairs, tuple(r.channels), tuple(r.members)) for r in rows)


@pytest.mark.slow
def test_a_stream_gives_the_topics_of_the_table(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path, idle=True)
    with settings(spark, shuffle__partitions=2):
        for part in (BATCHES[:3], BATCHES[3:] + END):
            feed.run(topics(feed.add(part).streams(spark)[0], watermark="3 seconds"))
        got = feed.output(spark)
        want = closed(topics(feed.tables(spark)[0]))
    assert closed(got) == want and len(want) > 3
    assert got.count() == got.select("topic", "revision").distinct().count()
    assert got.filter("event = 'opened'").count() == (
        got.filter("event IN ('closed', 'merged')").count()
    )


def events(frame: Any) -> list[tuple[str, ...]]:
    return sorted(tuple(map(str, row)) for row in frame.collect())


def test_topics_have_captions_and_concepts_of_their_key_frames(spark: Any) -> None:
    """They are kept by `correlate`, with what concepts are called."""
    keys = spark.sql("""
        SELECT concat(channel, n) AS id, channel, n AS scene,
               timestamp_seconds(1700000000 + 4 * n) AS ts,
               concat('BRIDGE SHUT IN RIG', IF(channel = 'north' AND n = 1, 'O', 'A')) AS words,
               array(0.1f, IF(n = 2, float('nan'), 0.9f), NULL, 0.5f * n, -1f) AS concepts
        FROM range(3) AS t(n), VALUES ('north'), ('south') AS c(channel)""")
    names = ["water", "ship", "none", "sport", "food"]
    keys = keys.withMetadata("concepts", {"anabranch.concepts": names})
    alike = ab.same("scene") & ab.differs("channel")
    kept = ["channel", "words", "concepts"]
    pairs = ab.correlate(keys, where=alike, window="1 minute", keep=kept)
    assert pairs.schema["left_concepts"].metadata == {"anabranch.concepts": names}
    (row,) = (
        ab.video.topics(pairs, near="30 seconds", gap="5 minutes")
        .filter("event = 'closed'")
        .collect()
    )
    # ship, water, sport; ship, sport, water; sport, water, food
    assert (row.words, row.concepts) == ("BRIDGE SHUT IN RIGA", ["ship", "sport", "water"])
    bare = ab.correlate(
        keys.withColumn("concepts", F.col("concepts").cast("array<double>")),
        where=alike,
        window="1 minute",
        keep=kept,
    )
    unnamed = bare.withMetadata("left_concepts", {}).withMetadata("right_concepts", {})
    found = ab.video.topics(unnamed, near="30 seconds", gap="5 minutes")
    assert {row.concepts for row in found.collect()} == {None}


@pytest.mark.slow
def test_a_driver_killed_in_mid_batch_tells_each_event_of_topics_once(
    spark: Any, tmp_path: Path
) -> None:
    """At four moments: before anything is told, in the middle twice, and while topics close."""
    feed = Feed(tmp_path).add(BATCHES + END)
    for batch in (0, 2, 4, 6):
        with driver(
            tmp_path, "--what", "topics", "--hold", str(batch), script="video_driver.py"
        ) as held:
            held.kill_when_held()
    with driver(tmp_path, "--what", "topics", script="video_driver.py") as last:
        last.finish()
    got = events(feed.output(spark))
    with settings(spark, shuffle__partitions=2):
        want = events(topics(feed.tables(spark)[0]))
    assert got == want and len(want) > 10


@pytest.mark.slow
def test_executors_and_python_workers_that_are_killed_change_no_topic(
    spark: Any, tmp_path: Path
) -> None:
    """Two of each, in micro-batches of their own."""
    feed = Feed(tmp_path).add(BATCHES + END)
    lost = ("--worker", "1,4", "--executor", "2,5", "--master", "local-cluster[2,1,1024]")
    with driver(tmp_path, "--what", "topics", *lost, script="video_driver.py") as only:
        only.finish()
    killed = sorted(path.name for path in tmp_path.glob("killed-*"))
    assert killed == [
        f"killed-{one}" for one in ("executor-2", "executor-5", "worker-1", "worker-4")
    ]
    got = events(feed.output(spark))
    with settings(spark, shuffle__partitions=2):
        want = events(topics(feed.tables(spark)[0]))
    assert got == want and len(want) > 10


def test_pairs_of_one_channel_are_repetitions(spark: Any, tmp_path: Path) -> None:
    table = Feed(tmp_path).add(BATCHES).tables(spark)[0]
    keys = table.selectExpr("*", "concat('c', id % 3) AS channel")
    pairs = ab.correlate(keys, where=ab.cosine("v") >= 0.9, **CALL)
    one, two = (frame.collect() for frame in (ab.video.topics(pairs, **TOPICS), topics(table)))
    assert sorted(map(str, one)) == sorted(map(str, two)) and len(two) > 10
    across = pairs.filter("left_channel != right_channel")
    assert ab.video.topics(across, **TOPICS).count() != len(two), "no repetition counted"


def test_wrong_calls(spark: Any) -> None:
    table = spark.sql("SELECT 'a' AS left_id, 'b' AS right_id, now() AS ts, 1D AS score")
    with pytest.raises(InvalidCall) as error:
        ab.video.topics(table, near="1 minute", gap="2 s", channels=1, alone="much")
    for message in (
        "near must be at most gap, got '1 minute' and '2 s'",
        "channels must be a whole number of at least 2, got 1",
        "alone must be a score such as 0.6, or None, got 'much'",
        "pairs have no column 'left_channel' (needed by keep)",
    ):
        assert message in str(error.value)
    with pytest.raises(InvalidCall, match=r"near= is missing: add for example near='30 seconds'"):
        ab.video.topics(table, gap="1 minute")
