"""What a placement costs: each stream crosses a link in one direction once, at its largest rate.

    cost = sum over streams u on a device d of  up[d]   * max rate needed anywhere else
         + sum over u and devices d not u's of  down[d] * max rate needed on d

The last hop to who reads a view is counted for readers that are named (see `pinning`); the paper
counts none (section 3.2).

Letters of the compiled part: v is a view, u a node that it reads, e the place of that in the rows
of views, d a device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.flow.process import njit
from anabranch.placement.graph import ViewGraph
from anabranch.placement.orders import grouped

__all__ = [
    "Steps",
    "Traffic",
    "all_upload_cost",
    "costs_with",
    "link_costs",
    "node_locations",
    "rate_steps",
    "simple_costs",
    "traffic",
]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"


class Traffic(NamedTuple):
    """What crosses the links: a stream, the device whose link it is, and the rate."""

    up_node: np.ndarray
    up_device: np.ndarray
    up_rate: np.ndarray
    down_node: np.ndarray
    down_device: np.ndarray
    down_rate: np.ndarray


class Steps(NamedTuple):
    """The different rates of each group, rising, group by group.

    A stream that crosses a link at a rate climbs all steps of its group up to that rate.
    """

    order: np.ndarray  # entries by group and rising rate
    step: np.ndarray  # of each entry, in that order
    first: np.ndarray  # where in that order each step begins
    rise: np.ndarray  # of each step over the one below it, or over 0
    inner: np.ndarray  # whether a step has one below it


def rate_steps(group: np.ndarray, rate: np.ndarray) -> Steps:
    """Cut the rates of each group into steps.

    Examples
    --------
    >>> steps = rate_steps(np.array([5, 5, 4, 5]), np.array([2.0, 3.0, 1.0, 2.0]))
    >>> steps.order.tolist(), steps.step.tolist(), steps.rise.tolist(), steps.inner.tolist()
    ([2, 0, 3, 1], [0, 1, 1, 2], [1.0, 2.0, 1.0], [False, False, True])
    """
    order = np.lexsort((rate, group))
    group, rate = group[order], rate[order]
    fresh = np.ones(len(group), bool)
    fresh[1:] = group[1:] != group[:-1]
    new = fresh.copy()
    new[1:] |= rate[1:] != rate[:-1]
    first = np.flatnonzero(new)
    inner = ~fresh[first]
    rise = rate[first].copy()
    rise[inner] -= rate[first[inner] - 1]
    return Steps(order, np.cumsum(new) - 1, first, rise, inner)


def node_locations(graph: ViewGraph, location: np.ndarray) -> np.ndarray:
    """The location of every node, sources first."""
    return np.concatenate([graph.home, location]).astype(np.int32)


def link_costs(graph: ViewGraph, location: np.ndarray) -> np.ndarray:
    """What a placement costs on the link of each device; their sum is the cost of the plan.

    Examples
    --------
    >>> from anabranch.placement.graph import pair_graph
    >>> graph = pair_graph([0], [1], [10.0], [6.0], sources=2)
    >>> link_costs(graph, np.array([-1])).tolist()   # both uploaded
    [10.0, 6.0]
    >>> link_costs(graph, np.array([0])).tolist()    # 1 uploads, 0 downloads
    [6.0, 6.0]
    """
    at = node_locations(graph, location)
    found = traffic(graph, location, at)
    return np.bincount(
        found.up_device, graph.up[found.up_device] * found.up_rate, graph.devices
    ) + np.bincount(
        found.down_device, graph.down[found.down_device] * found.down_rate, graph.devices
    )


def costs_with(
    graph: ViewGraph, location: np.ndarray, views: np.ndarray, places: np.ndarray
) -> list[float]:
    """What a placement would cost with one of some views elsewhere, for each of them.

    To the last bit what `link_costs` adds up to, but only links that it concerns are looked at.

    Examples
    --------
    >>> from anabranch.placement.graph import pair_graph
    >>> graph = pair_graph([0], [1], [10.0], [6.0], sources=2)
    >>> costs_with(graph, np.array([-1]), np.array([0, 0]), np.array([0, 1]))
    [12.0, 20.0]
    """
    costs = link_costs(graph, location).astype(float)  # whole numbers if nothing crosses a link
    read, of = graph.consumers, graph.sources_by_device
    begin, order = grouped(location + 1, graph.devices + 1)  # by place, the cloud first
    found = []
    for v, place in zip(views.tolist(), places.tolist(), strict=True):
        there = location.copy()
        there[v] = place
        if not (graph.shared and graph.single_level):
            found.append(float(link_costs(graph, there).sum()))
            continue
        one, homes = costs.copy(), graph.home[graph.inputs[graph.rows_of(np.array([v]))]]
        for d in {int(location[v]), place, *homes.tolist()} - {-1}:
            mine = order[begin[d + 1] : begin[d + 2]]
            mine = np.union1d(mine, [v]) if place == d else mine[mine != v]
            own = of.rows[of.offsets[d] : of.offsets[d + 1]]
            tables = graph.rows, graph.links, read.offsets, read.rows, graph.row_view
            one[d] = _link(d, mine.astype(np.int64), own, *tables, there)
        found.append(float(one.sum()))
    return found


def all_upload_cost(graph: ViewGraph) -> float:
    """The cost of running every view in the cloud that is not pinned elsewhere."""
    return float(link_costs(graph, graph.start).sum())


def simple_costs(graph: ViewGraph, location: np.ndarray) -> tuple[float, float]:
    """The cost of a placement and of uploading everything, where no download can be shared.

    One pass over a graph of one level: `link_costs` must look up each stream and device.
    """
    found = _simple(
        graph.offsets, graph.inputs, graph.rates, graph.home, location, graph.up, graph.down
    )
    return float(found[0]), float(found[1])


def traffic(graph: ViewGraph, location: np.ndarray, at: np.ndarray | None = None) -> Traffic:
    """Every stream that crosses a link, with its rate; streams of rate zero are left out."""
    at = node_locations(graph, location) if at is None else at
    if not graph.shared:
        here, there = at[graph.inputs], np.repeat(location, np.diff(graph.offsets))
        crosses = (here != there) & (graph.rates > 0)
        up, down = crosses & (here >= 0), crosses & (there >= 0)
        return Traffic(
            graph.inputs[up],
            here[up],
            graph.rates[up],
            graph.inputs[down],
            there[down],
            graph.rates[down],
        )
    top = _uploads(graph.offsets, graph.inputs, graph.rates, at, graph.sources)
    node = np.flatnonzero(top > 0)
    down = _downloads(graph.offsets, graph.inputs, graph.rates, at, graph.sources, graph.devices)
    return Traffic(node, at[node], top[node], *down)


@njit
def _simple(offsets, inputs, rates, home, location, up, down):
    sent = np.zeros(len(home))
    top = np.zeros(len(home))
    cost, whole = 0.0, 0.0
    for v in range(len(offsets) - 1):
        here = location[v]
        for e in range(offsets[v], offsets[v + 1]):
            s, rate = inputs[e], rates[e]
            if home[s] != here:
                if rate > sent[s]:
                    sent[s] = rate
                if here >= 0:
                    cost += down[here] * rate
            if rate > top[s]:
                top[s] = rate
    for s in range(len(home)):
        if home[s] >= 0:
            cost += up[home[s]] * sent[s]
            whole += up[home[s]] * top[s]
    return cost, whole


@njit
def _uploads(offsets, inputs, rates, at, sources):
    top = np.zeros(len(at))
    for v in range(len(offsets) - 1):
        here = at[sources + v]
        for e in range(offsets[v], offsets[v + 1]):
            u = inputs[e]
            if at[u] >= 0 and at[u] != here and rates[e] > top[u]:
                top[u] = rates[e]
    return top


@njit
def _downloads(offsets, inputs, rates, at, sources, devices):
    # Views by the device they are on, so that one stamp per node finds shared downloads.
    views = len(offsets) - 1
    starts = np.zeros(devices + 1, np.int64)
    crossing = 0
    for v in range(views):
        d = at[sources + v]
        if d >= 0:
            starts[d + 1] += 1
            crossing += offsets[v + 1] - offsets[v]
    for d in range(devices):
        starts[d + 1] += starts[d]
    order = np.empty(starts[devices], np.int32)
    cursor = starts[:-1].copy()
    for v in range(views):
        d = at[sources + v]
        if d >= 0:
            order[cursor[d]] = v
            cursor[d] += 1
    stamp = np.full(len(at), -1, np.int64)
    node = np.empty(crossing, np.int32)
    device = np.empty(crossing, np.int32)
    rate = np.empty(crossing)
    count = 0
    for d in range(devices):
        first = count
        for k in range(starts[d], starts[d + 1]):
            v = order[k]
            for e in range(offsets[v], offsets[v + 1]):
                u = inputs[e]
                if at[u] == d or rates[e] <= 0:
                    continue
                slot = stamp[u]
                if slot >= first and node[slot] == u:
                    rate[slot] = max(rate[slot], rates[e])
                else:
                    stamp[u] = count
                    node[count], device[count], rate[count] = u, d, rates[e]
                    count += 1
    return node[:count].copy(), device[:count].copy(), rate[:count].copy()


@njit
def _link(d, mine, own, table, links, offsets, readers, row_view, location):
    # As `_uploads` and `_downloads` find it, and added up in their order.
    up = 0.0
    for u in own:
        top = 0.0
        for k in range(offsets[u], offsets[u + 1]):
            e = readers[k]
            if location[row_view[e]] != d and table.rates[e] > top:
                top = table.rates[e]
        if top > 0:
            up += links.up[d] * top
    stamp = np.full(len(links.home), -1, np.int64)
    rate = np.empty(len(table.inputs))
    count = 0
    for v in mine:
        for e in range(table.offsets[v], table.offsets[v + 1]):
            u = table.inputs[e]
            if links.home[u] == d or table.rates[e] <= 0:
                continue
            if stamp[u] >= 0:
                rate[stamp[u]] = max(rate[stamp[u]], table.rates[e])
            else:
                stamp[u] = count
                rate[count] = table.rates[e]
                count += 1
    down = 0.0
    for k in range(count):
        down += links.down[d] * rate[k]
    return up + down
