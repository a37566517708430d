"""The HTTP server and the board: what is served, to whom, and that nothing can be changed."""

from __future__ import annotations

import http.client
import json
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import InvalidCall
from anabranch.flow.load import Load
from anabranch.placement.links import Counting
from anabranch.spark.dashboard import server
from anabranch.spark.dashboard.board import Board
from tests.dashboard.reports import report
from tests.dashboard.test_history import reported

NAMED = re.compile(r'(?:href|src)="(?!data:)([^#"]+)"')
SECRET = "a-token-of-a-test-0123"


def ended(*reports: Any, error: str | None = None) -> Any:
    """A query that has ended, as Spark gives it."""
    return SimpleNamespace(
        id="11112222-query",
        runId="run",
        name="news",
        recentProgress=list(reports),
        isActive=False,
        exception=lambda: error,
        status={"isTriggerActive": False},
    )


def running(*reports: Any) -> Any:
    query = ended(*reports)
    query.isActive = True
    return query


@pytest.fixture
def board() -> Iterator[Board]:
    with ab.dashboard(running(*(report(n) for n in range(4)))) as made:
        yield made


def ask(
    board: Board, path: str = "/", method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    host, port = board._server.server_address[:2]
    connection = http.client.HTTPConnection(str(host), port, timeout=10)
    try:
        connection.request(
            method, path, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


# ---------------------------------------------------------------- what is served


def test_the_page_is_served_with_all_that_it_names(board: Board) -> None:
    status, headers, page = ask(board)
    assert status == 200 and headers["Content-Type"].startswith("text/html")
    named = NAMED.findall(page.decode())
    assert len(named) == 5
    for name in named:
        status, headers, content = ask(board, f"/{name}")
        assert status == 200 and content, name
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_the_state_has_figures_health_and_series(board: Board) -> None:
    status, _, content = ask(board, "/api/state.json")
    (subject,) = json.loads(content)["subjects"]
    assert status == 200
    assert (subject["name"], subject["verb"], subject["total"]["pairs"]) == (
        "news",
        "correlate",
        12,
    )
    assert subject["series"]["batch"] == [0, 1, 2, 3] and subject["health"][0]["sentence"]


def events(board: Board, most: int = 1) -> Iterator[dict[str, Any]]:
    """Messages of the stream of events."""
    host, port = board._server.server_address[:2]
    with socket.create_connection((str(host), port), timeout=20) as connection:
        connection.sendall(f"GET /events HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        for line in connection.makefile("rb"):
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
                most -= 1
                if not most:
                    return


def test_a_page_hears_of_each_batch(board: Board) -> None:
    stream = events(board, 50)
    first = next(stream)
    assert first["subjects"][0]["count"] == 4
    board._feed.progressed(report(4))
    assert (
        next(m for m in stream if m["subjects"][0]["count"] == 5)["subjects"][0]["series"]["batch"][
            -1
        ]
        == 4
    )
    stream.close()


def test_many_pages_share_one_message_and_too_many_are_turned_away(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_PAGES", 3)
    streams = [events(board) for _ in range(3)]
    messages: list[Any] = []
    threads = [threading.Thread(target=lambda s=s: messages.append(next(s))) for s in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(messages) == 3
    assert board._channel.listeners == 3
    assert ask(board, "/events")[0] == 503
    for stream in streams:
        stream.close()


def test_a_query_that_has_ended_or_failed_is_shown_as_such() -> None:
    trace = "STREAM_FAILED\nanabranch.errors.BadRow: left row 7 has no vector"
    with ab.dashboard(ended(report(0), error=trace)) as board:
        (subject,) = json.loads(ask(board, "/api/state.json")[2])["subjects"]
    assert subject["health"] == [
        {
            "light": "bad",
            "sentence": "The query has stopped: BadRow: left row 7 has no vector",
            "do": "Mend the cause, restart it.",
            "rule": "stopped",
        }
    ]


def test_a_query_without_a_batch_is_waited_for() -> None:
    with ab.dashboard(running()) as board:
        state = json.loads(ask(board, "/api/state.json")[2])
    (subject,) = state["subjects"]
    assert (subject["name"], subject["verb"], subject["count"]) == ("news", "", 0)
    sentence = "Waiting for the first micro-batch of news: Python workers start (10 to 30 s)."
    assert [(one["light"], one["sentence"]) for one in subject["health"]] == [("off", sentence)]


def test_a_query_that_died_before_its_first_batch_is_shown_as_such() -> None:
    with ab.dashboard(ended(error="anabranch.errors.BadRow: left row 7")) as board:
        (subject,) = json.loads(ask(board, "/api/state.json")[2])["subjects"]
        exported = ask(board, "/metrics")[2].decode()
    assert subject["health"][0]["sentence"] == "The query has stopped: BadRow: left row 7"
    pytest.importorskip("prometheus_client")
    for name, value in (("query_active", 0), ("query_failed", 1), ("health", 3)):
        assert f'anabranch_{name}{{query="news",verb=""}} {value}.0' in exported
    assert "anabranch_rows_total{" not in exported


def test_two_boards_are_independent() -> None:
    with (
        ab.dashboard(running(report(0))) as one,
        ab.dashboard(running(report(0), report(1))) as two,
    ):
        assert one.url != two.url
        counts = [
            json.loads(ask(b, "/api/state.json")[2])["subjects"][0]["count"] for b in (one, two)
        ]
    assert counts == [1, 2]


def test_it_stops_with_a_reader_and_twice(board: Board) -> None:
    stream = events(board, 50)
    next(stream)
    board.stop()
    board.stop()
    for thread in board._threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in board._threads)
    assert len(list(stream)) < 49  # the server ends it
    assert "(stopped)" in repr(board)
    with pytest.raises(OSError, match="refused"):
        ask(board)


# ---------------------------------------------------------------- to whom


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "ANY"])
def test_nothing_can_be_changed(board: Board, method: str) -> None:
    status, headers, _ = ask(board, "/api/state.json", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_head_has_no_body(board: Board) -> None:
    status, headers, content = ask(board, "/api/state.json", "HEAD")
    assert status == 200 and int(headers["Content-Length"]) > 0 and content == b""


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_name_that_was_made_to_point_here_is_turned_away(board: Board, host: str) -> None:
    assert ask(board, "/api/state.json", Host=host)[0] == 421
    assert ask(board, "/api/state.json", Host="localhost:9999")[0] == 200  # through a tunnel


@pytest.mark.parametrize(
    "path", ["/nothing", "/../board.py", "/page/app.js", "/%2e%2e/x", "//evil.example/", "/LICENSE"]
)
def test_there_are_no_other_files(board: Board, path: str) -> None:
    assert ask(board, path)[0] == 404


def test_scripts_of_others_and_frames_are_forbidden(board: Board) -> None:
    policy = ask(board)[1]["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "Access-Control-Allow-Origin" not in ask(board)[1]


@pytest.fixture
def guarded() -> Iterator[Board]:
    rows = [{"title": "secret story"}]
    reports = [report(0, observedMetrics=reported(rows))]
    with ab.dashboard(running(*reports), host="0.0.0.0", token=SECRET) as made:
        yield made


def test_elsewhere_every_address_needs_the_token(guarded: Board) -> None:
    for path in ("/", "/app.js", "/events", "/api/state.json", "/metrics", "/nothing"):
        assert ask(guarded, path)[0] == 401, path
        assert ask(guarded, path, Authorization=f"Bearer {SECRET}x")[0] == 401
        assert ask(guarded, path, Cookie=f"{guarded._server.cookie}={SECRET[:-1]}")[0] == 401
        assert ask(guarded, f"{path}?token=x")[0] == 401
    assert ask(guarded, "/api/state.json", Authorization=f"Bearer {SECRET}")[0] == 200
    assert (
        ask(guarded, "/api/state.json", Host="any.name", Authorization=f"Bearer {SECRET}")[0] == 200
    )


def test_a_first_visit_trades_the_token_of_the_address_for_a_cookie(guarded: Board) -> None:
    assert guarded.url.endswith(f"/?token={SECRET}") and SECRET not in repr(guarded)
    status, headers, _ = ask(guarded, f"/?token={SECRET}")
    assert (status, headers["Location"]) == (303, "/")
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert ask(guarded, "/", Cookie=cookie.partition(";")[0])[0] == 200
    assert ask(guarded, f"//evil.example?token={SECRET}")[1]["Location"] == "/evil.example"


def test_elsewhere_a_token_is_made_up_and_contents_are_off() -> None:
    with ab.dashboard(running(report(0)), host="0.0.0.0") as board:
        assert len(board._token or "") >= 24
        state = json.loads(ask(board, "/api/state.json", Authorization=f"Bearer {board._token}")[2])
        port = board._server.server_address[1]
        assert board.url == f"http://{socket.gethostname()}:{port}/?token={board._token}"
        assert f"here http://127.0.0.1:{port}/" in repr(board)
    assert "show=[...]" in state["rows_off"]


def test_elsewhere_an_error_is_named_without_its_words() -> None:
    query = ended(report(0), error="anabranch.errors.BadRow: left row 'secret story'")
    for given in ({}, {"show": ["title"]}):
        with ab.dashboard(query, host="0.0.0.0", token=SECRET, **given) as board:
            state = ask(board, "/api/state.json", Authorization=f"Bearer {SECRET}")[2]
        assert b"The query has stopped: BadRow; its words are in" in state
        assert b"secret" not in state


def test_a_board_shows_no_more_than_it_may_of_rows_that_another_asked_for() -> None:
    rows = [{"left_title": "a b", "right_title": "a c", "score": "0.9", "query_id": "q"}]
    reports = [report(0, observedMetrics=reported(rows))]

    def told(**given: Any) -> Any:
        with ab.dashboard(running(*reports), token=SECRET, **given) as board:
            state = ask(board, "/api/state.json", Authorization=f"Bearer {SECRET}")[2]
        return json.loads(state)["rows"]

    assert told(host="0.0.0.0") == {}
    (row,) = told(host="0.0.0.0", show=["score"])["11112222-query"]["matches"]["rows"]
    assert (row["facts"], row["sides"]) == ({"score": "0.9"}, [])
    (row,) = told()["11112222-query"]["matches"]["rows"]
    assert row["facts"]["query_id"] == "q" and row["sides"][0]["name"] == "title"


def test_a_token_may_be_asked_for_on_loopback_too() -> None:
    with ab.dashboard(running(report(0)), token=SECRET) as board:
        assert ask(board)[0] == 401
        assert ask(board, "/", Authorization=f"Bearer {SECRET}")[0] == 200


# ---------------------------------------------------------------- one file


def test_a_saved_page_needs_nothing_else_and_markup_stays_text(tmp_path: Path) -> None:
    attack = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    rows = [{"left_title": attack, "right_title": "x", "score": "1"}]
    query = running(report(0, name=attack, observedMetrics=reported(rows, attack)))
    query.name = attack
    with ab.dashboard(query) as board:
        text = board.save(tmp_path / "run.html").read_text()
    assert NAMED.findall(text.partition('id="saved"')[0]) == []
    assert "<script>alert(1)" not in text and "<img src=x" not in text
    data = re.search(r'id="saved"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert data is not None
    (subject,) = json.loads(data[1])["subjects"]
    assert subject["name"] == attack
    assert len(re.findall(r"sha256-", text)) == 3


def test_scripts_put_texts_into_the_page_as_texts() -> None:
    for name in ("app.js", "charts.js"):
        code = (server.PAGE / name).read_text()
        for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert unsafe not in code


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"query": 5}, "query must be a streaming query, .*or the Spark session, got int"),
        ({"port": -1}, "port must be a whole number from 0"),
        ({"port": 70000}, "port must be"),
        ({"port": "80"}, "port must be"),
        ({"host": ""}, "host must be an address"),
        ({"token": "short"}, "at least 16 letters"),
        ({"token": "ü" * 20}, "at least 16 letters"),
        ({"token": "a; Path=/elsewhere"}, "at least 16 letters"),
        ({"show": "title"}, "show must be a list"),
        ({"prediction": 3}, "what ab.estimate_state returns, got int"),
        ({"placement": 3}, "what ab.place returns, or the control directory of a hub, got int"),
        ({"placement": " "}, "placement must be the path of a directory"),
        ({"placement": "/no/such"}, "placement='/no/such': there is no such directory"),
        ({"otel": "yes"}, "otel must be True or False, got 'yes'"),
        ({"host": "203.0.113.9", "port": 1}, "port=1: .*port=0 takes any that is free"),
    ],
)
def test_wrong_calls_are_explained(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidCall, match=words):
        ab.dashboard(**{"query": running(), **given})


TOPIC = {"topic": "a", "event": "grew", "heat": 1.0, "score": 1.0, "began": 1.0, "last": 2.0}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (5, "found must be a list of topics, got int"),
        ("abc", "found must be a list of topics, got str"),
        ([5], "topic 0 must be a dictionary"),
        ([{}], "topic 0 lacks 'topic', 'event', 'heat'"),
        ([{"topic": "a", "rows": []}], "topic 0 lacks 'event', 'heat'"),
        ([{**TOPIC, "rows": [], "heat": "hot"}], "heat of topic 0 must be a number, got 'hot'"),
        ([{**TOPIC, "rows": [5]}], "rows of topic 0 must be a list of"),
    ],
)
def test_wrong_topics_are_explained(board: Board, found: Any, words: str) -> None:
    with pytest.raises(InvalidCall, match=words):
        board.topics(found)
    board.topics([{**TOPIC, "rows": []}])


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (5, "path must be that of a file to write, got 5"),
        ("", "path must be that of a file"),
        (".", "is a directory, not a file"),
        ("no/such/run.html", "there is no directory 'no/such'"),
    ],
)
def test_a_page_that_cannot_be_written_is_explained(board: Board, path: Any, words: str) -> None:
    with pytest.raises(InvalidCall, match=words):
        board.save(path)


