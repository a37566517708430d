"""The page in a real browser: every panel, by keyboard and for screen readers, light and dark."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import anabranch as ab
from anabranch.flow.announced import Announced, announce
from anabranch.flow.load import Load
from anabranch.placement.links import Counting
from tests.dashboard.reports import report
from tests.dashboard.scenes import (
    MARKUP,
    assembly,
    correlation,
    deduping,
    grouping,
    running,
    search,
    session,
    shown,
)
from tests.sinks.stories import needed

pytestmark = pytest.mark.services

# Eight grey pixels in a row.
JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAFA3PEY8MlBGQUZaVVBfeMiCeG5uePWvuZHI////////////////////"
    "////////////////////////////////wAALCAABAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABQQAQAA"
    "AAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8AP//Z"
)
PANELS = {
    "correlate": "pace flow found compared time lost backlog state workers plan predictions "
    "matches",
    "nearest": "pace flow found compared time lost state workers matches search",
    "assemble": "pace flow found time lost windows state workers reasons predictions",
    "dedupe": "pace flow found compared time lost state workers",
    "groups": "pace flow found time lost open state workers groups",
}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from scripts.services.browser import browser

    running = browser()
    yield needed(running.__enter__)
    running.__exit__(None, None, None)


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page on which every error fails the test."""
    made = chromium.new_page(viewport={"width": 1240, "height": 900})
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    yield made
    made.close()
    assert wrong == []


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Any]:
    plan = ab.place([("v1", "s1", 5.0), ("v1", "s2", 1.0)], {"s1": "a", "s2": "b"}, 1.0, 0.5)
    estimate = ab.estimate_state(
        10.0, size=3, timeout=5.0, sizes=([2], [1.0]), duration=_duration()
    )
    queries = (correlation(60, tmp_path / "control"), search(30), assembly(30))
    queries += (grouping(30), deduping(30))
    with ab.dashboard(session(*queries), placement=plan, prediction=estimate) as made:
        made._view.tables["SLA"] = [{"service": "a", "met": "3", "unknown": "2"}]
        yield made


def _duration() -> Any:
    from anabranch.assembly.fitting import Erlang

    return Erlang(2, 1.0)


def opened(page: Any, board: Any, verb: str) -> None:
    page.goto(board.url)
    page.locator("#subjects button", has_text=verb).click()
    page.locator(f"#name:has-text('ab.{verb}')").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("verb", PANELS)
