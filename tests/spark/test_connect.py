"""Through Spark Connect, where the client has no JVM: the same pairs under changing plans."""

from __future__ import annotations

from typing import Any

import pytest

import anabranch as ab
from tests.correlation import twin
from tests.spark.driver import LATE, SPANS, score
from tests.spark.feeds import Feed, agree, found, scripted
from tests.spark.processes import driver

BATCHES = scripted(14, rows=(10, 10), seed=14)
pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Feed, dict[str, Any]]:
    feed = Feed(tmp_path_factory.mktemp("connect")).add(BATCHES)
    with driver(feed.folder, "--remote", "local[2]", "--changing", "--batch") as run:
        return feed, run.finish()


def test_streaming_and_batch_equal_the_twin(spark: Any, connected: Any) -> None:
    feed, _ = connected
    want = twin.pairs_in_time(BATCHES, SPANS, score, LATE)
    streamed, at_once = feed.output(spark), feed.output(spark, "batch")
    agree(found(streamed), want)
    agree(found(at_once), want)
    assert sorted(map(repr, streamed.collect())) == sorted(map(repr, at_once.collect()))


def test_metrics(spark: Any, connected: Any) -> None:
    feed, figures = connected
    assert figures["total"]["pairs"] == feed.output(spark).count()
    assert figures["total"]["rows_in"] == 14 * 20
    assert figures["state_rows"] > 0
    assert {load["worker"] for load in figures["workers"]} <= {0, 1, 2, 3}


def test_plans_changed(connected: Any) -> None:
    feed, _ = connected
    entries = ab.plans.PlanLog(str(feed.folder / "control")).entries()
    assert len({entry.plan.fingerprint for entry in entries}) >= 3
