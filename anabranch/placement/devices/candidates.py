"""Which views each device may hold, and the best choice of one device where nothing is shared.

A device may hold a view only if its own data is somewhere below it. A *seat* is such a pair of a
node and a device; a *link* says that a view's seat can rest on the seat of one of its inputs on the
same device. While every seat rests on one other (the paper's assumption 2) and no download serves
two seats, the seats of a device are trees and a recursion from the top is exact:

    G(o) = min over t of  up * t + sum over consumers w above t of (down * other inputs + G(w))

is the price of having o on the device (the paper's algorithm 3, flaw F2, charges nothing for the
other inputs of a kept parent).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from anabranch.placement.devices.prefix import prefix_rule
from anabranch.placement.graph import FREE, ViewGraph, spread_rows

__all__ = [
    "Externals",
    "Seats",
    "pinned_seats",
    "recursion",
    "seat_costs",
    "seat_externals",
    "seats",
    "sharing_seats",
]


@dataclass(frozen=True, eq=False)
class Seats:
    """Seats of all devices, by rising rank of their node, and the links between them.

    The seats of sources come first and are always taken.
    """

    node: np.ndarray
    device: np.ndarray
    rank: np.ndarray
    parent: np.ndarray  # of each link: the seat of the input
    child: np.ndarray  # the seat of the view
    row: np.ndarray  # the row of the graph

    @property
    def fixed(self) -> int:
        """How many seats are those of sources."""
        return int(np.searchsorted(self.rank, 1))


class Externals(NamedTuple):
    """Inputs that a seat must have brought to it: the seat and the row of the graph."""

    seat: np.ndarray
    row: np.ndarray


def seats(graph: ViewGraph) -> Seats:
    """All seats of a graph.

    Examples
    --------
    >>> from anabranch.placement.graph import pair_graph
    >>> found = seats(pair_graph([0], [1], [10.0], [6.0], sources=2))
    >>> found.node.tolist(), found.device.tolist(), found.parent.tolist(), found.child.tolist()
    ([0, 1, 2, 2], [0, 1, 0, 1], [0, 1], [2, 3])
    """
    sources = np.flatnonzero(graph.home >= 0)
    nodes = [sources.astype(np.int64)]
    devices = [graph.home[sources].astype(np.int64)]
    ranks = [np.zeros(len(sources), np.int32)]
    starts = np.zeros(graph.sources + graph.views + 1, np.int64)  # first seat of a node ...
    sizes = np.zeros(graph.sources + graph.views, np.int64)  # ... and how many it has
    starts[sources], sizes[sources] = np.arange(len(sources)), 1
    count = len(sources)
    links: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    order = np.argsort(graph.ranks, kind="stable")
    bounds = np.searchsorted(graph.ranks[order], np.arange(1, graph.ranks.max(initial=0) + 2))
    all_devices = devices[0]
    for rank, (low, high) in enumerate(pairwise(bounds), 1):
        rows = graph.rows_of(order[low:high])
        below = sizes[graph.inputs[rows]]
        first = starts[graph.inputs[rows]]
        row = np.repeat(rows, below)
        parent = np.arange(len(row)) + np.repeat(first - (np.cumsum(below) - below), below)
        view = graph.row_view[row].astype(np.int64)
        key = view * graph.devices + all_devices[parent]
        keys, child = np.unique(np.concatenate([key, _pinned(graph, rank)]), return_inverse=True)
        child = child[: len(key)]
        view, device = keys // max(graph.devices, 1), keys % max(graph.devices, 1)
        held, at, held_sizes = np.unique(view, return_index=True, return_counts=True)
        starts[graph.sources + held] = count + at
        sizes[graph.sources + held] = held_sizes
        nodes.append(view + graph.sources)
        devices.append(device)
        ranks.append(np.full(len(keys), rank, np.int32))
        links.append((parent, child + count, row))
        count += len(keys)
        all_devices = np.concatenate([all_devices, device])
    joined = [np.concatenate(part) for part in zip(*links, strict=True)] if links else None
    parent, child, row = joined or [np.empty(0, np.int64)] * 3
    return Seats(np.concatenate(nodes), all_devices, np.concatenate(ranks), parent, child, row)


def _pinned(graph: ViewGraph, rank: int) -> np.ndarray:
    """Seats that views of a rank have because they are pinned there, as keys."""
    views = np.flatnonzero((graph.pins >= 0) & (graph.ranks == rank))
    keys: np.ndarray = views * graph.devices + graph.pins[views]
    return keys


def pinned_seats(graph: ViewGraph, found: Seats) -> tuple[np.ndarray, np.ndarray]:
    """Seats that must be taken, and seats that must not, since their view is pinned."""
    at = np.full(len(found.node), FREE, np.int64)
    at[found.fixed :] = graph.pins[found.node[found.fixed :] - graph.sources]
    return at == found.device, (at != FREE) & (at != found.device)


def seat_externals(graph: ViewGraph, found: Seats, only: np.ndarray) -> Externals:
    """The inputs of seats that are not candidates for the same device, of the rows in a mask."""
    kept = np.concatenate([[0], np.cumsum(only)])
    offsets = kept[graph.offsets]
    rows = np.flatnonzero(only)
    upper = np.arange(found.fixed, len(found.node))
    view = found.node[upper] - graph.sources
    sizes = offsets[view + 1] - offsets[view]
    seat = np.repeat(upper, sizes)
    row = rows[spread_rows(offsets, view)]
    linked = found.child * len(graph.inputs) + found.row
    own = np.isin(seat * len(graph.inputs) + row, linked)
    return Externals(seat[~own], row[~own])


def sharing_seats(graph: ViewGraph, found: Seats) -> np.ndarray:
    """Devices for which the recursion may be wrong: they share a download or break assumption 2."""
    shares = np.zeros(graph.devices, bool)
    resting = np.bincount(found.child, minlength=len(found.node))
    shares[found.device[resting > 1]] = True
    if graph.shared:
        readers = np.diff(graph.consumers.offsets)
        external = seat_externals(graph, found, readers[graph.inputs] > 1)
        stream = graph.inputs[external.row].astype(np.int64)
        keys, counts = np.unique(
            stream * graph.devices + found.device[external.seat], return_counts=True
        )
        shares[keys[counts > 1] % max(graph.devices, 1)] = True
    return shares


def recursion(graph: ViewGraph, found: Seats, skip: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The seats that each device takes by the recursion G, and the least cost of each device.

    Devices in `skip` take nothing.
    """
    price_of = np.zeros(len(found.node))
    wanted = ~skip[found.device]
    rate = graph.rates[found.row]
    others = graph.others_of(found.row)
    device = found.device[found.child]
    live = wanted[found.parent]
    keeps = np.zeros(len(found.parent), bool)
    for rank in range(int(found.rank.max(initial=0)) - 1, -1, -1):
        at = np.flatnonzero(live & (found.rank[found.parent] == rank))
        if not len(at):
            continue
        price = graph.down[device[at]] * others[at] + price_of[found.child[at]]
        units, unit = np.unique(found.parent[at], return_inverse=True)
        if not graph.shared:  # every link decides alone
            keep = graph.up[device[at]] * rate[at] > price
            value = np.where(keep, price, graph.up[device[at]] * rate[at])
            price_of[units] = np.bincount(unit, value, len(units))
        else:
            rule = prefix_rule(unit, rate[at], price, graph.up[found.device[units]])
            price_of[units] = rule.value
            keep = rate[at] > rule.threshold[unit]
        keeps[at] = keep
    taken = np.zeros(len(found.node), bool)
    taken[: found.fixed] = wanted[: found.fixed]
    for rank in range(int(found.rank.max(initial=0))):
        at = np.flatnonzero(keeps & (found.rank[found.parent] == rank))
        taken[found.child[at]] |= taken[found.parent[at]]
    value = np.bincount(
        found.device[: found.fixed],
        np.where(wanted[: found.fixed], price_of[: found.fixed], 0.0),
        graph.devices,
    )
    return taken, value


