"""Queries of all verbs that really run, in a real browser: every panel has what Spark reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.dashboard.scenes import MARKUP, PIXEL
from tests.dashboard.test_browser import PANELS, _duration, chromium, page
from tests.spark.feeds import settings

__all__ = ["chromium", "page"]  # fixtures

pytestmark = [pytest.mark.services, pytest.mark.spark]

PATIENCE = 120_000  # milliseconds until a panel that is not there counts as missing
# The rate source is read up to its end, so that what is left is known: nothing.
LIVE = {verb: {*names.split(), "matches", "backlog"} for verb, names in PANELS.items()}
LIVE["nearest"].add("ranks")
INSTANCES = """SELECT 'a' AS kind, id AS key, 0 AS seq, 0 AS revision,
    timestamp_seconds(1700000000) AS opened, timestamp_seconds(1700000000 + id) AS closed,
    0.4D * id AS duration, id AS count FROM range(1, 6)"""


def stream(spark: Any) -> Any:
    """Twenty rows a second."""
    from pyspark.sql import functions as F

    ticks = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    vector = F.array(*[F.rand(n).cast("float") for n in range(4)])
    return ticks.select(
        F.col("value").alias("id"),
        F.col("timestamp").alias("ts"),
        F.when(F.col("value") % 50 > 0, vector).alias("v"),
        F.concat(F.lit("story "), (F.col("value") % 5).cast("string")).alias("title"),
        (F.floor(F.col("value") / 20)).alias("page"),
        F.lit(PIXEL).alias("frame"),
    )


def result(verb: str, spark: Any, control: Path) -> Any:
    """A result of a verb over live streams."""
    if verb == "correlate":
        return ab.correlate(
            stream(spark),
            stream(spark),
            where=ab.cosine("v", dim=4) >= 0.9,
            window="2 seconds",
            watermark="1 second",
            keep=["title", "frame"],
            plan=ab.grid(1, 2),
            control=str(control),
            bad_rows="drop",
            rejects=str(control.parent / "rejects"),
        )
    one = {"where": ab.same("page"), "window": "2 seconds", "watermark": "1 second"}
    if verb == "dedupe":
        return ab.dedupe(stream(spark), **one)
    if verb == "groups":
        return ab.groups(ab.correlate(stream(spark), **one), gap="2 seconds")
    if verb == "nearest":
        searches = spark.createDataFrame([("ann", [1.0, 0.0, 0.0, 0.0])], ["query_id", "v"])
        call = {"k": 3, "window": "4 seconds", "watermark": "1 second", "bad_rows": "drop"}
        return ab.nearest(stream(spark), searches, by=ab.euclidean("v", dim=4), **call)
    gap = ab.close.gap("1 second")
    return ab.assemble(stream(spark), key="page", close=gap, watermark="1 second")


@pytest.mark.parametrize("verb", LIVE)
def test_every_panel_shows_a_query_that_runs(
    page: Any, spark: Any, tmp_path: Path, verb: str
) -> None:
    plan = ab.place([("v1", "s1", 5.0), ("v1", "s2", 1.0)], {"s1": "a", "s2": "b"}, 1.0, 0.5)
    estimate = ab.estimate_state(
        10.0, size=3, timeout=5.0, sizes=([2], [1.0]), duration=_duration()
    )
    with (
        ab.dashboard(spark, placement=plan, prediction=estimate) as board,
        settings(spark, streaming__noDataMicroBatches__enabled=True),
    ):
        page.goto(board.url)
        board.table("SLA", ab.sla(spark.sql(INSTANCES), "1 second", complete="count >= 2"))
        search = "ann" if verb == "nearest" else None
        shown = board.show(result(verb, spark, tmp_path / "control"), f"{verb} {MARKUP}", search)
        writer = shown.writeStream.format("noop").queryName(verb)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            if verb == "groups":  # the pairs that it groups are a subject before it
                page.locator("#subjects button").nth(1).click(timeout=PATIENCE)
            page.locator(f"#name:has-text('ab.{verb}')").wait_for(timeout=PATIENCE)
            for name in sorted(LIVE[verb] | {"tables", "placement"}):
                page.locator(f"#{name}").wait_for(timeout=PATIENCE)
            page.locator("#matches tbody tr").first.wait_for(timeout=PATIENCE)
            assert page.locator("#sentence").inner_text().endswith((".", ")"))
            if verb == "correlate":
                assert "at most 2 seconds apart" in page.locator("#words").inner_text()
                assert "starts with plan 0" in page.locator("#plan .story").inner_text()
                page.locator("#matches img").first.wait_for(timeout=PATIENCE)
                page.locator("#lost td:has-text('is null')").first.wait_for(timeout=PATIENCE)
            assert page.locator("img[src=x]").count() == 0
            page.locator("#matches h4:has-text('<script>')").wait_for(timeout=PATIENCE)
        finally:
            query.stop()