def test_every_panel_of_a_verb_is_there(page: Any, board: Any, verb: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    opened(page, board, verb)
    for name in [*PANELS[verb].split(), "placement", "tables"]:
        panel = page.locator(f"#{name}")
        assert panel.is_visible(), name
        assert panel.locator("h3").inner_text()
        assert len(panel.inner_text().splitlines()) > 1, name
    assert page.locator("#sentence").inner_text()
    assert page.locator("#figures dl").count() >= 8
    shown = {one.get_attribute("id") for one in page.locator(".panel:visible").all()}
    assert shown == {*PANELS[verb].split(), "placement", "tables"} | (shown & {"plan"})


def test_charts_say_in_words_what_they_draw(page: Any, board: Any) -> None:
    opened(page, board, "correlate")
    charts = page.locator("[role=img][aria-label]").all()
    assert len(charts) >= 6
    assert all("now" in (chart.get_attribute("aria-label") or "") for chart in charts)


def test_a_backlog_that_some_sources_do_not_report_is_said_to_be_more(
    page: Any, board: Any
) -> None:
    opened(page, board, "correlate")
    card = page.locator("#figures dl", has_text="backlog")
    assert card.locator("dd").inner_text() == "at least 4\nFileStreamSource does not report it"
    opened(page, board, "assemble")
    card = page.locator("#figures dl", has_text="backlog")
    assert card.locator("dd").inner_text() == "unknown\nno source reports it"


def test_words_of_plans_are_not_cut(page: Any, board: Any) -> None:
    opened(page, board, "correlate")
    page.locator("#plan svg").nth(1).wait_for()
    assert page.evaluate(CUT) == []
    page.evaluate(LATE)
    assert page.locator("#plan text", has_text="plan 9").count() == 1
    assert page.evaluate(CUT) == []


def test_scores_are_short_and_other_numbers_as_they_are(page: Any, board: Any) -> None:
    opened(page, board, "correlate")
    texts = {"score": "0.9682648424251469", "distance": "null", "x": "0.9682648424251469"}
    said = page.evaluate(
        """facts => [...matches([{facts, sides: [], batch: 1}]).querySelectorAll("td")]
            .map((one) => [one.textContent, one.title])""",
        texts,
    )
    assert said == [["0.9683", texts["score"]], ["null", "null"], [texts["x"], texts["x"]]]


def test_markup_in_rows_names_and_labels_is_text(page: Any, board: Any) -> None:
    opened(page, board, "correlate")
    page.locator("#matches mark").first.wait_for()
    assert page.locator("#matches mark").first.inner_text().strip() == "hits"
    assert "<script>attacked=1</script>" in page.locator("#matches").inner_text()
    assert page.locator("img[src=x]").count() == 0 and page.title() != "attacked"
    assert page.locator("#matches img").count() == 100  # of 50 pairs
    assert page.locator("#matches tbody tr").count() == 50


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_topics_come_with_pictures_side_by_side_and_are_replaced(
    page: Any, board: Any, scheme: str
) -> None:
    page.emulate_media(color_scheme=scheme)
    opened(page, board, "correlate")
    assert not page.locator("#topics").is_visible()
    rows = [(channel, 100.0 + n, JPEG) for channel in ("south", "north") for n in range(3)]
    topic = {"event": "grew", "heat": 2.5, "score": 0.93, "began": 100.0, "last": 102.0}
    board.topics(
        [
            {**topic, "topic": "a|b", "words": "storm <b>coast</b>", "rows": rows},
            {
                **topic,
                "topic": "c|d",
                "words": None,
                "event": "closed",
                "rows": [("east", 5.0, b"?")],
            },
        ]
    )
    page.locator("#topics article").nth(1).wait_for(timeout=5000)
    first, second = page.locator("#topics article").all()
    assert "storm <b>coast</b> grew, heat 2.5, best score 0.93" in first.inner_text()
    assert first.locator(".channel span").all_inner_texts()[:1] == ["north"]
    pictures = first.locator("img")
    assert pictures.count() == 6 and pictures.first.evaluate("one => one.naturalWidth") == 8
    assert "north at" in (pictures.first.get_attribute("alt") or "")
    assert second.get_attribute("class") == "topic closed" and second.locator("img").count() == 0
    later = {**topic, "topic": "e|f", "words": "later", "rows": rows, "age": 1.25}
    later["concepts"] = ["ship", "water"]
    board.topics([later], note="3 of 4 found")
    page.locator("#topics article:has-text('later')").wait_for(timeout=5000)
    assert page.locator("#topics article").count() == 1
    assert "3 of 4 found" in page.locator("#topics").inner_text()
    assert " after its segments" in page.locator("#topics article").inner_text()
    assert ", seen: ship, water" in page.locator("#topics article").inner_text()


def test_traffic_by_link_is_held_against_all_in_the_cloud(page: Any, board: Any) -> None:
    opened(page, board, "correlate")
    panel = page.locator("#placement")
    assert "Planned: cost 1.5, against 6 with everything uploaded: 25 %." in panel.inner_text()
    cells = [row.locator("td").all_inner_texts() for row in panel.locator("tbody tr").all()]
    assert [row[:4] for row in cells] == [["b", "1", "0", "1"], ["a", "0", "1", "0.5"]]


def test_traffic_that_a_hub_has_counted_stands_beside_its_plan(page: Any, tmp_path: Path) -> None:
    plan = ab.place([("v1", "s1", 5.0), ("v1", "s2", 1.0)], {"s1": "a", "s2": "b"}, 1.0, 0.5)
    counting = Counting(tmp_path)
    began = time.time() - 32
    for passed in (0, 32):
        counting.note(began + passed, {("up", "b"): 2 * passed}, plan, lambda *_: 1.0)
    with ab.dashboard(session(assembly(30)), placement=tmp_path) as board:
        opened(page, board, "assemble")
        panel = page.locator("#placement")
        words = panel.inner_text()
        assert "cost 2, against 6 with everything uploaded: 33 %." in words
        assert "Planned: cost 1.5, against 6 with everything uploaded: 25 %." in words
        rows = [row.locator("td").all_inner_texts() for row in panel.locator("tbody tr").all()]
        assert [row[:5] for row in rows] == [["b", "2", "1", "0", "0"], ["a", "0", "0", "0", "1"]]


def test_a_batch_reaches_the_page_and_is_announced(page: Any, board: Any) -> None:
    opened(page, board, "correlate")
    page.locator("#facts:has-text('60 micro-batches')").wait_for()
    board._feed.progressed(report(60, query="1-correlate", name="news"))
    page.locator("#facts:has-text('61 micro-batches')").wait_for(timeout=5000)
    board._feed.ended(type("E", (), {"id": "1-correlate", "exception": "Boom <b>x</b>"}))
    page.locator("#sentence:has-text('has stopped: Boom <b>x</b>')").wait_for(timeout=5000)
    assert page.locator("#health").get_attribute("class") == "bad"
    assert page.locator("#word").inner_text().lower() == "bad"
    said = page.locator("#said").text_content()
    assert said == "Bad: The query has stopped: Boom <b>x</b>"


SAID = """() => { window.said = [];
    new MutationObserver(() => window.said.push(document.getElementById("said").textContent))
        .observe(document.getElementById("said"), {childList: true, subtree: true}); }"""


def test_a_screen_reader_hears_of_a_light_that_changes_and_not_of_figures(page: Any) -> None:
    began = time.time() - 130
    reports = [report(n, query="1-said") for n in range(70)]
    for n, one in enumerate(reports):
        one.timestamp = datetime.fromtimestamp(began + 2 * n, UTC).isoformat()
        one.eventTime = {"watermark": datetime.fromtimestamp(began + 2 * n - 5, UTC).isoformat()}
    with ab.dashboard(session(running("news", "1-said", reports[:60]))) as board:
        page.goto(board.url)
        page.locator("#word:has-text('Good')").wait_for()
        page.evaluate(SAID)
        for one in reports[60:62]:
            one.durationMs = {"triggerExecution": 900.0}
            board._feed.progressed(one)
            page.wait_for_timeout(800)
        assert page.evaluate("window.said") == []
        for one in reports[62:65]:
            load = Load(0, rows_left=5, late=2).to_json()
            one.observedMetrics = {"anabranch_correlate_1a2b": {"load": [load]}}
            board._feed.progressed(one)
            page.wait_for_timeout(800)
        (said,) = page.evaluate("window.said")
        assert said.startswith("Warning: ") and "rows are late" in said


def test_a_driver_that_is_gone_is_said_and_forgotten_when_it_is_back(chromium: Any) -> None:
    page = chromium.new_page()  # on which errors of the connection are expected
    board = ab.dashboard(session(search(30)))
    page.goto(board.url)
    page.locator("#name:has-text('ab.nearest')").wait_for()
    was = page.locator("#sentence").inner_text()
    port = int(board._server.server_address[1])
    board.stop()
    page.locator("#sentence:has-text('The driver does not answer since')").wait_for(timeout=10_000)
    assert page.locator("#health").get_attribute("class") == "off"
    assert "no answer" in page.title() and page.locator("#panels .u-over").count() > 3
    with ab.dashboard(session(search(30)), port):
        page.locator("#word:has-text('No verdict')").wait_for(timeout=20_000)
        assert page.locator("#sentence").inner_text()[:10] == was[:10]
        assert "no answer" not in page.title()
    page.close()


def test_what_needs_no_query_is_there_without_one(page: Any) -> None:
    plan = ab.place([("v1", "s1", 5.0), ("v1", "s2", 1.0)], {"s1": "a", "s2": "b"}, 1.0, 0.5)
    with ab.dashboard(session(), placement=plan) as board:
        board._view.tables["SLA"] = [{"service": "a", "met": "3"}]
        rows = [("south", 100.0, JPEG)]
        topic = {"event": "grew", "heat": 2.5, "score": 0.93, "began": 100.0, "last": 102.0}
        board.topics([{**topic, "topic": "a|b", "words": "storm", "rows": rows}])
        page.goto(board.url)
        for name in ("placement", "tables", "topics"):
            page.locator(f"#{name}").wait_for(timeout=5000)
        assert page.locator("#sentence").inner_text() == "Waiting for a query …"


def test_a_query_is_waited_for_by_name_and_its_early_death_is_shown(page: Any) -> None:
    with ab.dashboard(session()) as board:
        page.goto(board.url)
        told = {"id": "q-1", "runId": "one", "name": "news"}
        board._feed.started(SimpleNamespace(**told, timestamp=None))
        words = "Waiting for the first micro-batch of news"
        page.locator(f"#sentence:has-text('{words}')").wait_for(timeout=5000)
        board._feed.ended(SimpleNamespace(**told, exception="Boom"))
        page.locator("#sentence:has-text('has stopped: Boom')").wait_for(timeout=5000)
        assert page.locator("#health").get_attribute("class") == "bad"


def test_what_was_zoomed_stays_so_when_a_batch_comes(page: Any, board: Any) -> None:
    opened(page, board, "correlate")
    scale = """() => {
        const {x} = panels.find((one) => one.section.id === "pace").chart.plot.scales;
        return [x.min, x.max] }"""
    box = page.locator("#pace .u-over").bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 250, box["y"] + 60)
    page.mouse.up()
    zoomed = page.evaluate(scale)
    assert zoomed[0] > 5
    board._feed.progressed(report(60, query="1-correlate", name="news"))
    page.locator("#facts:has-text('61 micro-batches')").wait_for(timeout=5000)
    assert page.evaluate(scale) == zoomed
    page.mouse.dblclick(box["x"] + 100, box["y"] + 50)
    assert page.evaluate(scale) == [1, 60]  # without the one that starts workers


