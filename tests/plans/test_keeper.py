"""The keeper of a plan log, told of micro-batches without a query."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.flow.load import Load
from anabranch.plans.controller import Report
from anabranch.plans.hashed import Broadcast, keyed
from anabranch.plans.keeper import LEAD, Keeping, PlanKeeper, warn_of_other_plan
from anabranch.plans.log import PlanLog, User
from anabranch.plans.routing import MAX_LIVE
from anabranch.spark import keeper as listening
from anabranch.spark.listening import hearers
from anabranch.spark.totals import Counting, follow
from anabranch.testing import InProcess
from tests.correlation.test_laws import SCHEMA

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
NAME = "anabranch_correlate_1"


def keeping(path: Any, **more: Any) -> Keeping:
    return Keeping(
        **{
            "control": str(path),
            "plan": ab.broadcast(2),
            "window": (10 * SECOND, 10 * SECOND),
            "delay": SECOND,
            "most_workers": 4,
            **more,
        }
    )


def tell(keeper: PlanKeeper, batch: int, **load: Any) -> None:
    loads = (Load(0, watermark=START, rows_left=1, **load),)
    keeper.hear("query", Report(batch, 1.0, START, loads), lambda: batch)


@pytest.fixture
def log(tmp_path: Path) -> PlanLog:
    return PlanLog(str(tmp_path))


@pytest.fixture
def keeper(log: PlanLog) -> PlanKeeper:
    return PlanKeeper(keeping(log.path))


def test_nothing_is_written_before_the_first_report(tmp_path):
    folder = tmp_path / "control"
    keeper = PlanKeeper(keeping(folder))
    assert not folder.exists()
    tell(keeper, 3)
    (entry,) = PlanLog(str(folder)).entries()
    assert entry.plan == ab.broadcast(2) and entry.first == 0
    assert PlanLog(str(folder)).owner() == "query"


def test_a_plan_that_no_log_can_hold_is_refused_at_the_call(tmp_path):
    class Mine(Broadcast):
        name = "mine"

    with pytest.raises(ValueError, match="cannot be written to a log"):
        keeping(tmp_path, plan=Mine(2))


def test_a_log_of_another_query_is_left_alone(log, keeper):
    log.claim(User("another"))
    with pytest.raises(ab.errors.StateMismatch, match="belongs to query another"):
        tell(keeper, 0)
    assert log.entries() == []


def test_a_request_is_enacted_a_few_batches_ahead_and_taken_off(log, keeper):
    log.append(ab.grid(2, 2), cause="by hand")
    tell(keeper, 5)
    assert log.current().plan == ab.grid(2, 2) and log.current().first == 5 + LEAD
    assert log.requests() == [] and log.refused() == []


def test_of_several_requests_the_newest_is_enacted_and_the_others_are_named(log, keeper):
    log.append(ab.broadcast(3), cause="first")
    log.append(ab.broadcast(4), cause="second")
    with pytest.warns(UserWarning, match=r"broadcast\(3, side=right\) \(first\) was asked for"):
        tell(keeper, 0)
    assert log.current().plan == ab.broadcast(4)
    assert log.requests() == []
    (refusal,) = log.refused()
    assert refusal.cause == "first" and "when broadcast(4, side=right) was" in refusal.why


def test_a_request_waits_while_there_is_no_room_for_a_plan(log, keeper):
    for batch in range(MAX_LIVE - 1):
        log.append(ab.broadcast(1 + batch % 4))
        tell(keeper, batch)
    assert log.current().epoch == MAX_LIVE - 1
    log.append(ab.broadcast(2), cause="one too many")
    for batch in range(MAX_LIVE - 1, MAX_LIVE + 5):
        tell(keeper, batch)
    assert log.current().cause["rule"] == "mark"  # the log went on without a new plan
    assert [request.cause for request in log.requests()] == ["one too many"]


@pytest.mark.parametrize(
    ("plan", "says"), [(ab.broadcast(8), "4 shuffle partitions"), (keyed(2), "spreads by key")]
)
def test_who_asks_for_a_plan_that_does_not_fit_finds_why(log, plan, says):
    call = {"where": ab.cosine("v") >= 0.5, "window": "1 second"}
    correlation = InProcess(SCHEMA, SCHEMA, **call).correlation
    log.append(plan, cause="trying")
    with pytest.warns(UserWarning, match=says):
        tell(PlanKeeper(keeping(log.path, bind=correlation.bound)), 0)
    assert log.requests() == [] and log.current().epoch == 0
    (refusal,) = log.refused()
    assert refusal.asked == str(plan) and refusal.cause == "trying" and says in refusal.why


def test_a_request_that_cannot_be_read_is_refused(tmp_path, log, keeper):
    (tmp_path / "requests").mkdir()
    (tmp_path / "requests" / "0.json").write_text("")
    log.append(ab.broadcast(3))
    with pytest.warns(UserWarning, match="it cannot be read"):
        tell(keeper, 0)
    assert log.unreadable() == {} and log.current().plan == ab.broadcast(3)
    assert [refusal.asked for refusal in log.refused()] == ["the request 0.json"]


def test_a_keeper_made_before_another_run_wrote_numbers_on_from_there(log, keeper):
    tell(keeper, 0)
    log.append(ab.broadcast(3))
    tell(PlanKeeper(keeping(log.path)), 0)
    log.append(ab.broadcast(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell(keeper, 1)
    entries = PlanLog(log.path).entries()
    assert [entry.epoch for entry in entries] == [0, 1, 2]
    assert entries[-1].live == (0, 1, 2)


def test_two_verbs_do_not_share_a_log(log):
    tell(PlanKeeper(keeping(log.path, operator="one")), 0)
    with pytest.raises(ab.errors.StateMismatch, match="another verb of this query"):
        tell(PlanKeeper(keeping(log.path, operator="other")), 0)


def test_a_log_that_workers_do_not_see_is_noticed_once(log, keeper):
    log.append(ab.broadcast(3))
    tell(keeper, 0, newest={"0": START})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell(keeper, LEAD - 1, newest={"0": START})
    with pytest.warns(UserWarning, match="without plan 1, which holds from micro-batch 3 on: work"):
        tell(keeper, LEAD, newest={"0": START})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell(keeper, LEAD + 1, newest={"0": START})
        tell(keeper, LEAD + 2, newest={"0": START, "1": START})


def test_a_word_if_the_log_was_begun_with_another_plan(tmp_path):
    call = {"where": ab.emd("h", dim=8) <= 1, "window": "1 second", "plan": ab.ranges(2)}
    schema = SCHEMA.append(pa.field("h", pa.list_(pa.float64())))
    first = InProcess(schema, schema, **call)
    control = str(tmp_path)
    warn_of_other_plan(control, first.plan)
    assert list(tmp_path.iterdir()) == []
    PlanLog(control).begin(first.plan)
    wider = InProcess(schema, schema, **{**call, "where": ab.emd("h", dim=8) <= 3})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_other_plan(control, wider.plan, wider.correlation.bound)
    with pytest.warns(UserWarning, match=r"begun with ranges\(2.*so plan=broadcast\(4"):
        warn_of_other_plan(control, ab.broadcast(4), wider.correlation.bound)


class Session:
    """What `attach` sees of a session."""

    def __init__(self, master: str = "local[2]") -> None:
        self.listeners: list[Any] = []
        self.streams = SimpleNamespace(addListener=self.listeners.append, get=lambda ident: None)
        self.conf = SimpleNamespace(get=lambda name, default=None: master)


def progress(batch: int, *names: str, query: str = "query") -> Any:
    load = {"load": [Load(0, watermark=START, rows_left=1).to_json()]}
    return SimpleNamespace(
        progress=SimpleNamespace(
            id=query,
            batchId=batch,
            durationMs={"triggerExecution": 1000},
            observedMetrics=dict.fromkeys(names, load),
        )
    )


def test_a_session_has_one_listener_whatever_number_of_logs(tmp_path):
    session, logs = Session(), {}
    for name in ("one", "two", "three"):
        logs[name] = PlanLog(str(tmp_path / name))
        logs[name].append(ab.broadcast(3))
        listening.attach(session, name, keeping(logs[name].path))
    (listener,) = session.listeners
    listener.onQueryProgress(progress(0, "one", "somebody else's"))
    assert [len(log.entries()) for log in logs.values()] == [2, 0, 0]
    listening.attach(other := Session(), "one", keeping(logs["one"].path))
    assert len(other.listeners) == 1


def test_a_cell_run_many_times_leaves_one_listener_and_the_newest_32_keepers(tmp_path):
    session = Session()
    for number in range(500):
        listening.attach(session, f"call {number}", keeping(tmp_path / "control"))
    (listener,) = session.listeners
    kept = listener.hearers[listening.Keepers]._keepers
    assert list(kept) == [f"call {number}" for number in range(500 - 32, 500)]
    assert not (tmp_path / "control").exists()
    listener.onQueryProgress(progress(0, "call 499"))
    assert len(PlanLog(str(tmp_path / "control")).entries()) == 1


def test_calls_do_not_push_out_a_query_that_runs(tmp_path):
    session = Session()
    listening.attach(session, "runs", keeping(tmp_path / "control"))
    (listener,) = session.listeners
    listener.onQueryProgress(progress(0, "runs"))
    for number in range(100):
        listening.attach(session, f"call {number}", keeping(tmp_path / "other"))
    log = PlanLog(str(tmp_path / "control"))
    log.append(ab.broadcast(3))
    listener.onQueryProgress(progress(1, "runs"))
    assert log.current().plan == ab.broadcast(3)


def test_a_query_that_has_ended_is_forgotten_and_may_be_started_again(tmp_path):
    session = Session()
    log = PlanLog(str(tmp_path))
    listening.attach(session, NAME, keeping(log.path))
    (listener,) = session.listeners
    listener.onQueryProgress(progress(0, NAME))
    keepers = listener.hearers[listening.Keepers]
    (keeper,) = keepers._keepers.values()
    assert keeper._open is not None
    listener.onQueryTerminated(SimpleNamespace(id="another"))
    assert keeper._open is not None
    listener.onQueryTerminated(SimpleNamespace(id="query"))
    assert keeper._open is None and keepers._running == {}
    log.append(ab.broadcast(3))
    listener.onQueryProgress(progress(1, NAME))
    assert log.current().plan == ab.broadcast(3)


def test_reports_of_a_query_that_has_ended_still_come(tmp_path):
    """The session forgets a query when it ends; an entry for a batch long routed would be wrong."""
    session = Session()
    query = SimpleNamespace(lastProgress=SimpleNamespace(batchId=3))
    session.streams.get = lambda ident: query
    log = PlanLog(str(tmp_path))
    listening.attach(session, NAME, keeping(log.path))
    (listener,) = session.listeners
    listener.onQueryProgress(progress(3, NAME))
    query.lastProgress.batchId = 9
    session.streams.get = lambda ident: None
    log.append(ab.broadcast(4))
    listener.onQueryProgress(progress(4, NAME))
    assert [entry.first for entry in log.entries()] == [0, 9 + LEAD]
    listener.onQueryTerminated(SimpleNamespace(id="query"))
    assert listener.hearers[listening.Keepers]._queries == {}


def test_counting_and_keeping_listen_together(tmp_path):
    """Spark tells each listener in turn: a session has one for both."""
    session, log = Session(), PlanLog(str(tmp_path))
    follow(session)
    listening.attach(session, "anabranch_correlate_1", keeping(log.path))
    follow(session)
    (listener,) = session.listeners
    event = progress(0, "anabranch_correlate_1")
    event.progress.runId = "run"
    listener.onQueryProgress(event)
    assert len(log.entries()) == 1
    assert listener.hearers[Counting].runs["run"].totals["correlate"]["rows_in"] == 1


def test_a_session_that_is_gone_takes_its_listener_along(tmp_path):
    session = Session()
    listening.attach(session, NAME, keeping(tmp_path))
    count = len(hearers(listening.Keepers))
    del session
    gc.collect()
    assert len(hearers(listening.Keepers)) == count - 1


def test_a_keeper_that_fails_keeps_nothing_from_the_others(tmp_path):
    session, logs = Session(), [PlanLog(str(tmp_path / name)) for name in "ab"]
    for name, log in zip("ab", logs, strict=True):
        log.append(ab.broadcast(3))
        listening.attach(session, name, keeping(log.path))
    logs[0].claim(User("another query"))
    with pytest.raises(ab.errors.StateMismatch, match="another query"):
        session.listeners[0].onQueryProgress(progress(0, "a", "b"))
    assert [len(log.entries()) for log in logs] == [0, 2]


@pytest.mark.parametrize("wrong", [None, 5, "", b"control", ["control"]])
def test_a_control_directory_is_a_path(wrong):
    (problem,) = listening.shared_path_problems(Session(), "control", wrong)
    assert problem.startswith("control must be the path of a directory, got")


def test_a_relative_control_directory_needs_one_machine():
    assert listening.shared_path_problems(Session("local[*]"), "control", "control") == []
    assert listening.shared_path_problems(Session("yarn"), "control", "/mnt/control") == []
    assert listening.shared_path_problems(Session("yarn"), "control", Path("/mnt/control")) == []
    assert (
        listening.shared_path_problems(Session("spark://host:7077"), "control", "s3://bucket/c")
        == []
    )
    (problem,) = listening.shared_path_problems(Session("yarn"), "control", __file__)
    assert problem == f"control must be the path of a directory, and {__file__!r} is a file"
    (problem,) = listening.shared_path_problems(Session("yarn"), "control", "control")
    assert "control='control' is relative, and workers run on other machines (yarn)" in problem
