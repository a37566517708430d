"""Processes killed in mid-batch: the sink still holds every pair, and each of them once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.correlation import twin
from tests.spark.driver import LATE, SPANS, score
from tests.spark.feeds import Feed, agree, found, scripted
from tests.spark.processes import driver, lose_an_executor, newest

# By left ids, which tell the batch; each kill is in mid-batch, when some results are out.
KILLS = [
    pytest.param(6, (3,), id="once"),
    pytest.param(14, (2, 3, 7, 12), id="often", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("count", "kills"), KILLS)
def test_driver_killed_in_mid_batch(
    spark: Any, tmp_path: Path, count: int, kills: tuple[int, ...]
) -> None:
    batches = scripted(count, rows=(15, 15), seed=12)
    feed = Feed(tmp_path).add(batches)
    for kill in kills:
        with driver(tmp_path, "--plan", "segments", "--hold", f"left_id >= {2000 * kill}") as run:
            run.kill_when_held()
    with driver(tmp_path, "--plan", "segments") as run:
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