def test_about_ten_pairs_fit_a_screen_and_cards_stand_in_equal_lines(page: Any) -> None:
    rows = [
        {**{f"{side}_{name}": f"{name} of a story" for side in ("left", "right")
            for name in ("id", "ts", "title")}, "ts": "2026-03-01 10:00:00", "score": "0.9"}
    ] * 20  # fmt: skip
    observed = {**report(0).observedMetrics, **shown(rows)}
    query = running("pairs", "1-fit", [report(n, observedMetrics=observed) for n in range(3)])
    for one in query.recentProgress:
        one.id = query.id
    with ab.dashboard(session(query)) as board:
        for width, at_most in ((1280, 60), (390, 130)):
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(board.url)
            page.locator("#matches tbody tr").nth(19).wait_for()
            heights = [one.bounding_box()["height"] for one in page.locator("#matches tr").all()]
            assert max(heights[1:]) <= at_most, heights
            cards = [one.bounding_box() for one in page.locator("#figures dl").all()]
            lines = [sum(one["y"] == y for one in cards) for y in sorted({c["y"] for c in cards})]
            assert max(lines) - min(lines) <= 1, lines


def test_the_keyboard_reaches_everything(page: Any, board: Any) -> None:
    opened(page, board, "correlate")
    page.goto(board.url)
    page.locator("#subjects button").nth(2).wait_for()
    focused = []
    for _ in range(7):
        page.keyboard.press("Tab")
        focused.append(page.locator(":focus").inner_text())
    assert focused[0] == "Skip to the query"
    named = [text.split(" ")[1] for text in focused[1:6]]
    assert named == ["news", "offers", "views", "stories", "posts"]
    assert focused[6] == "Pause"
    page.locator("#subjects button").nth(1).focus()
    page.keyboard.press("Enter")
    page.locator("#name:has-text('ab.nearest')").wait_for()
    page.locator("#search-choice").select_option("bob")
    assert page.locator("#search table").is_visible()