class Frame:
    """A result, as far as a board looks at it before it does anything."""

    def __init__(self, streaming: bool) -> None:
        self.isStreaming, self.columns = streaming, ["id", "ts"]


@pytest.mark.parametrize(
    ("streaming", "call", "words"),
    [
        (False, lambda board, frame: board.show(frame), "frame is a batch result"),
        (True, lambda board, frame: board.show(frame, " "), "label must be a text"),
        (True, lambda board, frame: board.show(frame, search=1), "is for results of ab.nearest"),
        (True, lambda board, frame: board.show(frame), r"show=\['nope'\] of the board names no"),
        (False, lambda board, frame: board.table(None, frame), "name must be a text, got None"),
        (True, lambda board, frame: board.table("x", frame), "rows is streaming"),
    ],
)
def test_wrong_frames_are_explained(
    monkeypatch: pytest.MonkeyPatch, streaming: bool, call: Any, words: str
) -> None:
    monkeypatch.setattr("anabranch.spark.dashboard.board.refuse_others", lambda *_: None)
    with (
        ab.dashboard(running(), show=["nope"]) as board,
        pytest.raises(InvalidCall, match=words),
    ):
        call(board, Frame(streaming))


def test_a_port_in_use_is_named(board: Board) -> None:
    with pytest.raises(InvalidCall, match="in use; port=0 takes any"):
        ab.dashboard(running(), port=int(board._server.server_address[1]))


