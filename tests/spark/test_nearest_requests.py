"""Queries that are asked for late, twice, or long before, in real streams: as the model has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.neighbours.runs import expected
from tests.spark.feeds import START, at
from tests.spark.nearest_feed import HOUR, feed_of, got

BATCHES = 13


def thing(seconds: float, ident: int, x: float) -> dict[str, Any]:
    return {"id": ident, "t": at(seconds), "v": [x, 0.0]}


def asked(seconds: float, ident: str, **more: Any) -> dict[str, Any]:
    query = {"query_id": ident, "v": [0.0, 0.0], "k": 1, "window": "60 seconds", **more}
    return {**query, "t": at(seconds), "op": "add"}


def cancelled(seconds: float, ident: str) -> dict[str, Any]:
    """Of a cancellation only the id and the time count."""
    return {**asked(seconds, ident, v=None, k=None, window=""), "op": "cancel"}


def steady() -> list[list[dict[str, Any]]]:
    """An object each five seconds, each nearer than the one before, and one that ends it all."""
    return [*([thing(5 * n, n, 90.0 - n)] for n in range(BATCHES - 1)), [thing(3600, 99, 99.0)]]


def script() -> list[list[dict[str, Any]]]:
    """Ops by micro-batch. With `late` of one second, batch n goes on to 5 (n - 1) - 1 seconds."""
    ops: list[list[dict[str, Any]]] = [[] for _ in range(BATCHES)]
    ops[0] = [asked(1, "twice"), asked(1, "ended"), asked(1, "booked"), cancelled(8, "orphan")]
    ops[1] = [cancelled(22, "booked"), cancelled(7200, "twice")]  # told before, and long before
    ops[2] = [cancelled(12, "ended")]
    ops[4] = [asked(1, "twice"), asked(2, "late")]
    ops[5] = [cancelled(3, "late"), asked(1, "orphan")]
    ops[7] = [asked(1, "ended"), asked(1, "twice"), asked(2, "late")]
    return ops


def holding() -> list[dict[str, Any]]:
    """What the ops amount to."""
    query = {"v": [0.0, 0.0], "k": 1, "span": 60_000_000}
    spans = {
        "twice": (1, 7200),
        "ended": (1, 12),
        "booked": (1, 22),
        "late": (9, 14),  # heard of in batch 4, cancelled in batch 5: from 9 to 14 seconds
    }
    return [
        {**query, "id": ident, "t": at(since), "until": at(until)}
        for ident, (since, until) in spans.items()
    ]


@pytest.mark.slow
def test_what_comes_late_or_twice_counts_once(spark: Any, tmp_path: Path) -> None:
    objects = steady()
    feed = feed_of(tmp_path, objects, script())
    requests, things = feed.streams(spark)
    query = feed.run(ab.nearest(things, requests, by="v", watermark="1 second"))
    flat = [(o["t"], o["id"], o["v"]) for batch in objects for o in batch]
    until = START + HOUR - 1_000_000
    wanted = [hit for hit in expected(flat, holding()) if hit[3] <= until]
    assert {hit[0] for hit in wanted} == {"twice", "ended", "booked", "late"}
    assert got(feed.output(spark)) == wanted
    assert ab.metrics(query)["total"]["late_rows"] == 7


@pytest.mark.slow
def test_cancelled_queries_leave_the_table_of_tops(spark: Any, tmp_path: Path) -> None:
    objects, ops = steady()[:-1], script()[:-1]
    ops[8] = [asked(38, "again"), asked(38, "gone")]  # told by batch 10, replaced in batch 11
    ops[10] = [asked(48, "again", window="2 seconds"), cancelled(48, "gone")]
    feed = feed_of(tmp_path, objects, ops)
    requests, things = feed.streams(spark)
    feed.run(ab.nearest(things, requests, by="v", watermark="1 second", output="top"))
    rows = feed.output(spark)
    assert {row.query_id for row in rows.filter("rank > 0").collect()} == {
        "again",
        "booked",
        "ended",
        "gone",
        "late",
        "twice",
    }
    # The last object is at 55 seconds, the watermark at 54: nothing is in a window of 2 seconds.
    now = {(row.query_id, row.object_id) for row in ab.top(rows).collect()}
    assert now == {("twice", 10)}
    ends = rows.filter("rank = 0").groupBy("query_id").count().collect()
    assert {row.query_id: row["count"] for row in ends if row.query_id != "again"} == {
        name: 1 for name in ("booked", "ended", "gone", "late")
    }
