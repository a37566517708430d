"""Queries of all verbs that really run, in a real browser: every panel has what Spark reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.dashboard.test_browser import PANELS, chromium, page
from tests.spark.feeds import settings

__all__ = ["chromium", "page"]  # fixtures

pytestmark = [pytest.mark.services, pytest.mark.spark]

PATIENCE = 240_000  # milliseconds until a panel that is not there counts as missing
# Sources of rows by rate have no backlog, and nothing was predicted for the assembly.
LIVE = {verb: set(names.split()) - {"backlog", "predictions"} for verb, names in PANELS.items()}


@pytest.fixture
def live(spark: Any, tmp_path: Path) -> Iterator[Any]:
    from pyspark.sql import functions as F

    def stream() -> Any:
        ticks = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
        v = F.array(*[F.rand(n).cast("float") for n in range(4)])
        title = F.concat(F.lit("story "), (F.col("value") % 5).cast("string"))
        return ticks.select(
            F.col("value").alias("id"),
            F.col("timestamp").alias("ts"),
            v.alias("v"),
            title.alias("title"),
            (F.col("value") % 7).alias("page"),
        )

    searches = spark.createDataFrame([("ann", [1.0, 0.0, 0.0, 0.0])], ["query_id", "v"])
    results = {
        "correlate": ab.correlate(
            stream(),
            stream(),
            where=ab.cosine("v") >= 0.9,
            window="2 seconds",
            watermark="1 second",
            keep=["title"],
            plan=ab.grid(1, 2),
            control=str(tmp_path / "control"),
        ),
        "nearest": ab.nearest(
            stream(), searches, by="v", k=3, window="4 seconds", watermark="1 second"
        ),
        "assemble": ab.assemble(
            stream(), key="page", close=ab.close.gap("1 second"), watermark="1 second"
        ),
    }
    started: list[Any] = []
    with ab.dashboard(spark) as board, settings(spark, streaming__noDataMicroBatches__enabled=True):
        for verb, result in results.items():
            writer = board.show(result).writeStream.format("noop").queryName(verb)
            checkpoint = str(tmp_path / verb)
            started.append(writer.option("checkpointLocation", checkpoint).start())
        yield board
        for query in started:
            query.stop()


def test_every_panel_of_every_verb_shows_a_query_that_runs(page: Any, live: Any) -> None:
    page.goto(live.url)
    for verb, panels in LIVE.items():
        page.locator("#subjects button", has_text=verb).click(timeout=PATIENCE)
        page.locator(f"#name:has-text('ab.{verb}')").wait_for()
        for name in panels:
            page.locator(f"#{name}").wait_for(timeout=PATIENCE)
        assert page.locator("#sentence").inner_text().endswith((".", ")"))
        assert "ago" in page.locator("#facts").inner_text()
        page.locator("#matches article").first.wait_for(timeout=PATIENCE)
    page.locator("#subjects button", has_text="correlate").click()
    assert "at most 2 seconds apart" in page.locator("#words").inner_text()
    assert "starts with plan 0" in page.locator("#plan .story").inner_text()
