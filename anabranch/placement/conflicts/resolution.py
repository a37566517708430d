"""From what each device wants to one plan: conflicts are resolved, everything else stands.

Devices that want the same view form components. Inside a component a device never needs to hold
more than it wants by itself: its cost is submodular, so cutting any set down to the wanted one does
not cost more. (Rigid devices are the exception and are given all they might hold.) What a component
costs at least, added over the components, is therefore a bound for the whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.flow.process import njit
from anabranch.flow.progress import step
from anabranch.placement.conflicts.cover import ladders, levelled_cover
from anabranch.placement.devices.candidates import seats
from anabranch.placement.devices.optima import LocalOptima
from anabranch.placement.devices.program import seat_program
from anabranch.placement.graph import CLOUD, ViewGraph, spread_rows

__all__ = ["Component", "Resolution", "resolve"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@dataclass(frozen=True, eq=False)
class Component:
    """Devices that wanted the same views, and how that was resolved.

    `views` and `places` say where every view went that one of them wanted.
    """

    devices: np.ndarray
    views: np.ndarray
    places: np.ndarray
    cost: float
    bound: float
    method: str


@dataclass(frozen=True, eq=False)
class Resolution:
    """The place of every view, and the components that had to be resolved."""

    location: np.ndarray
    bound: float
    contested: int
    components: tuple[Component, ...]


def resolve(
    graph: ViewGraph,
    local: LocalOptima,
    time_limit: float,
    known: tuple[Component, ...] = (),
) -> Resolution:
    """One place for every view.

    `known` are components that were resolved before and are still valid: if the same devices meet
    again, their old answer is used.
    """
    location, contested = _claim(graph.rows, graph.home, local.threshold)
    order = np.argsort(local.view, kind="stable")
    view, device = local.view[order], local.device[order]
    again = np.zeros(len(view), bool)
    again[1:] = view[1:] == view[:-1]
    again |= location[view] >= 0
    fresh = np.flatnonzero(~again)
    location[view[fresh]] = device[fresh]
    contested = np.union1d(contested, view[again])
    components: list[Component] = []
    groups = _groups(graph, local, contested) if len(contested) else []
    remembered = {tuple(c.devices.tolist()): c for c in known}
    simple: list[np.ndarray] = []
    plain = np.ones(graph.devices, bool)
    plain[local.device] = False
    plain &= ~local.rigid
    for number, devices in enumerate(groups):
        step("resolves what several devices want", number, len(groups))
        if (old := remembered.get(tuple(devices.tolist()))) is not None:
            components.append(old)
        elif plain[devices].all() and graph.single_level and graph.shared:
            simple.append(devices)
        else:
            components.append(_by_program(graph, local, devices, time_limit))
    if simple:
        components += _by_cover(graph, local, simple, time_limit)
    outside = np.ones(graph.devices, bool)
    for component in components:
        location[component.views] = component.places
        outside[component.devices] = False
    bound = float(local.bound[outside].sum()) + sum(c.bound for c in components)
    return Resolution(location, bound, len(contested), tuple(components))


def wanted_views(
    graph: ViewGraph, local: LocalOptima, devices: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The views that some devices want by themselves, with the device that does."""
    of = graph.sources_by_device
    sources = of.rows[spread_rows(of.offsets, devices)]
    rows = _kept_rows(graph, sources, local.threshold[sources])
    mine = np.isin(local.device, devices)
    view = np.concatenate([graph.row_view[rows].astype(np.int64), local.view[mine]])
    device = np.concatenate([graph.home[graph.inputs[rows]].astype(np.int64), local.device[mine]])
    return view, device


