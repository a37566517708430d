"""What comes out is an ordinary stream: filtered, joined, counted by window, correlated again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import anabranch as ab
from anabranch.flow.load import Load
from tests.correlation import twin
from tests.spark.feeds import SECOND, Feed, agree, found, scripted

BATCHES = scripted(7, rows=(8, 8), disorder=0.8, seed=7)
THIRD = scripted(7, rows=(6, 0), disorder=0.8, seed=8)
SPANS = (2 * SECOND, 2 * SECOND)
CALL = {"where": ab.cosine("v") >= 0.6, "window": "2 seconds", "plan": ab.broadcast(2)}


score = twin.alike(0.6)


WANT = twin.pairs_in_time(BATCHES, SPANS, score, 3 * SECOND)
BY_ID = {r["id"]: r for batch in BATCHES for side in batch for r in side}


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Feed:
    return Feed(tmp_path_factory.mktemp("composition"), idle=True).add(BATCHES)


@pytest.mark.slow
def test_filter_and_join_with_a_table(spark: Any, feed: Feed) -> None:
    rooms = spark.createDataFrame([("A", "attic"), ("B", "bath")], "room string, label string")
    pairs = ab.correlate(*feed.streams(spark), **CALL, watermark="3 seconds", keep=(["room"], []))
    labelled = pairs.filter("score >= 0.8").join(rooms, pairs.left_room == rooms.room)
    feed.run(labelled.select("left_id", "right_id", "score", "label"), "labelled")
    out = feed.output(spark, "labelled")
    labels = {"A": "attic", "B": "bath"}
    want = {pair: s for pair, s in WANT.items() if s >= 0.8 and BY_ID[pair[0]]["room"] in labels}
    agree(found(out), want)
    for ident, label in out.select("left_id", "label").collect():
        assert label == labels[BY_ID[ident]["room"]]


@pytest.mark.slow
def test_count_by_window(spark: Any, feed: Feed) -> None:
    """Spark's own aggregation closes a window once the watermark passes its end."""
    from pyspark.sql import functions as F

    pairs = ab.correlate(*feed.streams(spark), **CALL, watermark="3 seconds")
    counts = pairs.groupBy(F.window("ts", "2 seconds")).count()
    feed.run(counts.select(F.unix_micros("window.end").alias("end"), "count"), "counts")
    got = [tuple(r) for r in feed.output(spark, "counts").collect()]
    *_, last = twin.watermarks([*BATCHES, ([], [])], 3 * SECOND)
    size = 2 * SECOND
    ends = Counter(
        (max(BY_ID[a]["t"], BY_ID[b]["t"]) // size + 1) * size for a, b in WANT
    )  # fmt: skip
    want = [(end, n) for end, n in ends.items() if end <= last]
    assert len(want) >= 2
    assert sorted(got) == sorted(want)


@pytest.fixture(scope="module")
def twice(spark: Any, feed: Feed, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The ended query of a correlate over another correlate's pairs and a third stream."""
    from pyspark.sql import functions as F

    third = Feed(tmp_path_factory.mktemp("third")).add(THIRD)
    pairs = ab.correlate(*feed.streams(spark), **CALL, watermark="3 seconds", keep=(["x"], []))
    triples = ab.correlate(
        pairs.withColumn("pair", F.concat_ws("+", "left_id", "right_id")),
        third.streams(spark)[0].withWatermark("ts", "3 seconds"),
        where=ab.within("left_x", "x", 4),
        window=("1 second", "500 milliseconds"),
        id=("pair", "id"),
        plan=ab.grid(1, 2),
    )
    return feed.run(triples, "triples")


def test_correlate_what_was_correlated(spark: Any, feed: Feed, twice: Any) -> None:
    first = [
        {"id": f"{a}+{b}", "t": max(BY_ID[a]["t"], BY_ID[b]["t"]), "x": BY_ID[a]["x"]}
        for a, b in WANT
    ]
    third = [r for batch in THIRD for r in batch[0]]
    near = twin.when(lambda a, b: float(abs(a["x"] - b["x"])), lambda d: d <= 4)
    want = twin.pairs(first, third, (SECOND, SECOND // 2), near)
    agree(found(feed.output(spark, "triples"), "left_pair", "right_id"), want)


def test_metrics_add_up_over_both_operators(twice: Any) -> None:
    """Each has workers 0 and 1 of its own, and both report into the same progress."""
    held: dict[tuple[str, int], int] = {}
    for progress in twice.recentProgress:
        for name, observed in (progress.observedMetrics or {}).items():
            for load in map(Load.from_json, observed["load"]):
                held[name, load.worker] = load.state_rows
    assert len(held) == 4
    figures = ab.metrics(twice)
    assert figures["state_rows"] == sum(held.values())
    assert figures["total"]["late_rows"] == 0
