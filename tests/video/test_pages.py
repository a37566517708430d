"""What the video page says was measured is what the stored results say, now and after a new run."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.marked import put
from benchmarks.news import runs, table
from benchmarks.video_page import tables, with_recall, with_video
from benchmarks.video_recall import HELD_OUT, TUNED, Found, report

PAGE = Path("docs/video.md").read_text()
RESULTS = Path("benchmarks/results")
WAYS = ("layout", "layout, three views", "network", "both", "forty concepts", "hash, bits")


def stored(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_rates_shots_and_recall_are_as_measured() -> None:
    told = "python -m benchmarks.video_page writes these parts of the page"
    assert with_video(PAGE, stored("video")) == PAGE, told
    assert with_recall(PAGE, (RESULTS / "video-recall.md").read_text()) == PAGE, told


def test_the_page_says_which_goals_are_missed() -> None:
    """By a hair, too: as many key frames as were found, not per cent that were rounded."""
    (seen, unseen) = tables((RESULTS / "video-recall.md").read_text())[3:5]
    said = PAGE.partition("| goal at precision 1.0")[2].partition("<!-- /recall -->")[0]
    rows = [cells(line) for line in said.splitlines() if line.startswith(("| both", "| layout"))]
    assert len(rows) == 4
    for what, goal, reached, verdict in rows:
        of, kind = (unseen, "held out") if "unseen" in what else (seen, "tuned")
        mean = float(of.mean(kind)[of.columns.index(what.partition(":")[0])])
        assert abs(float(reached) - mean) <= 0.55
        assert verdict == ("reached" if float(reached) >= float(goal) else "missed")


def made(least: float, key_frames: int = 41) -> dict[str, Found]:
    """What each way has found, in a table as the benchmark makes it."""
    found = round(least * key_frames) / key_frames
    names = ["", "0.2 s later", *TUNED, *HELD_OUT]
    return {way: Found(0.5, dict.fromkeys(names, found), 1e-6) for way in WAYS}


def test_a_new_file_of_recall_is_on_the_page_as_it_is() -> None:
    """With tables of other shots and of films that are held out, which an older one has not."""
    titles = [
        *("41 key frames of clips", "41 key frames of unseen clips", "The same 41 key frames"),
        *("The 41 key frames of the first set", "The 41 key frames of the unseen set"),
        *("The first set once more: 50 pairs of other shots", "5 films that move"),
    ]
    shares = (1.0, 0.9, 0.8, 40 / 41, 0.7, 0.6, 0.5)
    text = report([(title, made(share)) for title, share in zip(titles, shares, strict=True)])
    page = with_recall(PAGE, text)
    assert with_recall(page, text) == page != PAGE
    goals = {cells(line)[0]: cells(line)[2:] for line in page.splitlines() if "| 99 |" in line}
    assert len(goals) == 3 and set(map(tuple, goals.values())) == {("97.6", "missed")}
    for what, share in (("other shots too", "60"), ("films held out", "50")):
        rows = [cells(line) for line in page.splitlines() if line.startswith(f"| {what} |")]
        assert len(rows) == 4 and {*map(float, rows[0][2:])} == {0.5}
        expected = f"{100 * round(float(share) / 100 * 41) / 41:.0f}"
        assert [*rows[1][2:], *rows[2][2:]] == [expected] * 2 * len(WAYS)
        assert rows[3][2:] == ["1"] * len(WAYS)


def test_channels_that_a_core_reads_are_told_as_measured() -> None:
    new = copy.deepcopy(stored("video"))
    row = {"section": "720p, one core", "at_most": False, "note": ""}
    read = {"what": "channels that are read", "reached": 14.94, "target": 15, "met": False}
    picture = {"what": "a picture", "reached": 39.6, "target": None, "met": None}
    others = [one for one in new["rows"] if one["what"] not in (read["what"], picture["what"])]
    new["rows"] = [{**row, **read}, {**row, **picture}, *others]
    page = with_video(PAGE, new)
    assert "One core reads 14.9 channels of 720p" in page and "and 40 kB." in page
    assert "The goal of 15 is missed." in page


def test_the_news_are_as_measured() -> None:
    of = stored("news")
    assert put(PAGE, "news", table(of)) == PAGE, "python -m benchmarks.news writes the page's table"
    assert of["rows"] and of["machine"]["commit"]
    for row in of["rows"]:
        if row["what"].endswith("precision") and "shots" not in row["what"]:
            assert row["reached"] == 1.0, row  # a false pair is a fault, however busy the machine


def test_each_seed_of_the_news_is_a_run_of_its_own() -> None:
    assert runs((7, 8, 9)) == {"seed 7": 7, "seed 8": 8, "seed 9": 9}
    row = {"what": "a", "unit": "s", "target": 2.0, "at_most": True, "reached": 1.0, "met": True}
    of = {
        "machine": {"cores": 2, "load_average_at_start": 0.5},
        "rows": [{**row, "section": name} for name in runs((7, 8))],
        "details": {"runs": [{"read": ["words", "concepts"]}]},
    }
    assert "with words and concepts of key frames" in table(of)
    assert table(of).splitlines()[0].endswith("| goal | seed 7 | seed 8 |")
    assert "| at most 2 s | 1.00 s | 1.00 s |" in table(of)
    of["rows"][1].update(reached=2.5, met=False)
    assert "| at most 2 s | 1.00 s | 2.50 s, missed |" in table(of)


def test_a_part_of_a_page_needs_its_marks() -> None:
    with pytest.raises(ValueError, match="no marks <!-- news -->"):
        put("nothing", "news", "a table")
