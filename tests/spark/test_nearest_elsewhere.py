"""`nearest` where drivers, executors and clients are processes of their own: the same hits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.nearest_feed import (
    closing,
    feed_of,
    fixed_queries,
    got,
    lasting_queries,
    objects_in_batches,
    want,
)
from tests.spark.processes import driver, lose_an_executor, newest

PLANS = [
    pytest.param((), fixed_queries(), id="ssp"),
    pytest.param(("--routed",), lasting_queries(), id="selective"),
]


def judged(spark: Any, feed: Any, objects: list[Any], queries: list[Any]) -> None:
    """The sink holds what the batches as they were taken must give."""
    taken = [batch[1] for batch in feed.taken([([], batch) for batch in objects])]
    wanted = want(taken, queries)
    assert len(wanted) > 50
    assert got(feed.output(spark)) == wanted


@pytest.mark.slow
@pytest.mark.parametrize(("options", "queries"), PLANS)
def test_executor_killed_in_mid_run(
    spark: Any, tmp_path: Path, options: tuple[str, ...], queries: list[Any]
) -> None:
    objects = [*objects_in_batches(9, seed=13), [closing()]]
    feed = feed_of(tmp_path, objects)
    master = ("--master", "local-cluster[2,1,1024]")
    with driver(tmp_path, *master, "--nearest", *options) as run:
        lose_an_executor(run)
        at_kill = newest(tmp_path, "commits")
        run.finish()
    assert at_kill < len(objects) - 1
    judged(spark, feed, objects, queries)


@pytest.mark.slow
@pytest.mark.parametrize(("options", "queries"), PLANS)
def test_through_spark_connect(
    spark: Any, tmp_path: Path, options: tuple[str, ...], queries: list[Any]
) -> None:
    objects = [*objects_in_batches(7, seed=14), [closing()]]
    feed = feed_of(tmp_path, objects)
    with driver(tmp_path, "--remote", "local[2]", "--nearest", *options) as run:
        figures = run.finish()
    judged(spark, feed, objects, queries)
    assert figures["total"]["rows_in"] == 7 * 30 + 1
    assert figures["total"]["hits"] == feed.output(spark).count()
