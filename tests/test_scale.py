"""The simulation of growth: what must hold whatever things cost."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.scale import PAGE, RESULT, ends, figures, simulated, table
from benchmarks.scale_costs import Cost, Spark
from benchmarks.scale_model import INTERVAL, WORKLOADS, parts, sustained

COST = Cost(row=1e-7, copy=1e-7, receive=1e-6, compare=1e-9, bytes=100)
COSTS = dict.fromkeys(("correlate", "emd", "nearest", "homes", "assemble", "groups"), COST)
NOTHING = Spark(base=0, task=0, schedule=0, block=0, byte=0)


def rate(name: str, workers: int, spark: Spark = NOTHING) -> float:
    return sustained(workers, WORKLOADS[name](workers), COSTS, spark)[0]


def test_workers_bring_what_arithmetic_says() -> None:
    # Comparisons grow with the square of the rate, and copies with the root of the workers.
    assert rate("correlate, grid", 64) / rate("correlate, grid", 16) == pytest.approx(2, rel=0.05)
    assert rate("groups", 64) == pytest.approx(rate("groups", 4), rel=0.1)
    assert rate("assemble", 16) / rate("assemble", 4) == pytest.approx(4, rel=0.1)
    assert rate("correlate, by key", 512) < 1.2 * rate("correlate, by key", 128)


def test_the_driver_ends_all_growth() -> None:
    slow = replace(NOTHING, schedule=0.006)
    assert rate("assemble", 1000, slow) == 0
    assert 0 < rate("assemble", 512, slow) < rate("assemble", 512)
    share = WORKLOADS["correlate, grid"](16)
    spent = parts(rate("correlate, grid", 16, slow), 16, share, COSTS, slow)
    assert INTERVAL * 0.97 < sum(spent.values()) <= INTERVAL


def test_the_page_is_that_of_the_result() -> None:
    found: dict[str, Any] = json.loads(RESULT.read_text())
    text = PAGE.read_text()
    assert table(found["lines"]) in text and figures(found) in text
    costs = {name: Cost(**cost) for name, cost in found["costs"].items()}
    first = found["lines"]["groups"][0]
    again, _ = sustained(4, WORKLOADS["groups"](4), costs, Spark(**found["spark"]))
    assert (first["workers"], first["rate"]) == (4, again)
    assert ends(found["lines"]["groups"]) == (4, "receive")


@pytest.mark.slow
def test_the_stored_costs_give_the_stored_rates() -> None:
    """All of them: a change of a plan or of the model wants the simulation run again."""
    found: dict[str, Any] = json.loads(RESULT.read_text())
    again = simulated(found)
    for name, line in found["lines"].items():
        assert [point["rate"] for point in again[name]] == [point["rate"] for point in line], name


def test_what_the_page_says_of_the_result_in_words() -> None:
    found: dict[str, Any] = json.loads(RESULT.read_text())
    text, lines = PAGE.read_text(), found["lines"]
    last = {name: line[-1] for name, line in lines.items()}
    share = 100 * last["assemble"]["parts"]["fixed"] / INTERVAL
    assert f"with 1,000 it takes {share:.0f} % of the interval" in text
    for name, words in (("assemble", "above 512"), ("correlate, by key", "above 512")):
        assert ends(lines[name])[0] == 512 and words in text
    key = last["correlate, by key"]["parts"]
    assert "the fixed cost takes more than what that worker compares" in text
    assert key["fixed"] > key["compare"]
    assert "four times the workers carry twice the rate" in text
    grid = {point["workers"]: point["rate"] for point in lines["correlate, grid"]}
    assert grid[64] / grid[16] == pytest.approx(2, rel=0.1)
    check = found["check"]
    assert "why the micro-batch above took longer than foretold" in text
    assert check["measured"] > check["foretold"]
