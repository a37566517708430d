"""Devices that want the same views, or more than they can carry: a mixed-integer program.

Variables say which seats are taken; every stream has an upload and a download amount per device
that its consumers push up. The program covers the devices of one conflict only and the seats that
matter, and is solved by HiGHS. When time runs out the better of its best answer and a
local search is taken, and the bound that was reached tells how far off it can be.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from anabranch.placement.cost import link_costs
from anabranch.placement.devices.candidates import Seats, seat_externals
from anabranch.placement.graph import CLOUD, ViewGraph

__all__ = ["Solution", "seat_program", "solve_binary"]


class Solution(NamedTuple):
    """Where the views went, what that costs, and a bound that no placement can beat."""

    location: np.ndarray
    cost: float
    bound: float
    optimal: bool
    method: str


class _Matrix:
    """Rows of a constraint matrix, added a block at a time."""

    def __init__(self) -> None:
        self.parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.low: list[np.ndarray] = []
        self.rows = 0

    def at_least(self, low: np.ndarray) -> np.ndarray:
        """New rows ``... >= low``; returns their numbers."""
        self.low.append(np.asarray(low, float))
        self.rows += len(low)
        return np.arange(self.rows - len(low), self.rows)

    def put(self, row: np.ndarray, column: np.ndarray, value: np.ndarray | float) -> None:
        self.parts.append((row, column, np.broadcast_to(np.asarray(value, float), row.shape)))

    def constraint(self, columns: int) -> LinearConstraint:
        row, column, value = (np.concatenate(part) for part in zip(*self.parts, strict=True))
        matrix = coo_array((value, (row, column)), shape=(self.rows, columns)).tocsr()
        return LinearConstraint(matrix, np.concatenate(self.low), np.inf)


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
    allowed[: found.fixed] = False
    column = np.full(len(found.node), -1)
    column[allowed] = np.arange(allowed.sum())
    seats = int(allowed.sum())
    matrix = _Matrix()
    device = found.device[found.child]
    rate = graph.rates[found.row]
    fixed_parent = found.parent < found.fixed
    # Uploads: amount >= rate * (parent taken - child taken), where the parent can be taken.
    at = np.flatnonzero(fixed_parent | (column[found.parent] >= 0))
    group = found.parent[at] if graph.shared else at
    groups, amount = np.unique(group, return_inverse=True)
    price_up = graph.up[found.device[found.parent[at]]]
    objective = [np.zeros(seats), _first(amount, price_up, len(groups))]
    columns = seats + len(groups)
    rows = matrix.at_least(np.where(fixed_parent[at], rate[at], 0.0))
    matrix.put(rows, seats + amount, 1.0)
    _put_known(matrix, rows, column[found.child[at]], rate[at])
    _put_known(matrix, rows, np.where(fixed_parent[at], -1, column[found.parent[at]]), -rate[at])
    # Downloads of streams that the device could hold itself.
    at = np.flatnonzero((column[found.child] >= 0) & ~fixed_parent)
    group = found.parent[at] if graph.shared else at
    groups, amount = np.unique(group, return_inverse=True)
    objective.append(_first(amount, graph.down[device[at]], len(groups)))
    rows = matrix.at_least(np.zeros(len(at)))
    matrix.put(rows, columns + amount, 1.0)
    _put_known(matrix, rows, column[found.child[at]], -rate[at])
    _put_known(matrix, rows, column[found.parent[at]], rate[at])
    columns += len(groups)
    # Downloads of everything else.
    external = seat_externals(graph, found, np.ones(len(graph.inputs), bool))
    at = np.flatnonzero(column[external.seat] >= 0)
    seat, row = external.seat[at], external.row[at]
    stream = np.asarray(graph.inputs[row] if graph.shared else row, np.int64)
    groups, amount = np.unique(stream * graph.devices + found.device[seat], return_inverse=True)
    objective.append(_first(amount, graph.down[found.device[seat]], len(groups)))
    rows = matrix.at_least(np.zeros(len(at)))
    matrix.put(rows, columns + amount, 1.0)
    matrix.put(rows, column[seat], -graph.rates[row])
    columns += len(groups)
    # A seat rests on a taken one; sources always are.
    at = np.flatnonzero(column[found.child] >= 0)
    rests_on_source = np.zeros(len(found.node), bool)
    rests_on_source[found.child[at][fixed_parent[at]]] = True
    at = at[~rests_on_source[found.child[at]]]
    children, number = np.unique(found.child[at], return_inverse=True)
    rows = matrix.at_least(np.zeros(len(children)))
    matrix.put(rows, column[children], -1.0)
    _put_known(matrix, rows[number], column[found.parent[at]], 1.0)
    # Each view in one place, each device within its capacity.
    at = np.flatnonzero(allowed)
    views, number = np.unique(found.node[at], return_inverse=True)
    rows = matrix.at_least(np.full(len(views), -1.0))
    matrix.put(rows[number], column[at], -1.0)
    if graph.capacity is not None and graph.load is not None:
        bound = np.flatnonzero(np.isfinite(graph.capacity))
        rows = matrix.at_least(-graph.capacity[bound])
        numbers = np.full(graph.devices, -1)
        numbers[bound] = rows
        tied = at[numbers[found.device[at]] >= 0]
        load = graph.load[found.node[tied] - graph.sources]
        matrix.put(numbers[found.device[tied]], column[tied], -load)
    cost = np.concatenate(objective)
    answer, bound_cost, proved = solve_binary(cost, matrix.constraint(columns), seats, time_limit)
    candidates = []
    if answer is not None:
        candidates.append(_locations(graph, found, at[answer[:seats] > 0.5]))
    if not proved:
        start = candidates[0] if candidates else np.full(graph.views, CLOUD, np.int32)
        candidates.append(descend(graph, found, allowed, start, time_limit))
    costs = [float(link_costs(graph, location).sum()) for location in candidates]
    best = int(np.argmin(costs))
    method = "milp" if proved else "local search"
    bound_cost = costs[best] if proved else min(bound_cost, costs[best])
    return Solution(candidates[best], costs[best], bound_cost, proved, method)


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
        location[views[~held[views]]] = CLOUD
    return location


def fits(graph: ViewGraph, location: np.ndarray) -> bool:
    """Whether every device can carry what it was given."""
    if graph.capacity is None or graph.load is None:
        return True
    held = location >= 0
    load = np.bincount(location[held], graph.load[held], graph.devices)
    return bool(np.all(load <= graph.capacity * (1 + 1e-12)))


def _first(group: np.ndarray, value: np.ndarray, groups: int) -> np.ndarray:
    out = np.zeros(groups)
    out[group] = value
    return out


def _put_known(
    matrix: _Matrix, row: np.ndarray, column: np.ndarray, value: np.ndarray | float
) -> None:
    known = column >= 0
    matrix.put(
        row[known], column[known], np.broadcast_to(np.asarray(value, float), row.shape)[known]
    )


def _locations(graph: ViewGraph, found: Seats, taken: np.ndarray) -> np.ndarray:
    location = np.full(graph.views, CLOUD, np.int32)
    location[found.node[taken] - graph.sources] = found.device[taken]
    return viable(graph, location)
