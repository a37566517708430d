"""Reports in, decisions out: views begin at the best place, and move when it is worth while."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidCall
from anabranch.placement import steering
from anabranch.placement.placement import Placement
from anabranch.placement.steering import Running, Steering
from tests.placement import twin
from tests.placement.test_proof import fewer

HOMES = {f"gps[{who}]": who for who in ("ann", "bob", "cy")}


class World:
    """Views that go where they are told, for the length of a test."""

    def __init__(self, views: list[Running], **costs: Any) -> None:
        self.steering = Steering(**costs)
        self.views = {view.name: view for view in views}
        self.now = 0.0
        self.moves: list[tuple[float, str, str | None, str]] = []

    def decide(self, seconds: float, offline: tuple[str, ...] = ()) -> list[Any]:
        self.now += seconds
        found = self.steering.decide(self.now, list(self.views.values()), HOMES, offline)
        for decision in found:
            view = self.views[decision.view]
            assert decision.origin == view.place
            self.views[view.name] = replace(view, place=decision.place, since=self.now)
            self.moves.append((self.now, decision.view, decision.origin, decision.place))
        return found


def pair(one: str, other: str, window: float = 10.0, **more: Any) -> Running:
    inputs = (f"gps[{one}]", f"gps[{other}]")
    return Running(f"near({one},{other})", inputs, (1.0, 1.0), window, **more)


def reported(world: World, **rates: float) -> None:
    for who, rate in rates.items():
        world.steering.report(f"gps[{who}]", {1.0: rate})


def test_a_view_moves_when_staying_has_cost_twice_the_price() -> None:
    world = World([pair("ann", "bob")], download_cost=1.0)
    reported(world, ann=100.0, bob=900.0)
    (begun,) = world.decide(0.0)
    assert (begun.origin, begun.place) == (None, "bob")
    assert world.decide(600.0) == []  # nothing changed, so nothing moves, however long
    reported(world, bob=20.0)  # staying costs 160 a second, moving 2 * (560 + 10.5 * 40)
    moved = [world.decide(1.0) for _ in range(40)]
    assert [k for k, found in enumerate(moved) if found] == [12]
    (decision,) = moved[12]
    assert decision.place == "ann" and decision.cause["saves"] == 160.0
    assert decision.cause["account"] >= 2 * decision.cause["price"]
    assert (decision.cause["cost"], decision.cause["predicted"]) == (200.0, 40.0)


@pytest.mark.parametrize(
    ("held", "offline"),
    [({"has_moved": False}, ()), ({}, ("ann",)), ({"window": 1e9}, ())],
    ids=["moving", "offline", "early"],
)
def test_a_view_that_cannot_move_stays(held: dict[str, Any], offline: tuple[str, ...]) -> None:
    world = World([pair("ann", "bob", place="bob", since=0.0, **held)], download_cost=1.0)
    reported(world, ann=100.0, bob=20.0)
    assert [world.decide(60.0, offline) for _ in range(20)] == [[]] * 20
    world.views = {
        name: replace(view, has_moved=True, window=1.0) for name, view in world.views.items()
    }
    assert [d.place for _ in range(20) for d in world.decide(60.0)] == ["ann"]


@pytest.mark.parametrize(
    ("window", "place"), [(600.0, "bob"), (600.1, "cloud"), (86400.0, "cloud")]
)
def test_a_view_with_a_long_window_stays_in_the_cloud(window: float, place: str) -> None:
    world = World([pair("ann", "bob", window)], download_cost=1.0)
    reported(world, ann=100.0, bob=900.0)
    (begun,) = world.decide(0.0)
    assert begun.place == place
    assert [world.decide(3600.0) for _ in range(40)] == [[]] * 40
    there = World([pair("ann", "bob", window, place="bob")], download_cost=1.0)
    reported(there, ann=100.0, bob=900.0)
    moved = [one.place for _ in range(40) for one in there.decide(86400.0)]
    assert moved == ["cloud"] * (place == "cloud")


def test_a_view_of_which_little_is_known_begins_in_the_cloud_and_stays() -> None:
    world = World([pair("ann", "bob")], download_cost=1.0)
    reported(world, bob=900.0)
    assert [d.place for d in world.decide(0.0)] == ["cloud"]
    assert [world.decide(60.0) for _ in range(5)] == [[]] * 5
    reported(world, ann=10.0)
    assert [d.place for _ in range(5) for d in world.decide(60.0)] == ["bob"]


def test_a_small_change_and_a_small_saving_change_nothing() -> None:
    world = World([pair("ann", "bob", place="bob")], download_cost=1.0)
    reported(world, ann=100.0, bob=103.0)
    world.decide(0.0)
    reported(world, bob=98.0)  # less than 20 % away from what is in use
    assert [world.decide(1e6) for _ in range(5)] == [[]] * 5
    assert world.steering.plan is not None and world.steering.plan.location == {
        "near(ann,bob)": "bob"
    }
    world = World([pair("ann", "bob", place="bob")], download_cost=1.0)
    reported(world, ann=100.0, bob=98.0)  # 4 of 200 a second
    assert [world.decide(1e6) for _ in range(5)] == [[]] * 5


def test_views_come_and_go_and_others_stay() -> None:
    world = World([pair("ann", "bob", place="cloud"), pair("bob", "cy")], download_cost=1.0)
    reported(world, ann=10.0, bob=900.0, cy=10.0)
    assert [(d.view, d.origin, d.place) for d in world.decide(0.0)] == [
        ("near(bob,cy)", None, "bob")
    ]
    del world.views["near(bob,cy)"]
    world.decide(1.0)
    assert list(world.steering.plan.location) == ["near(ann,bob)"]  # type: ignore[union-attr]


@pytest.mark.parametrize("changed", ["shares", "inputs"])
def test_a_view_that_is_asked_for_otherwise_goes_where_that_is_cheap(changed: str) -> None:
    """Under the name that it had; nothing else changes."""
    others = {
        "shares": {"shares": (0.01, 1.0)},
        "inputs": {"inputs": ("gps[cy]", "gps[bob]")},
    }
    world = World([pair("ann", "bob", window=1.0)], download_cost=1.0)
    reported(world, ann=100.0, bob=90.0, cy=1.0)
    assert [found.place for found in world.decide(0.0)] == ["ann"]
    (view,) = world.views.values()
    assert world.steering.plan is not None and world.steering.plan.cost == 180.0
    world.views[view.name] = replace(view, **others[changed])
    moved = [found for _ in range(20) for found in world.decide(1.0)]
    assert world.steering.plan.cost == 2.0
    assert [found.place for found in moved] == ["bob"]


def test_a_view_that_is_asked_for_with_a_long_window_goes_to_the_cloud() -> None:
    world = World([pair("ann", "bob", window=1.0)], download_cost=1.0)
    reported(world, ann=100.0, bob=90.0, cy=1.0)
    world.decide(0.0)
    (view,) = world.views.values()
    world.views[view.name] = replace(view, window=601.0)
    world.decide(1.0)
    assert [found.place for found in world.decide(700.0)] == ["cloud"]


def test_a_move_that_was_not_made_is_tried_again() -> None:
    world = World([pair("ann", "bob", place="bob")], download_cost=1.0)
    reported(world, ann=100.0, bob=20.0)
    for _ in range(2):  # the keeper did not do it
        found = [
            world.steering.decide(world.now + k * 60.0, list(world.views.values()), HOMES)
            for k in range(20)
        ]
        assert [d.place for one in found for d in one][:2] == ["ann", "ann"]


def test_costs_of_devices_that_no_view_reads_are_left_out() -> None:
    """As those of a device whose views wait for it."""
    costs = {"upload_cost": {"ann": 2.0, None: 1.0}, "download_cost": {"cy": 1.0, None: 0.5}}
    world = World([pair("ann", "bob"), pair("bob", "cy")], **costs)
    reported(world, ann=10.0, bob=100.0, cy=10.0)
    assert {d.place for d in world.decide(0.0)} == {"bob"}
    for name in list(world.views):
        kept = world.views.pop(name)
        assert world.decide(1.0) == []
        world.views[name] = kept


def test_a_view_is_pinned_to_a_device_whose_streams_nobody_reads() -> None:
    costs = {"upload_cost": 1.0, "download_cost": {"cy": 1.0, None: 0.5}}
    world = World([pair("ann", "bob")], pin={"near(ann,bob)": "cy"}, **costs)
    reported(world, ann=10.0, bob=100.0)
    assert [d.place for d in world.decide(0.0)] == ["cy"]


@pytest.mark.parametrize("rates", [{1.0: -5.0}, {0.5: float("nan")}, {0.5: float("inf")}])
def test_a_rate_that_is_none_is_an_error(rates: dict[float, float]) -> None:
    world = World([pair("ann", "bob", place="bob")])
    reported(world, ann=10.0, bob=100.0)
    world.decide(0.0)
    world.steering.report("gps[bob]", rates)
    with pytest.raises(InvalidCall, match=r"at least 0; those of 'gps\[bob\]' are"):
        world.decide(1.0)


def test_what_could_not_be_decided_is_tried_again() -> None:
    """A plan of other views does not stand in for one that cannot be made."""
    world = World([pair("ann", "bob", place="bob")], upload_cost={"ann": 1.0, None: -1.0})
    reported(world, ann=10.0, bob=100.0)
    for _ in range(2):
        with pytest.raises(InvalidCall, match="upload_cost"):
            world.decide(1.0)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Running], list[dict[str, float]]]:
    pairs = [("ann", "bob"), ("bob", "cy"), ("ann", "cy")]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    views = [pair(*one, window=draw(st.sampled_from([1.0, 60.0]))) for one in chosen]
    rate = st.sampled_from([0.0, 1.0, 10.0, 100.0, 1000.0])
    rates = st.fixed_dictionaries({who: rate for who in ("ann", "bob", "cy")})
    return views, draw(st.lists(rates, min_size=1, max_size=4))


@fewer
@given(histories(), st.sampled_from([0.5, 1.0, 3.0]))
def test_it_ends_near_the_best_plan_and_never_moves_without_reason(
    history: tuple[list[Running], list[dict[str, float]]], down: float
) -> None:
    views, rates = history
    world = World(views, download_cost=down)
    for now in rates:
        reported(world, **now)
        for _ in range(6):
            for decision in world.decide(20.0):
                if decision.origin is not None:
                    assert decision.cause["account"] >= 2 * decision.cause["price"] / len(views)
    for _ in range(4):
        world.decide(1e7)
    assert world.decide(1e7) == []
    rows = [(v.name, s, rates[-1][HOMES[s]]) for v in views for s in v.inputs]
    homes = {s: d for s, d in HOMES.items() if s in {u for _, u, _ in rows}}
    at = {name: view.place or "" for name, view in world.views.items()}
    best = twin.least_cost(rows, homes, 1.0, down)
    assert twin.cost(rows, homes, at, 1.0, down) <= best / 0.95 + 1e-6
    for name in at:  # never twice within its window
        times = [when for when, view, _, _ in world.moves if view == name]
        assert all(b - a > world.views[name].window for a, b in pairwise(times))


def test_a_second_in_which_nothing_changes_needs_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one more second in which a device is away."""
    plans = 0
    for kind, name in ((steering, "place"), (Placement, "replan")):
        found = getattr(kind, name)

        def counting(*given: Any, found: Any = found, **more: Any) -> Any:
            nonlocal plans
            plans += 1
            return found(*given, **more)

        monkeypatch.setattr(kind, name, counting)
    world = World([pair("ann", "bob"), pair("bob", "cy")])
    reported(world, ann=100.0, bob=900.0, cy=50.0)
    world.decide(0.0)
    world.decide(30.0)  # by now no row is sent twice
    for second in range(20):
        before = plans
        reported(world, ann=100.0 + second / 2)  # by far less than 20 %
        world.decide(1.0, ("cy",) if second >= 10 else ())
        assert plans - before == (second == 10)
    reported(world, bob=90.0)
    world.decide(1.0, ("cy",))
    assert plans - before == 2  # the best one, and the best one in which cy's views stay
