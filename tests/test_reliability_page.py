"""The tables of docs/reliability.md are those of the stored reports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

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
    assert ended == 5 and "Queries ended five times, each with the cause by name" in PAGE
