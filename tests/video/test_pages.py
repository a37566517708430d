"""What the video page says was measured is what the stored results say."""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.news import put, table

PAGE = Path("docs/video.md").read_text()
RESULTS = Path("benchmarks/results")


def cells(line: str) -> list[str]:
    return [cell.strip(" *").replace(",", "") for cell in line.strip("|").split("|")]


def test_recall_is_as_measured() -> None:
    """Means of both sets of transformations, with thresholds of one set and of both."""
    stored = (RESULTS / "video-recall.md").read_text()
    tables = [cells(line) for line in stored.splitlines() if re.match(r"\| \*\*|\| false", line)]
    seen, unseen, _, seen_common, unseen_common = (tables[n : n + 3] for n in range(0, 15, 3))
    said = PAGE.partition("### Recall")[2].partition("The goals are")[0]
    rows = [cells(line)[2:] for line in said.splitlines() if re.match(r"\| (un)?seen ", line)]
    assert rows == [row[1:] for row in (*seen[:2], *unseen, *seen_common[:2], *unseen_common[:2])]
    thresholds = [cells(line) for line in stored.splitlines() if line.startswith("| threshold")]
    (both,) = (cells(line)[2:] for line in said.splitlines() if line.startswith("| both |"))
    assert [float(of) for of in both] == [float(of) for of in thresholds[3][1:]]


def test_mirrored_copies_are_found_as_measured() -> None:
    """With thresholds under which no pair of either set is false."""
    stored = (RESULTS / "video-recall.md").read_text()
    mirrored = [cells(line) for line in stored.splitlines() if line.startswith("| mirror |")]
    found = sorted(int(row[4]) for row in mirrored[3:])
    assert f'`vector="both"`, which finds {found[0]} to {found[-1]} %' in PAGE


def test_shots_and_rates_are_as_measured() -> None:
    rows = json.loads((RESULTS / "video.json").read_text())["rows"]
    stored = {(row["section"], row["what"]): row for row in rows}
    seeds = ("shots, seed 11", "shots, seed 12")

    def both(what: str, digits: int = 2) -> str:
        return ", ".join(f"{stored[seed, what]['reached']:.{digits}f}" for seed in seeds)

    ours = (both("recall of cuts"), both("recall of gradual changes"), both("false", 0))
    assert f"| `ab.video.shots` | {' | '.join(ours)} |" in PAGE
    for peer in ("content", "adaptive", "histogram", "hash"):
        what = f"PySceneDetect, {peer}"
        notes = [stored[seed, f"{what}: recall of cuts"]["note"] for seed in seeds]
        others = zip(*(re.findall(r"[\d.]+", note) for note in notes), strict=True)
        cuts = both(f"{what}: recall of cuts")
        assert " | ".join([f"| {what}", cuts, *map(", ".join, others)]) + " |" in PAGE
    rates = [row["reached"] for row in rows if row["unit"] == "frames/s"]
    cost = PAGE.partition("## Cost")[2].partition("### Shots")[0]
    assert [int(rate) for rate in re.findall(r"\| (\d+) \|", cost)] == [round(r) for r in rates]
    # All frames are decoded and have a signature; one in a second has features and a picture.
    decoded, signed, described, pictured = rates
    second = 25 / signed + 1 / pictured - 1 / signed
    assert f"about {int(1 / second)} channels of 720p" in cost
    assert decoded > signed > described > pictured
    assert f"takes about {1000 / pictured - 1000 / described:.0f} ms" in cost


def test_the_news_are_as_measured() -> None:
    stored = json.loads((RESULTS / "news.json").read_text())
    rows = stored["rows"]
    assert put(PAGE, table(stored)) == PAGE, "python -m benchmarks.news writes the page's table"
    assert rows and stored["machine"]["commit"]
    for row in rows:
        if row["what"].endswith("precision") and "shots" not in row["what"]:
            assert row["reached"] == 1.0, row  # a false pair is a fault, however busy the machine
