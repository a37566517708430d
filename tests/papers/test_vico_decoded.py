"""ViCo on decoded frames: a sample each second, seconds by worker, and a page that says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av", reason="pip install 'anabranch[video]'")

from papers.vico import decoded
from papers.vico.decoded import PLANS, Channel, Played, compact, draw, draw_routing, simulate
from papers.vico.decoded_page import PAGE, put, section

STORED = Path(decoded.__file__).parent / "results" / "vico-decoded.json"
SECONDS = 9


@pytest.fixture(scope="module")
def played() -> Played:
    """Two channels of 40 random frames of two seconds, in a loop."""
    random = np.random.default_rng(1)
    of = [
        Channel(
            np.arange(40) * 50_000,
            random.standard_normal((40, 576)).astype(np.float32),
            np.arange(0, 40, 10),
            {"decode": 0.1 + n, "features": 0.2},
        )
        for n in range(2)
    ]
    return Played([c.looped(np.arange(40), SECONDS, 1, n) for n, c in enumerate(of)], SECONDS)


@pytest.fixture(scope="module")
def found(played: Played) -> dict[str, decoded.Outcome]:
    return {name: simulate(plan, played) for name, plan in PLANS.items()}


def test_each_second_of_event_time_has_a_sample(
    played: Played, found: dict[str, decoded.Outcome]
) -> None:
    """All plans compare each frame of one channel with each of the other, once."""
    count = len(played.sides[0][0]) * len(played.sides[1][0])
    for name, of in found.items():
        assert len(of.curve) == of.event_seconds == SECONDS, name
        assert of.comparisons == of.curve[-1][1] == count, name
        for before, after in pairwise(of.curve):
            assert before[0] <= after[0] and before[1] < after[1], name


def test_seconds_are_told_by_worker(found: dict[str, decoded.Outcome]) -> None:
    for name, of in found.items():
        assert len(of.workers) == (1 if name == "centralised" else 3), name
        assert of.seconds == sum(of.workers)
        # A step lasts as long as its slowest worker.
        assert max(of.workers) <= of.curve[-1][0] + 1e-4 <= of.seconds + 2e-4, name


@pytest.fixture(scope="module")
def result(found: dict[str, decoded.Outcome]) -> Iterator[dict[str, Any]]:
    """A result of these plans, as the program stores it."""
    of = {name: vars(outcome) for name, outcome in found.items()}
    names = ("key frames", "every frame", "saturated", "saturated, made up")
    share = {"what": "of the rate with made-up features", "reached": 1.0, "target": 0.9}
    yield {
        "machine": {"cores": 2, "load_average_at_start": 0.5, "commit": "abc"},
        "rows": [{**share, "met": True}],
        "details": {
            **{"stages": {"decode": 1.0}, "frames": 80, "keys": 8, "layout": "v3"},
            "by_channel": {"north": {"decode": 0.4}, "south": {"decode": 0.6}},
            "found": {name: of for name in names},
            "routing": {"SSP": 0.1, "SSP, second by second": 0.3, "CSP": 0.2},
        },
    }


def test_a_new_result_is_stored_drawn_and_told(result: dict[str, Any], tmp_path: Path) -> None:
    text = compact(result)
    stored = json.loads(text)
    curve = result["details"]["found"]["saturated"]["SSP, 3 workers"]["curve"]
    assert stored == json.loads(json.dumps(result))
    assert f"[{curve[0][0]}, {curve[0][1]}]" in text, "a sample on a line"
    draw("saturated", stored, tmp_path / "saturated.svg", dark=False)
    draw_routing(stored, tmp_path / "routing.svg", dark=False)
    for name in ("saturated", "routing"):
        assert (tmp_path / f"{name}.svg").stat().st_size > 1000
    told = section(stored)
    assert f"{SECONDS} samples" in told and "adaptive, 3 workers" in told and "commit abc" in told
    assert "`adaptive` began with `broadcast(3" in told
    once = put(PAGE.read_text(), told)
    assert told in once and put(once, told) == once


def test_the_page_is_of_the_stored_result() -> None:
    page = PAGE.read_text()
    told = section(json.loads(STORED.read_text()))
    assert put(page, told) == page, "python -m papers.vico.decoded writes this part of the page"
