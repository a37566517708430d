"""Devices that want the same views, or more than they can carry: a mixed-integer program.

Variables say which seats are taken, and which steps of its rates a stream crosses a link with. The
program covers the devices of one conflict only and the seats that matter, and is solved by HiGHS.
When time runs out the better of its best answer and a local search is taken, and the bound that was
reached says how far off it can be.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from anabranch.placement.cost import link_costs, rate_steps
from anabranch.placement.devices.candidates import Seats, pinned_seats, seat_externals
from anabranch.placement.graph import CLOUD, FREE, ViewGraph

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

__all__ = ["Solution", "seat_program", "solve_binary"]


class Solution(NamedTuple):
    """Where the views went, what that costs, and a bound that no placement can beat."""

    location: np.ndarray
    cost: float
    bound: float
    optimal: bool
    method: str


_NOTHING, _ONE = -1, -2  # columns that are none: always 0, always 1


class _Program:
    """Columns and rows of a program, added a block at a time. The first columns are 0 or 1."""

    def __init__(self, binary: int) -> None:
        self.binary = binary
        self.columns = binary
        self.cost = [np.zeros(binary)]
        self.rows = 0
        self.low: list[np.ndarray] = []
        self.parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def at_least(self, low: np.ndarray) -> np.ndarray:
        """New rows ``... >= low``; returns their numbers."""
        self.low.append(np.asarray(low, float))
        self.rows += len(low)
        return np.arange(self.rows - len(low), self.rows)

    def put(self, row: np.ndarray, column: np.ndarray, value: np.ndarray | float) -> None:
        """Entries of the matrix; columns that are none are left out."""
        known = column >= 0
        value = np.broadcast_to(np.asarray(value, float), row.shape)
        self.parts.append((row[known], column[known], value[known]))

    def charge(
        self,
        group: np.ndarray,
        rate: np.ndarray,
        price: np.ndarray,
        plus: np.ndarray,
        minus: np.ndarray,
    ) -> None:
        """Charge `price` times the largest rate in a group whose `plus` is 1 and `minus` 0.

        A column per step of the rates, not one amount per group: with rates in the matrix a small
        one beside a large one would lie within the solver's tolerance and cost nothing.
        """
        steps = rate_steps(group, rate)
        column = np.arange(len(steps.first)) + self.columns
        self.columns += len(column)
        self.cost.append(price[steps.order[steps.first]] * steps.rise)
        lower, upper = column[:-1][steps.inner[1:]], column[1:][steps.inner[1:]]
        rows = self.at_least(np.zeros(len(lower)))
        self.put(rows, lower, 1.0)
        self.put(rows, upper, -1.0)
        plus, minus = plus[steps.order], minus[steps.order]
        rows = self.at_least(np.where(plus == _ONE, 1.0, 0.0) - np.where(minus == _ONE, 1.0, 0.0))
        self.put(rows, column[steps.step], 1.0)
        self.put(rows, plus, -1.0)
        self.put(rows, minus, 1.0)

    def solve(self, time_limit: float) -> tuple[np.ndarray | None, float, bool]:
        row, column, value = (np.concatenate(part) for part in zip(*self.parts, strict=True))
        from scipy.optimize import LinearConstraint
        from scipy.sparse import coo_array

        matrix = coo_array((value, (row, column)), shape=(self.rows, self.columns)).tocsr()
        limits = LinearConstraint(matrix, np.concatenate(self.low), np.inf)
        return solve_binary(np.concatenate(self.cost), limits, self.binary, time_limit)


def seat_program(
    graph: ViewGraph, found: Seats, allowed: np.ndarray, time_limit: float
) -> Solution:
    """The best placement in which only `allowed` seats are taken.

    Parameters
    ----------
    graph, found
        The part of the view graph over the devices in conflict, and its seats.
    allowed
        A mask over the seats; those of sources are taken in any case.
    time_limit
        Seconds.
    """
    allowed = allowed.copy()
    held, barred = pinned_seats(graph, found)
    allowed[: found.fixed] = False
    allowed[held | barred] = False
    seats = np.flatnonzero(allowed)
    column = np.full(len(found.node), _NOTHING)
    column[seats] = np.arange(len(seats))
    column[: found.fixed] = _ONE
    column[held] = _ONE
    program = _Program(len(seats))
    _charge_links(program, graph, found, column)
    _demand_viable(program, graph, found, column)
    answer, bound, proved = program.solve(time_limit)
    candidates = []
    if answer is not None:
        chosen = _locations(graph, found, seats[answer[: len(seats)] > 0.5])
        # A capacity is kept to the solver's tolerance only.
        proved = proved and fits(graph, chosen)
        candidates += [chosen] if fits(graph, chosen) else []
    if not proved:
        start = candidates[0] if candidates else graph.start
        candidates.append(descend(graph, found, allowed, start, time_limit))
    costs = [float(link_costs(graph, location).sum()) for location in candidates]
    best = int(np.argmin(costs))
    method = "milp" if proved else "local search"
    bound = costs[best] if proved else min(bound, costs[best])
    return Solution(candidates[best], costs[best], bound, proved, method)


def _charge_links(program: _Program, graph: ViewGraph, found: Seats, column: np.ndarray) -> None:
    """What goes up and down the link of each device."""
    parent, child = column[found.parent], column[found.child]
    rate, device = graph.rates[found.row], found.device[found.child]
    group = found.parent if graph.shared else np.arange(len(found.parent))
    # Uploads, where the input can be on the device and its view elsewhere.
    at = np.flatnonzero((parent != _NOTHING) & (rate > 0))
    program.charge(group[at], rate[at], graph.up[device[at]], parent[at], child[at])
    # Downloads of streams that the device could hold itself.
    at = np.flatnonzero((child != _NOTHING) & (parent != _ONE) & (rate > 0))
    program.charge(group[at], rate[at], graph.down[device[at]], child[at], parent[at])
    # Downloads of everything else.
    external = seat_externals(graph, found, np.ones(len(graph.inputs), bool))
    at = np.flatnonzero((column[external.seat] != _NOTHING) & (graph.rates[external.row] > 0))
    seat, row = external.seat[at], external.row[at]
    device = found.device[seat]
    stream = np.asarray(graph.inputs[row] if graph.shared else row, np.int64)
    nothing = np.full(len(at), _NOTHING)
    program.charge(
        stream * graph.devices + device, graph.rates[row], graph.down[device], column[seat], nothing
    )


def _demand_viable(program: _Program, graph: ViewGraph, found: Seats, column: np.ndarray) -> None:
    """A seat rests on a taken one, a view is in one place, a device carries no more than it can."""
    rests_on_source = np.zeros(len(found.node), bool)
    rests_on_source[found.child[column[found.parent] == _ONE]] = True
    at = np.flatnonzero((column[found.child] >= 0) & ~rests_on_source[found.child])
    children, number = np.unique(found.child[at], return_inverse=True)
    rows = program.at_least(np.zeros(len(children)))
    program.put(rows, column[children], -1.0)
    program.put(rows[number], column[found.parent[at]], 1.0)
    seats = np.flatnonzero(column >= 0)
    views, number = np.unique(found.node[seats], return_inverse=True)
    rows = program.at_least(np.full(len(views), -1.0))
    program.put(rows[number], column[seats], -1.0)
    if graph.capacity is None or graph.load is None:
        return
    # In parts of the capacity; a view that is too heavy by itself is kept off for certain.
    device = found.device[seats]
    load, limit = graph.load[found.node[seats] - graph.sources], graph.capacity[device]
    devices = np.unique(device[np.isfinite(limit)])
    pinned = graph.pins >= 0
    used = np.bincount(graph.pins[pinned], graph.load[pinned], graph.devices)[devices]
    full = np.maximum(graph.capacity[devices], 1e-300)
    rows = program.at_least(np.minimum(used / full, 1.0) - 1.0)
    tied = np.flatnonzero(np.isfinite(limit) & (load > 0))
    part = np.full(len(tied), 2.0)
    light = load[tied] <= limit[tied]
    part[light] = load[tied[light]] / limit[tied[light]]
    program.put(rows[np.searchsorted(devices, device[tied])], column[seats[tied]], -part)


def solve_binary(
    cost: np.ndarray, constraint: LinearConstraint, binary: int, time_limit: float
) -> tuple[np.ndarray | None, float, bool]:
    """The answer of HiGHS, if any, a lower bound on the cost, and whether it is proved best.

    The first `binary` columns are 0 or 1, the others at least 0.
    """
    # HiGHS stops at an absolute gap of 1e-6: scale so that this is far below any price.
    scale = 1e4 / max(float(np.abs(cost).max(initial=0.0)), 1e-300)
    upper = np.full(len(cost), np.inf)
    upper[:binary] = 1
    integrality = np.zeros(len(cost))
    integrality[:binary] = 1
    from scipy.optimize import Bounds, milp

    found = milp(
        cost * scale,
        constraints=constraint,
        bounds=Bounds(0, upper),
        integrality=integrality,
        options={"time_limit": max(time_limit, 0.01), "mip_rel_gap": 0.0},
    )
    bound = getattr(found, "mip_dual_bound", None)
    bound = 0.0 if bound is None or not np.isfinite(bound) else max(float(bound) / scale, 0.0)
    return found.x, bound, found.status == 0


def descend(
    graph: ViewGraph, found: Seats, allowed: np.ndarray, location: np.ndarray, time_limit: float
) -> np.ndarray:
    """Improve a placement one view at a time until no single move helps, or time runs out.

    A view that leaves a device takes along to the cloud whatever rests on it alone.
    """
    deadline = time.monotonic() + time_limit
    location = location.copy()
    cost = float(link_costs(graph, location).sum())
    seats = np.flatnonzero(allowed)
    improved = True
    while improved:
        improved = False
        for view in np.unique(found.node[seats]) - graph.sources:
            if time.monotonic() > deadline:
                return location
            options = found.device[seats[found.node[seats] == view + graph.sources]]
            for device in [CLOUD, *options]:
                if device == location[view]:
                    continue
                trial = location.copy()
                trial[view] = device
                trial = viable(graph, trial)
                if trial[view] != device or not fits(graph, trial):
                    continue
                trial_cost = float(link_costs(graph, trial).sum())
                if trial_cost < cost * (1 - 1e-12):
                    location, cost, improved = trial, trial_cost, True
    return location


def viable(graph: ViewGraph, location: np.ndarray) -> np.ndarray:
    """The placement with views that rest on nothing moved to the cloud, from the bottom up."""
    location = location.copy()
    for rank in range(1, int(graph.ranks.max(initial=0)) + 1):
        views = np.flatnonzero((graph.ranks == rank) & (location >= 0))
        if not len(views):
            continue
        rows = graph.rows_of(views)
        at = np.concatenate([graph.home, location])
        rests = at[graph.inputs[rows]] == location[graph.row_view[rows]]
        held = np.zeros(graph.views, bool)
        held[graph.row_view[rows[rests]]] = True
        location[views[~held[views] & (graph.pins[views] == FREE)]] = CLOUD
    return location


def fits(graph: ViewGraph, location: np.ndarray) -> bool:
    """Whether every device can carry what it was given."""
    if graph.capacity is None or graph.load is None:
        return True
    held = location >= 0
    load = np.bincount(location[held], graph.load[held], graph.devices)
    return bool(np.all(load <= graph.capacity * (1 + 1e-12)))


def _locations(graph: ViewGraph, found: Seats, taken: np.ndarray) -> np.ndarray:
    location = graph.start
    location[found.node[taken] - graph.sources] = found.device[taken]
    return viable(graph, location)
