"""Every plan costs what the best of all placements costs, and is viable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.placement import Placement
from tests.placement import twin

Case = dict[str, Any]

whole = st.integers(0, 8).map(float)
real = st.floats(0, 10, allow_nan=False, width=32)
# The profile decides how many examples there are; some tests need only a part of them.
fewer = settings(max_examples=max(settings.default.max_examples // 2, 1))


@st.composite
def cases(
    draw: st.DrawFn,
    deep: bool | None = None,
    widest: int = 3,
    costs: str = "any",
    feeds: bool | None = None,
    limits: bool = False,
    shared: bool = True,
    stays: bool = False,
) -> Case:
    """A small instance: up to 4 devices, 6 views."""
    devices = [f"D{k}" for k in range(draw(st.integers(1, 4)))]
    if draw(st.booleans()) if feeds is None else feeds:
        sources = {f"s{k}": draw(st.sampled_from(devices)) for k in range(draw(st.integers(1, 5)))}
    else:
        sources = {f"s{d}": d for d in devices}
    if draw(st.booleans()):
        sources["news"] = "cloud"
    levels = draw(st.booleans()) if deep is None else deep
    rate = draw(st.sampled_from([whole, real]))
    nodes = list(sources)
    inputs = []
    count = draw(st.integers(1, 6))
    for k in range(count):
        size = draw(st.integers(1, min(widest, len(nodes))))
        chosen = draw(st.permutations(nodes))[:size]
        inputs += [(f"v{k}", u, draw(rate)) for u in chosen]
        if levels:
            nodes.append(f"v{k}")
    sources = {s: d for s, d in sources.items() if s in {u for _, u, _ in inputs}}
    devices = sorted(set(sources.values()) - {"cloud"})
    screens = ["screen"] if stays and costs == "any" else []  # a device without a source
    case: Case = {"inputs": inputs, "sources": sources}
    if costs == "equal":
        case["upload_cost"] = case["download_cost"] = 1.0
    elif costs == "expensive down":
        case["upload_cost"], case["download_cost"] = 1.0, draw(st.sampled_from([1.0, 1.5, 3.0]))
    elif costs == "cheap down":
        case["upload_cost"], case["download_cost"] = draw(st.sampled_from([1.4186, 2.0, 5.0])), 1.0
    else:
        price = st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0])
        case["upload_cost"] = {d: draw(price) for d in devices}
        case["download_cost"] = {d: draw(price) for d in devices}
    if limits:
        used = sorted(set(sources.values()) - {"cloud"})
        case["capacity"] = {d: draw(whole) for d in used if draw(st.booleans())}
        case["load"] = {f"v{k}": float(draw(st.integers(1, 3))) for k in range(count)}
    if not shared:
        case["shared"] = False
    if stays:
        views = [f"v{k}" for k in range(count)]
        places = ["cloud", *devices, *screens]
        rates = st.one_of(st.none(), rate)
        case["readers"] = draw(
            st.dictionaries(
                st.sampled_from(views),
                st.dictionaries(st.sampled_from(places), rates, min_size=1, max_size=2),
                max_size=3,
            )
        )
        pinned = st.dictionaries(st.sampled_from(views), st.sampled_from(places), max_size=2)
        case["pin"] = draw(pinned)
        named = {p for r in case["readers"].values() for p in r} | set(case["pin"].values())
        for name in ("upload_cost", "download_cost") if "screen" in named else ():
            case[name]["screen"] = draw(st.sampled_from([0.0, 0.5, 2.0]))
        for view, place in case["pin"].items() if limits else ():
            assume(case["load"][view] <= case["capacity"].get(place, 99.0))
            assume(len(set(case["pin"].values())) == len(case["pin"]))
    return case


def check(case: Case, plan: Placement | None = None) -> Placement:
    plan = ab.place(**case) if plan is None else plan
    inputs, sources = case["inputs"], case["sources"]
    best = twin.least_cost(**case)
    at = plan.location
    shared = case.get("shared", True)
    readers, pin = case.get("readers", {}), case.get("pin", {})
    assert twin.is_viable(inputs, sources, at, pin)
    if case.get("capacity"):
        assert twin.fits(at, case["capacity"], case["load"])
    inputs, stays = twin.with_readers(inputs, readers), twin.reading(readers)
    prices = case["upload_cost"], case["download_cost"], shared
    found = twin.cost(inputs, sources, {**at, **stays}, *prices)
    assert found == pytest.approx(best, rel=1e-7, abs=1e-7)
    assert plan.cost == pytest.approx(best, rel=1e-7, abs=1e-7)
    assert plan.bound == pytest.approx(best, rel=1e-7, abs=1e-7)
    assert plan.optimal
    everything_up = {**dict.fromkeys(at, "cloud"), **pin, **stays}
    assert plan.baseline_cost == pytest.approx(twin.cost(inputs, sources, everything_up, *prices))
    traffic = plan.traffic().to_pydict()["cost"]
    assert sum(traffic) == pytest.approx(plan.cost)
    return plan


@given(cases(deep=False, widest=2, costs="expensive down", feeds=False))
def test_one_level_pairs(case: Case) -> None:
    check(case)


@given(cases(deep=False, widest=2, costs="cheap down", feeds=False))
def test_one_level_pairs_with_cheap_downloads(case: Case) -> None:
    check(case)


@given(cases(stays=True))
def test_readers_and_pins(case: Case) -> None:
    check(case)


@given(cases(stays=True, deep=False, widest=2, feeds=False, costs="cheap down"))
def test_readers_and_pins_of_one_level_pairs(case: Case) -> None:
    check(case)


@fewer
@given(cases(stays=True, limits=True))
def test_readers_and_pins_with_capacities(case: Case) -> None:
    check(case)


@fewer
@given(cases(stays=True, shared=False))
def test_readers_and_pins_of_streams_that_are_not_shared(case: Case) -> None:
    check(case)


@fewer
@given(cases(stays=True), st.data())
def test_replanning_with_readers_and_pins(case: Case, data: st.DataObject) -> None:
    plan = ab.place(**case)
    changed = data.draw(st.lists(st.sampled_from(case["inputs"]), min_size=1, unique=True))
    changes = {(v, u): data.draw(whole) for v, u, _ in changed}
    case["inputs"] = [(v, u, changes.get((v, u), r)) for v, u, r in case["inputs"]]
    check(case, plan.replan([(v, u, r) for (v, u), r in changes.items()]))


@given(cases(deep=True, costs="equal"))
def test_many_levels_equal_costs_never_conflict(case: Case) -> None:
    plan = check(case)
    assert not plan.components or "device milp" in plan.methods


@given(cases(costs="cheap down"))
def test_anything_with_cheap_downloads(case: Case) -> None:
    check(case)


@given(cases())
def test_anything_with_costs_per_device(case: Case) -> None:
    check(case)


@given(cases(limits=True))
def test_capacities(case: Case) -> None:
    check(case)


@given(cases(shared=False))
def test_streams_of_one_operator_each(case: Case) -> None:
    check(case)


@given(cases(limits=True, shared=False))
@fewer
def test_capacities_without_sharing(case: Case) -> None:
    check(case)


@given(st.data())
@fewer
def test_conflicts_in_cycles(data: st.DataObject) -> None:
    """Rings and cliques with equal rates, where the linear program alone does not decide."""
    devices = data.draw(st.integers(3, 5))
    pairs = [(i, j) for i in range(devices) for j in range(i)]
    chosen = data.draw(st.lists(st.sampled_from(pairs), min_size=3, max_size=7, unique=True))
    inputs = [
        (f"v{i}{j}", f"s{k}", float(data.draw(st.integers(2, 4))))
        for i, j in chosen
        for k in (i, j)
    ]
    sources = {f"s{k}": f"D{k}" for k in range(devices) if f"s{k}" in {u for _, u, _ in inputs}}
    check({"inputs": inputs, "sources": sources, "upload_cost": 5.0, "download_cost": 1.0})


@given(cases(), st.data())
def test_replanning_equals_planning_from_scratch(case: Case, data: st.DataObject) -> None:
    plan = ab.place(**case)
    for _ in range(2):
        count = data.draw(st.integers(0, len(case["inputs"])))
        rows = data.draw(st.permutations(range(len(case["inputs"]))))[:count]
        changed = list(case["inputs"])
        for k in rows:
            view, node, _ = changed[k]
            changed[k] = (view, node, data.draw(whole))
        case = {**case, "inputs": changed}
        plan = check(case, plan.replan([changed[k] for k in rows]))


@given(cases(limits=True), st.data())
@fewer
def test_replanning_with_capacities(case: Case, data: st.DataObject) -> None:
    plan = ab.place(**case)
    k = data.draw(st.integers(0, len(case["inputs"]) - 1))
    view, node, _ = case["inputs"][k]
    changed = list(case["inputs"])
    changed[k] = (view, node, data.draw(whole))
    check({**case, "inputs": changed}, plan.replan([changed[k]]))


@given(cases(), st.data())
def test_failure_equals_planning_what_is_left(case: Case, data: st.DataObject) -> None:
    plan = ab.place(**case)
    devices = sorted(set(case["sources"].values()) - {"cloud"})
    if not devices:
        return
    failed = data.draw(st.sampled_from(devices))
    after = plan.without(failed)
    lost = {s for s, d in case["sources"].items() if d == failed}
    while more := {w for w, u, _ in case["inputs"] if u in lost and w not in lost}:
        lost |= more
    left = [row for row in case["inputs"] if row[0] not in lost]
    assert set(after.location) == {w for w, _, _ in left}
    if left:
        check({**case, "inputs": left}, after)
    # Views over other devices that shared nothing with the failed one stay where they were.
    touched = plan.graph.devices_below(plan.graph.views_over(_numbers(plan, [failed])))
    kept = {plan.graph.device_name(int(d)) for d in touched} | {failed}
    for view, place in plan.location.items():
        if (
            view in after.location
            and not {
                plan.graph.device_name(int(d))
                for d in plan.graph.devices_below(_view_numbers(plan, [view]))
            }
            & kept
        ):
            assert after.location[view] == place or not plan.components


def _numbers(plan: Placement, names: list[str]) -> np.ndarray:
    return np.array([list(plan.graph.device_ids).index(n) for n in names])


def _view_numbers(plan: Placement, names: list[str]) -> np.ndarray:
    return np.array([list(plan.graph.view_ids).index(n) for n in names])


@st.composite
def cores(draw: st.DrawFn, costs: str) -> tuple[Case, ab.placement.CoreNetwork]:
    case = draw(cases(costs=costs))
    views = list(dict.fromkeys(w for w, _, _ in case["inputs"]))[:4]
    case["inputs"] = [row for row in case["inputs"] if row[0] in views]
    needed = {u for _, u, _ in case["inputs"]}
    case["sources"] = {s: d for s, d in case["sources"].items() if s in needed}
    shape = draw(
        st.sampled_from([[("a", "b")], [("a", "b"), ("b", "c")], [("a", "c"), ("b", "c")]])
    )
    links = [(x, y, draw(st.sampled_from([0.5, 1.0, 3.0]))) for x, y in shape]
    sites = sorted({n for x, y, _ in links for n in (x, y)})
    devices = set(case["sources"].values()) - {"cloud"}
    attached = {d: draw(st.sampled_from(sites)) for d in sorted(devices)}
    places = {s: draw(st.sampled_from(sites)) for s, d in case["sources"].items() if d == "cloud"}
    return case, ab.placement.CoreNetwork(links, attached, places)


def core_optimum(case: Case, core: ab.placement.CoreNetwork) -> float:
    return twin.least_cost_with_core(
        case["inputs"],
        case["sources"],
        case["upload_cost"],
        case["download_cost"],
        list(core.links),
        dict(core.attached),
        dict(core.sites),
    )


@given(cores(costs="equal"))
def test_core_network_is_optimal_for_equal_costs(
    given_: tuple[Case, ab.placement.CoreNetwork],
) -> None:
    case, core = given_
    plan = ab.place(**case, core=core)
    assert plan.cost == pytest.approx(core_optimum(case, core), rel=1e-7, abs=1e-7)
    if plan.optimal is False:  # only where a device's set had to be held down by a program
        assert "device milp" in plan.methods


@given(cores(costs="cheap down"))
def test_core_network_says_when_it_may_not_be_optimal(
    given_: tuple[Case, ab.placement.CoreNetwork],
) -> None:
    case, core = given_
    plan = ab.place(**case, core=core)
    best = core_optimum(case, core)
    assert plan.bound <= best * (1 + 1e-7) + 1e-7
    assert plan.cost >= best * (1 - 1e-7) - 1e-7
    if plan.optimal:
        assert plan.cost == pytest.approx(best, rel=1e-7, abs=1e-7)
    else:
        assert plan.gap > 0
