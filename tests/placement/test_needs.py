"""What views need and what moves cost, by number, beside the same in plain words."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.placement.call import place
from anabranch.placement.graph import CLOUD
from anabranch.placement.needs import ADOPTION, DEFINITION, MovePrices, Needs
from anabranch.placement.steering import Running, Steering
from tests.placement.test_proof import fewer

DEVICES = ("ann", "bob", "cy", "dee")
HOMES = {f"gps[{who}]": who for who in DEVICES} | {"news": "cloud"}
Costs = dict[str | None, float]
UP: Costs = {"ann": 1.0, "bob": 2.0, None: 0.5}
DOWN: Costs = {"cy": 3.0, None: 0.25}


@st.composite
def running(draw: st.DrawFn) -> list[Running]:
    sides = st.lists(st.sampled_from(sorted(HOMES)), min_size=1, max_size=3, unique=True)
    share = st.sampled_from([1.0, 0.5, 0.3])
    return [
        Running(f"v{k}", tuple(some), tuple(draw(share) for _ in some), draw(st.floats(0, 600)))
        for k, some in enumerate(draw(st.lists(sides, min_size=1, max_size=5)))
    ]


RATE = st.floats(0, 1e6)
RATES = st.dictionaries(
    st.sampled_from([*sorted(HOMES), "nobody reads this"]),
    st.dictionaries(st.sampled_from([1.0, 0.5, 0.2]), RATE, min_size=1),
)


@fewer
@given(running(), RATES)
def test_rates_are_those_of_each_row(
    views: list[Running], rates: dict[str, dict[float, float]]
) -> None:
    steering = Steering(UP, DOWN)
    steering.decide(0.0, views, HOMES)
    steering._used = rates
    plan, needs = steering.plan, steering._needs
    assert plan is not None and needs is not None
    found = needs.changes(rates)
    by_row = dict(zip(found.rows.tolist(), found.rates.tolist(), strict=True))
    assert len(by_row) == len(found.rows)
    graph, number = plan.graph, {view.name: view for view in views}
    for row, (v, node) in enumerate(zip(graph.row_view, graph.inputs, strict=True)):
        view, stream = number[graph.view_name(v)], graph.source_name(node)
        share = view.shares[view.inputs.index(stream)]
        assert by_row.get(row) == (steering._rate(stream, share) if stream in rates else None)


@fewer
@given(running(), st.randoms(use_true_random=False))
def test_a_price_is_what_is_sent_twice_and_definitions(
    views: list[Running], rng: random.Random
) -> None:
    needed = [(v.name, s, rng.uniform(0, 100)) for v in views for s in v.inputs]
    homes = {s: home for s, home in HOMES.items() if s in {s for _, s, _ in needed}}
    there = set(homes.values())
    up, down = ({d: c for d, c in of.items() if d is None or d in there} for of in (UP, DOWN))
    plan = place(needed, homes, up, down)
    graph, by_name = plan.graph, {view.name: view for view in views}
    device = {graph.device_name(d): d for d in range(CLOUD, graph.devices)}
    moves = [
        (v, rng.choice(list(device)), rng.choice(list(device)))
        for v in range(graph.views)
        for _ in range(3)
    ]
    prices = MovePrices()
    prices.windows = np.array([by_name[name].window for name in plan.location])
    numbers = [(v, device[origin], device[target]) for v, origin, target in moves]
    found = prices.of(graph, *np.array(numbers).T)
    for (v, origin, target), price in zip(moves, found.tolist(), strict=True):
        view = by_name[graph.view_name(v)]
        assert price == pytest.approx(plain(view, origin, target, needed, homes))


def plain(
    view: Running,
    origin: str,
    target: str,
    needed: list[tuple[str, str, float]],
    homes: dict[str, str],
) -> float:
    """The price of a move, stream by stream."""

    def cost(of: Costs, device: str) -> float:
        return 0.0 if device == "cloud" else of.get(device, of[None])

    more = 0.0
    for name, stream, rate in needed:
        home = homes[stream]
        if name == view.name and home != target:
            more += rate * (cost(UP, home) if home == origin else 0.0)
            more += rate * cost(DOWN, target)
    told = DEFINITION * (cost(DOWN, origin) + cost(DOWN, target))
    return max(told + more * (view.window + ADOPTION), 1.0)


def test_a_graph_has_needs_whatever_the_order_of_its_views() -> None:
    one = Running("v", ("b", "a"), (0.5, 1.0), 1.0)
    plan = place([("w", "a", 1.0), ("v", "a", 1.0), ("v", "b", 1.0)], {"a": "A", "b": "B"})
    needs = Needs(plan.graph, {"v": one, "w": replace(one, name="w", inputs=("a",), shares=(1.0,))})
    found = needs.changes({"a": {1.0: 6.0}, "b": {1.0: 4.0}})
    rows = {
        (plan.graph.view_name(plan.graph.row_view[r]), plan.graph.source_name(plan.graph.inputs[r]))
        for r in found.rows.tolist()
    }
    assert rows == {("w", "a"), ("v", "a"), ("v", "b")}
    assert sorted(found.rates.tolist()) == [2.0, 6.0, 6.0]
