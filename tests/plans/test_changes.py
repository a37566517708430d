"""Plans change while rows flow, several times inside a window: each pair still comes once.

::

    batch      0    1    2    3    4    5    6         a request at batch b takes effect `lead`
    left    --a----b---------c----d------------        batches later; either router may see the
    right   ----x------y----------z------------        log a batch late; the controller retires
    plan       0    0    1    1    2    2    2         what no row can meet any more
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.correlation import kernel
from anabranch.errors import StateMismatch
from anabranch.plans import routing
from anabranch.plans.controller import Controller, Report
from anabranch.plans.hashed import keyed
from anabranch.plans.log import Entry, live_at
from anabranch.plans.plan import Plan
from anabranch.plans.routing import LivePlans
from anabranch.plans.segments import Segments
from anabranch.testing import InProcess
from tests.correlation import twin
from tests.correlation.test_laws import SCHEMA, cosine, found, micros, once, streams, table, windows
from tests.examples import examples

EXAMPLES = examples(200)


@st.composite
def any_plan(draw: st.DrawFn, with_key: bool = False) -> Plan:
    kind = draw(st.sampled_from(["broadcast", "segments", "grid"] + ["keyed"] * with_key))
    k, side = draw(st.integers(1, 5)), draw(st.sampled_from(["left", "right"]))
    shares = (
        tuple(float(draw(st.integers(1, 4))) for _ in range(k)) if draw(st.booleans()) else None
    )
    if kind == "broadcast":
        return ab.broadcast(k, side, weights=shares)
    if kind == "segments":
        return Segments(k, draw(st.integers(500, 60_000)), side, weights=shares)
    return keyed(k, weights=shares) if kind == "keyed" else ab.grid(k, draw(st.integers(1, 3)))


@dataclass
class Script:
    """When which plan is asked for, how far ahead entries are written, how late routers look."""

    start: Plan
    requests: dict[int, Plan]
    lead: int = 1
    lags: tuple[int, int] = (0, 0)


@st.composite
def scripts(draw: st.DrawFn, with_key: bool = False) -> Script:
    plans = any_plan(with_key)
    asked = draw(st.dictionaries(st.integers(0, 8), plans, min_size=1, max_size=6))
    lags = draw(st.tuples(st.integers(0, 1), st.integers(0, 1)))
    return Script(draw(plans), asked, draw(st.integers(1, 3)), lags)


@dataclass
class Changing:
    """A correlation in one process whose plans follow a script."""

    script: Script
    call: dict[str, Any]
    retire_early: bool = False
    process: InProcess = field(init=False)
    entries: list[Entry] = field(init=False)
    most_live: int = 1

    def __post_init__(self) -> None:
        self.process = InProcess(
            SCHEMA, SCHEMA, streaming=True, plan=self.script.start, **self.call
        )
        self.entries = [Entry(0, 0, self.script.start, 0, (0,), {"rule": "start"})]

    def run(self, batches: list[twin.Batch]) -> Changing:
        spec = self.process.correlation
        controller = Controller(self.entries, spec.window, spec.delay or 0)
        for number, (left, right) in enumerate(batches):
            watermark = self.process.watermark
            live = (self.live(number, 0), self.live(number, 1))
            self.most_live = max(self.most_live, *(len(found.plans) for found in live))
            loads = self.process.step(table(list(left)), table(list(right)), live)
            asked = self.script.requests.get(number)
            requests = [(asked, "script")] if asked is not None else []
            change = controller.handle(Report(number, 1.0, watermark, tuple(loads)), requests)
            if change is not None:
                entry = change.entry(number + self.script.lead)
                if self.retire_early:
                    entry = Entry(**{**entry.__dict__, "live": (entry.epoch,)})
                self.entries.append(entry)
                controller.written(entry)
        return self

    def live(self, batch: int, side: int) -> LivePlans:
        live = live_at(self.entries, max(batch - self.script.lags[side], 0))
        assert live is not None
        return live


def truth(
    batches: list[twin.Batch], window: tuple[int, int], late: int, score=cosine
) -> twin.Pairs:
    return twin.pairs_in_time(batches, window, score, late)


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(streams(), scripts(), windows, st.integers(0, 40))
def test_each_pair_comes_once_whatever_plans_follow_each_other(batches, script, window, late):
    call = {"where": ab.cosine("v") >= 0.5, "window": window, "watermark": f"{late} ms"}
    changing = Changing(script, call).run(batches)
    assert found(changing.process) == once(truth(batches, micros(window), late * 1000))


@settings(max_examples=EXAMPLES // 10, suppress_health_check=[HealthCheck.too_slow])
@given(streams(), scripts(with_key=True), windows, st.integers(0, 40))
def test_with_an_equality_the_keyed_plan_may_come_and_go(batches, script, window, late):
    def same_key(a: twin.Row, b: twin.Row) -> float | None:
        return 1.0 if a["k"] == b["k"] else None

    call = {"where": ab.same("k"), "window": window, "watermark": f"{late} ms"}
    changing = Changing(script, call).run(batches)
    assert found(changing.process) == once(truth(batches, micros(window), late * 1000, same_key))


def busy_batches(seed: int, batches: int = 30) -> list[twin.Batch]:
    """Rows of both sides in every batch, 10 ms apart in time, some out of order."""
    random = np.random.default_rng(seed)
    made, ids = [], 0
    for number in range(batches):
        sides: tuple[list, list] = ([], [])
        for side in sides:
            for _ in range(6):
                t = 1_700_000_000_000_000 + number * 10_000 + int(random.integers(-8000, 10_000))
                v = random.integers(-2, 3, 3)
                v[0] = 1 if not v.any() else v[0]
                side.append({"id": ids, "t": t, "v": v.tolist(), "x": 0, "k": "a"})
                ids += 1
        made.append(sides)
    return made


SWITCHES = {
    2: ab.broadcast(3, "left"),
    4: Segments(4, 15_000),
    5: ab.grid(2, 3),
    8: Segments(2, 7_000, "left"),
    12: ab.broadcast(5, weights=[1, 2, 3, 4, 5]),
    13: ab.broadcast(1),
    20: ab.grid(3, 1),
}
CALL = {"where": ab.cosine("v") >= 0.5, "window": ("50 ms", "30 ms"), "watermark": "20 ms"}


def expected(batches: list[twin.Batch]) -> twin.Pairs:
    return truth(batches, (50_000, 30_000), 20_000)


def test_many_switches_inside_a_window_and_every_plan_is_retired_in_the_end():
    batches = busy_batches(1)
    changing = Changing(Script(ab.grid(2, 2), SWITCHES), CALL).run(batches)
    assert found(changing.process) == once(expected(batches))
    assert len(expected(batches)) > 300
    assert changing.most_live >= 3
    assert changing.entries[-1].epoch == len(SWITCHES)
    assert len(changing.entries[-1].live) == 1


class TestMutations:
    """The rule with one thing wrong loses or doubles pairs, and these tests would see it."""

    def run(self, **kwargs: Any) -> tuple[Any, Any]:
        batches = busy_batches(2)
        changing = Changing(Script(ab.grid(2, 2), SWITCHES), CALL, **kwargs).run(batches)
        return found(changing.process), once(expected(batches))

    def test_the_rule_itself_is_right(self):
        got, due = self.run()
        assert got == due

    def test_a_dropped_mask_bit(self, monkeypatch: pytest.MonkeyPatch):
        real = routing._merge

        def forgetful(k, offsets, workers, masks, more_offsets, more_workers, bits):
            merged = real(k, offsets, workers, masks, more_offsets, more_workers, bits)
            both = int(bits.max(initial=0)) | 1
            return merged[0], merged[1], np.where(merged[2] == both, 1, merged[2])

        monkeypatch.setattr(routing, "_merge", forgetful)
        got, due = self.run()
        assert got != due

    def test_ownership_by_the_newer_plan(self, monkeypatch: pytest.MonkeyPatch):
        """Masks shifted as if each pair belonged to the newer epoch of its two rows."""
        real = kernel.CorrelateKernel._take_in

        def newest_only(self, side, arrivals, limit):
            for block in arrivals:
                block.mask = block.mask & 1
            return real(self, side, arrivals, limit)

        monkeypatch.setattr(kernel.CorrelateKernel, "_take_in", newest_only)
        got, due = self.run()
        assert got != due

    def test_an_open_window_end(self, monkeypatch: pytest.MonkeyPatch):
        real = kernel.Pair

        def open_end(left, right, window):
            return real(left, right, (window[0] - 1, window[1] - 1))

        monkeypatch.setattr(kernel, "Pair", open_end)
        rows = [{"id": 1, "t": 1_700_000_000_000_000, "v": [1, 0, 0], "x": 0, "k": "a"}]
        later = [{**rows[0], "id": 2, "t": rows[0]["t"] + 50_000}]
        changing = Changing(Script(ab.grid(2, 2), {}), CALL).run([(rows, later)])
        assert found(changing.process) != once(expected([(rows, later)]))

    def test_early_retirement_stops_the_query(self):
        with pytest.raises(StateMismatch, match="not routed under a common plan"):
            self.run(retire_early=True)

    def test_early_retirement_would_lose_pairs(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(kernel.PlanMemory, "observe", lambda self, meta: None)
        got, due = self.run(retire_early=True)
        assert sum((due - got).values()) > 0

    def test_evicting_what_may_still_match(self, monkeypatch: pytest.MonkeyPatch):
        real = kernel.CorrelateKernel._take_in

        def evict_early(self, side, arrivals, watermark):
            self.slices.expire(watermark + 40_000)
            return real(self, side, arrivals, watermark)

        monkeypatch.setattr(kernel.CorrelateKernel, "_take_in", evict_early)
        got, due = self.run()
        assert got != due


class Held(InProcess):
    """A correlation whose watermark another stream of the query holds back."""

    held = 0

    @property
    def watermark(self) -> int:
        return self.held


def test_a_plan_is_not_retired_while_another_stream_holds_the_watermark_back():
    """Newest row less `late` is not the watermark then; only worker 0 knows of every row."""
    second, base = 1_000_000, 1_700_000_000_000_000
    start = Segments(4, 20 * second)
    call = {"where": ab.same("k"), "window": "9 seconds", "watermark": "1 second", "plan": start}
    process = Held(SCHEMA, SCHEMA, streaming=True, **call)
    entries = [Entry(0, 0, start, 0, (0,), {"rule": "start"})]
    controller = Controller(entries, process.correlation.window, second)
    # Watermark, times of left and right rows; a grid is asked for in the first batch.
    script = [
        (20, [30, 30.5], [30.2]),
        (20, [31], [30.5]),
        (20, [90, 91], [90]),  # these rows run ahead of the watermark
        *[(20, [], [])] * 2,
        (41, [], []),  # it catches up, and only a timer runs
        *[(42, [], [])] * 2,
        (43, [92], [92]),
    ]
    watermark = ids = 0
    made: list[twin.Batch] = []
    for number, (held, left, right) in enumerate(script):
        process.held = base + held * second
        sides: tuple[list, list] = ([], [])
        for side, times in zip(sides, (left, right), strict=True):
            for t in times:
                row = {"id": ids, "t": base + int(t * second), "v": [1, 0, 0], "x": 0, "k": "a"}
                side.append(row)
                ids += 1
        made.append(sides)
        routers = (live_at(entries, number),) * 2
        loads = process.step(table(sides[0]), table(sides[1]), routers)
        watermark = max([watermark, *(load.watermark for load in loads)])
        asked = [(ab.grid(2, 2), "by hand")] if number == 0 else []
        change = controller.handle(Report(number, 1.0, watermark, tuple(loads)), asked)
        if change is not None:
            entries.append(change.entry(number + 3))
            controller.written(entries[-1])
    every = [(a, b) for lefts, _ in made for a in lefts for _, rights in made for b in rights]
    near = [(a["id"], b["id"]) for a, b in every if abs(a["t"] - b["t"]) <= 9 * second]
    assert found(process) == dict.fromkeys(near, 1)
