"""Every streaming verb under settings and mishaps that must not change its answer.

Sizes of Arrow batches, numbers of partitions, a time zone in which an hour comes twice; tasks that
fail, tasks of which two copies run, and the first failure that ends a query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.correlation import twin
from tests.neighbours.runs import expected as neighbours
from tests.spark import events
from tests.spark.driver import LATE, SPANS, score
from tests.spark.feeds import SECOND, START, Feed, agree, found, scripted, settings
from tests.spark.modes import MODES, batches_of
from tests.spark.nearest_feed import (
    closing,
    feed_of,
    fixed_queries,
    got,
    objects_in_batches,
    query_frame,
)
from tests.spark.processes import driver
from tests.spark.test_killed_modes import rows_of

pytestmark = pytest.mark.slow

QUERIES = fixed_queries()
LEARNED = ab.close.learned("300 ms", risk=0.4, after=4, remember="900 ms")


@dataclass
class Story:
    """A feed, the call over its streams, and what must come out."""

    feed: Feed
    call: Callable[[Any], Any]
    check: Callable[[Any], None]
    option: tuple[str, ...] = ()

    def run(self, spark: Any) -> None:
        self.feed.run(self.call(spark))
        self.check(spark)


def correlate(folder: Path, shift: int = 0) -> Story:
    batches = [
        tuple([{**row, "t": row["t"] + shift} for row in side] for side in batch)
        for batch in scripted(5, rows=(15, 15), seed=31)
    ]
    feed = Feed(folder).add(batches)

    def call(spark: Any) -> Any:
        where, window = ab.cosine("v") >= 0.6, ("3 seconds", "2 seconds")
        plan = ab.broadcast(2) if ab.spark.settings.partitions(spark) > 1 else None
        return ab.correlate(
            *feed.streams(spark), where=where, window=window, watermark="3 seconds",
            plan=plan, keep=(["name"], []),
        )  # fmt: skip

    def check(spark: Any) -> None:
        want = twin.pairs_in_time(feed.taken(batches), SPANS, score, LATE)
        agree(found(feed.output(spark)), want)

    return Story(feed, call, check)


def nearest(folder: Path, shift: int = 0) -> Story:
    script = [*objects_in_batches(5, seed=33), [closing()]]
    objects = [[{**thing, "t": thing["t"] + shift} for thing in batch] for batch in script]
    feed = feed_of(folder, objects)

    def call(spark: Any) -> Any:
        asked = query_frame(spark, QUERIES)
        workers = min(2, ab.spark.settings.partitions(spark))
        return ab.nearest(
            feed.streams(spark)[1], asked, by="v", watermark="3 seconds", plan=ab.broadcast(workers)
        )

    def check(spark: Any) -> None:
        flat = [(thing["t"], thing["id"], thing["v"]) for batch in objects for thing in batch]
        end = objects[-1][0]["t"] - 3 * SECOND
        want = [hit for hit in neighbours(flat, QUERIES) if hit[3] <= end]
        assert len(want) > 50
        assert got(feed.output(spark)) == want

    return Story(feed, call, check, ("--nearest",))


def assemble(folder: Path, shift: int = 0) -> Story:
    batches = [
        tuple([{**row, "t": row["t"] + shift} for row in side] for side in batch)
        for batch in events.events(5, seed=34)
    ]
    feed = Feed(folder, (events.CALL, events.CALL), idle=True).add(batches)

    def call(spark: Any) -> Any:
        plan = ab.keyed(min(2, ab.spark.settings.partitions(spark)))
        return ab.assemble(
            feed.streams(spark), key=["page", "client"], keep=["service", "ms"], response="ms",
            close=LEARNED, watermark="1 second", plan=plan,
        )  # fmt: skip

    def check(spark: Any) -> None:
        buckets = min(2, ab.spark.settings.partitions(spark))
        want = events.expected(spark, feed.taken(batches), LEARNED, SECOND, buckets)
        events.alike(events.collected(feed.output(spark)), want)

    return Story(feed, call, check, ("--assemble",))


def of_mode(name: str, folder: Path, shift: int = 0) -> Story:
    mode = MODES[name]
    batches = [
        tuple([{**row, "t": row["t"] + shift} for row in side] for side in batch)
        for batch in batches_of(mode)
    ]
    feed = Feed(folder, idle=True).add(batches)

    def call(spark: Any) -> Any:
        return mode.query(*feed.streams(spark), watermark="5 seconds")

    def check(spark: Any) -> None:
        want = rows_of(mode.query(*feed.tables(spark)))
        assert len(want) > 10 and set(want.values()) == {1}
        assert rows_of(feed.output(spark)) == want

    return Story(feed, call, check, ("--mode", name))


STORIES = {"correlate": correlate, "nearest": nearest, "assemble": assemble} | {
    name: partial(of_mode, name) for name in ("one", "dedupe", "left", "groups")
}
SETTINGS: dict[str, dict[str, Any]] = {
    "Arrow batches of one row": {"execution__arrow__maxRecordsPerBatch": 1},
    "Arrow batches of a million": {"execution__arrow__maxRecordsPerBatch": 1_000_000},
    "one partition": {"shuffle__partitions": 1},
    "200 partitions": {"shuffle__partitions": 200},
}


@pytest.mark.filterwarnings("ignore:spark.sql.shuffle.partitions")
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("verb", STORIES)
def test_settings_change_nothing(spark: Any, tmp_path: Path, verb: str, name: str) -> None:
    story = STORIES[verb](tmp_path)
    if name == "200 partitions":  # a micro-batch of which takes half a minute
        story.feed.files = 4
    with settings(spark, **SETTINGS[name]):
        story.run(spark)


# The clocks of Berlin go back from 3 to 2 at 01:00 UTC on 29 October 2023, and on at 26 March.
@pytest.mark.parametrize("change", [1_698_541_200, 1_679_792_400], ids=["back", "on"])
@pytest.mark.parametrize("verb", STORIES)
def test_an_hour_that_comes_twice_or_never(
    spark: Any, tmp_path: Path, verb: str, change: int
) -> None:
    shift = (change - 2) * SECOND - START
    with settings(spark, session__timeZone="Europe/Berlin"):
        STORIES[verb](tmp_path, shift).run(spark)


def arguments(story: Story, *more: str) -> tuple[str, ...]:
    return (*story.option, *more)


@pytest.mark.parametrize("verb", STORIES)
def test_tasks_that_fail_run_again(spark: Any, tmp_path: Path, verb: str) -> None:
    """All tasks that read or write fail at first, when rows are out."""
    story = STORIES[verb](tmp_path)
    with driver(tmp_path, *arguments(story, "--master", "local[2,4]", "--spoil", "fail")) as run:
        run.finish()
    assert len(list(tmp_path.glob("again-*"))) > 10
    story.check(spark)


@pytest.mark.parametrize("verb", STORIES)
def test_the_first_failure_ends_the_query_and_a_restart_goes_on(
    spark: Any, tmp_path: Path, verb: str
) -> None:
    """``local[2]`` is ``spark.task.maxFailures=1``."""
    story = STORIES[verb](tmp_path)
    with driver(tmp_path, *arguments(story, "--spoil", "once")) as run:
        assert run.process.wait() != 0
        assert "spoiled" in run.tail() or "spoiled" in run.log.read_text(errors="replace")
    with driver(tmp_path, *arguments(story)) as run:
        run.finish()
    story.check(spark)


@pytest.mark.parametrize("verb", STORIES)
def test_two_copies_of_a_task(spark: Any, tmp_path: Path, verb: str) -> None:
    """Tasks are slow at first, so that Spark starts a second copy of them elsewhere."""
    story = STORIES[verb](tmp_path)
    hasty = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.speculation.task.duration.threshold": "1s",
    }
    options = [part for name, value in hasty.items() for part in ("--conf", f"{name}={value}")]
    options += ["--master", "local-cluster[2,1,1024]", "--spoil", "slow"]
    with driver(tmp_path, *arguments(story, *options)) as run:
        run.finish()
    assert list(tmp_path.glob("again-*")), "no second copy was started"
    story.check(spark)