def _kept_rows(graph: ViewGraph, sources: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    read = graph.consumers
    rows = read.rows[spread_rows(read.offsets, sources)]
    sizes = np.diff(read.offsets)[sources]
    found: np.ndarray = rows[graph.rates[rows] > np.repeat(threshold, sizes)]
    return found


def _groups(graph: ViewGraph, local: LocalOptima, contested: np.ndarray) -> list[np.ndarray]:
    """Devices whose conflicts have to be resolved together."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows = graph.rows_of(contested)
    inputs = graph.inputs[rows]
    keeps = np.zeros(len(rows), bool)
    at_source = inputs < graph.sources
    keeps[at_source] = graph.rates[rows[at_source]] > local.threshold[inputs[at_source]]
    seated = np.isin(local.view, contested)
    view = np.concatenate([graph.row_view[rows[keeps]], local.view[seated]])
    device = np.concatenate([graph.home[inputs[keeps]], local.device[seated]])
    widened: set[int] = set()
    while True:
        views, number = np.unique(view, return_inverse=True)
        devices, code = np.unique(device, return_inverse=True)
        size = len(devices) + len(views)
        links = coo_array((np.ones(len(code)), (code, number + len(devices))), shape=(size, size))
        _, label = connected_components(links, directed=False)
        label = label[: len(devices)]
        # A rigid device in a conflict may turn to any view over it: others that want those join.
        rigid = [int(d) for d in devices[local.rigid[devices]] if int(d) not in widened]
        if not rigid:
            order = np.argsort(label, kind="stable")
            return np.split(devices[order], np.flatnonzero(np.diff(label[order])) + 1)
        widened.update(rigid)
        for d in rigid:
            over = graph.views_over(np.array([d]))
            wanted, by = wanted_views(graph, local, graph.devices_below(over))
            touching = np.isin(wanted, over)
            view = np.concatenate([view, over, wanted[touching]])
            device = np.concatenate([device, np.full(len(over), d), by[touching]])


def _by_program(
    graph: ViewGraph, local: LocalOptima, devices: np.ndarray, time_limit: float
) -> Component:
    part = graph.over(devices)
    found = seats(part.graph)
    view, device = wanted_views(graph, local, devices)
    wanted = view * graph.devices + device
    upper = found.node >= part.graph.sources
    seat_view = part.views[np.where(upper, found.node - part.graph.sources, 0)]
    seat_device = part.devices[found.device]
    allowed = upper & (
        np.isin(seat_view * graph.devices + seat_device, wanted) | local.rigid[seat_device]
    )
    solution = seat_program(part.graph, found, allowed, time_limit)
    held = solution.location >= 0
    places = np.full(len(part.views), CLOUD, np.int32)
    places[held] = part.devices[solution.location[held]]
    touched = held | np.isin(part.views, view)
    return Component(
        devices,
        part.views[touched],
        places[touched],
        solution.cost,
        solution.bound,
        solution.method,
    )


def _by_cover(
    graph: ViewGraph, local: LocalOptima, groups: list[np.ndarray], time_limit: float
) -> list[Component]:
    members = np.concatenate(groups)
    of = graph.sources_by_device
    sources = of.rows[spread_rows(of.offsets, members)]
    rows = _kept_rows(graph, sources, local.threshold[sources])
    units, unit = np.unique(graph.inputs[rows], return_inverse=True)
    home = graph.home[units]
    rate, view = graph.rates[rows], graph.row_view[rows]
    price = graph.down[home[unit]] * graph.others_of(rows)
    _, number, claims = np.unique(view, return_inverse=True, return_counts=True)
    contested = claims[number] > 1
    threshold = local.threshold[units]
    value = graph.up[home] * threshold + np.bincount(unit, price, len(units))
    ladder, entry = ladders(unit, rate, price, graph.up[home], value, contested)
    a, b = _pairs_within(number[contested], entry[contested])
    cover = levelled_cover(ladder, a, b, time_limit)
    raised = threshold.copy()
    raised[cover.taken >= 0] = ladder.best[cover.taken[cover.taken >= 0]]
    holds = rate > raised[unit]
    # Units of one device can lie in several components of the cover: report per group of devices.
    group_of = np.full(graph.devices, -1)
    for k, devices in enumerate(groups):
        group_of[devices] = k
    unit_group = group_of[home]
    extra = np.zeros(len(groups))
    slack = np.zeros(len(groups))
    first = np.unique(cover.component, return_index=True)[1]
    np.add.at(extra, unit_group[first], cover.cost)
    np.add.at(slack, unit_group[first], cover.cost - cover.bound)
    rank = {"levelled tree": 0, "lp kernel": 1, "lp kernel + milp": 2, "local search": 3}
    worst = np.zeros(len(groups), int)
    np.maximum.at(worst, unit_group[first], [rank[m] for m in cover.method])
    names = list(rank)
    order = np.argsort(unit_group[unit], kind="stable")
    bounds = np.searchsorted(unit_group[unit][order], np.arange(len(groups) + 1))
    found = []
    for k, devices in enumerate(groups):
        mine = order[bounds[k] : bounds[k + 1]]
        kept = mine[holds[mine]]
        gone = np.setdiff1d(view[mine], view[kept])
        views = np.concatenate([view[kept], gone]).astype(np.int64)
        places = np.full(len(views), CLOUD, np.int32)
        places[: len(kept)] = home[unit[kept]]
        cost = float(local.value[devices].sum() + extra[k])
        found.append(Component(devices, views, places, cost, cost - slack[k], names[worst[k]]))
    return found


def _pairs_within(group: np.ndarray, member: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of members of the same group, each once."""
    order = np.argsort(group, kind="stable")
    starts = np.append(np.flatnonzero(np.append(True, np.diff(group[order]) != 0)), len(group))
    size = np.diff(starts)
    a: list[np.ndarray] = []
    b: list[np.ndarray] = []
    for width in np.unique(size):
        first = starts[:-1][size == width]
        i, j = np.triu_indices(int(width), 1)
        a.append(member[order[(first[:, None] + i).ravel()]])
        b.append(member[order[(first[:, None] + j).ravel()]])
    return np.concatenate(a), np.concatenate(b)


@njit
def _claim(rows, home, threshold):
    # v: a view, e: a row, s: a source; a view goes to the first that wants it.
    offsets, inputs, rates = rows
    views = len(offsets) - 1
    location = np.full(views, -1, np.int32)
    twice = np.zeros(views, np.bool_)
    for v in range(views):
        for e in range(offsets[v], offsets[v + 1]):
            s = inputs[e]
            if s < len(threshold) and rates[e] > threshold[s]:
                if location[v] >= 0:
                    twice[v] = True
                else:
                    location[v] = home[s]
    return location, np.flatnonzero(twice)
