"""Ranges of keys: the law of plans, cuts that even out the load, and joins under moving cuts.

::

    key    low |--|--|--|--|##|--|--|--| high      a left row (o) has one worker; a right row (=)
    worker      0  0  0  1 1+2 2  2  2             goes to every worker within reach of its key
    left              o                            ## is a hot range: its left rows are dealt to
    right          ======                          several workers, its right rows go to all
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.plans.controller import Controller, Report
from anabranch.plans.log import Entry, live_at
from anabranch.plans.plan import Plan, Rows, plan_from_dict
from anabranch.plans.ranges import Ranges, balance, even_cuts, imbalance
from anabranch.testing import InProcess, check_plan
from tests.correlation import twin
from tests.examples import examples

BINS = 12
SCHEMA = pa.schema({"id": pa.int64(), "ts": pa.timestamp("us", "UTC"), "h": pa.list_(pa.float32())})
BASE = 1_700_000_000_000_000


@st.composite
def cut_plans(draw: st.DrawFn, count: int | None = None, ranges: int | None = None) -> Ranges:
    """Any cuts, empty runs included, and any hot ranges."""
    k = count or draw(st.integers(1, 6))
    u = ranges or draw(st.integers(k, 30))
    cuts = tuple(sorted(draw(st.lists(st.integers(0, u), min_size=k - 1, max_size=k - 1))))
    hot_ranges = draw(st.lists(st.integers(0, u - 1), unique=True, max_size=3))
    hot = []
    for part in sorted(hot_ranges):
        several = draw(st.lists(st.integers(0, k - 1), min_size=1, max_size=3 * k))
        hot.append((part, tuple(sorted(several))))
    return Ranges(k, u, cuts=cuts, hot=tuple(hot))


@settings(max_examples=examples(75))
@given(cut_plans(), st.floats(0, 3), st.floats(-5, 5), st.floats(0, 20), st.integers(0, 1000))
def test_any_cuts_and_hot_ranges_obey_the_law(plan, reach, low, width, seed):
    check_plan(replace(plan, low=low, high=low + width, reach=reach), rows=60, seed=seed)


def test_the_law_would_notice_a_wrong_reach():
    class Short(Ranges):
        def route(self, side, rows, window):
            if side == 1:
                rows = rows._replace(value=np.round(rows.value))
            return super().route(side, rows, window)

    plan = Short(4, 16, 0.0, 10.0, 1.0)
    with pytest.raises(AssertionError, match="do not meet exactly once"):
        check_plan(plan)


loads = st.lists(st.one_of(st.just(0.0), st.floats(0, 1e6)), min_size=1, max_size=80)


@given(loads, st.integers(1, 9), st.data())
def test_cuts_rise_and_cover_and_hot_ranges_have_workers(load, workers, data):
    waiting = data.draw(
        st.one_of(st.none(), st.lists(st.floats(0, 1e6), min_size=workers, max_size=workers))
    )
    cuts, hot = balance(np.array(load), workers, None if waiting is None else np.array(waiting))
    assert len(cuts) == workers - 1
    assert list(cuts) == sorted(cuts)
    assert all(0 <= cut <= len(load) for cut in cuts)
    assert all(0 <= part < len(load) for part, _ in hot)
    for _, several in hot:
        assert 2 <= len(set(several)) <= workers and list(several) == sorted(several)
        assert set(several) <= set(range(workers))
    plan = Ranges(workers, len(load), cuts=cuts, hot=hot)
    assert plan.shares(np.array(load)).sum() == pytest.approx(sum(load))


def literal(load: np.ndarray, workers: int) -> tuple[int, ...]:
    """Algorithm 2 of the paper as printed, its inner loop starting over for every worker."""
    mean = load.sum() / workers
    hot = set(np.flatnonzero(load > mean).tolist())
    cuts = []
    for _ in range(workers - 1):
        left, last = mean, len(load)
        for part in range(len(load)):
            if part not in hot:
                left -= load[part]
                if left <= 0:
                    last = part + 1
                    break
        cuts.append(last)
    return tuple(cuts)


def test_the_repaired_balance_is_balanced_where_the_printed_one_is_not():
    random = np.random.default_rng(0)
    ours, theirs = [], []
    for _ in range(50):
        load = random.pareto(1.2, 68) * 1000
        cuts, hot = balance(load, 5)
        ours.append(imbalance(Ranges(5, 68, cuts=cuts, hot=hot).shares(load)))
        theirs.append(imbalance(Ranges(5, 68, cuts=literal(load, 5)).shares(load)))
    assert np.mean(ours) < 0.12
    assert max(ours) < 0.25
    assert np.mean(theirs) > 1.5


def histograms(random: np.random.Generator, n: int, centre: float, width: float) -> np.ndarray:
    """Counts around a bin."""
    spread = random.normal(centre, width, (n, 20)).round().clip(0, BINS - 1).astype(int)
    return np.array([np.bincount(row, minlength=BINS) for row in spread], np.float32)


def distance(a: twin.Row, b: twin.Row) -> float:
    p, q = np.array(a["h"]), np.array(b["h"])
    return float(np.abs(p.cumsum() / p.sum() - q.cumsum() / q.sum()).sum())


def near(threshold: float) -> twin.Score:
    return twin.when(distance, lambda d: d <= threshold + 1e-8)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([row["id"] for row in rows], pa.int64()),
            "ts": pa.array([row["t"] for row in rows], SCHEMA.field("ts").type),
            "h": pa.array([row["h"] for row in rows], SCHEMA.field("h").type),
        }
    )


def drifting(seed: int, batches: int, rows: int = 8, unit: int = 10_000) -> list[twin.Batch]:
    """Streams whose mean wanders over the bins; rows arrive out of order."""
    random = np.random.default_rng(seed)
    made: list[twin.Batch] = []
    ids = 0
    for number in range(batches):
        centre = 5.5 + 5 * np.sin(number / 5)
        sides: tuple[list, list] = ([], [])
        for side in sides:
            for h in histograms(random, rows, centre, random.uniform(0.2, 3)):
                t = BASE + number * unit + int(random.integers(-8000, 10_000))
                side.append({"id": ids, "t": t, "h": h.tolist()})
                ids += 1
        made.append(sides)
    return made


def run(
    batches: list[twin.Batch], start: Plan, script: dict[int, Plan], call: dict[str, Any], lag: int
) -> InProcess:
    """A correlation whose plans follow a script; the right router reads the log `lag` late."""
    process = InProcess(SCHEMA, SCHEMA, streaming=True, plan=start, **call)
    spec = process.correlation
    entries = [Entry(0, 0, process.plan, 0, (0,), {"rule": "start"})]
    controller = Controller(entries, spec.window, spec.delay or 0)

    for number, (left, right) in enumerate(batches):
        watermark = process.watermark
        loads = process.step(
            table(list(left)),
            table(list(right)),
            (live_at(entries, number), live_at(entries, max(number - lag, 0))),
        )
        asked = [(spec.bound(script[number]), "script")] if number in script else []
        change = controller.handle(Report(number, 1.0, watermark, tuple(loads)), asked)
        if change is not None:
            entries.append(change.entry(number + 1))
            controller.written(entries[-1])
    return process


def found(process: InProcess) -> list[tuple[int, int]]:
    return sorted((pair["left_id"], pair["right_id"]) for pair in process.pairs)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 2**32),
    cut_plans(),
    st.dictionaries(
        st.integers(0, 8), st.one_of(cut_plans(), st.just(ab.grid(2, 2)), st.just(ab.broadcast(3)))
    ),
    st.sampled_from([0.0, 0.35, 1.05, 4.05]),
    st.integers(0, 60),
    st.integers(0, 1),
)
def test_each_pair_once_under_any_sequence_of_cuts(seed, start, script, threshold, window, lag):
    batches = drifting(seed, 10, rows=4)
    where = ab.emd("h", dim=BINS) <= threshold
    call = {"where": where, "window": f"{window} ms", "watermark": "20 ms"}
    process = run(batches, start, script, call, lag)
    expected = twin.pairs_in_time(batches, (window * 1000,) * 2, near(threshold), 20_000)
    assert found(process) == sorted(expected)


@pytest.mark.parametrize("ground", ["circle", "points"])
def test_ranges_of_other_grounds(ground):
    places = np.stack([np.arange(BINS) % 4, np.arange(BINS) // 4], axis=1)
    given_: dict[str, Any] = {"ground": places} if ground == "points" else {"ground": "circle"}
    where = ab.emd("h", **given_, dim=BINS) <= 0.6
    batches = drifting(3, 12)
    call = {"where": where, "window": "50 ms", "watermark": "20 ms"}
    plans = {2: Ranges(4, 16, cuts=(2, 5, 9), hot=((4, (0, 3)),)), 6: ab.ranges(2, count=5)}
    reference = run(batches, ab.broadcast(1), {}, call, 0)
    spread = run(batches, ab.ranges(4, count=16), plans, call, 1)
    assert found(spread) == found(reference)
    assert len(found(reference)) > 100


def test_rows_with_similar_keys_meet_with_few_copies():
    batches = drifting(1, 20)
    call = {"where": ab.emd("h", dim=BINS) <= 0.35, "window": "50 ms", "watermark": "20 ms"}
    process = run(batches, ab.ranges(4), {}, call, 0)
    rows = sum(len(left) + len(right) for left, right in batches)
    copies = sum(load.copies_left + load.copies_right for load in process.loads)
    assert copies < 1.3 * rows  # the squarest grid makes 2, broadcast 2.5


def test_the_controller_moves_cuts_with_the_load():
    """All histograms lie in a twentieth of the range: even cuts leave three workers idle."""
    random = np.random.default_rng(4)
    process = InProcess(
        SCHEMA,
        SCHEMA,
        streaming=True,
        plan=ab.ranges(4, count=200),
        where=ab.emd("h", dim=BINS) <= 0.2,
        window="30 ms",
        watermark="0 ms",
    )
    entries = [Entry(0, 0, process.plan, 0, (0,), {"rule": "start"})]
    settings_ = ab.adaptive(4, start=process.plan)
    controller = Controller(entries, process.correlation.window, 0, settings_)
    batches: list[twin.Batch] = []
    ids, shares = 0, []
    for number in range(24):
        sides: tuple[list, list] = ([], [])
        for side in sides:
            for h in histograms(random, 25, 2.0, 1.0):
                t = BASE + number * 10_000 + int(random.integers(0, 10_000))
                side.append({"id": ids, "t": t, "h": h.tolist()})
                ids += 1
        batches.append(sides)
        watermark = process.watermark
        loads = process.step(table(sides[0]), table(sides[1]), (live_at(entries, number),) * 2)
        shares.append([sum(load.ranges) for load in loads])
        change = controller.handle(Report(number, 1.0, watermark, tuple(loads)))
        if change is not None:
            entries.append(change.entry(number + 2))
            controller.written(entries[-1])
    moved = [entry for entry in entries if entry.cause["rule"] == "ranges"]
    assert moved, "no cut was moved"
    assert moved[0].cause["figures"]["instead"] < moved[0].cause["figures"]["imbalance"] / 2
    first = np.array([np.pad(s, (0, 4 - len(s))) for s in shares[:6]]).sum(axis=0)
    last = np.array([np.pad(s, (0, 4 - len(s))) for s in shares[-4:]]).sum(axis=0)
    assert imbalance(first) > 1.5
    assert imbalance(last) < imbalance(first) / 2
    expected = twin.pairs_in_time(batches, (30_000, 30_000), near(0.2), 0)
    assert found(process) == sorted(expected)


def test_plans_survive_the_log():
    plan = Ranges(3, 10, 0.0, 5.0, 0.25, (3, 7), ((4, (0, 2)),))
    assert plan_from_dict(plan.to_dict()) == plan
    assert str(plan) == "ranges(3, count=10, hot 4)"
    assert str(replace(plan, cuts=(1, 2))) == "ranges(3, count=10, cuts 1 2, hot 4)"
    assert even_cuts(3, 10) == (3, 7)
    assert plan.fingerprint != replace(plan, hot=()).fingerprint


def resumed(process: InProcess, **call: Any) -> InProcess:
    """The state of one correlation under another call."""
    again = InProcess(SCHEMA, SCHEMA, window="1 second", streaming=True, **call)
    again.take_up(process)
    return again


def test_state_of_keys_of_another_column_is_refused():
    """Under the second call keys are those of the first term, whose bins are known by now."""
    row = [{"id": 1, "t": BASE, "h": [1.0] * BINS}]
    rest = ab.emd("h", ground="circle", dim=BINS) <= 1
    begun = InProcess(
        SCHEMA,
        SCHEMA,
        where=(ab.emd("h") <= 1) & rest,
        window="1 second",
        plan=ab.ranges(2),
        streaming=True,
    )
    begun.step(table(row), None)
    again = resumed(begun, where=(ab.emd("h", dim=BINS) <= 1) & rest, plan=ab.ranges(2))
    with pytest.raises(ab.errors.StateMismatch, match="compares the same columns"):
        again.step(None, table(row))
    wider = ab.emd("h", ground="circle", dim=BINS) <= 3
    raised = resumed(begun, where=(ab.emd("h") <= 1) & wider, plan=ab.ranges(2))
    raised.step(None, table(row))
    assert len(raised.pairs) == 1


WHERE = ab.emd("h", dim=BINS) <= 1


@pytest.mark.parametrize(
    ("where", "says"),
    [
        (ab.cosine("h") >= 0.5, "cuts the keys of an Earth Mover's Distance"),
        (ab.emd("h", dim=BINS) >= 1, "cuts the keys of an Earth Mover's Distance"),
        (ab.emd("h") <= 1, "with the number of bins"),
    ],
)
def test_ranges_need_keys(where, says):
    with pytest.raises(ab.errors.InvalidCall, match=says):
        InProcess(SCHEMA, SCHEMA, where=where, window="1 second", plan=ab.ranges(2))


@pytest.mark.parametrize("wrong", [0, -1, 1.5, None, "4", [4], True, float("nan"), 10**9])
def test_bad_ranges_are_refused(wrong):
    with pytest.raises(ab.errors.InvalidCall, match="workers must be a whole number of at"):
        ab.ranges(wrong)
    with pytest.raises(
        ab.errors.InvalidCall, match="count must be a whole number from 1 to 65,536, got"
    ):
        ab.ranges(2, count=wrong)
    with pytest.raises(ab.errors.InvalidCall, match="too few for 5 workers"):
        ab.ranges(5, count=3)


def test_ranges_without_keys_say_what_they_lack():
    with pytest.raises(ValueError, match=r"ranges\(4, count=64\) does not know its keys yet"):
        check_plan(ab.ranges(4))
    bound = ab.ranges(4).bind("s0", (0.0, 10.0), 1.0)
    check_plan(bound)
    with pytest.raises(ValueError, match="routes rows by value, and these have none"):
        bound.route(0, Rows(np.zeros(1), np.zeros(1, np.int64)), (0, 0))


@pytest.mark.parametrize("start", [ab.ranges(4, count=200), ab.grid(2, 2)])
def test_cuts_still_follow_the_load_after_a_change_by_hand(start):
    """Workers report the work by range of the plan in force, not of the one in the call."""
    random = np.random.default_rng(4)
    where = ab.emd("h", dim=BINS) <= 0.2
    process = InProcess(
        SCHEMA, SCHEMA, streaming=True, plan=start, where=where, window="30 ms", watermark="0 ms"
    )
    entries = [Entry(0, 0, process.plan, 0, (0,), {"rule": "start"})]
    adaptive = ab.adaptive(4, start=process.plan, policies=["ranges"])
    controller = Controller(entries, process.correlation.window, 0, adaptive)
    asked = process.correlation.bound(ab.ranges(4, count=128))
    for number in range(24):
        sides = [
            [
                {"id": number * 100 + n, "t": BASE + number * 10_000 + n * 300, "h": h.tolist()}
                for n, h in enumerate(histograms(random, 25, 2.0, 1.0))
            ]
            for _ in range(2)
        ]
        watermark = process.watermark
        loads = process.step(table(sides[0]), table(sides[1]), (live_at(entries, number),) * 2)
        requests = [(asked, "by hand")] if number == 0 else []
        change = controller.handle(Report(number, 1.0, watermark, tuple(loads)), requests)
        if change is not None:
            entries.append(change.entry(number + 2))
            controller.written(entries[-1])
    moved = [entry for entry in entries if entry.cause["rule"] == "ranges"]
    assert moved and {entry.plan.ranges for entry in moved} == {128}


def test_metrics_add_up():
    """Every joinable pair is cut by one filter, accepted by a bound, solved, or closed-form."""
    random = np.random.default_rng(6)
    rows = [
        [{"id": i, "t": BASE, "h": h.tolist()} for i, h in enumerate(histograms(random, 60, 5, 3))]
        for _ in range(2)
    ]
    places = np.stack([np.arange(BINS) % 4, np.arange(BINS) // 4], axis=1)
    where = ab.emd("h", ground=places) <= 0.4
    process = InProcess(SCHEMA, SCHEMA, where=where, window="1 ms", plan=ab.ranges(1))
    process.step(table(rows[0]), table(rows[1]))
    (load,) = process.loads
    decided = sum(load.pruned.values()) + load.accepted + load.solved
    assert load.comparisons == decided == 3600
    assert load.accepted + load.solved >= load.pairs > 0
    assert len(load.ranges) == 64 and sum(load.ranges) > 0
