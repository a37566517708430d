"""From a folder of channels to topics as pages write it: two queries, and a table in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anabranch as ab
from tests.spark.feeds import settings
from tests.video.films import scene, segmented

# Another channel is on air an hour later, and moves the watermark past all topics before.
START = {"north": "2024-05-01T12:00:00", "south": "2024-05-01T12:00:20", "late": "2024-05-01T13:00"}
STORY = [*scene(1, 30), *scene(2, 40), *scene(3, 35)]


def caption(pictures: Any) -> Any:
    return [[("BRIDGE SHUT IN RIGA", 0.9, (0, 0, 9, 9))] for _ in pictures]


def run(writer: Any, checkpoint: Path) -> None:
    options = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    options.start().awaitTermination()


def test_frames_become_topics_through_a_table(spark: Any, tmp_path: Path) -> None:
    channels, table, found = (tmp_path / name for name in ("channels", "keyframes", "topics"))
    # What a channel shows again within a minute is no pair of channels.
    segmented(channels / "north", [*scene(11, 30), *STORY, *scene(11, 30)], (50, 110))
    segmented(channels / "south", [*STORY, *scene(21, 50)], (40, 90))
    segmented(channels / "late", [*scene(31, 40), *scene(32, 40)])

    with settings(spark, shuffle__partitions=1):
        frames = ab.video.frames(spark, str(channels), start=START, closed="all")
        shots = ab.video.shots(frames)
        described = ab.video.describe(shots, text=caption)
        sink = ab.sinks.parquet(str(table), app="news")
        run(described.writeStream.foreachBatch(sink), tmp_path / "keyframes.checkpoint")

        keys = spark.readStream.schema(described.schema).parquet(str(table))
        pairs = ab.correlate(
            keys,
            where=(ab.cosine("vector") >= 0.6) & ab.differs("channel"),
            window="60 seconds",
            watermark="10 seconds",
            keep=["channel", "words"],
        )
        topics = ab.video.topics(pairs, near="30 seconds", gap="5 minutes", channels=2)
        sink = ab.sinks.parquet(str(found), app="topics")
        run(topics.writeStream.foreachBatch(sink), tmp_path / "topics.checkpoint")

    kept = spark.read.parquet(str(table))
    assert kept.groupBy("channel").count().orderBy("channel").collect() == [
        ("late", 2),
        ("north", 5),
        ("south", 4),
    ]
    events = spark.read.parquet(str(found))
    (topic,) = events.filter("event = 'closed'").collect()
    assert (topic.channels, topic.shots, topic.pairs) == (["north", "south"], 6, 3)
    assert topic.words == "BRIDGE SHUT IN RIGA" and topic.score > 0.9
    shown = {row.id: row.channel for row in kept.collect()}
    assert sorted(shown[key] for key in topic.members) == ["north"] * 3 + ["south"] * 3
    assert events.count() == events.select("topic", "revision").distinct().count()