def test_a_placement_is_told_by_link() -> None:
    views = [("v1", "s1", 5.0), ("v1", "s2", 1.0), ("v2", "s2", 3.0)]
    plan = ab.place(views, {"s1": "a", "s2": "b"}, 1.0, 0.5)
    with ab.dashboard(running(report(0)), placement=plan) as board:
        told = json.loads(ask(board, "/api/state.json")[2])["placement"]
    assert told["all_cloud"] == plan.baseline_cost and told["cost"] == plan.cost
    assert sum(link["cost"] for link in told["links"]) == pytest.approx(plan.cost)


def test_what_a_hub_has_counted_stands_beside_its_plan(tmp_path: Path) -> None:
    plan = ab.place([("v1", "s1", 5.0), ("v1", "s2", 1.0)], {"s1": "a", "s2": "b"}, 1.0, 0.5)
    with ab.dashboard(running(report(0)), placement=tmp_path) as board:
        assert json.loads(ask(board, "/api/state.json")[2])["placement"] is None  # not yet
        counting = Counting(tmp_path)
        for now in (0.0, 5.0, 70.0):
            # The relay began anew before the last look but one; none of its counts is negative.
            size = int(8 * now) if now != 5.0 else 1_000_000
            counting.note(now, {("up", "b"): size, ("down", "c"): 40}, plan, lambda *_: 0.5)
        counting.note(75.0, {("up", "b"): 600, ("down", "c"): 40}, plan, lambda *_: 0.5)
        told = json.loads(ask(board, "/api/state.json")[2])["placement"]
    assert (told["seconds"], told["seen_cost"], told["all_cloud"]) == (5.0, 4.0, 6.0)
    found = {link["device"]: link for link in told["links"]}
    assert (found["b"]["up"], found["b"]["seen_up"]) == (1.0, 8.0)
    assert (found["a"]["down"], "seen_down" in found["a"]) == (1.0, False)
    assert (found["c"]["cost"], found["c"]["seen_down"]) == (0.0, 0.0)  # not in the plan


