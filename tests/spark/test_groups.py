"""`groups` on Spark: behind `correlate`, as stream with a restart and as batch, and wrong calls."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import InvalidCall
from tests.spark.feeds import SECOND, START, Feed, scripted, settings

BATCHES = [([*left, *right], []) for left, right in scripted(6, rows=(6, 6), seed=4)]
END = [([{**BATCHES[0][0][0], "id": 90_000, "t": START + 600 * SECOND}], [])]
CALL: dict[str, Any] = {"where": ab.cosine("v") >= 0.9, "window": "2 seconds"}


def closed(frame: Any) -> Counter[tuple[Any, ...]]:
    rows = frame.filter("event = 'closed'").collect()
    return Counter((row.group, row.rows, row.pairs, tuple(row.members)) for row in rows)


def test_a_stream_gives_the_groups_of_the_table(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path, idle=True)
    with settings(spark, shuffle__partitions=2):
        for part in (BATCHES[:3], BATCHES[3:] + END):
            stream, _ = feed.add(part).streams(spark)
            pairs = ab.correlate(stream, watermark="3 seconds", **CALL)
            feed.run(ab.groups(pairs, gap="1 second"))
        got = feed.output(spark)
        table = feed.tables(spark)[0]
        want = closed(ab.groups(ab.correlate(table, **CALL), gap="1 second"))
    assert closed(got) == want and len(want) > 3
    assert got.count() == got.select("group", "revision").distinct().count()
    assert {row.event for row in got.select("event").distinct().collect()} >= {"opened", "closed"}
    assert got.filter("event = 'opened'").count() == (
        got.filter("event IN ('closed', 'merged')").count()
    )


def test_wrong_calls(spark: Any) -> None:
    table = spark.sql("SELECT 1 AS left_id, 2 AS right_id, current_timestamp() AS ts")
    for message, call in {
        "gap= is missing": {"streams": 1},
        "streams must be 1 if both ids are of one stream": {"gap": "1 second"},
        "gap must be longer than 0 seconds": {"gap": "0 seconds", "streams": 1},
        "pairs have no column 'left_post'": {
            "gap": "1 s",
            "streams": 1,
            "id": ("left_post", "right_post"),
        },
    }.items():
        with pytest.raises(InvalidCall) as error:
            ab.groups(table, **call)
        assert message in str(error.value)
