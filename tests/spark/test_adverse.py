"""Every streaming verb under settings and mishaps that must not change its answer.

Sizes of Arrow batches, numbers of partitions, a time zone in which an hour comes twice; tasks that
fail, tasks of which two copies run, and the first failure that ends a query. A setting or mishap is
one test, for a session of its own for each verb would take most of the time.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from scripts.services.cluster import cluster
from tests.spark.adverse import STORIES, Story, run
from tests.spark.feeds import PATIENCE, SECOND, START, settings
from tests.spark.processes import Driver, driver

pytestmark = pytest.mark.slow
SCRIPT = "adverse.py"

SETTINGS: dict[str, dict[str, Any]] = {
    "Arrow batches of one row": {"execution__arrow__maxRecordsPerBatch": 1},
    "Arrow batches of a million": {"execution__arrow__maxRecordsPerBatch": 1_000_000},
    "one partition": {"shuffle__partitions": 1},
    "200 partitions": {"shuffle__partitions": 200},
}


def told(folder: Path, shift: int = 0) -> dict[str, Story]:
    """The stories, each in a folder of its own."""
    return {verb: of(folder / verb, shift) for verb, of in STORIES.items()}


def exact(spark: Any, stories: dict[str, Story]) -> None:
    """All verbs gave what they must; every one that did not is named."""
    wrong = []
    for verb, story in stories.items():
        try:
            story.check(spark)
        except Exception as error:
            error.add_note(f"verb: {verb}")
            wrong.append(error)
    if wrong:
        raise ExceptionGroup("wrong answers", wrong)


def test_every_verb_with_a_stream_has_a_story() -> None:
    """By the page of what runs where: video makes rows, and others are calls of these."""
    page = (Path(__file__).parents[2] / "docs/compatibility.md").read_text()
    rows = re.findall(r"^\| (`ab\.[^|]*) \| yes", page, re.M)
    streamed = {name for row in rows for name in re.findall(r"`ab\.(\w+)", row)}
    told_of = {"one": "correlate", "left": "correlate"}
    covered = {told_of.get(verb, verb) for verb in STORIES}
    assert streamed - covered <= {"rejects", "top", "spans_of", "video"}


def ended(one: Driver) -> dict[str, str | None]:
    """What ended the query of each verb; all of them take a few times as long as one."""
    one.process.wait(4 * PATIENCE)
    return one.finish()


def run_all(spark: Any, stories: dict[str, Story]) -> None:
    ends = dict(zip(stories, run(spark, stories.values()), strict=True))
    assert set(ends.values()) == {None}, ends
    exact(spark, stories)


@pytest.mark.filterwarnings("ignore:spark.sql.shuffle.partitions")
@pytest.mark.parametrize("name", SETTINGS)
def test_settings_change_nothing(spark: Any, tmp_path: Path, name: str) -> None:
    stories = told(tmp_path)
    if name == "200 partitions":  # a micro-batch of which takes half a minute
        for story in stories.values():
            story.feed.files = 4
    with settings(spark, **SETTINGS[name]):
        run_all(spark, stories)


# The clocks of Berlin go back from 3 to 2 at 01:00 UTC on 29 October 2023, and on at 26 March.
@pytest.mark.parametrize("change", [1_698_541_200, 1_679_792_400], ids=["back", "on"])
def test_an_hour_that_comes_twice_or_never(spark: Any, tmp_path: Path, change: int) -> None:
    shift = (change - 2) * SECOND - START
    with settings(spark, session__timeZone="Europe/Berlin"):
        run_all(spark, told(tmp_path, shift))


def test_tasks_that_fail_run_again(spark: Any, tmp_path: Path) -> None:
    """All tasks that read or write fail at first, when rows are out."""
    stories = told(tmp_path)
    with driver(
        tmp_path, *stories, "--master", "local[2,4]", "--spoil", "fail", script=SCRIPT
    ) as one:
        assert set(ended(one).values()) == {None}
    for verb in stories:
        assert len(list((tmp_path / verb).glob("again-*"))) > 10, verb
    exact(spark, stories)


def test_the_first_failure_ends_the_query_and_a_restart_goes_on(spark: Any, tmp_path: Path) -> None:
    """``local[2]`` is ``spark.task.maxFailures=1``."""
    stories = told(tmp_path)
    with driver(tmp_path, *stories, "--spoil", "once", script=SCRIPT) as one:
        ends = ended(one)
    assert [verb for verb, end in ends.items() if "spoiled" not in (end or "")] == []
    with driver(tmp_path, *stories, script=SCRIPT) as one:
        assert set(ended(one).values()) == {None}
    exact(spark, stories)


def test_two_copies_of_a_task(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are slow at first, so that Spark starts a second copy of them elsewhere.

    It needs two hosts for that, and a free core on the other one. Stages have as many tasks as an
    executor has cores, for which alone the time of a task decides.
    """
    stories = told(tmp_path)
    hasty = {
        "spark.executor.cores": "2",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.speculation.task.duration.threshold": "1s",
    }
    options = [part for name, value in hasty.items() for part in ("--conf", f"{name}={value}")]
    with cluster(cores=2) as two:
        monkeypatch.setenv("SPARK_LOCAL_IP", two.host)
        options += ["--master", two.address, "--spoil", "slow", "--at-once", "1"]
        with driver(tmp_path, *stories, *options, script=SCRIPT) as one:
            assert set(ended(one).values()) == {None}
    missing = [verb for verb in stories if not list((tmp_path / verb).glob("again-*"))]
    assert not missing, "no second copy was started"
    exact(spark, stories)
