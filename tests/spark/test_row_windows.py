"""Windows that count rows on Spark: exact, in batch and in streams that are restarted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import InvalidCall
from tests.correlation import twin
from tests.spark.feeds import SECOND, START, Batch, Feed, flat, scripted, settings

WHERE = ab.cosine("v") >= 0.5
WINDOW = (9, 5)
BATCHES = scripted(3, rows=(12, 12), seed=8)
END: list[Batch] = [
    ([{**BATCHES[0][0][0], "id": 90_000 + n, "t": START + (60 + 60 * n) * SECOND}], [])
    for n in (0, 1)
]


score = twin.alike(0.5)


def check(frame: Any, expected: twin.Pairs) -> None:
    rows = frame.filter("left_id < 90000 AND right_id < 90000").collect()
    found = {(row.left_id, row.right_id): row.score for row in rows}
    assert found == expected and len(rows) == len(found)
    assert expected
    assert all(row.ts == max(row.left_ts, row.right_ts) for row in rows)


@pytest.mark.slow
def test_a_stream_that_is_restarted_under_another_plan(spark: Any, tmp_path: Path) -> None:
    feed, control = Feed(tmp_path, idle=True), str(tmp_path / "control")
    with settings(spark, shuffle__partitions=2):
        for part in (BATCHES[:1], BATCHES[1:] + END):
            result = ab.correlate(
                *feed.add(part).streams(spark),
                where=WHERE,
                window=WINDOW,
                watermark="3 seconds",
                keep="room",
                plan=ab.broadcast(2),
                control=control,
            )
            query = feed.run(result)
            ab.plans.PlanLog(control).append(ab.grid(1, 2))
    check(feed.output(spark), twin.pairs_by_rows(*flat(BATCHES), WINDOW, score))
    assert max(entry.epoch for entry in ab.plans.PlanLog(control).entries()) > 0
    assert ab.metrics(query)["total"]["late_rows"] == 0


@pytest.mark.slow
def test_in_batch(spark: Any, tmp_path: Path) -> None:
    left, right = Feed(tmp_path).add(BATCHES).tables(spark)
    expected = twin.pairs_by_rows(*flat(BATCHES), WINDOW, score)
    check(ab.correlate(left, right, where=WHERE, window=WINDOW, keep="room"), expected)


@pytest.mark.slow
def test_one_stream_with_a_watermark_of_its_own(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path, idle=True)
    both = [
        ([*left, *right], [{**left[0], "id": 70_000 + n}])
        for n, (left, right) in enumerate(BATCHES + END)
    ]
    with settings(spark, shuffle__partitions=2):
        for part in (both[:3], both[3:]):
            stream = feed.add(part).streams(spark)[0].withWatermark("ts", "3 seconds")
            feed.run(ab.correlate(stream, where=WHERE, window=7))
    rows = sorted((row for left, _ in both[:-2] for row in left), key=lambda r: (r["t"], r["id"]))
    expected = {
        (a["id"], b["id"]): score(a, b)
        for n, b in enumerate(rows)
        for a in rows[max(n - 7, 0) : n]
        if score(a, b) is not None
    }
    check(feed.output(spark), expected)


@pytest.mark.slow
def test_what_waits_for_the_watermark_is_no_input_with_another(spark: Any, tmp_path: Path) -> None:
    streams = Feed(tmp_path).add(BATCHES[:1]).streams(spark)
    call: dict[str, Any] = {"where": WHERE, "window": 10, "watermark": "1 second"}
    pairs = ab.correlate(*streams, keep="v", **call)
    carrying = pairs.selectExpr("left_id AS id", "ts", "left_v AS v")
    with pytest.raises(InvalidCall, match="left already has a watermark"):
        ab.correlate(carrying, streams[0], **call)
    other = pairs.selectExpr("left_id AS id", "left_ts AS ts", "left_v AS v")
    with pytest.raises(InvalidCall, match="or with a window of rows"):
        ab.correlate(other, streams[0], **call)
