"""The keeper of a plan log, told of micro-batches without a query."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.flow.load import Load
from anabranch.plans.log import PlanLog
from anabranch.plans.plan import keyed
from anabranch.plans.routing import MAX_LIVE
from anabranch.spark.keeper import LEAD, PlanKeeper, begun_log, engage
from anabranch.testing import InProcess
from tests.correlation.test_laws import SCHEMA

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
NAME = "anabranch_correlate_1"
SPARK = SimpleNamespace(streams=SimpleNamespace(get=lambda ident: None))


def keeper(log: PlanLog, name: str = NAME, **more: Any) -> PlanKeeper:
    return PlanKeeper(SPARK, log, name, (10 * SECOND, 10 * SECOND), SECOND, None, 4, **more)


def progress(batch: int, *names: str) -> Any:
    """One micro-batch in which nothing expires."""
    load = {"load": [Load(0, watermark=START, rows_left=1).to_json()]}
    return SimpleNamespace(
        id="query",
        batchId=batch,
        durationMs={"triggerExecution": 1000},
        observedMetrics=dict.fromkeys(names, load),
    )


def tell(keeper: PlanKeeper, batch: int) -> None:
    keeper.hear(progress(batch, NAME))


@pytest.fixture
def log(tmp_path: Path) -> PlanLog:
    found = PlanLog(str(tmp_path))
    found.begin(ab.ssp(2), first=0)
    return found


def test_a_request_is_enacted_a_few_batches_ahead_and_taken_off(log):
    log.append(ab.grid(2, 2), cause="by hand")
    tell(keeper(log), 5)
    assert log.current().plan == ab.grid(2, 2) and log.current().first == 5 + LEAD
    assert log.requests() == []


def test_of_several_requests_the_newest_is_enacted_and_the_others_are_named(log):
    log.append(ab.ssp(3), cause="first")
    log.append(ab.ssp(4), cause="second")
    with pytest.warns(UserWarning, match=r"ssp\(3, master=left\) \(first\) was asked for"):
        tell(keeper(log), 0)
    assert log.current().plan == ab.ssp(4)
    assert log.requests() == []


def test_a_request_waits_while_there_is_no_room_for_a_plan(log):
    kept = keeper(log)
    for batch in range(MAX_LIVE - 1):
        log.append(ab.ssp(1 + batch % 4))
        tell(kept, batch)
    assert log.current().epoch == MAX_LIVE - 1
    log.append(ab.ssp(2), cause="one too many")
    for batch in range(MAX_LIVE - 1, MAX_LIVE + 5):
        tell(kept, batch)
    assert log.current().cause["rule"] == "mark"  # the log went on without a new plan
    assert [request.cause for request in log.requests()] == ["one too many"]


@pytest.mark.parametrize(
    ("plan", "says"), [(ab.ssp(8), "4 shuffle partitions"), (keyed(2), "an equality")]
)
def test_a_plan_that_does_not_fit_is_refused_with_a_word(log, plan, says):
    call = {"where": ab.cosine("v") >= 0.5, "window": "1 second"}
    correlation = InProcess(SCHEMA, SCHEMA, **call).correlation
    log.append(plan)
    with pytest.warns(UserWarning, match=says):
        tell(keeper(log, bind=correlation.bound), 0)
    assert log.requests() == [] and log.current().epoch == 0


def test_a_keeper_made_before_another_run_wrote_numbers_on_from_there(log):
    early, late = keeper(log), keeper(PlanLog(log.path))
    log.append(ab.ssp(3))
    tell(late, 0)
    log.append(ab.ssp(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell(early, 1)
    entries = PlanLog(log.path).entries()
    assert [entry.epoch for entry in entries] == [0, 1, 2]
    assert entries[-1].live == (0, 1, 2)


def test_two_correlates_do_not_share_a_log(log):
    tell(keeper(log, operator="one"), 0)
    with pytest.raises(ab.errors.StateMismatch, match="another verb of this query"):
        tell(keeper(log, operator="other"), 0)


class Session:
    """What `engage` sees of a session."""

    def __init__(self) -> None:
        self.listeners: list[Any] = []
        self.streams = SimpleNamespace(addListener=self.listeners.append)


def test_a_session_has_one_listener_whatever_number_of_logs(tmp_path):
    session, logs = Session(), {}
    for name in ("one", "two", "three"):
        logs[name] = PlanLog(str(tmp_path / name))
        logs[name].begin(ab.ssp(2), first=0)
        logs[name].append(ab.ssp(3))
        engage(session, keeper(logs[name], name))
    (listener,) = session.listeners
    listener.onQueryProgress(SimpleNamespace(progress=progress(0, "one", "somebody else's")))
    assert [log.current().epoch for log in logs.values()] == [1, 0, 0]
    engage(other := Session(), keeper(logs["one"], "one"))
    assert len(other.listeners) == 1


def test_a_keeper_that_fails_keeps_nothing_from_the_others(tmp_path):
    session, logs = Session(), [PlanLog(str(tmp_path / name)) for name in "ab"]
    for name, log in zip("ab", logs, strict=True):
        log.begin(ab.ssp(2), first=0)
        log.append(ab.ssp(3))
        engage(session, keeper(log, name))
    logs[0].claim("another query")
    with pytest.raises(ab.errors.StateMismatch, match="another query"):
        session.listeners[0].onQueryProgress(SimpleNamespace(progress=progress(0, "a", "b")))
    assert [log.current().epoch for log in logs] == [0, 1]


def test_a_word_if_the_log_was_begun_with_another_plan(tmp_path):
    call = {"where": ab.emd("h", dim=8) <= 1, "window": "1 second", "plan": ab.spans(2)}
    schema = SCHEMA.append(pa.field("h", pa.list_(pa.float64())))
    first = InProcess(schema, schema, **call)
    begun_log(str(tmp_path), first.plan, asked=True)
    wider = InProcess(schema, schema, **{**call, "where": ab.emd("h", dim=8) <= 3})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        begun_log(str(tmp_path), wider.plan, True, wider.correlation.bound)
        begun_log(str(tmp_path), ab.ssp(4), asked=False)
    with pytest.warns(UserWarning, match=r"begun with spans\(2.*so plan=ssp\(4"):
        begun_log(str(tmp_path), ab.ssp(4), True, wider.correlation.bound)
