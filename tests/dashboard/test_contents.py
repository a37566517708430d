"""Contents beside rows: what is put on the page, and how much of it elsewhere than on loopback."""

from __future__ import annotations

import json
from typing import Any

import anabranch as ab
from anabranch.spark.dashboard.board import Board
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


def test_under_show_topics_tell_no_more_than_it_names() -> None:
    def told(*show: str) -> Any:
        with ab.dashboard(running(report(0)), host="0.0.0.0", token=SECRET, show=show) as board:
            board.topics([TOPIC])
            state = ask(board, "/api/state.json", Authorization=f"Bearer {SECRET}")[2]
        return json.loads(state)["topics"][0]

    bare = told("score")
    assert (bare["topic"], bare["words"], bare["heat"]) == ("", None, 2.0)
    assert bare["channels"] == [
        {"channel": "channel 1", "pictures": [[1.0, None]]},
        {"channel": "channel 2", "pictures": [[5.0, None]]},
    ]
    more = told("topic", "words", "channel", "jpeg")
    assert (more["topic"], more["words"]) == ("a|b", "FLOOD")
    assert more["channels"][0]["channel"] == "north" and more["channels"][0]["pictures"][0][1]
