"""The examples of the gallery: their own functions, their notebooks, their pictures."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import anabranch as ab
from scripts.services.jars import SETS, Absent
from tests.sinks.stories import installed, needed

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "examples")]

import aircraft  # noqa: E402
import from_package  # noqa: E402
import gallery  # noqa: E402
import news  # noqa: E402
import notebooks  # noqa: E402
import page_views  # noqa: E402
import sensors  # noqa: E402

PACKAGES = {"aircraft": ["traffic"], "news": ["gensim", "wordllama"], "sensors": ["river"]}


# ---------------------------------------------------------------- scripts and their notebooks


@pytest.mark.parametrize("name", notebooks.GALLERY)
def test_a_script_is_short_and_its_notebook_is_the_script(name: str) -> None:
    script = (ROOT / "examples" / f"{name}.py").read_text()
    assert len(script.splitlines()) < 80
    path = ROOT / "examples" / "notebooks" / f"{name}.ipynb"
    book = json.loads(path.read_text())
    found = [notebooks.Cell(it["cell_type"], "".join(it["source"])) for it in book["cells"]]
    assert found == notebooks.cells(script), "make notebooks brings it up to date"
    outputs = [output for it in book["cells"] for output in it.get("outputs", [])]
    assert outputs and path.stat().st_size <= 200_000
    assert {it["output_type"] for it in outputs} <= {"stream", "display_data", "execute_result"}
    assert {it.get("name") for it in outputs} <= {"stdout", None}


def test_what_is_under_main_runs_in_a_notebook_like_the_rest() -> None:
    script = '"""A title.\n\n::\n\n    run me\n"""\nimport os\n# %% [markdown]\n# ## Text\n#\n'
    script += '# more\n# %%\nif __name__ == "__main__":\n    x = 1\n    # %%\n    x\n'
    assert notebooks.cells(script) == [
        ("markdown", "# A title\n\n\n\n    run me"),
        ("code", "import os"),
        ("markdown", "## Text\n\nmore"),
        ("code", "x = 1"),
        ("code", "x"),
    ]


def test_a_missing_package_is_named_in_one_line() -> None:
    with pytest.raises(SystemExit, match=r"^[^\n]*: pip install no_such_package$"):
        from_package.file_in("no_such_package", "data.csv")
    assert from_package.file_in("anabranch", "py.typed").exists()


def test_examples_without_their_file_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACCESS_LOG", "")  # so that it is put back
    monkeypatch.delenv("ACCESS_LOG")
    usual = tmp_path / "example.log"
    monkeypatch.setattr(notebooks, "FILES", {"page_views": ("ACCESS_LOG", usual)})
    assert set(notebooks.GALLERY) - set(notebooks.chosen([])) == {"page_views"}
    assert capsys.readouterr().out == "page_views is left out: ACCESS_LOG names no file\n"
    assert notebooks.chosen(["page_views"]) == ["page_views"]
    usual.touch()  # as the package brings it
    assert notebooks.chosen([]) == list(notebooks.GALLERY)
    assert os.environ["ACCESS_LOG"] == str(usual)
    with pytest.raises(SystemExit, match="no example other; there are aircraft"):
        notebooks.chosen(["other"])


def _read_by(name: str) -> None:
    if name in notebooks.lacking():
        raise Absent("there is no log: apt-get install logstalgia, or ACCESS_LOG names one")


@pytest.mark.services
@pytest.mark.parametrize("name", notebooks.GALLERY)
def test_a_notebook_runs_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needed(lambda: _read_by(name))
    installed("nbclient", "ipykernel", *PACKAGES.get(name, []), extra="examples,notebooks")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("ANABRANCH_PROGRESS", "off")
    book = notebooks.run(name)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code) and any(cell.outputs for cell in code)


# ---------------------------------------------------------------- their own functions


def test_the_page_names_the_kafka_connector_that_is_fetched() -> None:
    page = (ROOT / "docs/connect.md").read_text()
    for one in SETS["spark-kafka"]:
        name, version = one.rstrip("!").split(":")[1:]
        assert f"`{name}` {version}" in page or f"| {version} |" in page, one


def test_points_of_the_aircraft_are_as_far_apart_as_on_the_globe() -> None:
    paris, orly = aircraft.AIRPORTS.values()
    chord = np.linalg.norm(aircraft.from_centre(*paris) - aircraft.from_centre(*orly))
    lat, lon = np.radians(np.array([paris, orly])).T
    way = np.sin(np.diff(lat) / 2) ** 2 + np.cos(lat).prod() * np.sin(np.diff(lon) / 2) ** 2
    assert chord == pytest.approx(2 * 6371 * np.sqrt(way)[0])
    many = aircraft.from_centre([48.0, 49.0], [2.0, 3.0])
    assert many.shape == (2, 3) and np.allclose(np.linalg.norm(many, axis=1), 6371)


def test_the_area_under_the_curve_counts_pairs_in_order() -> None:
    same = np.array([True, False, True, False])
    assert news.auc(np.array([0.9, 0.1, 0.8, 0.2]), same) == 1
    assert news.auc(np.array([0.9, 0.9, 0.1, 0.2]), same) == (1 + 0.5 + 0 + 0) / 4


def test_faults_are_judged_by_reading() -> None:
    hits = pd.DataFrame({"object_id": [3, 3, 4, 6]})
    later = pd.DataFrame({"id": range(10), "fault": [n in (3, 4, 5) for n in range(10)]})
    found = sensors.judged(hits, later)
    assert found == {"readings": 10, "faults": 3, "reported": 3, "precision": 2 / 3,
                     "recall": 2 / 3}  # fmt: skip


def test_requests_for_objects_belong_to_the_page_that_asked(spark: Any) -> None:
    from pyspark.sql import functions as F

    start = '1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET '
    lines = [
        start + '/a/?q=1 HTTP/1.1" 200 5 "-" "agent"',
        start + '/a/x.png HTTP/1.1" 200 5 "http://site.org/a/?q=1" "agent"',
        start + '/y.css HTTP/1.1" 404 5 "-" "agent"',
        "no request",
    ]
    table = spark.range(1).select(F.explode(F.array(*map(F.lit, lines))).alias("value"))
    rows = page_views.requests(table)
    found = [(row.page, row.path, row.status) for row in rows.collect()]
    assert found == [("/a/", "/a/", 200), ("/a/", "/a/x.png", 200), (None, "/y.css", 404)]


# ---------------------------------------------------------------- their pictures


def results() -> dict[str, dict[str, Any]]:
    """Results as the examples leave them, only made up and few."""
    rng = np.random.default_rng(1)
    flights = pd.DataFrame({"icao24": ["a", "b"] * 10, "lat": rng.normal(48, 1, 20),
                            "lon": rng.normal(2, 1, 20)})  # fmt: skip
    meetings = pd.DataFrame({"aircraft": [["A1", "B2"]], "miles": [1.5], "feet": [900.0],
                             "left_lat": [48.0], "left_lon": [2.0]})  # fmt: skip
    scored = pd.DataFrame({"score": rng.uniform(0, 0.7, 50)})
    kept = pd.DataFrame({"service": ["/a", "/b"], "promised": [1.0, 2.0], "met": [3, 4],
                         "violated": [1, 0], "unknown": [0, 2]})  # fmt: skip
    why = pd.DataFrame({"reason": ["gap", "late"], "views": [5, 1], "seconds": [1.0, 2.0]})
    later = pd.DataFrame({"v": list(rng.normal(size=(30, 9))), "fault": [True, False] * 15})
    plan = ab.place([("w", "p", 10), ("w", "q", 2)], {"p": "P", "q": "Q"})
    return {
        "aircraft": {"table": flights, "meetings": meetings, "AIRPORTS": aircraft.AIRPORTS},
        "news": {"scored": scored, "same": scored.score.to_numpy() > 0.5},
        "traces": {"kept": kept},
        "page_views": {"why": why},
        "sensors": {"later": later, "known": later[:3]},
        "friend_finder": {"plan": plan},
    }


@pytest.mark.parametrize("name", notebooks.GALLERY)
def test_a_picture_is_drawn_for_light_and_dark_pages(tmp_path: Path, name: str) -> None:
    found = results()[name]
    for dark in (False, True):
        gallery.draw(name, found, tmp_path / f"{dark}.svg", dark)
        assert (ROOT / "docs" / "images" / f"gallery-{name}{'-dark' * dark}.svg").exists()
    assert (tmp_path / "True.svg").read_text() != (tmp_path / "False.svg").read_text()
