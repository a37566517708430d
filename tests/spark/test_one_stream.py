"""One stream against itself on Spark: exact in batch, and in a stream through changes of plan."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.correlation import twin
from tests.spark.feeds import SECOND, START, Feed, agree, flat, found, scripted, settings

BATCHES = [([*left, *right], []) for left, right in scripted(8, rows=(15, 15), seed=5)]
WHERE = (ab.cosine("v") >= 0.6) & ab.differs("room")


def pairs(rows: list[twin.Row], window: int) -> twin.Pairs:
    ordered = sorted(rows, key=lambda row: (row["t"], row["id"]))
    scores = {
        (a["id"], b["id"]): twin.cosine(a["v"], b["v"])
        for a, b in combinations(ordered, 2)
        if b["t"] - a["t"] <= window and a["room"] != b["room"]
    }
    return {pair: score for pair, score in scores.items() if score >= 0.6}


def test_in_batch(spark: Any, tmp_path: Path) -> None:
    table, _ = Feed(tmp_path).add(BATCHES).tables(spark)
    result = ab.correlate(table, where=WHERE, window="2 seconds", keep="room")
    assert result.columns[-2:] == ["left_room", "right_room"]
    agree(found(result), pairs(flat(BATCHES)[0], 2 * SECOND))
    assert result.filter("left_ts > right_ts OR left_room = right_room").count() == 0


@pytest.mark.slow
def test_in_a_stream_that_is_restarted_under_other_plans(spark: Any, tmp_path: Path) -> None:
    feed, control = Feed(tmp_path), str(tmp_path / "control")
    with settings(spark, shuffle__partitions=4):
        for part, plan in ((BATCHES[:3], None), (BATCHES[3:6], ab.segments(4, "1 second")),
                           (BATCHES[6:], ab.grid(2, 2))):  # fmt: skip
            if plan is not None:
                ab.PlanLog(control).append(plan)
            stream, _ = feed.add(part).streams(spark)
            result = ab.correlate(
                stream,
                where=WHERE,
                window="2 seconds",
                watermark="3 seconds",
                plan=ab.triangle(2),
                control=control,
            )
            feed.run(result)
    entries = ab.PlanLog(control).entries()
    assert {str(entry.plan).partition("(")[0] for entry in entries} == {
        "triangle",
        "segments",
        "grid",
    }
    agree(found(feed.output(spark)), pairs(flat(BATCHES)[0], 2 * SECOND))


@pytest.mark.slow
def test_rows_without_an_earlier_alike_one(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path, idle=True).add(BATCHES[:4])
    rows = flat(BATCHES[:4])[0]
    # The last batch moves the watermark past all others.
    last = [{**rows[0], "id": 99_999, "t": START + 60 * SECOND}]
    stream, _ = feed.add([(last, [])]).streams(spark)
    call = {"where": ab.cosine("v") >= 0.6, "window": "2 seconds"}
    feed.run(ab.dedupe(stream, watermark="3 seconds", **call))
    first = sorted(row["id"] for row in rows if not _alike_before(row, rows))
    got = feed.output(spark)
    assert got.columns == stream.columns
    assert sorted(row.id for row in got.collect() if row.id != 99_999) == first
    table = feed.tables(spark)[0]
    again = ab.dedupe(table, **call)
    assert sorted(row.id for row in again.collect()) == [*first, 99_999]
    whole = {row.id: row for row in table.collect()}
    assert all(row == whole[row.id] for row in again.collect())


def _alike_before(row: twin.Row, rows: list[twin.Row]) -> bool:
    return any(
        (other["t"], other["id"]) < (row["t"], row["id"])
        and row["t"] - other["t"] <= 2 * SECOND
        and twin.cosine(other["v"], row["v"]) >= 0.6
        for other in rows
    )
