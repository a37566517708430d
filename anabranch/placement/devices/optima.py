"""What each device would choose for itself, by the cheapest method that is exact for it.

The cost of a plan is a sum over devices, each term depending on what that device holds. So the sum
of the devices' own minima is a bound that no plan beats; and if no view is wanted twice, that sum
is reached and the plan is proved optimal, whatever the costs are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.flow.progress import step
from anabranch.placement.devices.candidates import (
    Seats,
    pinned_seats,
    recursion,
    seat_costs,
    seats,
    sharing_seats,
)
from anabranch.placement.devices.mincut import cut_devices
from anabranch.placement.devices.prefix import sharing_devices, source_levels
from anabranch.placement.devices.program import seat_program
from anabranch.placement.graph import FREE, ViewGraph

__all__ = ["METHODS", "LocalOptima", "local_optima"]

PREFIX, RECURSION, CUT, PROGRAM = range(4)
METHODS = ("prefix rule", "recursion", "device min cut", "device milp")


@dataclass(frozen=True, eq=False)
class LocalOptima:
    """What every device wants by itself.

    Parameters
    ----------
    threshold
        Upload level of each source of the devices that follow the prefix rule: they want the views
        that need more of it. Infinite for all others.
    view, device
        The views wanted by the other devices.
    value, bound
        Least cost of each device's link, and a bound on it where time ran out.
    method
        An index into `METHODS` for each device.
    rigid
        Devices that, in a conflict, may have to take a view that they do not want by themselves:
        limited ones, and those that hold several inputs of one view.
    """

    threshold: np.ndarray
    view: np.ndarray
    device: np.ndarray
    value: np.ndarray
    bound: np.ndarray
    method: np.ndarray
    rigid: np.ndarray


def local_optima(graph: ViewGraph, time_limit: float) -> LocalOptima:
    """The least cost of every device by itself, and the smallest set that reaches it.

    Examples
    --------
    >>> from anabranch.placement.graph import pair_graph
    >>> found = local_optima(pair_graph([0], [1], [10.0], [6.0], sources=2), 1.0)
    >>> found.threshold.tolist(), found.value.tolist()
    ([0.0, 6.0], [6.0, 6.0])
    """
    step(f"plans {graph.devices:,} devices, each by itself")
    if not (graph.single_level and graph.shared):
        return _by_seats(graph, time_limit)
    special = sharing_devices(graph)
    if graph.fixed is not None:
        special[graph.devices_below(np.flatnonzero(graph.pins != FREE))] = True
    if graph.capacity is not None:
        several = np.diff(graph.sources_by_device.offsets) > 1
        special |= several & np.isfinite(graph.capacity)
    levels = source_levels(graph, special)
    resident = graph.home >= 0
    plain = resident.copy()
    plain[resident] = ~special[graph.home[resident]]
    threshold = np.where(plain, levels.threshold, np.inf)
    value = np.bincount(graph.home[plain], levels.value[plain], graph.devices).astype(float)
    method = np.full(graph.devices, PREFIX, np.int8)
    rigid = np.zeros(graph.devices, bool)
    bound = value.copy()
    view = device = np.empty(0, np.int64)
    if special.any():
        part = graph.over(np.flatnonzero(special))
        inner = _by_seats(part.graph, time_limit)
        view, device = part.views[inner.view], part.devices[inner.device]
        for whole, piece in (
            (value, inner.value),
            (bound, inner.bound),
            (method, inner.method),
            (rigid, inner.rigid),
        ):
            whole[part.devices] = piece
    return LocalOptima(threshold, view, device, value, bound, method, rigid)


def _by_seats(graph: ViewGraph, time_limit: float) -> LocalOptima:
    found = seats(graph)
    shares = sharing_seats(graph, found)
    held, barred = pinned_seats(graph, found)
    shares[found.device[held | barred]] = True
    taken, value = recursion(graph, found, shares)
    method = np.where(shares, CUT, RECURSION).astype(np.int8)
    rigid = np.zeros(graph.devices, bool)
    if shares.any():
        taken |= cut_devices(graph, found, shares)
        value = np.where(shares, seat_costs(graph, found, taken), value)
        resting = np.bincount(found.child, minlength=len(found.node))
        rigid[found.device[resting > 1]] = True
    bound = value.copy()
    wrong = _unviable(graph, found, taken)
    for number, device in enumerate(np.flatnonzero(wrong)):
        step("plans devices by integer programs", number, int(wrong.sum()))
        part = graph.over(np.array([device]))
        inner = seats(part.graph)
        solved = seat_program(part.graph, inner, np.ones(len(inner.node), bool), time_limit)
        mine = (found.device == device) & (np.arange(len(found.node)) >= found.fixed)
        held = part.views[solved.location >= 0] + graph.sources
        taken[mine] = np.isin(found.node[mine], held)
        value[device], bound[device] = solved.cost, solved.bound
        method[device] = PROGRAM
    rigid |= wrong
    wanted = np.flatnonzero(taken[found.fixed :]) + found.fixed
    return LocalOptima(
        np.full(graph.sources, np.inf),
        found.node[wanted] - graph.sources,
        found.device[wanted],
        value,
        bound,
        method,
        rigid,
    )


def _unviable(graph: ViewGraph, found: Seats, taken: np.ndarray) -> np.ndarray:
    """Devices whose set is too heavy, or has a view that rests on nothing."""
    rests = np.zeros(len(found.node), bool)
    rests[: found.fixed] = True
    rests |= pinned_seats(graph, found)[0]
    rests[found.child[taken[found.parent]]] = True
    wrong = np.zeros(graph.devices, bool)
    wrong[found.device[taken & ~rests]] = True
    if graph.capacity is not None and graph.load is not None:
        upper = np.flatnonzero(taken[found.fixed :]) + found.fixed
        load = graph.load[found.node[upper] - graph.sources]
        weight = np.bincount(found.device[upper], load, graph.devices)
        wrong |= weight > graph.capacity * (1 + 1e-12)
    return wrong
