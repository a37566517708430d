"""The tables of docs/reliability.md are those of the stored reports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts.reliability import scenes
from scripts.reliability.fuzz import MIX

SHARES = {name: scene.share for name, scene in scenes.SCENES.items()}
ROOT = Path(__file__).parents[1]
PAGE = re.sub(" +", " ", (ROOT / "docs/reliability.md").read_text())


def report(name: str) -> Any:
    return json.loads((ROOT / f"scripts/reliability/results/{name}.json").read_text())


FUZZED = {
    "correlate": "`correlate`, `dedupe` in process",
    "nearest": "`nearest` in process",
    "assemble": "`assemble` in process",
    "calls": "arguments of `correlate` with every `how`, `nearest`, `assemble` and `place`",
    "spark": "on Spark, over tables",
}


@pytest.mark.parametrize("kind", FUZZED)
def test_random_cases(kind: str) -> None:
    found = report("fuzz")[kind]
    counts = {name: n for name, n in found.items() if isinstance(n, int) and name != "cases"}
    good = sum(n for name, n in counts.items() if name.endswith(("exact", "taken")))
    good += len(found.get("failed_and_mended", ()))
    named = sum(n for name, n in counts.items() if name.endswith(("with a reason", "named")))
    failed = len(found["failed"])
    assert good + named + failed == found["cases"]
    row = f"| {FUZZED[kind]} | {found['cases']:,} | {good:,} | {named:,} | {failed} |"
    assert row in PAGE


NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
CODE = {"date", "commit", "package"}


def test_the_page_says_which_reports_name_their_code() -> None:
    """A new run names it, and the sentence must then leave it out."""
    parts = {"fuzz": [report("fuzz")], "soak": [report("soak")], "chaos": report("chaos").values()}
    lacks = {
        name: not all(part.get("begun", {}).keys() >= CODE for part in of)
        for name, of in parts.items()
    }
    sentence = re.search(r"Those of (.*) lack these", PAGE)
    said = re.findall(r"`(\w+)`", sentence[1]) if sentence else []
    assert said == [name for name, missing in lacks.items() if missing]


def test_random_cases_in_words() -> None:
    found = report("fuzz")
    apart = [one for name, one in found.items() if name in FUZZED and name != "spark"]
    cases, minutes = sum(one["cases"] for one in apart), sum(one["seconds"] for one in apart) / 60
    assert f"{cases:,} cases in process took {round(minutes, -1):.0f} minutes" in PAGE
    mended = len(found["spark"]["failed_and_mended"])
    assert f"On Spark {NUMBERS[mended]} cases failed at first" in PAGE
    assert "Three quarters of the cases are calls" in PAGE
    assert found["calls"]["cases"] / cases == 0.75 == MIX["calls"]


MEMORY = {
    "mean_worker_mb": "Python worker, mean of six, MB",
    "largest_worker_mb": "Python worker, largest, MB",
    "jvm_mb": "JVM, resident, MB",
    "heap_mb": "JVM, live heap, least of a block, MB",
    "driver_mb": "Python of the driver, MB",
}
QUERIES = {
    "correlate": "`correlate`",
    "full": '`correlate`, `how="full"`',
    "dedupe": "`dedupe`",
    "groups": "`groups`",
    "nearest": "`nearest`",
    "assemble": "`assemble`",
}


@pytest.mark.parametrize("what", MEMORY)
def test_memory_of_the_long_run(what: str) -> None:
    slope = report("soak")["slopes"][what]
    hour, low, high = (f"{100 * slope[name]:+.1f}" for name in ("per_hour", "low", "high"))
    row = f"| {MEMORY[what]} | {slope['mean']:.1f} | {hour} % | {low} to {high} % |"
    assert f"{row} {slope['verdict']} |" in PAGE


@pytest.mark.parametrize("query", QUERIES)
def test_queries_of_the_long_run(query: str) -> None:
    shifts = report("soak")["shifts"]
    of = {name: shifts[f"{query}_{name}"] for name in ("checkpoint_kb", "batch_seconds")}
    cells = " | ".join(f"{one['early']:.1f}, {one['late']:.1f}" for one in of.values())
    assert f"| {QUERIES[query]} | {cells} |" in PAGE
    assert {one["verdict"] for one in of.values()} == {"flat"}


def test_the_long_run_in_words() -> None:
    found = report("soak")
    batches = [one["batches"] for one in found["answers"].values()]
    results = sum(one["results"] for one in found["answers"].values())
    changes = sum(found["plan_changes"].values())
    assert (
        f"{min(batches)} to {max(batches)} micro-batches of each query, {changes} plan changes, "
        f"{found['restarts']} restarts: all {results:,} results"
    ) in PAGE
    assert f"{found['event_days']:.1f} days of event time" in PAGE
    assert f"{len(found['starts_that_failed'])} starts failed" in PAGE
    left = found["mb_of_a_restart"]
    said = (
        f"{left['driver_mb']:.1f} MB in the driver's Python, {left['heap_mb']:.1f} MB in the heap"
    )
    assert said in PAGE
    assert not found["errors"]
    judged = 60 * found["hours"] - found["restarted"] / 60
    assert f"What is judged is the {judged:.0f} minutes after the last restart" in PAGE
    assert "The last run took an hour" in PAGE and round(found["hours"], 1) == 1.0


def test_what_the_long_run_says_of_growth() -> None:
    found = report("soak")
    figures = [*found["slopes"].values(), *found["shifts"].values()]
    assert "Nothing grew, and nothing was left undecided" in PAGE
    assert {one["verdict"] for one in figures} == {"flat"}
    shifts = found["shifts"]
    kept = [shifts[f"{query}_checkpoint_kb"] for query in QUERIES]
    less, more = (
        100 * limit(one["late"] / one["early"] - 1 for one in kept) for limit in (min, max)
    )
    said = f"Checkpoints end {-less:.1f} % smaller to {more:.1f} % larger than they began"
    assert less < 0 < more and said in PAGE
    assert "Micro-batches became shorter" in PAGE
    batches = [shifts[f"{query}_batch_seconds"] for query in QUERIES]
    assert all(one["late"] < one["early"] for one in batches)


def test_what_the_control_directory_keeps() -> None:
    found = report("soak")
    each = [found["control_kb"][name] / n for name, n in found["plan_changes"].items() if n]
    assert f"{min(each):.1f} to {max(each):.1f} KB per plan change" in PAGE


def test_operate_says_of_a_restart_what_the_long_run_measured() -> None:
    operate = (ROOT / "docs/operate.md").read_text()
    left = report("soak")["mb_of_a_restart"]
    assert f"about {left['heap_mb']:.1f} MB of heap ([measured](reliability.md" in operate
    low, high = re.search(r"([\d.]+) to ([\d.]+) MB", operate).groups()  # type: ignore[union-attr]
    assert float(low) <= left["driver_mb"] <= float(high)


SCENES = ("local", "clock", "broker", "cluster")


@pytest.mark.parametrize("scene", SCENES)
def test_scenes_of_chaos(scene: str) -> None:
    found = report("chaos")[scene]
    rows = re.findall(rf"^\| `{scene}` \| (\d+ x .*) \|$", PAGE, re.M)
    done, changes, results, lost, double = rows[0].split(" | ")
    counts = {what: int(n) for n, what in re.findall(r"(\d+) x (?:Kafka )?(\w+)", done)}
    assert counts == found["done"] and sum(counts.values()) == found["kills"]
    assert changes == f"{sum(found['plan_changes'].values()):,}"
    assert results == f"{sum(one['results'] for one in found['answers'].values()):,}"
    assert (lost, double, found["errors"], found["faults"]) == ("0", "0", [], [])


def test_chaos_in_words() -> None:
    found = [report("chaos")[scene] for scene in SCENES]
    kills = sum(one["kills"] for one in found)
    changes = sum(sum(one["plan_changes"].values()) for one in found)
    minutes = sum(one["seconds"] for one in found) / 60
    assert f"{kills} kills and {changes:,} plan changes in {minutes:.0f} minutes" in PAGE
    ended = sum(n for one in found for n in one["queries_that_ended"].values())
    assert f"Queries ended {NUMBERS[ended]} times, each with the cause by name" in PAGE
    causes = {cause for one in found for cause in one["queries_that_ended"]}
    named = {cause.partition(": ")[2] for cause in causes}
    sentence = PAGE.partition("each with the cause by name")[2].partition("Nothing else ended one")
    assert sentence[1] and set(re.findall("`(.*?)`", sentence[0])) == named
    seconds = sum(one["seconds"] for one in found) / kills
    assert f"each takes about {round(seconds, -1):.0f} seconds there" in PAGE
    assert "The goal, 100 kills and 1,000 plan changes, is met" in PAGE
    assert kills >= 100 and changes >= 1000
    alone = report("chaos")["cluster"]["goal"]
    said = f"`SCENE=cluster KILLS={alone['kills']} PLANS={alone['plan_changes']}`"
    assert said in PAGE


@pytest.mark.parametrize("scene", SCENES)
def test_shares_of_the_scenes(scene: str) -> None:
    assert f"| `{scene}` | {100 * SHARES[scene]:.0f} % |" in PAGE


def test_the_queries_of_the_adverse_tests_are_counted() -> None:
    from tests.spark.adverse import STORIES

    part = PAGE.partition("## Settings and mishaps")[2]
    assert f"The {NUMBERS[len(STORIES)]} queries of a test share a session" in part
    counts = re.findall(r"all (\w+)[ ,]", part.partition("\n\n")[2])
    assert set(counts) - {"other"} == {NUMBERS[len(STORIES)]}


def test_worlds_that_were_lived() -> None:
    found = report("edge-worlds")
    counts = found["counts"]
    assert found["failed"] == [] and f"{counts['worlds']:,}, in which" in PAGE
    for what, words in (
        ("results", "results were due"),
        ("moves", "times, devices left"),
        ("devices that left", "times and brokers"),
        ("brokers that lost messages", "times. None failed"),
    ):
        assert f"{counts[what]:,} {words}" in PAGE


KILLED = {
    "devices": "devices",
    "cloud": "cloud (relay and keeper)",
    "broker": "broker",
    "all": "any of them",
    "driver": "driver of `ab.follow`",
    "executors": "one of two executors",
}


@pytest.mark.parametrize("what", KILLED)
def test_kills_of_devices_and_their_hub(what: str) -> None:
    found = report("edge-kills")[what]
    kills, lost, double = sum(found["kills"].values()), found["lost"], found["double or not due"]
    counts = f"{kills} | {found['moves']} | {found['expected']:,} | {lost} | {double}"
    assert f"| {KILLED[what]} | {counts} |" in PAGE and kills == found["goal"]
