"""`groups` on Spark: behind `correlate`, as stream with a restart and as batch, and wrong calls."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import InvalidCall
from tests.spark.feeds import SECOND, START, Feed, heard, scripted, settings

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


@pytest.mark.slow
def test_a_stream_keeps_late_and_bad_pairs(spark: Any, tmp_path: Path) -> None:
    schema = "left_id long, right_id long, ts timestamp"
    source, path = tmp_path / "pairs", tmp_path / "rejects"
    source.mkdir()

    def arrive(number: int, rows: list[tuple[int, int, int | None]]) -> None:
        values = [
            (a, b, None if t is None else datetime.fromtimestamp(START / SECOND + t, UTC))
            for a, b, t in rows
        ]
        spark.createDataFrame(values, schema).coalesce(1).write.parquet(str(source / str(number)))

    def run() -> None:
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        pairs = stream.parquet(f"{source}/*")
        call = {"gap": "5 seconds", "streams": 1, "watermark": "2 seconds"}
        events = ab.groups(pairs, **call, bad_rows="drop", rejects=str(path))
        writer = events.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).toTable(name).awaitTermination()

    name = f"groups_{tmp_path.name}"
    arrive(0, [(1, 2, 1), (3, 4, 10)])
    run()
    arrive(1, [(5, 6, 2), (7, 8, None), (4, 9, 11)])
    run()
    arrive(2, [(10, 11, 40)])
    run()
    heard(spark)
    closed = spark.table(name).filter("event = 'closed'").collect()
    assert {tuple(row.members) for row in closed} == {(1, 2), (3, 4, 9)}
    rows = ab.rejects(spark, path).collect()
    assert {(json.loads(row.row)["left_id"], row.reason, row.verb, row.side) for row in rows} == {
        (5, "late", "groups", "pairs"),
        (7, "time column 'ts' is null", "groups", "pairs"),
    }
    assert len(rows) == 2
    spark.sql(f"DROP TABLE {name}")


def test_wrong_calls(spark: Any) -> None:
    table = spark.sql("SELECT 1 AS left_id, 2 AS right_id, current_timestamp() AS ts")
    for message, call in {
        "gap= is missing": {"streams": 1},
        "streams must be 1 if both ids are of one stream": {"gap": "1 second"},
        "bad_rows must be 'fail' or 'drop'": {"gap": "1 second", "streams": 1, "bad_rows": "skip"},
        "rejects must be the path": {"gap": "1 second", "streams": 1, "rejects": 7},
        "keep='score' would have no effect: groups knows rows by their ids": {"keep": "score"},
        "plan=4 would have no effect: one worker holds all open groups": {"plan": 4},
        "control='log' would have no effect": {"control": "log"},
        "id: 'left_id' would be both ids: name two": {
            **{"gap": "1 s", "streams": 1, "id": "left_id"},
        },
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
