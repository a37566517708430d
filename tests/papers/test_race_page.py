"""What the page of the RACE paper says is what is stored."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from benchmarks import place_deciding
from benchmarks.marked import put
from papers.race import against, replanned, running

FOLDER = Path(replanned.__file__).parent
PAGE = (FOLDER / "README.md").read_text()


def stored(name: str) -> Any:
    return json.loads((FOLDER / "results" / f"{name}.json").read_text())


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_rules_of_placement_cost_what_is_stored() -> None:
    table = PAGE.partition("## Against other rules of placement")[2].partition("Those are")[0]
    lines = [cells(line) for line in table.splitlines() if re.match(r"\|.*\d \|$", line)]
    results = stored("against")
    assert len(lines) == len(results)
    for line, found in zip(lines, results, strict=True):
        assert line[0].strip('"')[:5] in found["rates"]
        costs = [value for name, value in found.items() if name != "origin"][3:]
        assert [float(cell) for cell in line[1:-1]] == pytest.approx(
            [found["down"], *costs], abs=0.0501
        )
        assert float(line[-1]) == pytest.approx(costs[0] / costs[-1], rel=0.02)


def test_the_running_system_is_as_stored() -> None:
    """The program writes its tables after a run."""
    runs, labs = stored("running"), running.stored_labs()
    assert [run["devices"] for run in runs] == list(running.DEVICES)
    assert running.in_page(PAGE, runs, labs, running.stored_relay()) == PAGE
    asked = {name: labs[name]["asked"] for name in labs}
    for name, devices, seconds, flush in (
        ("1s", 60, 15, "1 second"),
        ("5s", 60, 120, "5 seconds"),
        ("2000", 2000, 20, "5 seconds"),
    ):
        of = asked[name]
        assert (of["devices"], of["seconds"], of["flush"]) == (devices, seconds, flush)


def test_another_run_of_the_running_system_says_other_things() -> None:
    runs, labs = stored("running"), running.stored_labs()
    slow = {**runs[-1], "adoption": [9.0] * 500}
    page = running.in_page(PAGE, [*runs[:-1], slow], labs, running.stored_relay())
    assert "| 9, **missed** |" in page and page.count("9.00 s") == 1
    late = {**labs["1s"], "latency": {"p50": 0.2, "p99": 0.3}}
    said = running.delays({"late": late})
    assert "after, ms | 150 | 200, **missed** |" in said and "after, ms | 400 | 300 |" in said
    heavy = [{**run, "second": {**run["second"], "cloud_memory": 9e9}} for run in runs]
    assert "That process has 9000 to 9000 MB" in running.explained(heavy, running.stored_relay())


def test_what_was_counted_against_all_in_the_cloud_is_as_stored() -> None:
    found = stored("against-measured")["found"]
    assert put(PAGE, "against", against.table(found)) == PAGE
    assert {one["devices"] for one in found.values()} == {500}


def test_what_deciding_takes_is_as_stored() -> None:
    found = json.loads((place_deciding.RESULTS / "place-deciding.json").read_text())
    assert put(PAGE, "deciding", place_deciding.table(found)) == PAGE


def test_figure_13_is_what_is_stored() -> None:
    """The program writes it there after a run; nothing here knows what it found."""
    found = stored("replanned")
    assert replanned.in_page(PAGE, found) == PAGE
    assert replanned.paragraph(found).count("\n") > 8


def test_another_run_of_figure_13_says_other_things() -> None:
    """Also one that meets its goal, one in which nothing moves, and one with a gap."""
    found = stored("replanned")
    change = found["change"]
    few = [{"after": change + after} for after in (4.0, 21.0)]
    counts = {"expected": 7, "received": 7, "lost": 0, "double": 0, "not due": 0}
    fast = replanned.paragraph({**found, "devices": 100, "moves": few, "results": counts})
    assert (
        f"--devices 100 --seconds {found['seconds']:.0f}`, " in fast
        and "expected: 7, received: 7, lost: 0" in fast
    )
    assert "moves 2 views: the first 4 s after the change (goal: 30 s, met), 2 within" in fast
    late = [{"after": change + after} for after in (31.0, 2 * change)]
    slow = replanned.paragraph({**found, "moves": late, "rows": {**found["rows"], "end": 1e9}})
    assert "the first 31 s after the change (goal: 30 s, **missed**), 0 within" in slow
    assert "| ? |" in slow and "nan" not in slow
    for bytes_due, verdict in ((1.0, "**missed**"), (1e9, "met")):
        due = dict.fromkeys(("stay", "end", "new"), bytes_due)
        assert f"(goal: 5 %, {verdict})" in replanned.paragraph({**found, "payload": due})
        none = replanned.paragraph({**found, "moves": late, "payload": due})
        assert "Views moved until the end, so none were measured." in none
    assert "**No view moves**" in replanned.paragraph({**found, "moves": []})
    readings = [dict(one) for one in found["readings"]]
    for name in ("up_rows", "down_rows"):
        readings[-20][name] = readings[-21][name]
    assert "**there was a gap.**" in replanned.paragraph({**found, "readings": readings})
    with pytest.raises(ValueError, match="the page has no marks"):
        replanned.in_page("no marks", found)


def test_every_command_of_the_page_is_there() -> None:
    modules = set(re.findall(r"python -m (papers\.race\.\w+|benchmarks\.\w+)", PAGE))
    root = FOLDER.parents[1]
    assert len(modules) >= 5
    assert [one for one in modules if not (root / f"{one.replace('.', '/')}.py").exists()] == []
    named = re.findall(r"`((?:tests|benchmarks|papers)/[\w/.-]+\.\w+)`", PAGE)
    assert [one for one in named if not (root / one).exists()] == []
