"""Processes killed in mid-batch: the sink still holds every pair, and each of them once."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.correlation import twin
from tests.spark.driver import LATE, SPANS, score
from tests.spark.feeds import Feed, agree, found, scripted
from tests.spark.processes import driver, lose_an_executor, newest


def test_driver_killed_in_mid_batch(spark: Any, tmp_path: Path) -> None:
    dice = random.Random(11)
    batches = scripted(14, rows=(15, 15), seed=12)
    feed = Feed(tmp_path).add(batches)
    kills = interrupted = 0
    # Each start takes one or two batches further; a kill counts if its batch was not committed.
    while kills < 3 or (interrupted < 2 and kills < 6):
        with driver(tmp_path, "--master", "local[2]", "--plan", "csp") as run:
            target = newest(tmp_path, "commits") + dice.randint(1, 2)
            run.wait_until(lambda t=target: newest(tmp_path, "offsets") >= t, f"batch {target}")
            time.sleep(dice.uniform(0, 0.8))
            run.kill()
        kills += 1
        interrupted += newest(tmp_path, "commits") < newest(tmp_path, "offsets")
    assert interrupted >= 1
    assert newest(tmp_path, "commits") < len(batches) - 1, "all was done before the last kill"
    with driver(tmp_path, "--master", "local[2]", "--plan", "csp") as run:
        run.finish()
    taken = feed.taken(batches)
    agree(found(feed.output(spark)), twin.pairs_in_time(taken, SPANS, score, LATE))


@pytest.mark.slow
def test_executor_killed_in_mid_run(spark: Any, tmp_path: Path) -> None:
    batches = scripted(10, rows=(15, 15), seed=13)
    feed = Feed(tmp_path).add(batches)
    with driver(tmp_path, "--master", "local-cluster[2,1,1024]", "--plan", "grid") as run:
        lose_an_executor(run)
        at_kill = newest(tmp_path, "commits")
        run.finish()
    assert at_kill < len(batches) - 1
    taken = feed.taken(batches)
    agree(found(feed.output(spark)), twin.pairs_in_time(taken, SPANS, score, LATE))
