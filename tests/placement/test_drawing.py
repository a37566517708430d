"""A plan as a map: what is written on it, and what cannot be drawn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab

INPUTS = [
    ("board", "till", 10.0),
    ("board", "stock", 2.0),
    ("jam", "till", 1.0),
    ("jam", "roads", 8.0),
]
PLACES = {"till": "shop", "stock": "store", "roads": "cloud"}


@pytest.fixture
def plan() -> ab.placement.Placement:
    return ab.place(INPUTS, PLACES, 1.0, 0.5)


def texts(figure: Any) -> str:
    return "\n".join(text.get_text() for text in figure.axes[0].texts)


def test_the_map_says_what_runs_where_and_what_crosses_each_link(
    plan: ab.placement.Placement,
) -> None:
    found = texts(plan.draw())
    assert plan.location == {"board": "shop", "jam": "cloud"}
    assert "runs board" in found and "runs jam" in found and "sources stock" in found
    assert "1 up\nbefore 10" in found and "2 down" in found  # the link of the shop
    assert "cost" in found  # the plan's own summary


def test_many_devices_are_counted_not_drawn() -> None:
    inputs = [
        (f"view{n}", name, rate)
        for n in range(30)
        for name, rate in ((f"a{n}", 9.0), (f"b{n}", 1.0 + n))
    ]
    homes = {name: name for _, name, _ in inputs}
    found = texts(ab.place(inputs, homes, 1.0, 0.5).draw(most=5))
    assert "and 55 more devices" in found


def test_it_is_written_as_a_file_the_same_each_time(
    plan: ab.placement.Placement, tmp_path: Path
) -> None:
    for name in ("one.svg", "two.svg"):
        plan.draw(tmp_path / name, dark=name == "one.svg")
    plan.draw(tmp_path / "three.svg", dark=True)
    one, two, three = ((tmp_path / f"{name}.svg").read_bytes() for name in ("one", "two", "three"))
    assert one == three != two


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "plan.doc"}, "path must end in .svg, .png or .pdf, got 'plan.doc'"),
        ({"path": "nowhere/plan.svg"}, "there is no folder 'nowhere'"),
        ({"path": 7}, "path must be the name of a file"),
        ({"most": 0}, "most must be a whole number of at least 1, got 0"),
    ],
)
def test_wrong_calls_say_what_to_do(plan: ab.placement.Placement, options: Any, said: str) -> None:
    with pytest.raises(ab.errors.InvalidCall, match="draw cannot start") as refused:
        plan.draw(**options)
    assert said in str(refused.value)


def test_without_matplotlib_it_says_how_to_get_it(
    plan: ab.placement.Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ab.errors.AnabranchError, match=r"pip install 'anabranch\[plots\]'"):
        plan.draw()
