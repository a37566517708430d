"""What notebooks show of plans, predicates, fits and figures: pictures, with all text escaped."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.assembly.fitting.reading import Instances
from anabranch.assembly.fitting.windows import fit_instances
from anabranch.flow.sketch import Sketch
from anabranch.plans.log import Entry, PlanLog
from anabranch.spark.figures import _Drawn

SVG = "{http://www.w3.org/2000/svg}"
TAGS = {f"{SVG}{name}" for name in ("svg", "rect", "text", "title", "polyline", "circle")}
MARKUP = "\"><script>alert(1)</script><b onload='x'>&amp;"


def parsed(shown: Any) -> ET.Element:
    """The picture as a reader of XML sees it; no tag and no attribute is a strange one."""
    root = ET.fromstring(shown._repr_html_())
    for node in root.iter():
        assert node.tag in TAGS
        assert not [name for name in node.attrib if name.startswith("on") or "href" in name]
    assert float(root.attrib["width"]) <= 560
    return root


def words(shown: Any) -> str:
    """All that is written in a picture, on it or for those who hover."""
    return " ".join(node.text or "" for node in parsed(shown).iter() if node.text)


def fitted() -> Any:
    rng = np.random.default_rng(1)
    return fit_instances(Instances.of(rng.integers(1, 9, 800), rng.gamma(4, 3, 800)))


# ---------------------------------------------------------------- each picture shows what it must


@pytest.mark.parametrize(
    "plan",
    [ab.broadcast(3), ab.broadcast(3, "left"), ab.grid(2, 3), ab.segments(4, "1 minute"),
     ab.keyed(5), ab.ranges(4), ab.triangle(3), ab.selective(2), ab.adaptive(4)],
    ids=str,
)  # fmt: skip
def test_a_plan_shows_each_worker(plan: Any) -> None:
    shown = [node.text for node in parsed(plan).iter(f"{SVG}text")]
    assert {str(worker) for worker in range(plan.workers)} <= set(shown)
    assert str(getattr(plan, "start", None) or plan).partition("(")[0].lower() in shown[0].lower()


def test_of_many_workers_the_first_are_drawn() -> None:
    assert "the first 8 by 16 cells" in words(ab.grid(40, 50))
    assert len(ab.grid(40, 50)._repr_html_()) < 50_000


def test_a_predicate_shows_each_condition_and_marks_the_score() -> None:
    where = (ab.cosine("v") >= 0.9) & (ab.within("price", 2) | ab.differs("shop"))
    shown = [node.text for node in parsed(where).iter(f"{SVG}text")]
    assert shown == ["all of", "score", "cosine('v') >= 0.9", "any of", "within('price', 2)",
                     "differs('shop')"]  # fmt: skip


@pytest.mark.parametrize(
    ("term", "stretches", "filled"),
    [
        (ab.cosine("v") >= 1, [(55, 110)], True),
        (ab.cosine("v") > 1, [(55, 110)], False),
        (ab.cosine("v") <= 1, [(0, 55)], True),
        (ab.within("x", 1), [(33, 77)], True),
        (~ab.within("x", 1), [(0, 33), (77, 110)], False),
        (ab.differs("x"), [(0, 55), (55, 110)], False),
        (ab.within("x", low="a"), [(55, 110)], True),
        (ab.within("x", high="a"), [(0, 55)], True),
    ],
    ids=repr,
)
def test_the_part_of_the_line_that_matches_is_marked(
    term: Any, stretches: list[tuple[float, float]], filled: bool
) -> None:
    _, *marked = [node.attrib["points"] for node in parsed(term).iter(f"{SVG}polyline")]
    found = [tuple(float(point.split(",")[0]) for point in line.split()) for line in marked]
    assert found == stretches
    dots = {node.attrib["fill"] != "none" for node in parsed(term).iter(f"{SVG}circle")}
    assert dots == {filled}


def test_a_placement_shows_its_devices_and_what_its_links_carry() -> None:
    plan = ab.place([("w", "p", 10), ("w", "q", 2)], {"p": "P", "q": "Q"})
    text = words(plan)
    for piece in (
        "cloud: no views",
        "runs w",
        "sources p",
        "↑ 2",
        "↓ 2",
        "before 10",
        plan.summary().splitlines()[0],
    ):
        assert piece in text
    many = ab.place([(n, f"s{n}", 1.0) for n in range(9)], "own")
    assert "and 5 more devices" in words(many)


def test_a_fit_shows_what_was_chosen_seen_and_fitted() -> None:
    fit = fitted()
    assert f"{fit.size} events cover" in words(fit)
    lines = [node.attrib["points"].split() for node in parsed(fit).iter(f"{SVG}polyline")]
    curves = [line for line in lines if len(line) > 3]
    assert len(curves) == 4
    for curve in curves:  # distributions rise, and end near 1
        heights = [float(point.split(",")[1]) for point in curve]
        assert heights == sorted(heights, reverse=True) and heights[-1] < 53


def test_an_estimate_shows_windows_life_and_shares() -> None:
    found = ab.estimate_state(10.0, fitted())
    text = words(found)
    for piece in ("open windows", "at peak", f"{found.complete:.1%} of instances"):
        assert piece in text


def test_a_plan_log_shows_a_bar_for_each_plan(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(("10:00:00", "10:00:07", "10:00:12"))
    monkeypatch.setattr("anabranch.plans.log._now", lambda: f"2026-03-01T{next(times)}+00:00")
    log = PlanLog(tmp_path)
    assert "no entries yet" in words(log)
    log.begin(ab.broadcast(4))
    log.write(Entry(1, 1, ab.grid(2, 2), 7, (0, 1), {"rule": "shape"}))
    log.write(Entry(2, 1, ab.grid(2, 2), 12, (1,), {}))
    assert "0: broadcast(4, side=right)" in words(log) and "2 plans; grid(2, 2)" in words(log)
    assert "10:00:00, batch 0" in words(log) and "10:00:12, batch 12" in words(log)
    bars = [node.attrib for node in parsed(log).iter(f"{SVG}rect")]
    assert [float(bar["fill-opacity"]) for bar in bars] == [0.8, 0.2, 0.8]
    wide = [float(bar["width"]) for bar in bars]  # seconds 0 to 7, 7 to 12, 7 to the edge at 14
    assert wide[0] / wide[2] == pytest.approx(1) and wide[1] / wide[0] == pytest.approx(5 / 7, 1e-3)


FIGURES = {
    "verb": "correlate", "batch": 3, "seconds": 1.5, "rows_in": 800, "pairs": 70, "late_rows": 2,
    "workers": [{"worker": 0, "busy_seconds": 0.5, "rows_in": 500},
                {"worker": 1, "busy_seconds": 1.0, "rows_in": 300}],
}  # fmt: skip


def test_metrics_are_a_dict_that_is_drawn() -> None:
    shown = _Drawn(FIGURES, also=[{**FIGURES, "verb": "assemble", "late_rows": 0}])
    assert isinstance(shown, dict) and json.loads(json.dumps(shown)) == dict(shown) == shown
    assert dict(FIGURES) == _Drawn(FIGURES) and repr(_Drawn(FIGURES)) == repr(FIGURES)
    assert "late rows 2" in words(shown) and "assemble, micro-batch 3" in words(shown)
    bars = [float(node.attrib["width"]) for node in parsed(shown).iter(f"{SVG}rect")]
    assert bars == [160, 320, 160, 320]


def test_a_query_that_has_just_begun_is_drawn_too() -> None:
    query = SimpleNamespace(recentProgress=[], id="a", runId="b", lastProgress=None)
    assert ab.metrics(query)["batch"] is None
    assert "no micro-batch" in words(ab.metrics(query))


def test_what_is_empty_is_drawn_too() -> None:
    nothing = fit_instances(Instances.of(np.ones(600, int), np.zeros(600)))
    assert "1 events cover 100.0%" in words(nothing)
    assert "events held" in words(ab.estimate_state(1.0, nothing))
    assert "cloud: runs w" in words(ab.place([("w", "p", 1)], {"p": "cloud"}))


# ---------------------------------------------------------------- whatever is written


@pytest.mark.parametrize(
    "make",
    [
        lambda _: (ab.cosine(MARKUP) >= 0.9) & ab.same(MARKUP),
        lambda _: ab.ranges(2).bind(MARKUP, (0.0, 1.0), 0.1),
        lambda _: ab.place([(MARKUP, "p", 10), (MARKUP, "q", 2)], {"p": MARKUP, "q": "Q"}),
        lambda _: _Drawn({**FIGURES, "verb": MARKUP, "workers": [{"worker": MARKUP}]}),
        lambda folder: PlanLog(folder / MARKUP.replace("/", "")),
    ],
    ids=["predicate", "plan", "placement", "metrics", "log"],
)
def test_markup_is_text(make: Any, tmp_path: Any) -> None:
    shown = make(tmp_path)
    assert "<script" not in shown._repr_html_() and "<b " not in shown._repr_html_()
    assert '"><script>'[:8] in words(shown) + parsed(shown).attrib["aria-label"]


@given(st.text(), st.floats(8, 500))
def test_any_text_comes_back_as_it_was_or_cut(text: str, room: float) -> None:
    page = Sketch()
    page.text(0, 12, text, room=room)
    root = ET.fromstring(page.html(text))
    (node,) = root.iter(f"{SVG}text")
    plain = "".join(c for c in text if c in "\t\n\r" or (ord(c) >= 32 and ord(c) & ~1 != 0xFFFE))
    titles = [inner.text or "" for inner in node]
    whole = titles[0] if titles else node.text or ""
    assert whole == plain.replace("\r\n", "\n").replace("\r", "\n")  # as XML reads them
    assert titles == [] or (node[0].tail or "")[-1] == "…"
