"""Contents beside rows: what is put on the page, and how much of it elsewhere than on loopback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.flow.blocks import Block
from anabranch.flow.kernel import Task
from anabranch.flow.load import Load
from anabranch.flow.rejects import Rejecting, commit
from anabranch.flow.sides import REASON, WHOLE
from anabranch.spark.dashboard.board import Board
from anabranch.spark.dashboard.feed import Query
from anabranch.spark.dashboard.view import View
from anabranch.spark.rejects import Commits
from tests.dashboard.reports import report
from tests.dashboard.test_board import SECRET, ask, board, guarded, running

__all__ = ["board", "guarded"]  # fixtures

TOPIC = {
    **{"topic": "a|b", "event": "grew", "heat": 2.0, "score": 0.9, "words": "FLOOD"},
    **{"began": 1.0, "last": 5.0},
    "rows": [("north", 1.0, b"\xff\xd8\xff\xe0"), ("south", 5.0, None)],
}


def test_topics_are_on_the_page_with_pictures(board: Board, guarded: Board) -> None:
    for made in (board, guarded):
        made.topics([TOPIC] * 20)
    state = json.loads(ask(board, "/api/state.json")[2])
    assert len(state["topics"]) == 12
    assert state["topics"][0]["channels"] == [
        {"channel": "north", "pictures": [[1.0, "data:image/jpeg;base64,/9j/4A=="]]},
        {"channel": "south", "pictures": [[5.0, None]]},
    ]
    # They are sent once, not with every message.
    assert ["topics" in json.loads(board._message()) for _ in range(2)] == [True, False]
    # Elsewhere than on loopback contents are off.
    answer = ask(guarded, "/api/state.json", Authorization=f"Bearer {SECRET}")[2]
    assert json.loads(answer)["topics"] == []


def test_a_line_above_topics_and_their_age(board: Board) -> None:
    board.topics([{**TOPIC, "age": 1.5}], note="3 of 4 found")
    state = json.loads(ask(board, "/api/state.json")[2])
    assert (state["note"], state["topics"][0]["age"]) == ("3 of 4 found", 1.5)
    assert json.loads(board._message())["note"] == "3 of 4 found"
    with pytest.raises(ab.errors.InvalidCall, match="note must be a text, got int"):
        board.topics([TOPIC], note=5)  # type: ignore[arg-type]


def test_under_show_topics_tell_no_more_than_it_names() -> None:
    def told(*show: str) -> Any:
        with ab.dashboard(running(report(0)), host="0.0.0.0", token=SECRET, show=show) as board:
            board.topics([{**TOPIC, "concepts": ["ship"]}], note="of north")
            state = ask(board, "/api/state.json", Authorization=f"Bearer {SECRET}")[2]
        assert json.loads(state)["note"] == ""
        return json.loads(state)["topics"][0]

    bare = told("score")
    assert (bare["topic"], bare["words"], bare["heat"]) == ("", None, 2.0)
    assert "concepts" not in bare and told("concepts")["concepts"] == ["ship"]
    assert bare["channels"] == [
        {"channel": "channel 1", "pictures": [[1.0, None]]},
        {"channel": "channel 2", "pictures": [[5.0, None]]},
    ]
    more = told("topic", "words", "channel", "jpeg")
    assert (more["topic"], more["words"]) == ("a|b", "FLOOD")
    assert more["channels"][0]["channel"] == "north" and more["channels"][0]["pictures"][0][1]


MARK = "<b>x</b>"


def rejecting(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A query whose call keeps what it rejects; seven rows so far, in two committed batches."""
    schema = pa.struct({"{}": pa.string()})
    keeping = Rejecting(str(path), "correlate", ("left",), "anabranch_correlate_4e1e")
    for batch in (0, 1):
        ids = range(4 * batch, 4 + 3 * batch)
        whole = pa.array([{"{}": json.dumps({"id": n, "title": MARK})} for n in ids], schema)
        reasons = pa.array([f"'v' is null {n}" for n in ids])
        cell = Block.of(np.zeros(len(ids), np.int64), {WHOLE: whole, REASON: reasons})
        cell = Block.decode(cell.encode(side=0))
        keeping.keep([cell], None, None, Task(0, batch=batch, query="11112222-query", run="run"))
    commit(str(path), "11112222-query", "run", 1)
    commits = Commits()
    commits.paths["anabranch_correlate_4e1e"] = str(path)
    monkeypatch.setattr("anabranch.spark.dashboard.rejected.hearers", lambda _: [commits])
    load = Load(0, rows_left=5, rejected=4).to_json()
    return running(report(0, observedMetrics={"anabranch_correlate_4e1e": {"load": [load]}}))


def rejects(query: Any, **given: Any) -> Any:
    with ab.dashboard(query, token=SECRET, **given) as board:
        state = ask(board, "/api/state.json", Authorization=f"Bearer {SECRET}")[2]
    return json.loads(state)["subjects"][0]["rejects"]


def test_the_newest_rejected_rows_are_shown_where_they_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = rejecting(tmp_path, monkeypatch)
    found = rejects(query)
    assert found["say"] == "" and [row["batch"] for row in found["rows"]] == [1, 1, 1, 0, 0]
    first = {"batch": 1, "side": "left", "reason": "'v' is null 4"}
    assert found["rows"][0] == {**first, "row": {"id": "4", "title": MARK}}
    away = rejects(query, host="0.0.0.0")
    assert away["rows"] == [] and "show=[...]" in away["say"]
    some = rejects(query, host="0.0.0.0", show=["id"])
    assert some["rows"][0] == {**first, "row": {"id": "4"}}


def test_without_rejects_the_page_says_how_to_keep_them() -> None:
    assert rejects(running(report(0))) == {"say": "", "rows": []}  # nothing is lost
    lost = rejects(running(report(0, Load(0, rows_left=5, late=1))))
    assert "rejects='/a/path'" in lost["say"] and lost["rows"] == []


def test_of_a_chosen_search_every_rank_of_a_batch_is_kept() -> None:
    query = Query("a")
    name = f"anabranch_search_1a2b_{b'ann <b>'.hex()}"
    load = {"load": [Load(0, rows_right=9, pairs=40).to_json()]}
    for batch in range(3):
        rows = [
            {"query_id": "ann", "entered_ts": f"10:0{batch}", "rank": str(n), "object_id": f"o{n}"}
            for n in range(40, 0, -1)
        ]
        observed = {"anabranch_nearest_1a2b": load, name: {"load": [json.dumps(r) for r in rows]}}
        for _ in range(2):  # told twice
            query.add(report(batch, verb="nearest", observedMetrics=observed))
    (told,) = View().searches_of([query])["a"].values()
    assert [of["batch"] for of in told] == [2, 1, 0]
    assert [row["rank"] for row in told[0]["rows"]] == [str(n) for n in range(1, 41)]
    (some,) = View(columns=["rank"]).searches_of([query])["a"].values()
    assert some[0]["rows"][0] == {"rank": "1"}
    assert View(rows="off").searches_of([query]) == {}
