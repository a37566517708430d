"""Rows that found no partner on Spark: exact, in batch and in a stream that is restarted."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import InvalidCall
from tests.correlation import twin
from tests.spark.feeds import SECOND, START, Batch, Feed, flat, scripted, settings

WHERE = ab.cosine("v") >= 0.9
BATCHES = scripted(6, rows=(12, 12), seed=8)
END: list[Batch] = [
    ([{**BATCHES[0][0][0], "id": 90_000 + n, "t": START + (60 + 60 * n) * SECOND}], [])
    for n in (0, 1)
]


score = twin.alike(0.9)


def expected(batches: list[Batch]) -> tuple[twin.Pairs, set[int], set[int]]:
    left, right = flat(batches)
    pairs = twin.pairs(left, right, (2 * SECOND, SECOND), score)
    met = {a for a, _ in pairs}, {b for _, b in pairs}
    alone = [{row["id"] for row in rows} - met[n] for n, rows in enumerate((left, right))]
    return pairs, alone[0], alone[1]


def check(frame: Any, batches: list[Batch]) -> None:
    pairs, left, right = expected(batches)
    rows = frame.filter("coalesce(left_id, 0) < 90000").collect()
    assert len(rows) == len({(row.left_id, row.right_id) for row in rows})
    found = {(row.left_id, row.right_id): row.score for row in rows}
    assert {p: s for p, s in found.items() if None not in p} == pairs
    assert {a for a, b in found if b is None} == left
    assert {b for a, b in found if a is None} == right
    assert all((row.score is None) == (None in (row.left_id, row.right_id)) for row in rows)
    assert left and right and pairs
    for row in rows:
        assert row.ts == max(t for t in (row.left_ts, row.right_ts) if t is not None)
        assert (row.left_room is None) == (row.left_id is None)


def test_in_batch(spark: Any, tmp_path: Path) -> None:
    frames = Feed(tmp_path).add(BATCHES).tables(spark)
    call: dict[str, Any] = {"where": WHERE, "window": ("2 seconds", "1 second"), "keep": "room"}
    check(ab.correlate(*frames, how="full", **call), BATCHES)
    alone = ab.correlate(*frames, how="anti", **call)
    assert alone.columns == ["left_id", "left_ts", "ts", "left_room"]
    assert {row.left_id for row in alone.collect()} == expected(BATCHES)[1]


def test_in_a_stream_that_is_restarted_under_another_plan(spark: Any, tmp_path: Path) -> None:
    feed, control = Feed(tmp_path, idle=True), str(tmp_path / "control")
    with settings(spark, shuffle__partitions=2):
        for part in (BATCHES[:3], BATCHES[3:] + END):
            streams = feed.add(part).streams(spark)
            result = ab.correlate(
                *streams,
                where=WHERE,
                window=("2 seconds", "1 second"),
                watermark="3 seconds",
                keep="room",
                plan=ab.broadcast(2),
                control=control,
                how="full",
            )
            query = feed.run(result)
            ab.plans.PlanLog(control).append(ab.segments(2, "1 second"))
    check(feed.output(spark), BATCHES)
    figures = ab.metrics(query)
    assert figures["total"]["unmatched_rows"] > 0


@pytest.mark.slow
def test_in_one_step_under_a_plan_that_cannot_change(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path, idle=True)
    call: dict[str, Any] = {"where": WHERE, "window": ("2 seconds", "1 second"), "keep": "room"}
    with settings(spark, shuffle__partitions=2):
        for part in (BATCHES[:3], BATCHES[3:] + END):
            streams = feed.add(part).streams(spark)
            result = ab.correlate(*streams, watermark="3 seconds", how="left", **call)
            query = feed.run(result)
    assert len(query.lastProgress.stateOperators) == 1
    pairs, left, _ = expected(BATCHES)
    rows = feed.output(spark).filter("left_id < 90000").collect()
    assert len(rows) == len(pairs) + len(left)
    assert {(row.left_id, row.right_id): row.score for row in rows} == {
        **pairs,
        **{(ident, None): None for ident in left},
    }
    assert ab.metrics(query)["total"]["unmatched_rows"] > 0


def test_all_workers_decide_when_the_watermark_is_just_there(spark: Any, tmp_path: Path) -> None:
    """A worker without new rows is woken in the very micro-batch in which others decide.

    All left rows meet one right row, many of them elsewhere than where they wait. When the
    watermark is at the last time at which they have partners, one worker alone gets a row.
    """
    feed, ids = Feed(tmp_path, idle=True), itertools.count()

    def rows(t: int, many: int = 1, sign: float = 1.0) -> list[Any]:
        alike = {**BATCHES[0][0][0], "v": [sign] * len(BATCHES[0][0][0]["v"]), "t": t}
        return [{**alike, "id": next(ids)} for _ in range(many)]

    for moment in range(START, START + 400 * SECOND, 100 * SECOND):
        later = [([], rows(moment + n * SECOND, sign=-1.0)) for n in (2, 5)]
        feed.add([(rows(moment, 12), rows(moment)), *later])
    call: dict[str, Any] = {"where": WHERE, "window": "2 seconds", "watermark": "0 seconds"}
    with settings(spark, shuffle__partitions=2):
        feed.run(ab.correlate(*feed.streams(spark), plan=ab.grid(1, 2), how="left", **call))
    found = feed.output(spark).collect()
    assert len(found) == 4 * 12 and all(row.right_id is not None for row in found)


def test_what_waits_for_the_watermark_is_no_input_with_another(spark: Any, tmp_path: Path) -> None:
    streams = Feed(tmp_path).add(BATCHES[:1]).streams(spark)
    call: dict[str, Any] = {"where": WHERE, "window": "1 second", "watermark": "1 second"}
    outer = ab.correlate(*streams, how="left", keep="v", **call)
    outer = outer.selectExpr("left_id AS id", "left_ts AS ts", "left_v AS v")
    with pytest.raises(InvalidCall, match=r"comes out of ab\.correlate with rows that found no"):
        ab.correlate(outer, streams[0], **call)
