"""End markers on real queries: stream, table and restart give what the twin gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.errors import InvalidCall
from tests.spark.events import CALL, alike, collected, events, expected
from tests.spark.feeds import SECOND, Feed

SHAPE = {"key": ["page", "client"], "keep": ["service", "ms"], "response": "ms"}
MARKER = "service LIKE '%3'"  # which the twin knows
POLICIES = {
    "gap": ab.close.until(MARKER, "150 ms", otherwise=ab.close.gap("700 ms")),
    "after": ab.close.until(MARKER, otherwise=ab.close.after("2 seconds")),
    "learned": ab.close.until(
        MARKER, "50 ms", otherwise=ab.close.learned("300 ms", risk=0.4, after=4, remember="900 ms")
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_a_stream_with_late_rows_that_is_started_twice(
    spark: Any, tmp_path: Path, name: str
) -> None:
    batches = events(4, seed=7)
    feed = Feed(tmp_path, (CALL, CALL), idle=True)
    for part in (batches[:2], batches[2:]):
        feed.add(part)
        feed.run(
            ab.assemble(feed.streams(spark), **SHAPE, close=POLICIES[name], watermark="1 second")
        )
    got = collected(feed.output(spark))
    alike(got, expected(spark, batches, POLICIES[name], SECOND))
    assert {"end", "late"} < {row["reason"] for row in got}


def test_a_table(spark: Any, tmp_path: Path) -> None:
    batches = events(6, seed=4)
    tables = Feed(tmp_path, (CALL, CALL), idle=True).add(batches).tables(spark)
    got = collected(ab.assemble(tables, **SHAPE, close=POLICIES["gap"]))
    alike(got, expected(spark, batches, POLICIES["gap"], 0, flush=True))
    assert {row["reason"] for row in got} == {"end", "gap", "flush"}


def test_what_the_end_marker_closed_is_complete(spark: Any) -> None:
    rows = spark.sql(
        """SELECT 'a' AS ward, o AS order, timestamp_seconds(1700000000 + 100 * o + s) AS ts,
                  s = 5 AND o <> 2 AS last
           FROM (SELECT explode(array(1, 2, 3)) AS o), (SELECT explode(array(0, 5)) AS s)"""
    )
    orders = ab.assemble(
        rows,
        key=["ward", "order"],
        close=ab.close.until("last", otherwise=ab.close.gap("1 minute")),
    )
    kept = ab.sla(orders, "10 seconds", service="ward").agg(F.sum("met"), F.sum("unknown")).first()
    assert tuple(kept) == (2, 1)


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("finished", "the marker of close.until: 'finished' is no condition on these columns"),
        ("ts", "the marker of close.until must be true or false of a row, got values of type"),
        (lambda: F.max("k") == 1, r"the marker of close.until: .*max\(k\).* is no condition on"),
    ],
)
def test_markers_that_are_none(spark: Any, marker: Any, message: str) -> None:
    rows = spark.sql("SELECT 1 AS k, timestamp_seconds(1) AS ts")
    marker = marker() if callable(marker) else marker  # a Column needs a session
    with pytest.raises(InvalidCall, match=message):
        ab.assemble(rows, key="k", close=ab.close.until(marker))
