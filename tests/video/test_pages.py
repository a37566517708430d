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


def test_the_news_are_as_measured() -> None:
    stored = json.loads((RESULTS / "news.json").read_text())
    rows = stored["rows"]
    assert put(PAGE, table(stored)) == PAGE, "python -m benchmarks.news writes the page's table"
    assert rows and stored["machine"]["commit"]
    for row in rows:
        if row["what"].endswith("precision") and "shots" not in row["what"]:
            assert row["reached"] == 1.0, row  # a false pair is a fault, however busy the machine