def test_a_paused_page_stands_still(page: Any, board: Any) -> None:
    opened(page, board, "correlate")
    page.locator("#pause").click()
    board._feed.progressed(report(60, query="1-correlate", name="news"))
    page.wait_for_timeout(1500)
    assert "60 micro-batches" in page.locator("#facts").inner_text()
    page.locator("#pause").click()
    page.locator("#facts:has-text('61 micro-batches')").wait_for(timeout=5000)


def test_a_saved_page_opens_without_the_driver(page: Any, board: Any, tmp_path: Path) -> None:
    path = board.save(tmp_path / "run.html")
    board.stop()
    page.goto(f"file://{path}")
    page.locator("#panels .u-over").nth(3).wait_for()
    assert page.locator("#link").inner_text() == "saved"
    assert page.locator("#matches tbody tr").count() == 50


LATE = """() => document.querySelector("#plan").append(livesPicture([
    {epoch: 9, plan: "broadcast(4, side=right)", first: 17, replaced: null, retired: null,
     cause: "workers"}], 24))"""
CUT = """() => [...document.querySelectorAll("#plan svg")].flatMap((svg) => {
    const right = (one) => one.getBoundingClientRect().right, edge = right(svg) + 1;
    const cut = [...svg.querySelectorAll("text")].filter((one) => right(one) > edge);
    return cut.map((one) => one.textContent);
})"""
RENDERING = (
    """() => { const began = performance.now(); render(); return performance.now() - began }"""
)


