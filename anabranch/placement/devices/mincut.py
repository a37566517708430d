"""The best choice of one device where downloads are shared: a minimum cut.

What a device's link costs, as a function of the set it holds, is submodular, so one cut finds the
best set. Shared streams become chains of level nodes: an upload at level t is paid once
if any consumer at or above t is elsewhere, a download at level t once if any consumer at or above
t is here. The source side that is smallest is taken: with equal costs both ways the smallest best
sets of different devices never meet.

The networks of all devices are independent and are cut in one go, by Dinic's method on float64
capacities.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from anabranch.flow.process import njit
from anabranch.placement.cost import rate_steps
from anabranch.placement.devices.candidates import Seats, pinned_seats, seat_externals
from anabranch.placement.graph import ViewGraph

__all__ = ["Network", "cut_devices", "smallest_side"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_SOURCE, _SINK = 0, 1


@dataclass
class Network:
    """Arcs collected for one cut; node 0 is the source, node 1 the sink."""

    nodes: int = 2
    arcs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)

    def add_nodes(self, count: int) -> np.ndarray:
        self.nodes += count
        return np.arange(self.nodes - count, self.nodes)

    def add(self, tail: np.ndarray, head: np.ndarray, capacity: np.ndarray | float) -> None:
        capacity = np.broadcast_to(np.asarray(capacity, float), tail.shape)
        self.arcs.append((tail, head, capacity))

    def add_levels(
        self,
        group: np.ndarray,
        hub: np.ndarray,
        rim: np.ndarray,
        rate: np.ndarray,
        price: np.ndarray,
        upward: bool,
    ) -> None:
        """Charge `price` times the largest rate among the rim nodes that a group is cut from.

        `upward`: the hub is on the source side and the rim node is not. Otherwise the rim node is
        on the source side and the hub is not. Entries with equal `group` have equal hub and price.
        """
        steps = rate_steps(group, rate)
        hub, rim, price = (x[steps.order] for x in (hub, rim, price))
        node = self.add_nodes(len(steps.first))
        lower, upper = node[:-1][steps.inner[1:]], node[1:][steps.inner[1:]]
        toll = price[steps.first] * steps.rise
        if upward:
            self.add(hub[steps.first], node, toll)
            self.add(lower, upper, np.inf)
            self.add(node[steps.step], rim, np.inf)
        else:
            self.add(node, hub[steps.first], toll)
            self.add(upper, lower, np.inf)
            self.add(rim, node[steps.step], np.inf)

    def cut(self) -> np.ndarray:
        """The smallest source side of a minimum cut, as a mask over the nodes."""
        tail, head, capacity = (np.concatenate(part) for part in zip(*self.arcs, strict=True))
        return smallest_side(self.nodes, tail, head, capacity)


def cut_devices(graph: ViewGraph, found: Seats, devices: np.ndarray) -> np.ndarray:
    """The seats that each device of a mask takes by its own minimum cut."""
    network = Network()
    number = np.full(len(found.node), _SOURCE, np.int64)
    held, barred = pinned_seats(graph, found)
    number[barred] = _SINK
    open_seats = ~held & ~barred & (np.arange(len(found.node)) >= found.fixed)
    free = np.flatnonzero(devices[found.device] & open_seats)
    number[free] = network.add_nodes(len(free))
    link = np.flatnonzero(devices[found.device[found.child]])
    parent, child, row = found.parent[link], found.child[link], found.row[link]
    device = found.device[child]
    rate = graph.rates[row]
    # One group per stream and device; streams that are not shared are a group each.
    group = parent if graph.shared else np.arange(len(link))
    network.add_levels(group, number[parent], number[child], rate, graph.up[device], upward=True)
    up = parent >= found.fixed
    network.add_levels(
        group[up],
        number[parent[up]],
        number[child[up]],
        rate[up],
        graph.down[device[up]],
        upward=False,
    )
    external = seat_externals(graph, found, np.ones(len(graph.inputs), bool))
    mine = devices[found.device[external.seat]]
    seat, row = external.seat[mine], external.row[mine]
    device = found.device[seat]
    stream = graph.inputs[row] if graph.shared else row
    group = np.asarray(stream, np.int64) * graph.devices + device
    sink = np.full(len(seat), _SINK)
    network.add_levels(group, sink, number[seat], graph.rates[row], graph.down[device], False)
    taken = np.zeros(len(found.node), bool)
    taken[: found.fixed] = devices[found.device[: found.fixed]]
    taken[held & devices[found.device]] = True
    if len(free):
        taken[free] = network.cut()[number[free]]
    return taken


def smallest_side(
    nodes: int, tail: np.ndarray, head: np.ndarray, capacity: np.ndarray
) -> np.ndarray:
    """The smallest source side of a minimum cut between node 0 and node 1.

    Examples
    --------
    >>> tail, head = np.array([0, 2, 0]), np.array([2, 1, 1])
    >>> smallest_side(3, tail, head, np.array([3.0, 4.0, 1.0])).tolist()
    [True, False, False]
    """
    finite = capacity[np.isfinite(capacity)]
    scale = float(finite.max(initial=0.0))
    whole = float(finite.sum())
    strong = np.where(np.isfinite(capacity), capacity, 2 * whole + 1)
    useful = (strong > 0) & (tail != head)
    return _dinic(  # type: ignore[no-any-return]
        nodes,
        tail[useful].astype(np.int64),
        head[useful].astype(np.int64),
        strong[useful],
        scale * 1e-13,
    )


class _Residual(NamedTuple):
    """Arcs and their reverses: those of node n are ``starts[n]:starts[n + 1]``."""

    starts: np.ndarray
    to: np.ndarray
    back: np.ndarray  # the reverse of each
    room: np.ndarray  # what still fits through


# Written by hand because SciPy's maximum flow takes 32-bit integers only (rates are float64), and a
# linear program is far slower. Letters: n a node, k an arc, p a position on the path.


@njit
def _dinic(nodes, tail, head, capacity, tiny):
    net = _residual(nodes, tail, head, capacity)
    depth = np.empty(nodes, np.int64)
    queue = np.empty(nodes, np.int64)
    path = np.empty(nodes + 1, np.int64)
    while _layer(net, depth, queue, tiny):
        _block(net, depth, path, tiny)
    return depth >= 0


@njit
def _residual(nodes, tail, head, capacity):
    arcs = len(tail)
    starts = np.zeros(nodes + 1, np.int64)
    for k in range(arcs):
        starts[tail[k] + 1] += 1
        starts[head[k] + 1] += 1
    for n in range(nodes):
        starts[n + 1] += starts[n]
    at = starts[:-1].copy()
    to = np.empty(2 * arcs, np.int64)
    back = np.empty(2 * arcs, np.int64)
    room = np.empty(2 * arcs)
    for k in range(arcs):
        i, j = at[tail[k]], at[head[k]]
        at[tail[k]] += 1
        at[head[k]] += 1
        to[i], back[i], room[i] = head[k], j, capacity[k]
        to[j], back[j], room[j] = tail[k], i, 0.0
    return _Residual(starts, to, back, room)


@njit
def _layer(net, depth, queue, tiny):
    # How far each node is from the source; whether the sink can be reached.
    starts, to, _, room = net
    depth[:] = -1
    depth[_SOURCE] = 0
    queue[0] = _SOURCE
    first, last = 0, 1
    while first < last:
        n = queue[first]
        first += 1
        for k in range(starts[n], starts[n + 1]):
            if room[k] > tiny and depth[to[k]] < 0:
                depth[to[k]] = depth[n] + 1
                queue[last] = to[k]
                last += 1
    return depth[_SINK] >= 0


@njit
def _block(net, depth, path, tiny):
    # Push along paths that go one layer further with each arc, until none is left.
    starts, to, back, room = net
    cursor = starts[:-1].copy()
    length = 0
    n = _SOURCE
    while True:
        if n == _SINK:
            length = _push(net, path, length, tiny)
            n = to[back[path[length]]]
            continue
        moved = False
        while cursor[n] < starts[n + 1]:
            k = cursor[n]
            if room[k] > tiny and depth[to[k]] == depth[n] + 1:
                path[length] = k
                length += 1
                n = to[k]
                moved = True
                break
            cursor[n] += 1
        if moved:
            continue
        if n == _SOURCE:
            return
        length -= 1
        n = to[back[path[length]]]
        cursor[n] += 1


@njit
def _push(net, path, length, tiny):
    # Fill the path; where on it the first arc is that is now full.
    flow = np.inf
    for p in range(length):
        flow = min(flow, net.room[path[p]])
    full = length
    for p in range(length - 1, -1, -1):
        net.room[path[p]] -= flow
        net.room[net.back[path[p]]] += flow
        if net.room[path[p]] <= tiny:
            full = p
    return full
