"""A plan log as a chart: the life of each plan, by micro-batch and by the wall clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.plans.drawing import Life, draw_story, lives
from anabranch.plans.hashed import grid
from anabranch.plans.log import Entry, PlanLog

START, CHANGE = "2026-03-01T10:00:00.000+00:00", "2026-03-01T10:00:12.345+00:00"
#  batch    0    5    15            plan 0 stamps rows until 5 and is live until 15
LOG = [
    Entry(0, 0, grid(2, 2), 0, (0,), {"rule": "start"}, {}, START),
    Entry(1, 1, grid(4, 1), 5, (0, 1), {"rule": "shape"}, {}, CHANGE),
    Entry(2, 1, grid(4, 1), 8, (0, 1), {"rule": "mark"}, {0: 7}, "2026-03-01T10:00:13+00:00"),
    Entry(3, 1, grid(4, 1), 15, (1,), {"rule": "retire"}, {}, "2026-03-01T10:01:00+00:00"),
]


def test_a_plan_lives_on_after_it_was_replaced() -> None:
    assert lives(LOG) == [
        Life(0, "grid(2, 2)", "start", START, 0, 5, 15),
        Life(1, "grid(4, 1)", "shape", CHANGE, 5, None, None),
    ]


def test_the_chart_names_plans_causes_and_moments() -> None:
    (axes,) = draw_story(LOG).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        "plan 0\ngrid(2, 2)",
        "plan 1\ngrid(4, 1)",
    ]
    assert [text.get_text() for text in axes.texts] == [
        "2026-03-01 10:00:00 UTC, start",
        "2026-03-01 10:00:12 UTC, shape",
    ]
    bars = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
    # By the clock, in seconds; what still holds reaches to the edge.
    assert bars == [(0, 12.345), (12.345, pytest.approx(47.655)), (12.345, pytest.approx(57.655))]
    ticks = zip(
        axes.get_xticks(), (text.get_text() for text in axes.get_xticklabels()), strict=True
    )
    assert list(ticks) == [  # 8 is too near 5
        (0, "10:00:00\nbatch 0"),
        (12.345, "10:00:12\nbatch 5"),
        (60, "10:01:00\nbatch 15"),
    ]
    timeless = [replace(entry, written="") for entry in LOG]
    assert [bar.get_x() for bar in draw_story(timeless).axes[0].patches] == [0, 5, 5]


def test_a_log_draws_itself(tmp_path: Path) -> None:
    log = PlanLog(tmp_path / "log")
    with pytest.raises(ab.errors.InvalidCall, match="no entries yet"):
        log.draw()
    log.begin(grid(2, 2))
    log.draw(tmp_path / "story.svg")
    assert (tmp_path / "story.svg").stat().st_size > 1000
