"""Queries of all verbs that really run, in a real browser: every panel has what Spark reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.dashboard.test_browser import PANELS, chromium, page
from tests.spark.feeds import settings

__all__ = ["chromium", "page"]  # fixtures

pytestmark = [pytest.mark.services, pytest.mark.spark]

PATIENCE = 120_000  # milliseconds until a panel that is not there counts as missing
# Rows by rate have no backlog, and predictions wait until windows are full.
LIVE = {verb: set(names.split()) - {"backlog", "predictions"} for verb, names in PANELS.items()}


def stream(spark: Any) -> Any:
    """Twenty rows a second."""
    from pyspark.sql import functions as F

    ticks = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    return ticks.select(
        F.col("value").alias("id"),
        F.col("timestamp").alias("ts"),
        F.array(*[F.rand(n).cast("float") for n in range(4)]).alias("v"),
        F.concat(F.lit("story "), (F.col("value") % 5).cast("string")).alias("title"),
        (F.floor(F.col("value") / 20)).alias("page"),
    )


def result(verb: str, spark: Any, control: Path) -> Any:
    """A result of a verb over live streams."""
    if verb == "correlate":
        return ab.correlate(
            stream(spark),
            stream(spark),
            where=ab.cosine("v") >= 0.9,
            window="2 seconds",
            watermark="1 second",
            keep=["title"],
            plan=ab.grid(1, 2),
            control=str(control),
        )
    if verb == "nearest":
        searches = spark.createDataFrame([("ann", [1.0, 0.0, 0.0, 0.0])], ["query_id", "v"])
        call = {"by": "v", "k": 3, "window": "4 seconds", "watermark": "1 second"}
        return ab.nearest(stream(spark), searches, **call)
    gap = ab.close.gap("1 second")
    return ab.assemble(stream(spark), key="page", close=gap, watermark="1 second")


@pytest.mark.parametrize("verb", LIVE)
def test_every_panel_shows_a_query_that_runs(
    page: Any, spark: Any, tmp_path: Path, verb: str
) -> None:
    with ab.dashboard(spark) as board, settings(spark, streaming__noDataMicroBatches__enabled=True):
        page.goto(board.url)
        shown = board.show(result(verb, spark, tmp_path / "control"))
        writer = shown.writeStream.format("noop").queryName(verb)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            page.locator(f"#name:has-text('ab.{verb}')").wait_for(timeout=PATIENCE)
            for name in LIVE[verb]:
                page.locator(f"#{name}").wait_for(timeout=PATIENCE)
            page.locator("#matches article").first.wait_for(timeout=PATIENCE)
            assert page.locator("#sentence").inner_text().endswith((".", ")"))
            if verb == "correlate":
                assert "at most 2 seconds apart" in page.locator("#words").inner_text()
                assert "starts with plan 0" in page.locator("#plan .story").inner_text()
        finally:
            query.stop()