def seat_costs(graph: ViewGraph, found: Seats, taken: np.ndarray) -> np.ndarray:
    """What each device's link costs if it holds the taken seats, whatever the others do."""
    rate = graph.rates[found.row]
    by_parent = found.parent if graph.shared else np.arange(len(found.parent))
    device = found.device[found.parent]
    cost = np.zeros(graph.devices)
    for price, crosses in (
        (graph.up, taken[found.parent] & ~taken[found.child]),
        (graph.down, taken[found.child] & ~taken[found.parent]),
    ):
        cost += _charge(by_parent[crosses], device[crosses], rate[crosses], price, graph.devices)
    external = seat_externals(graph, found, np.ones(len(graph.inputs), bool))
    at = taken[external.seat]
    seat, row = external.seat[at], external.row[at]
    stream = np.asarray(graph.inputs[row] if graph.shared else row, np.int64)
    group = stream * graph.devices + found.device[seat]
    cost += _charge(group, found.device[seat], graph.rates[row], graph.down, graph.devices)
    return cost


def _charge(
    group: np.ndarray, device: np.ndarray, rate: np.ndarray, price: np.ndarray, devices: int
) -> np.ndarray:
    if not len(group):
        return np.zeros(devices)
    order = np.lexsort((rate, group))
    last = np.append(np.flatnonzero(np.diff(group[order])), len(group) - 1)
    top = order[last]
    return np.bincount(device[top], price[device[top]] * rate[top], devices)