# ---------------------------------------------------------------- metrics


def test_metrics_in_the_text_format_of_prometheus() -> None:
    pytest.importorskip("prometheus_client")
    from prometheus_client.parser import text_string_to_metric_families

    load = Load(3, rows_left=5, rows_right=2, comparisons=10, pairs=3, late=1, state_rows=7)
    with ab.dashboard(running(report(0, load), report(1, load))) as board:
        status, headers, content = ask(board, "/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=")
    families = {f.name: f for f in text_string_to_metric_families(content.decode())}
    where = {"query": "news", "verb": "correlate"}
    rows = {s.labels["side"]: s.value for s in families["anabranch_rows"].samples}
    assert rows == {"left": 10, "right": 4}
    assert families["anabranch_pairs"].samples[0].labels == where
    assert families["anabranch_pairs"].samples[0].value == 6
    assert families["anabranch_late_rows"].samples[0].value == 2
    (state,) = families["anabranch_state_rows"].samples
    assert state.labels == {**where, "worker": "3"} and state.value == 7
    buckets = [s for s in families["anabranch_batch_seconds"].samples if s.name.endswith("_bucket")]
    assert [b.value for b in buckets] == sorted(b.value for b in buckets) and buckets[-1].value == 2
    used = {label for family in families.values() for s in family.samples for label in s.labels}
    assert used <= {"query", "verb", "side", "worker", "le"}


def test_without_the_package_metrics_says_what_to_install(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    status, _, content = ask(board, "/metrics")
    assert status == 501 and b"pip install 'anabranch[metrics]'" in content
