"""What the page of the RACE paper says is what is stored."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

from anabranch.testing.lab.line import HEADERS
from papers.race import replanned

FOLDER = Path(replanned.__file__).parent
PAGE = (FOLDER / "README.md").read_text()


def stored(name: str) -> Any:
    return json.loads((FOLDER / "results" / f"{name}.json").read_text())


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_rules_of_placement_cost_what_is_stored() -> None:
    table = PAGE.partition("## Against other rules of placement")[2]
    lines = [cells(line) for line in table.splitlines() if re.match(r"\|.*\d \|$", line)]
    results = stored("against")
    assert len(lines) == len(results)
    for line, found in zip(lines, results, strict=True):
        assert line[0].strip('"')[:5] in found["rates"]
        costs = [found[name] for name in list(found)[3:]]
        assert [float(cell) for cell in line[1:-1]] == pytest.approx(
            [found["down"], *costs], abs=0.0501
        )
        assert float(line[-1]) == pytest.approx(costs[0] / costs[-1], rel=0.02)


def test_the_running_system_costs_what_is_stored() -> None:
    for found in stored("running"):
        two, seconds = found["second"], found["second"]["seconds"]
        adopted = sorted(found["adoption"])[int(0.95 * len(found["adoption"]))]
        figures = [
            found["views"],
            (two["up_rows"] + two["down_rows"]) / seconds,
            two["up"] / seconds / 1e3,
            two["down"] / seconds / 1e3,
            100 * (two["broker_cpu"] + two["cloud_cpu"]) / seconds,
            (two["broker_memory"] + two["cloud_memory"]) / 1e6,
            adopted,
            found["deployment"]["wire"] / 1e6,
        ]
        line = re.search(rf"^\| {found['devices']} \|.*$", PAGE, re.MULTILINE)
        assert line is not None
        said = cells(line[0])[1:]
        digits = [len(cell.split()[0].partition(".")[2]) for cell in said]
        assert [float(cell.split()[0]) for cell in said] == [
            round(figure, places) for figure, places in zip(figures, digits, strict=True)
        ]


def test_sentences_on_the_running_system_are_what_is_stored() -> None:
    runs = stored("running")
    many = [str(found["devices"]) for found in runs]
    assert f"`python -m papers.race.running all --devices {' '.join(many)}`" in PAGE
    off, rows = [], []
    for found in runs:
        two, predicted = found["second"], found["predicted"]
        payload = two["up_payload"] + two["down_payload"]
        wire = two["up"] + two["down"] + HEADERS * (two["up_packets"] + two["down_packets"])
        rows.append(wire / (two["up_rows"] + two["down_rows"]))
        off.append([100 * abs(payload / predicted["payload"] - 1)])
        off[-1].append(100 * abs(wire / predicted["wire"] - 1))
    payload, wire = (f"{max(of):.0f} %" for of in zip(*off, strict=True))
    assert f"Payload was {payload} and wire {wire} off what rates predicted" in PAGE
    assert f"with headers of packets is {min(rows):.0f} to {max(rows):.0f} bytes" in PAGE


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
        f"--devices 100 --seconds {2 * change:.0f}`, " in fast
        and "expected: 7, received: 7, lost: 0" in fast
    )
    assert "moves 2 views: the first 4 s after the change (goal: 30 s, met), 2 within" in fast
    late = [{"after": change + after} for after in (31.0, 2 * change)]
    slow = replanned.paragraph({**found, "moves": late, "rows": {**found["rows"], "end": 1e9}})
    assert "the first 31 s after the change (goal: 30 s, **missed**), 0 within" in slow
    assert "(goal: 5 %, **missed**)" in slow and "| ? |" in slow and "nan" not in slow
    assert "**No view moves**" in replanned.paragraph({**found, "moves": []})
    readings = [dict(one) for one in found["readings"]]
    for name in ("up_rows", "down_rows"):
        readings[-1][name] = readings[-2][name]
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
