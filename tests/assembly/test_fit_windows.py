"""Windows chosen from a sample, and what they are predicted to cost."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.assembly.fitting import Erlang, HyperErlang, choose_window
from anabranch.assembly.fitting.reading import read_instances
from anabranch.errors import InvalidCall
from papers.dssis.tracing import LITERAL, generate_trace
from tests.assembly.test_fitting import EQ4, EQ5
from tests.examples import examples
from tests.papers.queue_twin import play_windows

KEY = ["kind", "instance_ts", "client"]


@pytest.fixture(scope="module")
def trace():
    return generate_trace(seed=2, instances=6_000, kinds=5_000)


@pytest.fixture(scope="module")
def fit(trace):
    return ab.fit_windows(trace.table())


def test_the_literal_trace_gives_the_papers_window():
    """13 events and 22 seconds, from events drawn by equations 4 and 5."""
    found = ab.fit_windows(
        generate_trace(seed=1, instances=40_000, kinds=35_000, **LITERAL).table()
    )
    assert found.size == 13
    assert found.timeout == pytest.approx(22, abs=0.4)
    assert found.duration_fit.shapes.tolist() == [1, 4]
    assert found.rate == pytest.approx(1000 / 9.778, rel=0.02)


def test_size_and_timeout_cover_what_was_asked(trace, fit):
    sizes, spans = trace.sizes(), trace.spans()
    assert np.mean(sizes <= fit.size) >= 0.9 > np.mean(sizes <= fit.size - 1) - 0.01
    assert np.mean(spans <= fit.timeout) == pytest.approx(0.95, abs=0.01)
    tight = ab.fit_windows(trace.table(), cover=0.5, cut=0.5)
    assert tight.size < fit.size and tight.timeout < fit.timeout
    assert fit.instances + fit.unsettled == 6_000
    assert fit.duration.endswith(" milliseconds")


def test_tolerance_picks_both(trace):
    found = ab.fit_windows(trace.table(), tolerance=0.05)
    sizes, spans = trace.sizes(), trace.spans()
    whole = np.mean((sizes <= found.size) & (spans <= found.timeout))
    assert whole >= 0.94
    assert "tolerance 0.05" in repr(found)
    x = np.arange(1, 31)
    share = EQ4.cdf(x - 0.5) - EQ4.cdf(x - 1.5)
    assert choose_window((x, share), EQ5, 0.05) == (17, 22.0)


def test_any_kind_of_table_and_time(trace, fit):
    table = trace.table()
    frame = table.to_pandas()
    frame["ts"] = pd.to_datetime(frame.pop("event_ts"), unit="us", utc=True)
    by_pandas = ab.fit_windows(frame, key=KEY)
    seconds = table.append_column("at", pa.array(trace.event_ts / 1e6))
    by_seconds = ab.fit_windows(seconds, key=KEY, time="at")
    for other in (by_pandas, by_seconds):
        assert (other.size, other.instances) == (fit.size, fit.instances)
        assert other.timeout == pytest.approx(fit.timeout, rel=1e-4)


def test_rows_without_a_key_are_counted(trace):
    table = trace.table()
    clients = table["client"].to_pylist()
    clients[:7] = [None] * 7
    torn = table.set_column(table.column_names.index("client"), "client", pa.array(clients))
    assert ab.fit_windows(torn).rejected == 7


def test_what_is_no_number_is_missing():
    """In keys, times and truth values alike, and however the table was made."""
    nan = math.nan
    table = pa.table(
        {
            "k": [1.0, 1.0, nan, 2.0, 2.0, 3.0],
            "ts": [1.0, 2.0, 3.0, 4.0, nan, math.inf],
            "ok": [0.0, nan, 1.0, 1.0, 1.0, None],
        }
    )
    for sample in (table, table.to_pandas(), table.to_batches()[0]):
        found = read_instances(sample, "k", "ts", "ok", 0.0)
        assert found.rejected == 3
        assert found.sizes.tolist() == [2, 1] and found.complete.tolist() == [False, True]


def test_the_end_of_the_sample_does_not_shorten_durations():
    """The last seconds hold instances that have only begun; those are left out."""
    trace = generate_trace(seed=3, instances=4_000, kinds=3_500, **LITERAL)
    table = trace.table()
    end = trace.event_ts[0] + 35_000_000
    cut = table.filter(pa.array(trace.event_ts < end))
    careful = ab.fit_windows(cut, settle=20.0)
    careless = ab.fit_windows(cut, settle=0.0)
    truth = float(EQ5.ppf(0.95))
    assert careless.timeout < truth < careless.timeout * 1.5
    assert abs(careful.timeout - truth) < abs(careless.timeout - truth)
    assert careful.unsettled > 0 == careless.unsettled


def test_assembled_windows_are_put_together_again(trace, fit):
    """Second windows and revisions belong to one instance; the window that cut them is no bound."""
    rows = play_windows(trace, 8, 6.0)
    parts: dict[int, int] = {}
    table = []
    for key, _, closed, reason, tuples in sorted(rows, key=lambda row: row[1]):
        times = trace.event_ts[tuples]
        seq = parts[key] = parts.get(key, -1) + 1
        row = {"kind": key, "seq": seq, "reason": reason, "closed": closed}
        whole = {"count": len(tuples), "first_ts": times.min(), "last_ts": times.max()}
        if len(tuples) > 3:  # told once with the first three, then revised
            table.append(
                row | {"count": 3, "first_ts": times[:3].min(), "last_ts": times[:3].max()}
            )
        table.append(row | whole)
    again = ab.fit_windows(pa.Table.from_pylist(table), settle=0.0)
    direct = ab.fit_windows(trace.table(), settle=0.0)
    assert (again.size, again.events) == (direct.size, direct.events)
    assert again.timeout == pytest.approx(direct.timeout, rel=1e-9)


def test_numbers_of_windows_begin_again_once_a_key_is_forgotten():
    """Both windows are number 0; neither is a revision of the other."""
    second = 1_000_000
    table = [
        {"kind": kind, "seq": 0, "opened": t, "count": n, "first_ts": t, "last_ts": t + second}
        for kind in range(20)
        for t, n in ((0, 3), (0, 4), (900 * second, 5))  # a window, its revision, another window
    ]
    found = ab.fit_windows(pa.Table.from_pylist(table), settle=0.0)
    assert found.events == 20 * (4 + 5)


@pytest.mark.parametrize("far", [1e300, -1e108, 2**62, -(2**63)])
def test_a_time_that_no_query_may_hold_is_none(far):
    """More than 73,000 years from 1970, in seconds or in microseconds."""
    whole = isinstance(far, int)
    times = [int(1e6 * n) if whole else float(n) for n in range(30)]
    table = pd.DataFrame({"kind": np.repeat(np.arange(10), 3), "ts": times})
    more = pd.concat([table, pd.DataFrame({"kind": [3, 99], "ts": [far, far]})])
    fit, found = ab.fit_windows(table), ab.fit_windows(more)
    assert (found.size, found.timeout, found.instances) == (fit.size, fit.timeout, 10)
    assert found.rejected == 2


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_timestamp_that_no_query_may_hold_is_none(unit):
    """Before, one of seconds or milliseconds overflowed to a time that nobody had put there."""
    kind, per = pa.timestamp(unit), {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    far = [3 * 10**12 * per, -3 * 10**12 * per] if unit != "ns" else [None, None]
    times = pa.array([n * per for n in range(30)] + far, kind)
    table = pa.table({"kind": [*np.repeat(np.arange(10), 3), 3, 99], "ts": times})
    found, fit = ab.fit_windows(table), ab.fit_windows(table[:30])
    assert (found.size, found.timeout, found.instances) == (fit.size, fit.timeout, 10)
    assert found.rejected == 2


def test_a_time_that_int64_does_not_hold_is_none():
    times = pa.array([*(10**6 * n for n in range(30)), 2**63 + 5], pa.uint64())
    found = ab.fit_windows(pa.table({"kind": [*np.repeat(np.arange(10), 3), 3], "ts": times}))
    assert (found.instances, found.rejected) == (10, 1)


def test_what_is_complete_is_said_in_several_ways():
    table = pd.DataFrame(
        {"kind": np.repeat(np.arange(100), 3), "ts": np.arange(300) * 2.0, "n": np.arange(300)}
    )
    cut = {
        form: ab.fit_windows(table, complete=form).incomplete
        for form in ("n >= 30", lambda sample: sample["n"] >= 30, True)
    }
    assert sorted(cut.values()) == [0, 10, 10]
    arrow = pa.Table.from_pandas(table)
    for form in (
        "n >= 30",
        "NOT (n < 30) AND n <> -1",
        table["n"] >= 30,
        pc.greater_equal(arrow["n"], 30),
    ):
        for sample in (table, arrow):
            assert ab.fit_windows(sample, complete=form).incomplete == 10
    with pytest.raises(ab.errors.InvalidCall, match="none of the 100 instances is complete"):
        ab.fit_windows(table, complete=False)
    for wrong, says in (
        ("m >= 3", "'m >= 3' fails"),
        (lambda sample: "x" * 3, "fails"),
        ({}, "complete must be a column, text"),
    ):
        with pytest.raises(ab.errors.InvalidCall, match=says):
            ab.fit_windows(table, complete=wrong)


@pytest.mark.parametrize("of", [lambda frame: frame, pa.Table.from_pandas])
def test_one_event_with_an_end_marker_makes_an_instance_complete(of):
    """Instances of three events, of which one in ten lacks the last."""
    number, event = np.repeat(np.arange(600), 3), np.tile(np.arange(3), 600)
    frame = pd.DataFrame({"kind": number, "ts": number * 10.0 + event, "last": event == 2})
    frame = of(frame[(number % 10 > 0) | (event < 2)])
    fit = ab.fit_windows(frame, complete="last")
    assert (fit.size, fit.incomplete, fit.instances) == (3, 60, 600)
    with pytest.raises(
        ab.errors.InvalidCall, match="none of the 600 instances is complete"
    ) as error:
        ab.fit_windows(frame, complete="ts < 0")
    assert "fit_windows cannot start" in str(error.value) and "end marker" in str(error.value)


def test_all_rows_of_an_assembled_instance_must_be_complete():
    """Two windows of a key are parts of one instance; the second was evicted."""
    rows = {
        "kind": [1, 1, 2],
        "seq": [0, 1, 0],
        "count": [2, 3, 4],
        "reason": ["end", "evicted", "end"],
    }
    times = {"opened": [1, 9, 2], "first_ts": [1, 9, 2], "last_ts": [4, 12, 9]}
    found = read_instances(pa.table(rows | times), None, None, None, 0.0)
    assert sorted(zip(found.sizes, found.complete, strict=True)) == [(4, True), (5, False)]


def test_incomplete_instances_bound_from_below():
    """Half of the instances are cut after 5 seconds and say so."""
    trace = generate_trace(seed=6, instances=2_500, kinds=2_000)
    started = {
        t: e for t, e, s in zip(trace.truth, trace.event_ts, trace.service, strict=True) if s == 0
    }
    begun = np.array([started[t] for t in trace.truth])
    cut = trace.truth % 2 == 0
    seen = ~cut | (trace.event_ts - begun < 5_000_000)
    lost = np.bincount(trace.truth, ~seen) > 0
    table = (
        trace.table().append_column("whole", pa.array(~lost[trace.truth])).filter(pa.array(seen))
    )
    told = ab.fit_windows(table, complete="whole")
    untold = ab.fit_windows(table)
    truth = ab.fit_windows(trace.table())
    assert told.incomplete > 400
    assert abs(told.timeout - truth.timeout) < abs(untold.timeout - truth.timeout)
    assert told.timeout == pytest.approx(truth.timeout, rel=0.12)
    assert told.size >= truth.size


def test_single_events_last_no_time():
    rng = np.random.default_rng(4)
    keys = np.concatenate([np.arange(3000), np.repeat(np.arange(3000, 6000), 2)])
    times = np.concatenate([rng.integers(0, 10**9, 3000), rng.integers(0, 10**9, 3000).repeat(2)])
    times[3001::2] += (rng.gamma(2, 1e6, 3000)).astype(int)
    found = ab.fit_windows(pa.table({"k": keys, "ts": times}), key="k")
    assert found.duration_fit.share == pytest.approx(0.5, abs=0.02)
    assert found.timeout == pytest.approx(float(Erlang(2, 1.0).ppf(0.9)), rel=0.06)
    # Zeros that the fit has are no gap between it and the sample.
    assert found.table()[1]["distance"] < 0.03 and not any("poorly" in n for n in found.notes)
    alone = ab.fit_windows(pa.table({"k": [1, 2, 3], "ts": [1, 2, 3]}), key="k")
    assert (alone.size, alone.timeout) == (1, 1e-3)
    assert any("only" in note for note in alone.notes)


TIMES = st.one_of(
    st.integers(0, 3),
    st.integers(0, 10**9),
    st.sampled_from([0, 5_000_000, 5_000_001, 10**12]),
)


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), TIMES, st.booleans()), min_size=1, max_size=40),
    st.sampled_from([{}, {"complete": "whole"}, {"tolerance": 0.1}]),
)
@pytest.mark.filterwarnings("error")
def test_any_sample_gives_windows_that_work(rows, options):
    """However few, equal or far apart the times are."""
    key, times, whole = zip(*rows, strict=True)
    table = pa.table({"k": key, "ts": times, "whole": [*whole[:-1], True]})
    found = ab.fit_windows(table, key="k", **options)
    assert found.size >= 1 and 0 < found.timeout < math.inf
    told = ab.estimate_state(3.0, windows=found)
    assert 0 <= told.windows <= told.peak < math.inf
    assert repr(found) and repr(told)


def test_it_reads_well(fit, tmp_path):
    text = repr(fit)
    assert text.startswith(f"close at {fit.size} events or after")
    assert "size      HyperErlang(" in text and max(len(line) for line in text.splitlines()) < 100
    assert [row["what"] for row in fit.table()] == ["size", "duration"]
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    fit.plot(tmp_path / "fit.png")
    assert (tmp_path / "fit.png").stat().st_size > 10_000


def test_wrong_calls_say_what_there_is():
    table = pa.table({"a": [1], "b": [2]})
    with pytest.raises(InvalidCall, match="the sample has a, b") as caught:
        ab.fit_windows(table)
    assert len(caught.value.problems) == 2
    with pytest.raises(InvalidCall, match="no column 'c'"):
        ab.fit_windows(table, key="c", time="a")
    with pytest.raises(InvalidCall, match="got list"):
        ab.fit_windows([1, 2])
    with pytest.raises(InvalidCall, match="cover must be"):
        ab.fit_windows(table, cover=2)
    with pytest.raises(InvalidCall, match="string"):
        ab.fit_windows(pa.table({"k": [1], "ts": ["x"]}), key="k")
    with pytest.raises(InvalidCall, match="no usable event"):
        ab.fit_windows(pa.table({"k": pa.nulls(3, pa.int64()), "ts": [1, 2, 3]}), key="k")


# Prediction


def test_prediction_of_a_fit_is_what_is_then_observed(trace, fit):
    told = ab.estimate_state(windows=fit)
    same = ab.estimate_state(close=fit)
    assert (same.rate, same.windows) == (told.rate, pytest.approx(told.windows, rel=0.01))
    assert (fit.closing.expects, fit.closing.proves) == (fit.size, 0)
    with pytest.raises(
        InvalidCall, match=r"write '14\.8939 seconds'; what ab.fit_windows .* close=fit"
    ):
        ab.close.count(fit.size, fit.timeout)
    rows = play_windows(trace, fit.size, fit.timeout)
    opened, closed = (np.array([row[at] for row in rows]) for at in (1, 2))
    begun = trace.event_ts[trace.service == 0]
    low, high = int(begun[0]) + 20_000_000, int(begun[-1])
    inside = (np.clip(closed, low, high) - np.clip(opened, low, high)).sum() / (high - low)
    assert told.windows == pytest.approx(inside, rel=0.05)
    assert told.closes_after == pytest.approx((closed - opened).mean() / 1e6, rel=0.03)
    assert str(told).startswith("at 10") and "windows" in str(told) and "MB" in str(told)
    looks = np.linspace(low, high, 500)
    most = max(int(((opened <= at) & (closed > at)).sum()) for at in looks)
    assert told.windows < most < told.peak * 1.05


def test_lateness_and_triggers_hold_windows_longer(fit):
    plain, late = (
        ab.estimate_state(windows=fit),
        ab.estimate_state(windows=fit, watermark="10 seconds"),
    )
    assert late.windows - plain.windows == pytest.approx(plain.rate * (1 + plain.array.later) * 10)
    assert late.row_after == pytest.approx(plain.row_after + 10)
    assert ab.estimate_state(windows=fit, trigger="4 seconds").row_after == pytest.approx(
        plain.row_after + 2
    )


def test_rates_may_be_of_events():
    span = HyperErlang([1.0], [2], [1.0])
    by_rate = ab.estimate_state(10.0, size=3, timeout=5, sizes=[1, 2, 3, 6], duration=span)
    by_calls = ab.estimate_state(
        events=30.0, size=3, timeout="5 seconds", sizes=[1, 2, 3, 6], duration=span
    )
    assert by_rate.windows == pytest.approx(by_calls.windows)


def test_the_policy_may_be_given_as_it_is_assembled(fit):
    by_policy = ab.estimate_state(windows=fit, close=ab.close.count(9, "7 seconds"))
    assert by_policy == ab.estimate_state(windows=fit, size=9, timeout=7.0)
    with pytest.raises(InvalidCall, match=r"close\.count"):
        ab.estimate_state(windows=fit, close=ab.close.gap("8 seconds"))
    with pytest.raises(InvalidCall, match="leave those out"):
        ab.estimate_state(windows=fit, size=3, close=ab.close.count(9, "7 seconds"))


def test_predictions_refuse_what_is_missing():
    with pytest.raises(InvalidCall) as caught:
        ab.estimate_state()
    assert len(caught.value.problems) == 5
    with pytest.raises(InvalidCall, match="both given"):
        ab.estimate_state(1.0, events=2.0, size=1, timeout=1, sizes=[1], duration=EQ5)
    with pytest.raises(InvalidCall, match="not a duration"):
        ab.estimate_state(1.0, size=1, timeout="soon", sizes=[1], duration=EQ5)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"rate": "10"}, "rate must be a finite number above 0, got '10'"),
        ({"rate": -1.0}, "rate must be a finite number above 0, got -1.0"),
        ({"events": 10.0, "sizes": ([0], [1.0])}, "at least 1 event, got 0"),
        ({"events": "10"}, "events must be a finite number above 0, got '10'"),
        ({"rate": 1.0, "sizes": ([1, 2], [1.0])}, "sizes must be a list of counts"),
        ({"rate": 1.0, "sizes": "many"}, "sizes must be a list of counts"),
        (
            {"rate": 1.0, "watermark": "-60 seconds"},
            "watermark must not be negative, got '-60 seconds'",
        ),
        ({"rate": 1.0, "trigger": "-1 second"}, "trigger must not be negative, got '-1 second'"),
    ],
)
def test_predictions_refuse_what_makes_no_sense(wrong, message):
    with pytest.raises(InvalidCall, match=message):
        ab.estimate_state(**{"size": 3, "timeout": 5.0, "sizes": [2], "duration": EQ5, **wrong})


def test_what_is_advised_for_complete_is_possible():
    """Events have no count; rows of ab.assemble have one."""
    events = pd.DataFrame({"kind": ["a", "a"], "ts": [0.0, 1.0], "status": ["open", "done"]})
    rows = pd.DataFrame({"kind": ["a"], "first_ts": [0.0], "last_ts": [1.0], "count": [3]})
    for sample, wrong in ((events, "count >= 1"), (rows, "size >= 1")):
        with pytest.raises(InvalidCall) as refused:
            ab.fit_windows(sample, complete=wrong)
        advised = re.search(r"text such as (\"[^\"]*\"|'[^']*')", str(refused.value))
        assert advised is not None
        assert ab.fit_windows(sample, complete=advised[1][1:-1]).instances == 1


def test_two_observed_sizes_are_a_list():
    told = ab.estimate_state(10.0, size=3, timeout=5.0, sizes=(3, 4), duration=EQ5)
    assert told == ab.estimate_state(10.0, size=3, timeout=5.0, sizes=[3, 4], duration=EQ5)


def test_watch_shows_it_beside_the_observation(fit):
    from anabranch.flow.load import Load
    from tests.spark.test_watch_and_demo import ScriptedQuery, plain, progress

    query = ScriptedQuery()
    query.recentProgress = [
        progress(0, [Load(worker=0, rows_left=5, state_rows=100, state_bytes=2_000_000)])
    ]
    query.isActive = False
    console = plain()
    ab.watch(query, console=console, prediction=ab.estimate_state(windows=fit))
    shown = console.file.getvalue()
    assert "predicted" in shown and "observed 100" in shown
    with pytest.raises(InvalidCall, match=r"ab\.estimate_state"):
        ab.watch(query, prediction=17)


def test_watch_shows_an_assembly(fit):
    from anabranch.flow.load import AssembleLoad
    from tests.spark.test_watch_and_demo import ScriptedQuery, plain, progress

    query = ScriptedQuery()
    query.isActive = False
    for batch in (0, 1):
        report = progress(batch, [])
        loads = [
            AssembleLoad(worker, rows=50, instances=4, timeouts=3, open_windows=600, state_rows=900)
            for worker in (0, 1)
        ]
        report.observedMetrics = {"anabranch_assemble_1": {"load": [x.to_json() for x in loads]}}
        query.recentProgress.append(report)
    for options in ({}, {"force_terminal": True}):
        console = plain(**options)
        ab.watch(query, console=console, prediction=ab.estimate_state(windows=fit))
        shown = console.file.getvalue()
        assert "2 batches: 200 events, 16 instances (12 by timeout)" in shown
        assert "open windows, observed 1.2k" in shown
        assert "1.2k windows open" in shown or options


def test_the_page_prints_what_it_shows(capsys):
    page = (Path(__file__).parents[2] / "docs" / "fitting.md").read_text()
    example, fitted = re.findall(r"```(?:python)?\n(.*?)```", page, re.DOTALL)[:2]
    names: dict = {}
    exec(example, names)
    assert capsys.readouterr().out == fitted
    assert f"\n{ab.estimate_state(windows=names['fit'])}\n" in page
