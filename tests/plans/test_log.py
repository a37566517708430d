"""The plan log: small whole files, one owner, and a looker changes nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import InvalidCall, StateMismatch
from anabranch.plans import log as log_module
from anabranch.plans.hashed import Broadcast
from anabranch.plans.log import Entry, PlanLog, PlanReader, User, live_at
from anabranch.plans.story import story


@pytest.fixture
def log(tmp_path: Path) -> PlanLog:
    found = PlanLog(str(tmp_path))
    found.begin(ab.broadcast(2))
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_entries_are_small_whole_files(tmp_path):
    log = PlanLog(str(tmp_path / "control"))
    log.begin(ab.broadcast(2))
    log.write(Entry(0, 1, ab.grid(2, 2), 9, (0, 1), {"rule": "shape"}, {0: 5}))
    names = sorted(path.name for path in (tmp_path / "control").iterdir())
    assert names == ["00000000.json", "00000001.json"]
    form = json.loads((tmp_path / "control" / "00000001.json").read_text())
    assert form["number"] == 1 and form["first"] == 9 and form["live"] == [0, 1]
    assert form["plan"] == {"plan": "grid", "rows": 2, "cols": 2, "weights": None}
    assert form["written"].startswith("20")
    again = PlanLog(str(tmp_path / "control"))
    assert [entry.plan for entry in again.entries()] == [ab.broadcast(2), ab.grid(2, 2)]
    assert again.current().marks == {0: 5}


def test_readers_pin_the_plan_by_batch(log):
    reader, plan = PlanReader(log.path), ab.broadcast(9)
    assert set(reader.live_at(5, plan).plans) == {0}
    log.write(Entry(0, 1, ab.grid(2, 2), 9, (0, 1), {}))
    log.write(Entry(0, 1, ab.grid(2, 2), 20, (1,), {}))
    live = [sorted(reader.live_at(batch, plan).plans) for batch in (8, 9, 19, 20, 99)]
    assert live == [[0], [0, 1], [0, 1], [1], [1]]
    assert reader.live_at(9, plan).epoch == 1
    assert reader.live_at(9, plan).plans[1] == ab.grid(2, 2)
    assert live_at(log.entries(), -1) is None


def test_where_no_log_has_begun_the_plan_of_the_call_is_plan_0(tmp_path):
    folder = tmp_path / "control"
    reader = PlanReader(str(folder))
    assert reader.live_at(7, ab.grid(3, 1)).plans == {0: ab.grid(3, 1)}
    assert not folder.exists(), "a reader writes nothing"
    PlanLog(str(folder)).begin(ab.broadcast(2))
    assert reader.live_at(8, ab.grid(3, 1)).plans == {0: ab.broadcast(2)}


def test_a_log_that_begins_later_than_the_batch_is_refused(tmp_path):
    PlanLog(str(tmp_path)).write(Entry(0, 0, ab.broadcast(2), 9, (0,), {}))
    with pytest.raises(StateMismatch, match="no entry for micro-batch 4"):
        PlanReader(str(tmp_path)).live_at(4, ab.broadcast(2))


def test_a_log_belongs_to_one_query(log):
    log.claim(User("query-a"))
    log.claim(User("query-a"))
    with pytest.raises(StateMismatch, match="belongs to query query-a, this is query query-b"):
        log.claim(User("query-b"))
    with pytest.raises(StateMismatch, match="belongs to query query-a"):
        PlanReader(log.path).live_at(0, ab.broadcast(2), User("query-b"))
    assert PlanReader(log.path).live_at(0, ab.broadcast(2), User("query-a")).epoch == 0


def test_a_log_belongs_to_one_operator(log):
    log.claim(User("query-a", "operator-a"))
    reader = PlanReader(log.path)
    assert reader.live_at(0, ab.broadcast(2), User("query-a", "operator-a")).epoch == 0
    with pytest.raises(StateMismatch, match="another verb of this query"):
        reader.live_at(0, ab.broadcast(2), User("query-a", "operator-b"))
    with pytest.raises(StateMismatch, match="another verb of this query"):
        log.claim(User("query-a", "operator-b"))


def test_two_alike_calls_of_a_query_do_not_share_a_log(tmp_path):
    """Their fingerprints are the same, and they may be routed by different processes."""
    one, other = (User("query", "alike", "run 1", call) for call in ("one", "other"))
    for _ in range(3):  # several processes, several times
        PlanReader(str(tmp_path)).live_at(0, ab.broadcast(2), one)
    with pytest.raises(StateMismatch, match=r"two calls in this query .* each its own"):
        PlanReader(str(tmp_path)).live_at(0, ab.broadcast(2), other)
    with pytest.raises(StateMismatch, match="two calls in this query"):
        PlanReader(str(tmp_path)).live_at(0, ab.broadcast(2), one)
    # Started again, after the other was given a path of its own.
    again = one._replace(run="run 2", call="another token")
    assert PlanReader(str(tmp_path)).live_at(1, ab.broadcast(2), again).epoch == 0
    assert len(list((tmp_path / "users").iterdir())) == 1


def test_a_log_that_was_made_anew_is_read_anew(tmp_path, log):
    reader = PlanReader(log.path)
    assert reader.live_at(0, ab.broadcast(2), User("query-a")).plans[0] == ab.broadcast(2)
    for path in tmp_path.iterdir():
        path.unlink()
    PlanLog(str(tmp_path)).begin(ab.broadcast(8))
    assert reader.live_at(0, ab.broadcast(2), User("query-b")).plans[0] == ab.broadcast(8)


def test_a_process_remembers_few_logs(tmp_path):
    before = log_module.reader.cache_info().currsize
    for number in range(50):
        log_module.reader(str(tmp_path / str(number)))
    assert before <= log_module.reader.cache_info().currsize <= 16
    assert log_module.reader(str(tmp_path / "49")) is log_module.reader(str(tmp_path / "49"))


@pytest.mark.parametrize("content", [b"", b'{"number": 0, "epo', b"{}", b"[]", b'"text"', b"\xff"])
def test_an_entry_that_cannot_be_read_is_named(tmp_path, log, content):
    (tmp_path / "00000000.json").write_bytes(content)
    with pytest.raises(StateMismatch, match=r"entry 00000000.json of the plan log in .* new check"):
        PlanLog(log.path).entries()
    with pytest.raises(StateMismatch, match="cannot be read"):
        PlanReader(log.path).live_at(0, ab.broadcast(2))


def test_an_owner_that_cannot_be_read_is_named(tmp_path, log):
    (tmp_path / "owner.json").write_bytes(b"")
    with pytest.raises(StateMismatch, match=r"owner.json in .* cannot be read"):
        log.claim(User("query"))


def test_an_entry_that_is_missing_is_noticed(tmp_path, log):
    early = PlanLog(log.path)
    early.entries()
    for number in range(1, 4):
        log.write(Entry(0, number, ab.broadcast(2), number, (number,), {}))
    (tmp_path / "00000001.json").unlink()
    with pytest.raises(StateMismatch, match=r"entry 00000001.json .* is missing, though later"):
        PlanLog(log.path).entries()
    with pytest.raises(StateMismatch, match="is missing"):
        PlanReader(log.path).live_at(3, ab.broadcast(2))
    with pytest.raises(StateMismatch, match="is missing"):
        early.write(Entry(0, 1, ab.broadcast(2), 9, (1,), {}))
    assert not (tmp_path / "00000001.json").exists()


def test_an_entry_in_the_place_of_another_is_noticed(tmp_path, log):
    log.write(Entry(0, 1, ab.broadcast(3), 5, (0, 1), {}))
    (tmp_path / "00000001.json").write_bytes((tmp_path / "00000000.json").read_bytes())
    with pytest.raises(StateMismatch, match="says that it is entry 0"):
        PlanLog(log.path).entries()


def test_to_look_changes_nothing(tmp_path, log):
    log.append(ab.broadcast(3))
    (tmp_path / "requests" / "0.json").write_text('{"plan": {"plan": "mine"}, "cause": ""}')
    (tmp_path / "requests" / "1.json").write_text("")
    before = files(tmp_path)
    assert [request.plan for request in log.requests()] == [ab.broadcast(3)]
    unreadable = log.unreadable()
    assert set(unreadable) == {"0.json", "1.json"} and "unknown plan 'mine'" in unreadable["0.json"]
    assert log.refused() == [] and log.owner() is None and len(log.entries()) == 1
    assert files(tmp_path) == before


def test_what_was_refused_is_kept_and_told(tmp_path, log):
    log.append(ab.broadcast(64), cause="far too many")
    log.refuse(log.requests()[0], "the session has 4 shuffle partitions")
    (tmp_path / "requests" / "0.json").write_text("")
    log.refuse("0.json", "it cannot be read")
    assert log.requests() == [] and log.unreadable() == {}
    refused = PlanLog(log.path).refused()
    assert {(refusal.asked, refusal.cause) for refusal in refused} == {
        ("broadcast(64, side=right)", "far too many"),
        ("the request 0.json", ""),
    }
    lines = story(log.entries(), refused)
    assert len(lines) == 3
    line = (
        "refused: broadcast(64, side=right) (far too many): the session has 4 shuffle partitions."
    )
    assert line in lines


def test_a_plan_that_no_log_can_hold_is_refused(tmp_path):
    class Mine(Broadcast):
        def to_dict(self):
            return {"plan": "mine"}

    with pytest.raises(ValueError, match="cannot be written to a log"):
        PlanLog(str(tmp_path)).append(Mine(2))


def test_requests_wait_until_they_are_removed(tmp_path):
    log = PlanLog(f"file://{tmp_path}/deep/er")
    log.append(ab.grid(2, 2), cause="first")
    log.append(ab.broadcast(3), cause="second")
    assert [(r.plan, r.cause) for r in log.requests()] == [
        (ab.grid(2, 2), "first"),
        (ab.broadcast(3), "second"),
    ]
    log.remove(log.requests()[0])
    assert [request.cause for request in log.requests()] == ["second"]


@pytest.mark.parametrize("wrong", ["grid", None, 3, ab.selective(2)])
def test_only_plans_are_asked_for(tmp_path, wrong):
    with pytest.raises(TypeError, match="plan must be a plan such as"):
        PlanLog(tmp_path).append(wrong)
    with pytest.raises(TypeError, match="cause must be a text, got"):
        PlanLog(tmp_path).append(ab.broadcast(2), cause=[wrong])


@pytest.mark.parametrize("wrong", [None, "", " ", 5, b"bytes", ["a"]])
def test_a_log_needs_a_path(wrong):
    with pytest.raises(InvalidCall, match="path must be the path of a directory, got"):
        PlanLog(wrong)


def test_a_relative_path_stays_where_it_was_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = PlanLog(Path("control"))
    monkeypatch.chdir(tmp_path.parent)
    log.begin(ab.broadcast(2))
    assert log.path == str(tmp_path / "control")
    assert (tmp_path / "control" / "00000000.json").exists()


def test_the_command_tells_it(tmp_path, log):
    from typer.testing import CliRunner

    from anabranch.cli.main import app

    told = CliRunner().invoke(app, ["story", log.path])
    assert told.exit_code == 0
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    line = rf"batch 0 \({when}\): starts with plan 0, broadcast\(2, side=right\).\n"
    assert re.fullmatch(line, told.output)
    picture = tmp_path / "story.svg"
    drawn = CliRunner().invoke(app, ["story", log.path, "--plot", str(picture)])
    assert drawn.exit_code == 0 and picture.stat().st_size > 1000
    wrong = CliRunner().invoke(app, ["story", log.path, "--plot", "story.doc"])
    assert wrong.exit_code == 2 and "path must end in .svg" in wrong.output
    log.append(ab.broadcast(9))
    log.refuse(log.requests()[0], "no room")
    told = CliRunner().invoke(app, ["story", log.path])
    assert told.output.endswith("refused: broadcast(9, side=right) (by hand): no room.\n")
    empty = CliRunner().invoke(app, ["story", str(tmp_path / "elsewhere")])
    assert empty.exit_code == 2 and "there is no plan log in" in empty.output
    a_file = CliRunner().invoke(app, ["story", __file__])
    assert a_file.exit_code == 2 and "must be the path of a directory" in a_file.output
    (Path(log.path) / "00000000.json").write_text("{")
    torn = CliRunner().invoke(app, ["story", log.path])
    assert torn.exit_code == 2 and "00000000.json of the plan log" in torn.output


def test_the_newest_request_is_last_also_if_the_clock_was_set_back(tmp_path: Path) -> None:
    log = PlanLog(tmp_path)
    log.append(ab.broadcast(2), cause="before")
    (earlier,) = (tmp_path / "requests").iterdir()
    earlier.rename(earlier.with_name("2099" + earlier.name[4:]))  # the clock was far ahead
    log.append(ab.grid(2, 2), cause="after")
    assert [request.cause for request in log.requests()] == ["before", "after"]
