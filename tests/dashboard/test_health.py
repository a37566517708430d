"""Each rule of health by itself: what makes it speak, and what does not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.spark.dashboard import health
from anabranch.spark.dashboard.health import RULES, Vitals, judge

ROOT = Path(__file__).parent.parent.parent


def points(count: int = 12, **of: Any) -> list[dict[str, Any]]:
    """Micro-batches that are well, but for figures given as numbers or functions of the batch."""
    usual = {
        "at": lambda n: 1000.0 + 2 * n,
        "seconds": 0.8,
        "rows": 100,
        "left": 50,
        "right": 50,
        "copies": 200,
        "comparisons": 1000,
        "found": 3,
        "late": 0,
        "rejected": 0,
        "slowest": 0.6,
        "mean": 0.5,
        "watermark": lambda n: 990.0 + 2 * n,
        "lag": 10.0,
        "backlog": None,
        "state_bytes": 1e6,
        "state_rows": 1000,
    }
    figures = {**usual, **of}
    return [
        {"batch": n, **{k: v(n) if callable(v) else v for k, v in figures.items()}}
        for n in range(1, count + 1)
    ]


def vitals(**given: Any) -> Vitals:
    of = {name: given.pop(name) for name in list(given) if name not in Vitals.__annotations__}
    made = points(**of)
    given.setdefault("now", made[-1]["at"] + 1)
    return Vitals(**{"points": made, "interval": 2.0, "plan": ab.grid(2, 2), **given})


def test_a_query_that_is_well_says_so_in_one_sentence() -> None:
    (only,) = judge(vitals())
    assert only.light == "good"
    assert only.sentence == (
        "Healthy: a micro-batch takes 0.8 s of the 2 s that it has, and no row is late."
    )


def test_few_late_rows_are_counted_and_not_rounded_to_none() -> None:
    (only,) = judge(vitals(late=lambda n: int(n == 12), rows=1000))
    assert only.light == "good" and only.sentence.endswith("and 1 of 10k rows are late.")


def hour(n: int) -> float:
    return 1000.0 + 400 * n


CASES = {
    "stopped": ({"active": False, "error": "BadRow: left row 7"}, "bad", "BadRow: left row 7"),
    "starting": ({"points": [], "now": 1.0}, "off", "first micro-batch"),
    "stuck": ({"running": 90.0}, "bad", "has been running for 90 s; usual are 0.8 s"),
    "all_late": ({"late": 100}, "bad", "All 1.0k rows of the last 10"),
    "late": ({"late": 2}, "warn", "2.0% of the rows are late"),
    "rejected": ({"rejected": lambda n: int(n == 12)}, "warn", "1 of 1.0k rows were rejected"),
    "behind": ({"seconds": 3.0}, "bad", "takes 3.0 s, and one is due every 2 s"),
    "lagging": ({"watermark": 990.0, "count": 70}, "bad", "still for 2 min, in 70 micro-batches"),
    "skewed": ({"slowest": 1.5}, "warn", "3.0 times the mean"),
    "growing": ({"at": hour, "state_bytes": lambda n: 1e6 * n}, "warn", "for an hour, from 3 to"),
    "copied": ({"left": 990, "right": 10}, "good", "1.0 with broadcast(4, side"),
    "fixed_cost": ({"seconds": 1.5, "slowest": 0.1}, "good", "compute for 7% of a micro-batch"),
    "idle": ({"now": 1100.0}, "off", "Idle: no new rows for 75 s"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_speaks_when_it_must_and_is_silent_when_all_is_well(name: str) -> None:
    given, light, words = CASES[name]
    rule = getattr(health, name)
    found = rule(vitals(**given))
    assert found is not None
    assert found.light == light and words in found.sentence
    assert found.sentence.endswith(".") or name == "stopped"
    assert rule(vitals()) is None
    assert found._replace(rule=name) in judge(vitals(**given))


def test_every_rule_has_a_case() -> None:
    assert {rule.__name__ for rule in RULES} == CASES.keys()


def test_the_table_of_the_documentation_is_covered() -> None:
    text = (ROOT / "docs/spark.md").read_text().partition("\n## Reading the figures\n")[2]
    table = re.search(r"(?:^\|.*\n)+", text, re.M)
    assert table is not None
    rules = re.findall(r"\| `(\w+)` \|$", table[0], re.M)
    assert len(rules) == len(table[0].splitlines()) - 2
    assert set(rules) == CASES.keys() - {"stopped", "starting", "idle"}


def test_the_worst_finding_is_the_light_and_the_others_follow() -> None:
    found = judge(vitals(late=2, seconds=3.0, slowest=2.5))
    assert [finding.light for finding in found] == ["bad", "warn", "warn"]
    assert found[0].sentence.startswith("It falls behind")


def test_what_was_is_second_while_nothing_comes() -> None:
    found = judge(vitals(seconds=3.0, slowest=1.0, now=1100.0))
    assert [finding.light for finding in found] == ["off", "bad"]


def test_what_stands_is_not_hidden_by_silence() -> None:
    found = judge(vitals(late=100, now=1100.0))
    assert [finding.light for finding in found] == ["bad", "off"]
    found = judge(vitals(interval=None, backlog=lambda n: 10.0 * n, now=1100.0))
    assert [finding.light for finding in found] == ["bad", "off"]


def test_advice_leaves_the_light_green() -> None:
    found = judge(vitals(seconds=1.5, slowest=0.1))
    assert [finding.light for finding in found] == ["good", "good"]
    assert found[0].sentence.startswith("Healthy")


def test_after_the_batch_that_starts_workers_it_is_too_early_to_say() -> None:
    first = [{**points(1)[0], "batch": 0}]
    (only,) = judge(Vitals(first, now=first[0]["at"] + 1))
    assert (only.light, only.sentence.partition(":")[0]) == ("off", "Too early to say")


def test_a_backlog_that_grows_is_falling_behind_without_an_interval() -> None:
    found = health.behind(vitals(interval=None, backlog=lambda n: 10.0 * n))
    assert found is not None and "from 30 to 120" in found.sentence
    assert health.behind(vitals(interval=None, backlog=50.0)) is None


def test_event_time_that_falls_behind_the_clock() -> None:
    slow = {"at": lambda n: 1000.0 + 20 * n, "watermark": lambda n: 900.0 + n}
    found = health.lagging(vitals(**slow, lag=lambda n: 100.0 + 19 * n, interval=20.0))
    assert (
        found is not None and found.light == "warn" and "grew by 209 s in 220 s" in found.sentence
    )


def test_event_times_of_whole_minutes_are_no_watermark_that_stands_still() -> None:
    minutes = {
        "count": 300,
        "interval": 1.0,
        "seconds": 0.5,
        "at": lambda n: 6000.0 + n,
        "watermark": lambda n: 5900.0 + n // 60 * 60,
        "lag": lambda n: 100.0 + n % 60,
    }
    for count in range(20, 300, 7):
        found = health.lagging(vitals(**{**minutes, "count": count}))
        assert found is None, found


def test_a_lag_that_grows_is_seen_though_triggers_come_every_second() -> None:
    slow = {"at": lambda n: 1000.0 + n, "watermark": lambda n: 900.0 + n / 10}
    found = health.lagging(vitals(**slow, count=90, lag=lambda n: 100.0 + 0.9 * n, interval=1.0))
    assert found is not None and "grew by 80 s in 89 s" in found.sentence


def test_without_an_interval_the_cadence_is_how_often_batches_come() -> None:
    assert vitals(interval=None, at=lambda n: 1000.0 + 7 * n).cadence == 7.0
    assert vitals(count=1).cadence is None


def test_an_ended_query_is_neither_good_nor_bad() -> None:
    assert judge(vitals(active=False)) == [("off", "The query has ended.", "", "stopped")]


def test_the_first_batch_which_starts_workers_does_not_count() -> None:
    slow = [
        {**point, "batch": n, "seconds": 30.0 if n == 0 else 0.8}
        for n, point in enumerate(points(4))
    ]
    assert judge(Vitals(slow, interval=2.0, now=slow[-1]["at"]))[0].light == "good"
