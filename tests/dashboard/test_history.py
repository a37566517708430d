"""Points, bounded series, predictions, plans and rows: what the page is told, without Spark."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.flow.announced import Announced, announce
from anabranch.flow.load import AssembleLoad, Load
from anabranch.plans.costs import copies as copies_of
from anabranch.plans.log import Entry, PlanLog
from anabranch.spark.dashboard.feed import Feed, Query
from anabranch.spark.dashboard.health import Vitals, skewed
from anabranch.spark.dashboard.history import History, Series
from anabranch.spark.dashboard.planview import PlanView
from anabranch.spark.dashboard.points import SUMMED
from anabranch.spark.dashboard.predictions import full, predict_pairs
from anabranch.spark.dashboard.sample import KEPT, Samples, difference, samples_in, sides_of
from anabranch.spark.dashboard.view import TAIL, View, encode, growth
from tests.dashboard.reports import SECOND, START, report
from tests.dashboard.scenes import shown
from tests.examples import examples


@given(st.integers(1, 400), st.sampled_from([4, 8, 10, 64]))
@settings(max_examples=examples(30))
def test_a_series_is_bounded_and_loses_no_count(added: int, kept: int) -> None:
    series = Series(kept)
    for batch in range(added):
        series.add({"batch": batch, "rows": 1, "seconds": float(batch % 7)})
    assert len(series.points) <= kept
    assert sum(point["rows"] or 0 for point in series.points) == series.count == added
    batches = [point["batch"] for point in series.points]
    assert batches == sorted(batches) and batches[-1] == added - 1  # type: ignore[type-var]
    assert max(p["seconds"] or 0 for p in series.points) == min(added - 1, 6)
    newest = min(added, kept // 2)
    assert batches[-newest:] == list(range(added - newest, added))


def test_a_report_is_counted_once_and_its_sides_are_told_apart() -> None:
    history = History("correlate")
    late = Load(1, rows_left=4, late=1, rejected=2, newest_left=90 * SECOND, busy_seconds=0.4)
    work = Load(0, rows_left=5, rows_right=2, pairs=3, newest_right=88 * SECOND, busy_seconds=0.2)
    assert history.add(report(0, work, late))
    assert not history.add(report(0, work, late))
    point = history.latest
    assert (point["rows"], point["left"], point["right"], point["found"]) == (13, 9, 2, 3)
    assert (point["late"], point["rejected"], point["skew"]) == (1, 2, 2.0)
    assert (point["lag"], point["slowest"], point["mean"]) == (5.5, 0.4, pytest.approx(0.3))
    assert (point["memory"], point["commit"]) == (1000, 5)
    assert history.totals["pairs"] == 3 and history.sides == {"left": 9, "right": 2}


def test_workers_that_report_twice_or_not_at_all_have_one_line_each() -> None:
    history = History("correlate")
    history.add(report(0, Load(0, state_rows=4), Load(1, state_rows=6)))
    history.add(report(1, Load(1, busy_seconds=0.1), Load(1, busy_seconds=0.2, state_rows=5)))
    assert [(w["worker"], w["state_rows"]) for w in history.workers] == [(0, 4), (1, 5)]
    assert history.workers[1]["busy_seconds"] == pytest.approx(0.3)


def busy(history: History) -> tuple[Any, Any, list[float]]:
    """Slowest and mean as the rule has them, and the workers that the panel goes by."""
    point = history.latest
    live = [one["busy_seconds"] for one in history.workers if one["live"]]
    return point["slowest"], point["mean"], live


def test_work_is_even_or_not_by_all_workers_of_the_plan_also_those_that_report_nothing() -> None:
    announce("anabranch_correlate_ba1a", Announced("Pairs", ab.grid(2, 2)))
    history = History("correlate")
    for batch in range(4):
        load = Load(1, rows_left=9, busy_seconds=0.8).to_json()
        observed = {"anabranch_correlate_ba1a": {"load": [load]}}
        history.add(report(batch, observedMetrics=observed))
    assert busy(history) == (0.8, 0.2, [0.0, 0.8, 0.0, 0.0])
    assert skewed(Vitals(history.series.points)) is not None


def test_workers_of_a_plan_that_is_gone_do_not_count_as_idle(tmp_path: Any) -> None:
    log = PlanLog(str(tmp_path))
    log.begin(ab.broadcast(4))
    log.write(Entry(1, 1, ab.broadcast(2), 2, (1,), {}))
    call = Announced("Pairs", ab.broadcast(4), control=str(tmp_path))
    announce("anabranch_correlate_ba1b", call)
    history = History("correlate")
    for batch in range(6):
        workers = range(4 if batch < 2 else 2)
        loads = [Load(n, rows_left=9, busy_seconds=0.5, state_rows=n % 2) for n in workers]
        observed = {"anabranch_correlate_ba1b": {"load": [load.to_json() for load in loads]}}
        history.add(report(batch, observedMetrics=observed))
    assert busy(history) == (0.5, 0.5, [0.5, 0.5])
    assert skewed(Vitals(history.series.points)) is None
    # One of those that are gone still holds a row.
    assert [(one["worker"], one["live"]) for one in history.workers] == [
        (0, True),
        (1, True),
        (3, False),
    ]


def test_reasons_are_added_up() -> None:
    history = History("assemble")
    for batch in range(3):
        load = AssembleLoad(0, rows=5, instances=2, reasons={"full": 1, "gap": 2})
        history.add(report(batch, load, verb="assemble"))
    assert history.reasons == {"full": 3, "gap": 6}


def told(feed: Feed, *ids: str) -> dict[str, Any]:
    queries = [query for query in feed.queries.values() if not ids or query.id in ids]
    state: dict[str, Any] = json.loads(encode(View().state(queries)))
    return state


def test_a_feed_keeps_several_queries_and_says_how_they_ended() -> None:
    feed = Feed()
    feed.progressed(report(0))  # nobody looks
    feed.look()
    for batch in range(3):
        feed.progressed(report(batch, query="a"))
        feed.progressed(report(batch, query="b", verb="assemble"))
    feed.ended(
        type("Event", (), {"id": "b", "exception": "x\nanabranch.errors.BadRow: left row 7"})
    )
    feed.take_in()
    state = told(feed)
    assert [(s["query"], s["verb"], s["count"]) for s in state["subjects"]] == [
        ("a", "correlate", 3),
        ("b", "assemble", 3),
    ]
    assert state["subjects"][1]["health"][0]["sentence"].endswith("BadRow: left row 7")
    assert len(told(feed, "a")["subjects"]) == 1
    feed.look_away()
    assert not feed.queries


def test_two_verbs_of_one_query_have_their_own_words_and_plans() -> None:
    announce("anabranch_correlate_2ve1", Announced("Pairs of rows", ab.grid(2, 2)))
    announce("anabranch_assemble_2ve1", Announced("One row a key", ab.keyed(3)))
    feed = Feed()
    feed.look()
    loads = {"correlate": Load(0, rows_left=1), "assemble": AssembleLoad(0, rows=1)}
    observed = {
        f"anabranch_{verb}_2ve1": {"load": [load.to_json()]} for verb, load in loads.items()
    }
    feed.progressed(report(0, observedMetrics=observed))
    feed.take_in()
    assert [(s["verb"], s["words"], s["plan"]["text"]) for s in told(feed)["subjects"]] == [
        ("correlate", "Pairs of rows", "grid(2, 2)"),
        ("assemble", "One row a key", "keyed(3)"),
    ]


def test_two_operators_of_a_verb_are_told_apart() -> None:
    announce("anabranch_correlate_0fff", Announced("Pairs of news", ab.grid(2, 2)))
    announce("anabranch_correlate_0aaa", Announced("Pairs of pairs", ab.broadcast(3)))
    query = Query("a")
    for run, names in (("one", ("0fff", "0aaa")), ("two", ("0aaa", "0fff"))):
        for batch in range(2):
            observed = {
                f"anabranch_correlate_{name}": {
                    "load": [Load(0, rows_left=1, pairs=names.index(name), state_rows=7).to_json()]
                }
                for name in sorted(names)
            }
            query.add(report(batch, run=run, observedMetrics=observed))
    state = json.loads(encode(View().state([query])))
    assert [(s["part"], s["words"], s["count"]) for s in state["subjects"]] == [
        ("correlate", "Pairs of news", 4),
        ("correlate 2", "Pairs of pairs", 4),
    ]
    assert [s["total"]["rows_in"] for s in state["subjects"]] == [4, 4]
    assert [s["workers"][0]["state_rows"] for s in state["subjects"]] == [7, 7]
    assert len({s["id"] for s in state["subjects"]}) == 2


def test_rows_of_a_query_without_a_verb_are_shown() -> None:
    query = Query("a")
    for batch in (0, 1, 1):
        rows = [{"id": f"{batch}"}]
        query.add(report(batch, observedMetrics=shown(rows, "rejected"), numInputRows=5))
    (kept,) = query.samples.values()
    assert [row["facts"]["id"] for row in kept.form()["rows"]] == ["1", "0"]
    state = json.loads(encode(View().state([query])))
    (subject,) = state["subjects"]
    assert (subject["verb"], subject["total"], subject["shown"]) == ("stream", {"rows_in": 10}, 2)
    assert subject["health"][0]["light"] == "off"  # long ago
    # One that shows nothing is of no interest here.
    other = Query("b")
    other.add(report(0, observedMetrics={}, numInputRows=5))
    assert not other.histories and View().state([other])["subjects"] == []


def test_growth_is_that_of_full_windows_and_not_of_their_filling() -> None:
    call = Announced("pairs", ab.grid(2, 2), (600 * SECOND, 600 * SECOND), 60 * SECOND)
    line = [
        {"at": 30.0 * n, "watermark": 30.0 * n, "state_rows": min(n, 22), "state_bytes": 1e6}
        for n in range(60)
    ]
    assert growth(full(line[:22], call)) is None
    assert growth(full(line[:40], call)) is None  # full, but for too short a time
    assert growth(full(line, call)) == {"rows": 0.0, "bytes": 0.0}


def test_a_restart_goes_on_in_the_same_series() -> None:
    query = Query("a")
    query.add(report(0))
    query.end("stopped")
    query.add(report(1, run="another"))
    assert query.runs == 2 and query.active and query.histories["correlate"].series.count == 2


def event(kind: str, run: str, **more: Any) -> Any:
    return SimpleNamespace(id="a", runId=run, kind=kind, **more)


class Identifier:
    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def handle(run: str, active: bool = True, error: str | None = None) -> Any:
    told = {"name": "news", "recentProgress": [], "status": {"isTriggerActive": False}}
    return SimpleNamespace(id="a", runId=run, isActive=active, exception=lambda: error, **told)


def test_a_restarted_query_is_asked_by_its_new_handle_and_owes_nothing_to_the_old_error() -> None:
    feed, handles = Feed(), {"a": handle("one")}
    feed.look()
    feed.add(handles["a"])
    feed.progressed(report(0, query="a", run="one"))
    feed.take_in(handles.get)
    old = feed.queries["a"].handle
    handles["a"] = handle("two")
    # The end of a run may be told after the start of the next one.
    feed.started(event("start", "two", name="news", timestamp=None))
    feed.ended(event("end", "one", exception="Boom"))
    feed.take_in(handles.get)
    query = feed.queries["a"]
    assert query.handle is handles["a"] is not old
    assert (query.active, query.error, query.runs) == (True, None, 2)
    feed.progressed(report(1, query="a", run="two"))
    feed.take_in(handles.get)
    assert query.histories["correlate"].series.count == 2
    feed.add(handle("one", active=False, error="Boom"))  # another board, of the former run
    assert query.active and query.handle is handles["a"]


def test_a_query_is_there_from_its_start_and_if_it_dies_at_once() -> None:
    feed = Feed()
    feed.look()
    feed.started(event("start", "one", name="news", timestamp="2026-03-01T10:00:00Z"))
    feed.take_in()
    (subject,) = told(feed)["subjects"]
    assert subject["health"][0]["sentence"].startswith("Waiting for the first micro-batch of news")
    ended = event("end", "one", exception="anabranch.errors.BadRow: left row 7")
    ended.runId = Identifier("one")  # Spark's are no texts
    feed.ended(ended)
    feed.take_in()
    (subject,) = told(feed)["subjects"]
    assert subject["health"][0]["light"] == "bad" and not subject["active"]
    assert subject["runs"] == 1
    feed.ended(event("end", "two", exception="Boom"))  # of which nobody heard the start
    feed.take_in()
    assert feed.queries["a"].error == "Boom" and feed.queries["a"].runs == 2


def test_a_message_is_short_and_whole_states_are_bounded() -> None:
    feed = Feed()
    feed.look()
    for batch in range(3000):
        feed.progressed(report(batch))
        feed.take_in()
    queries = list(feed.queries.values())
    message, whole = (encode(View().state(queries, newest)) for newest in (TAIL, None))
    assert len(message) < 5_000 and len(whole) < 250_000
    totals = json.loads(whole)["subjects"][0]["series"]
    assert sum(totals["rows"]) == 3000 * 7 and set(SUMMED) <= totals.keys()


def test_numbers_that_json_lacks_become_nothing() -> None:
    assert encode({"a": float("nan"), "b": [float("inf"), 1]}) == b'{"a":null,"b":[null,1]}'


# ---------------------------------------------------------------- plans and predictions


@pytest.mark.parametrize(
    "plan",
    [ab.broadcast(3), ab.broadcast(3, "left"), ab.grid(2, 3), ab.segments(4, "1 minute"),
     ab.keyed(5), ab.ranges(4), ab.triangle(3), ab.selective(2)],
    ids=str,
)  # fmt: skip
def test_every_plan_is_drawn_with_all_its_workers(plan: Any) -> None:
    drawn = plan.cells()._asdict()
    assert {worker for line in drawn["cells"] for worker in line} == set(range(plan.workers))
    assert len({len(line) for line in drawn["cells"]}) == 1
    assert sum(drawn["widths"] or [1]) > 0


def test_a_plan_log_is_told_with_its_story_and_what_comes_next(tmp_path: Any) -> None:
    log = PlanLog(str(tmp_path))
    log.begin(ab.broadcast(4))
    log.append(ab.grid(2, 2), cause="trying a grid")
    view = PlanView(Announced("pairs", ab.broadcast(4), control=str(tmp_path)))
    plan, drawn = view.at(3)
    assert plan == ab.broadcast(4) and drawn["epoch"] == 0 and drawn["live"] == 1
    assert drawn["next"] == ["asked for: grid(2, 2) (trying a grid)"]
    assert drawn["story"] and drawn["lives"][0]["plan"] == "broadcast(4, side=right)"
    (tmp_path / "00000001.json").write_text("{")
    assert "cannot be read" in view.at(3)[1]["trouble"]


def steady(batches: int, plan: Any, rates: tuple[int, int], window: float) -> list[dict[str, Any]]:
    """Micro-batches of a second, as the formulas of the documentation say."""
    made = []
    for n in range(batches):
        left, right = rates
        copies = copies_of(plan, rates, (0, 0))
        made.append(
            {
                "watermark": 1000.0 + n,
                "left": left,
                "right": right,
                "copies": copies,
                "comparisons": left * right * 2 * window,
                "state_rows": copies * (window + 2),
            }
        )
    return made


def test_predictions_are_right_on_a_steady_stream_and_wait_until_windows_are_full() -> None:
    plan, window = ab.grid(2, 2), 10.0
    call = Announced("pairs", plan, (10 * SECOND, 10 * SECOND), 2 * SECOND)
    seen = steady(40, plan, (30, 20), window)
    found = {one.what: one for one in predict_pairs(seen, call, plan)[0]}
    assert found.keys() == {"copies per row", "comparisons per micro-batch", "rows in state"}
    assert all(abs(one.error or 0.0) < 0.01 for one in found.values())
    # Rows stay for as long as the watermark is behind the newest ones.
    late = [{**point, "ahead": 6.0, "state_rows": point["copies"] * 16} for point in seen]
    assert all(abs(one.error or 0.0) < 0.01 for one in predict_pairs(late, call, plan)[0])
    for told_it, why in (
        ((seen[:15], call, plan), "Windows have to be full first"),
        ((seen, call, ab.keyed(4)), r"Under keyed\(4\)"),
        ((seen, None, plan), "made by another driver"),
    ):
        none, words = predict_pairs(*told_it)
        assert none == [] and re.match(f".*{why}", words), words


def test_the_newest_row_is_held_against_the_watermark() -> None:
    history = History("correlate")
    history.add(report(1, Load(0, rows_left=1, newest_left=(START + 2) * SECOND)))
    assert history.latest["ahead"] == 5.0


def test_a_batch_that_does_not_say_what_the_store_holds_has_no_figure_of_it() -> None:
    history = History("correlate")
    silent = [SimpleNamespace(memoryUsedBytes=0, commitTimeMs=0)]
    for batch, operators in ((0, silent), (1, [])):
        history.add(report(batch, stateOperators=operators))
        assert history.latest["memory"] is None


def test_the_time_that_workers_take_to_start_is_not_merged_into_what_follows() -> None:
    series = Series(kept=4)
    for batch in range(6):
        series.add({"batch": batch, "rows": 1, "seconds": 30.0 if batch == 0 else 1.0})
    assert {point["seconds"] for point in series.points} == {1.0}


def test_what_a_call_said_is_shown() -> None:
    announce("anabranch_correlate_5eed", Announced("Pairs of rows", ab.grid(2, 2)))
    feed = Feed()
    feed.look()
    work = Load(0, rows_left=1).to_json()
    feed.progressed(report(0, observedMetrics={"anabranch_correlate_5eed": {"load": [work]}}))
    feed.take_in()
    (subject,) = told(feed)["subjects"]
    assert subject["words"] == "Pairs of rows" and subject["plan"]["text"] == "grid(2, 2)"


# ---------------------------------------------------------------- rows side by side


@given(st.text("ab ", max_size=30), st.text("ab ", max_size=30))
@settings(max_examples=examples(60))
def test_marking_differences_loses_no_letter(left: str, right: str) -> None:
    one, other = difference(left, right)
    assert "".join(text for text, _ in one) == left
    assert "".join(text for text, _ in other) == right
    if left == right or not set(left.split()) & set(right.split()):
        assert not any(differs for _, differs in one + other)
    else:
        theirs = [set(text.split()) for text in (right, left)]
        for side, lacked in zip((one, other), theirs, strict=True):
            for text, differs in side:
                assert all((word not in lacked) == differs for word in text.split())


def reported(rows: list[dict[str, str]], label: str = "matches") -> dict[str, Any]:
    work = {"load": [Load(0, rows_left=1).to_json()]}
    return {"anabranch_correlate_1a2b": work, **shown(rows, label)}


def test_the_newest_rows_are_kept_by_label() -> None:
    query = Query("a")
    for batch in range(30):
        rows = [{"left_id": f"{batch}.{n}", "right_id": "7", "score": "1"} for n in (2, 1)]
        query.add(report(batch, observedMetrics=reported(rows, "late rows äö_ü")))
        query.add(report(batch, observedMetrics=reported(rows, "late rows äö_ü")))  # told twice
    (label,) = query.samples
    assert label == "late rows äö_ü" and query.shown == 30
    kept = query.samples[label].form()["rows"]
    assert len(kept) == KEPT
    assert [row["sides"][0]["left"][0][0] for row in kept[:3]] == ["29.2", "29.1", "28.2"]


def test_times_and_numbers_are_not_marked_and_capitals_do_not_count() -> None:
    times = {"left_ts": "2026-01-01 10:00", "right_ts": "2026-01-01 10:01"}
    titles = {"left_title": "Mill fire in Bergen", "right_title": "Bergen: mill fire"}
    one, other = sides_of({**times, **titles})["sides"]
    assert one["left"] == [["2026-01-01 10:00", False]]
    assert [text for text, differs in other["left"] if differs] == ["in "]
    assert [text for text, differs in other["right"] if differs] == []


def test_saved_searches_are_kept_apart_and_bounded() -> None:
    samples = Samples()
    for batch in range(100):
        rows = [{"query_id": f"q{batch % 40}", "distance": "1", "rank": "1"}]
        samples.add(batch, rows)
    form = samples.form()
    assert len(form["searches"]) == 12 and "q19" in form["searches"]
    assert all(len(rows) <= 30 for rows in form["searches"].values())


def test_no_rows_are_no_sample() -> None:
    assert list(samples_in(report(0))) == []