def driver_cost(board: Any, query: str, batch: int) -> float:
    """Milliseconds of the driver for a micro-batch: taken in and encoded."""
    board._feed.progressed(report(batch, query=query, name="news"))
    began = time.perf_counter()
    board._take_in()
    board._message()
    return 1000 * (time.perf_counter() - began)


def test_markup_in_the_name_of_a_query_and_its_labels_is_text(page: Any) -> None:
    observed = {**report(0).observedMetrics, **shown([{"id": "1"}], MARKUP)}
    query = running(MARKUP, "1-markup", [report(n, observedMetrics=observed) for n in range(3)])
    for one in query.recentProgress:
        one.id = query.id
    with ab.dashboard(session(query)) as board:
        page.goto(board.url)
        page.locator("#matches h4").wait_for()
        assert MARKUP in page.locator("#name").inner_text()
        assert MARKUP in page.locator("#subjects button").inner_text()
        assert MARKUP in page.locator("#matches h4").inner_text()
        assert page.locator("img[src=x]").count() == 0 and page.title() != "attacked"


def test_a_thousand_batches_and_more_do_not_slow_the_page(page: Any, tmp_path: Path) -> None:
    costs = {}
    for age in (30, 1500):
        query = correlation(age, tmp_path / f"control{age}")
        with ab.dashboard(session(query)) as board:
            opened(page, board, "correlate")
            page.locator(f"#facts:has-text('{age} micro-batches')").wait_for()
            # The least of several: the machine and the collector of garbage have their own pace.
            driver = min(driver_cost(board, query.id, age + n) for n in range(15))
            costs[age] = driver, min(page.evaluate(RENDERING) for _ in range(15))
            page.goto("about:blank")  # before its driver goes
    for young, old in zip(costs[30], costs[1500], strict=True):
        assert old < 4 * young + 5.0, costs  # milliseconds


def test_elsewhere_the_address_with_the_token_opens_the_page(page: Any, tmp_path: Path) -> None:
    query = correlation(20, tmp_path / "control")
    with ab.dashboard(query, host="0.0.0.0") as board:
        page.goto(board.url)
        page.locator("#panels .u-over").nth(3).wait_for()
        assert "token" not in page.url


def test_a_cell_of_ranges_says_its_cuts(page: Any) -> None:
    announce("anabranch_correlate_0c07", Announced("Pairs", ab.ranges(2, count=8)))
    load = {"load": [Load(0, rows_left=1, busy_seconds=0.5).to_json()]}
    observed = {"anabranch_correlate_0c07": load}
    query = running("cuts", "1-cuts", [report(0, query="1-cuts", observedMetrics=observed)])
    with ab.dashboard(session(query)) as board:
        page.goto(board.url)
        page.locator("#plan svg").wait_for()
        titles = page.locator("#plan rect title").all_text_contents()
        assert titles == [
            "worker 0: 0.50 s, ranges 0 to 3 of 8",
            "worker 1: 0.00 s, ranges 4 to 7 of 8",
        ]
