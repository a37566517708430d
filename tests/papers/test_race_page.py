"""What the page of the RACE paper says is what is stored."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nats", reason="pip install 'anabranch[edge]'")

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


def test_figure_13_is_what_is_stored() -> None:
    found = stored("replanned")
    told = replanned.told(found)
    ratios = re.findall(r" (\d\.\d\d)[,;]", told.partition("ratios:")[2])[:3]
    assert "Ratios are {}, {} and {} (theirs".format(*ratios) in PAGE
    after = [move["after"] - found["change"] for move in found["moves"]]
    words = (
        f"The hub moves {len(after)} views: {after[0]:.0f} to {after[-1]:.0f} s after the change"
    )
    assert words in PAGE and sum(one <= 30 for one in after) == 3
    rows = found["rows"]
    assert f"| {rows['stay']:.0f} | {100 * (rows['stay'] / rows['new'] - 1):.0f} % |" in PAGE


def test_every_command_of_the_page_is_there() -> None:
    modules = set(re.findall(r"python -m (papers\.race\.\w+|benchmarks\.\w+)", PAGE))
    root = FOLDER.parents[1]
    assert len(modules) >= 5
    assert [one for one in modules if not (root / f"{one.replace('.', '/')}.py").exists()] == []
    named = re.findall(r"`((?:tests|benchmarks|papers)/[\w/.-]+\.\w+)`", PAGE)
    assert [one for one in named if not (root / one).exists()] == []
