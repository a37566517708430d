"""A switcher that adopts plans, holds views and asks for the price of each move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from tests.placement import twin
from tests.placement.test_proof import Case, cases, check, fewer, whole

LONG = 1e9


def costs(case: Case, at: dict[str, str]) -> float:
    readers = case.get("readers", {})
    rows = twin.with_readers(case["inputs"], readers)
    prices = case["upload_cost"], case["download_cost"], case.get("shared", True)
    return twin.cost(rows, case["sources"], {**at, **twin.reading(readers)}, *prices)


def drawn_rates(case: Case, data: st.DataObject) -> Case:
    return {**case, "inputs": [(v, u, data.draw(whole)) for v, u, _ in case["inputs"]]}


@fewer
@given(cases(stays=True), st.data())
def test_pins_are_kept_in_every_replan(case: Case, data: st.DataObject) -> None:
    """Views are pinned while it runs: as good as brute force with those pins, then and later."""
    plan = ab.place(**case)
    free = [view for view in plan.location if view not in case["pin"]]
    held = data.draw(st.lists(st.sampled_from(free), unique=True)) if free else []
    any_place = next(iter(twin.placements(case["inputs"], case["sources"], case["pin"])))
    case = {**case, "pin": {**case["pin"], **{view: any_place[view] for view in held}}}
    plan = check(case, plan.replan(pin={view: any_place[view] for view in held}))
    case = drawn_rates(case, data)
    check(case, plan.replan(case["inputs"]))


@fewer
@given(cases(stays=True), st.data())
def test_pins_are_kept_when_devices_fail(case: Case, data: st.DataObject) -> None:
    plan = ab.place(**case)
    devices = sorted(set(case["sources"].values()) - {"cloud"})
    if not devices:
        return
    failed = data.draw(st.sampled_from(devices))
    lost = {s for s, d in case["sources"].items() if d == failed}
    lost |= {view for view, place in case["pin"].items() if place == failed}
    while more := {w for w, u, _ in case["inputs"] if u in lost and w not in lost}:
        lost |= more
    left = [row for row in case["inputs"] if row[0] not in lost]
    after = plan.without(failed)
    assert set(after.location) == {w for w, _, _ in left}
    readers = {
        view: {place: rate for place, rate in who.items() if place != failed}
        for view, who in case["readers"].items()
        if view not in lost
    }
    pin = {view: place for view, place in case["pin"].items() if view not in lost}
    if left:
        check({**case, "inputs": left, "readers": readers, "pin": pin}, after)


def test_views_are_held_after_the_plan_in_use_is_adopted_again() -> None:
    plan = ab.place([("w", "p", 10), ("w", "q", 2)], {"p": "P", "q": "Q"}, download_cost=1.0)
    follower = ab.placement.Switcher(plan, move_cost=1.0)
    assert follower.observe([("w", "p", 1)], LONG, hold=["w"]) == []
    assert follower.adopt(follower.best) == []
    assert follower.observe([], LONG, hold=["w"]) == [] and follower.location == {"w": "P"}
    assert follower.observe([], LONG, hold=np.array(["w"])) == []
    assert [move.target for move in follower.observe([], LONG)] == ["Q"]


def test_views_named_by_numbers_are_held_by_name() -> None:
    numbered = [(1, "p", 10), (1, "q", 2), (0, "q", 10), (0, "p", 2)]
    plan = ab.place(numbered, {"p": "P", "q": "Q"}, download_cost=1.0)
    follower = ab.placement.Switcher(plan, move_cost=1.0)
    changed = [(1, "p", 2), (1, "q", 10), (0, "q", 2), (0, "p", 10)]
    moved = follower.observe(changed, LONG, hold=np.array([0]))
    assert [move.view for move in moved] == [1]


@fewer
@given(cases(stays=True), st.data())
def test_held_views_stay_and_the_others_reach_the_best_plan_around_them(
    case: Case, data: st.DataObject
) -> None:
    follower = ab.placement.Switcher(ab.place(**case), move_cost=1.0)
    at = follower.location
    hold = data.draw(st.lists(st.sampled_from(sorted(at)), unique=True))
    case = drawn_rates(case, data)
    follower.observe(case["inputs"], LONG, hold=hold)
    assert {view: follower.location[view] for view in hold} == {view: at[view] for view in hold}
    within = twin.least_cost(**{**case, "pin": {**case["pin"], **{v: at[v] for v in hold}}})
    assert costs(case, follower.location) == pytest.approx(within, rel=1e-7, abs=1e-6)
    assert follower.cost == pytest.approx(within, rel=1e-7, abs=1e-6)
    follower.observe([], LONG)  # let go
    assert follower.cost == pytest.approx(twin.least_cost(**case), rel=1e-7, abs=1e-6)


@fewer
@given(cases(limits=True), cases(limits=True), st.data())
def test_adopting_keeps_what_can_stay_and_ends_at_the_best_plan(
    before: Case, case: Case, data: st.DataObject
) -> None:
    """From one world into another that shares names of views and devices with it."""
    follower = ab.placement.Switcher(ab.place(**before), move_cost=lambda view, origin, target: 1.0)
    follower.observe(drawn_rates(before, data)["inputs"], 1.0)
    old, accounts = follower.location, dict(zip(_devices(follower), follower.account, strict=True))
    plan = ab.place(**case)
    moves = follower.adopt(plan)
    now = follower.location
    assert set(now) == set(plan.location)
    assert twin.is_viable(case["inputs"], case["sources"], now)
    assert twin.fits(now, case["capacity"], case["load"])
    assert {m.view: (m.origin, m.target) for m in moves} == {
        view: (old[view], now[view]) for view in now if view in old and old[view] != now[view]
    }
    assert all(now[view] == plan.location[view] for view in now if view not in old)
    assert all(m.target == plan.location[m.view] for m in moves)
    for device, account in zip(_devices(follower), follower.account, strict=True):
        assert account in (0.0, accounts.get(device, 0.0))
    follower.observe([], LONG)
    assert follower.cost == pytest.approx(twin.least_cost(**case), rel=1e-7, abs=1e-6)


@fewer
@given(cases(stays=True), st.data())
def test_adopting_the_same_views_is_observing(case: Case, data: st.DataObject) -> None:
    """Whether rates come as changes or as a plan, the same moves are made at the same time."""
    one, other = (ab.placement.Switcher(ab.place(**case), move_cost=2.0) for _ in range(2))
    for _ in range(3):
        case = drawn_rates(case, data)
        found = one.observe(case["inputs"])
        assert other.adopt(one.best) == []
        assert other.observe([]) == found
        assert other.location == one.location
        assert other.account.tolist() == one.account.tolist()


def test_what_cannot_stay_moves_at_once() -> None:
    rows = [("w", "p", 10.0), ("w", "q", 2.0)]
    follower = ab.placement.Switcher(ab.place(rows, {"p": "P", "q": "Q"}), move_cost=5)
    pinned = ab.place(rows, {"p": "P", "q": "Q"}, pin={"w": "cloud"})
    assert [(m.origin, m.target) for m in follower.adopt(pinned)] == [("P", "cloud")]
    assert follower.observe([], LONG) == []


def test_each_move_has_its_price() -> None:
    """A far view that costs more to move moves later; both lose the same."""
    rows = [(f"w{k}", f"{u}{k}", r) for k in range(2) for u, r in (("p", 5.0), ("q", 1.0))]
    plan = ab.place(rows, "own", download_cost=1.0)
    asked = []

    def price(view: str, origin: str, target: str) -> float:
        asked.append((view, origin, target))
        return 1.0 if view == "w0" else 3.0

    follower = ab.placement.Switcher(plan, move_cost=price)
    wrong = [("w0", "p0", 0.5), ("w1", "p1", 0.5)]
    moved = [[m.view for m in follower.observe(wrong)] for _ in range(12)]
    assert moved.index(["w0"]) == 1 and moved.index(["w1"]) == 5  # one unit lost a time
    assert set(asked) == {("w0", "p0", "q0"), ("w1", "p1", "q1")}


def test_a_small_saving_is_not_worth_a_move() -> None:
    rows = [("w", "p", 5.0), ("w", "q", 1.0), ("big", "p", 90.0), ("big", "q", 90.0)]
    plan = ab.place(rows, "own", download_cost=1.0, pin={"big": "cloud"})
    small, eager = (ab.placement.Switcher(plan, 1.0, min_saving=share) for share in (0.6, 0.0))
    changes = [("w", "q", 200.0)]  # saves 105 of the 200 on the link of q
    assert eager.observe(changes, LONG) and not small.observe(changes, LONG)


def _devices(follower: Any) -> list[str]:
    graph = follower.best.graph
    return [graph.device_name(k) for k in range(graph.devices)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f: f.adopt(3), r"plan must come from ab\.place, got int"),
        (
            lambda f: f.observe([], hold=["x"]),
            r"hold must be a list of views of the plan, .* has 'x'",
        ),
        (
            lambda f: f.observe([], hold="w"),
            r"hold must be a list of views of the plan, .* has 'w'",
        ),
        (
            lambda f: ab.placement.Switcher(f.best, 1.0, min_saving=-1.0),
            r"min_saving must be a share",
        ),
        (lambda f: f.best.replan(pin={"x": "cloud"}), r"pin names unknown views 'x'"),
        (lambda f: f.best.replan(pin={"w": "R"}), r"pin names unknown places 'R'"),
        (lambda f: f.best.replan(pin=["w"]), r"pin must be a dict"),
        (
            lambda f: ab.placement.Switcher(f.best, lambda *move: 0.0).observe([("w", "q", 50.0)]),
            r"move_cost must be above 0; for 'w' it gave 0\.0",
        ),
        (
            lambda f: ab.placement.Switcher(f.best, {"P": 1.0, "Q": 1.0}).adopt(
                ab.place([("w", "p", 1.0)], "own")
            ),
            r"move_cost must be above 0 for every device; it is not for 'p'",
        ),
    ],
)
def test_wrong_calls(call: Any, words: str) -> None:
    follower = ab.placement.Switcher(
        ab.place([("w", "p", 9), ("w", "q", 2)], {"p": "P", "q": "Q"}), 5
    )
    with pytest.raises(ab.errors.InvalidCall, match=words):
        call(follower)
