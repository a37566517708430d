"""The view graph: which inputs each view needs, at which rates, and where the sources live.

Nodes are numbered, sources first and views after them; devices are numbered too, and the cloud is
``CLOUD`` (-1). One row per input of a view, the rows of a view side by side. The names that a
caller knows are kept beside the numbers and are used for messages and results only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from anabranch.flow.process import njit
from anabranch.placement.rows import Links, Rows

__all__ = ["CLOUD", "CLOUD_NAME", "Consumers", "Part", "ViewGraph", "pair_graph", "spread_rows"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

CLOUD = -1
CLOUD_NAME = "cloud"


class Consumers(NamedTuple):
    """Rows that read a node: ``rows[offsets[node]:offsets[node + 1]]``."""

    offsets: np.ndarray
    rows: np.ndarray


class Part(NamedTuple):
    """A part of a graph that stands alone, and the numbers that its members have in the whole.

    A source of the part may be a view of the whole.
    """

    graph: ViewGraph
    views: np.ndarray
    devices: np.ndarray
    nodes: np.ndarray


@dataclass(frozen=True, eq=False)
class ViewGraph:
    """Views, their inputs and the network, as arrays.

    Parameters
    ----------
    offsets
        View v has the rows ``offsets[v]:offsets[v + 1]``.
    inputs, rates
        The node that each row reads and how much of it the view needs.
    home
        The device of each source, or ``CLOUD``.
    up, down
        Cost per unit on the link of each device, away from it and towards it.
    capacity, load
        What each device can carry and how much each view weighs, if that is limited.
    shared
        Whether one upload or download of a stream serves every view behind the link. Streams made
        for one operator each are not shared.

    Examples
    --------
    >>> graph = pair_graph([0, 0], [1, 2], [10.0, 3.0], [6.0, 5.0], sources=3)
    >>> graph.views, graph.sources, graph.single_level
    (2, 3, True)
    >>> part = graph.over(np.array([2]))
    >>> part.views.tolist(), part.graph.home.tolist()
    ([1], [-1, 0])
    """

    offsets: np.ndarray
    inputs: np.ndarray
    rates: np.ndarray
    home: np.ndarray
    up: np.ndarray
    down: np.ndarray
    capacity: np.ndarray | None = None
    load: np.ndarray | None = None
    shared: bool = True
    source_ids: Any = field(default=None, repr=False)
    view_ids: Any = field(default=None, repr=False)
    device_ids: Any = field(default=None, repr=False)

    @property
    def rows(self) -> Rows:
        return Rows(self.offsets, self.inputs, self.rates)

    @property
    def links(self) -> Links:
        return Links(self.home, self.up, self.down)

    @property
    def sources(self) -> int:
        return len(self.home)

    @property
    def views(self) -> int:
        return len(self.offsets) - 1

    @property
    def devices(self) -> int:
        return len(self.up)

    @cached_property
    def single_level(self) -> bool:
        """Whether no view reads another view."""
        return bool(len(self.inputs) == 0 or self.inputs.max() < self.sources)

    @cached_property
    def row_view(self) -> np.ndarray:
        """The view of each row."""
        return np.repeat(np.arange(self.views, dtype=np.int32), np.diff(self.offsets))

    @cached_property
    def consumers(self) -> Consumers:
        """The rows that read each node; only sources are read in a graph of one level."""
        nodes = self.sources if self.single_level else self.sources + self.views
        return Consumers(*_grouped(self.inputs, nodes))

    @cached_property
    def ranks(self) -> np.ndarray:
        """Height of each view: 1 over sources alone. -1 where a cycle keeps it from having one."""
        if self.single_level:
            return np.ones(self.views, np.int32)
        read = self.consumers
        found: np.ndarray = _ranks(
            self.offsets, self.inputs, read.offsets, read.rows, self.row_view, self.home
        )
        return found

    @cached_property
    def sources_by_device(self) -> Consumers:
        """Sources of each device: ``rows[offsets[d]:offsets[d + 1]]``."""
        resident = np.flatnonzero(self.home >= 0).astype(np.int32)
        offsets, order = _grouped(self.home[resident], self.devices)
        return Consumers(offsets, resident[order])

    def rows_of(self, views: np.ndarray) -> np.ndarray:
        """The rows of some views, in their order."""
        return spread_rows(self.offsets, views)

    def views_over(self, devices: np.ndarray) -> np.ndarray:
        """Views with data of any of these devices somewhere below them, in ascending order."""
        read = self.consumers
        frontier = spread_rows(self.sources_by_device.offsets, devices)
        frontier = self.sources_by_device.rows[frontier].astype(np.int64)
        found = np.empty(0, np.int64)
        while len(frontier):
            rows = read.rows[spread_rows(read.offsets, frontier)]
            reached = np.unique(self.row_view[rows])
            fresh = np.setdiff1d(reached, found, assume_unique=True).astype(np.int64)
            found = np.union1d(found, fresh)
            frontier = fresh + self.sources if not self.single_level else fresh[:0]
        return found

    def over(self, devices: np.ndarray) -> Part:
        """The part that decides about these devices: the views over them.

        What those views read besides is fixed as far as these devices' links go, and becomes a
        source in the cloud. The part keeps its devices in ascending order.
        """
        devices = np.unique(devices)
        views = self.views_over(devices)
        rows = self.rows_of(views)
        nodes, codes = np.unique(self.inputs[rows], return_inverse=True)
        new_device = np.full(self.devices, CLOUD, np.int32)
        new_device[devices] = np.arange(len(devices), dtype=np.int32)
        inner = np.isin(nodes - self.sources, views) & (nodes >= self.sources)
        outer = ~inner
        is_source = nodes < self.sources
        home = np.full(len(nodes), CLOUD, np.int32)
        resident = is_source.copy()
        resident[is_source] = self.home[nodes[is_source]] >= 0
        home[resident] = new_device[self.home[nodes[resident]]]
        new_node = np.empty(len(nodes), np.int32)
        new_node[outer] = np.arange(outer.sum(), dtype=np.int32)
        new_node[inner] = np.searchsorted(views, nodes[inner] - self.sources) + outer.sum()
        sizes = np.diff(self.offsets)[views]
        graph = ViewGraph(
            offsets=np.concatenate([[0], np.cumsum(sizes)]),
            inputs=new_node[codes],
            rates=self.rates[rows],
            home=home[outer],
            up=self.up[devices],
            down=self.down[devices],
            capacity=None if self.capacity is None else self.capacity[devices],
            load=None if self.load is None else self.load[views],
            shared=self.shared,
        )
        return Part(graph, views, devices, nodes[outer])

    def others_of(self, rows: np.ndarray) -> np.ndarray:
        """For each row, how much its view needs of all other inputs together."""
        view = self.row_view[rows]
        first, size = self.offsets[view], np.diff(self.offsets)[view]
        others = np.zeros(len(rows))
        # Of two inputs take the other one itself: no rounding, so that ties stay ties.
        two = size == 2
        others[two] = self.rates[2 * first[two] + 1 - rows[two]]
        if (wide := np.flatnonzero(size > 2)).size:
            total = np.add.reduceat(self.rates, self.offsets[:-1])
            others[wide] = np.maximum(total[view[wide]] - self.rates[rows[wide]], 0.0)
        return others

    def devices_below(self, views: np.ndarray) -> np.ndarray:
        """Devices with data below any of these views."""
        found = [np.empty(0, np.int64)]
        frontier = np.asarray(views, np.int64)
        seen = np.zeros(0 if self.single_level else self.views, bool)
        while len(frontier):
            inputs = self.inputs[self.rows_of(frontier)]
            leaf = inputs < self.sources
            home = self.home[inputs[leaf]]
            found.append(np.unique(home[home >= 0]).astype(np.int64))
            frontier = np.unique(inputs[~leaf]).astype(np.int64) - self.sources
            frontier = frontier[~seen[frontier]]
            seen[frontier] = True
        return np.unique(np.concatenate(found))

    def with_rates(self, rows: np.ndarray, rates: np.ndarray) -> ViewGraph:
        """The same graph with some rates changed."""
        changed = self.rates.copy()
        changed[rows] = rates
        found = replace(self, rates=changed)
        for name in ("single_level", "row_view", "consumers", "ranks", "sources_by_device"):
            if name in self.__dict__:
                found.__dict__[name] = self.__dict__[name]
        return found

    def without_views(self, views: np.ndarray) -> tuple[ViewGraph, np.ndarray]:
        """The graph without some views and all above them; the new number of each view, or -1."""
        gone = np.zeros(self.views, bool)
        frontier = np.asarray(views, np.int64)
        while len(frontier):
            gone[frontier] = True
            if self.single_level:
                break
            read = self.consumers
            rows = read.rows[spread_rows(read.offsets, frontier + self.sources)]
            frontier = np.unique(self.row_view[rows]).astype(np.int64)
            frontier = frontier[~gone[frontier]]
        kept = np.flatnonzero(~gone)
        number = np.full(self.views, -1, np.int64)
        number[kept] = np.arange(len(kept))
        rows = self.rows_of(kept)
        inputs = self.inputs[rows].copy()
        upper = inputs >= self.sources
        inputs[upper] = number[inputs[upper] - self.sources] + self.sources
        found = replace(
            self,
            offsets=np.concatenate([[0], np.cumsum(np.diff(self.offsets)[kept])]),
            inputs=inputs,
            rates=self.rates[rows],
            load=None if self.load is None else self.load[kept],
            view_ids=kept if self.view_ids is None else np.asarray(self.view_ids, object)[kept],
        )
        return found, number

    def view_name(self, view: int) -> Any:
        return _name(self.view_ids, view)

    def source_name(self, source: int) -> Any:
        return _name(self.source_ids, source)

    def node_name(self, node: int) -> Any:
        if node < self.sources:
            return self.source_name(node)
        return self.view_name(node - self.sources)

    def device_name(self, device: int) -> Any:
        return CLOUD_NAME if device < 0 else _name(self.device_ids, device)


def pair_graph(
    a: Any,
    b: Any,
    rate_a: Any,
    rate_b: Any,
    *,
    sources: int,
    up: Any = 1.0,
    down: Any = 1.0,
    home: Any = None,
) -> ViewGraph:
    """One view per pair of sources, each source on a device of its own unless `home` says else.

    `rate_a` is how much of `a` the view needs, `rate_b` how much of `b`: the demand graph of a
    social network, from arrays alone.
    """
    a = np.asarray(a)
    inputs = np.empty(2 * len(a), np.int32)
    inputs[0::2], inputs[1::2] = a, b
    rates = np.empty(2 * len(a))
    rates[0::2], rates[1::2] = rate_a, rate_b
    home = np.arange(sources, dtype=np.int32) if home is None else np.asarray(home, np.int32)
    devices = int(home.max(initial=-1)) + 1
    return ViewGraph(
        offsets=np.arange(0, 2 * len(a) + 1, 2, dtype=np.int64),
        inputs=inputs,
        rates=rates,
        home=home,
        up=np.broadcast_to(np.asarray(up, float), devices).copy(),
        down=np.broadcast_to(np.asarray(down, float), devices).copy(),
    )


def spread_rows(offsets: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The positions of all members of some groups, group by group.

    Examples
    --------
    >>> spread_rows(np.array([0, 2, 2, 5]), np.array([2, 0])).tolist()
    [2, 3, 4, 0, 1]
    """
    groups = np.asarray(groups, np.int64)
    starts = np.asarray(offsets)[groups].astype(np.int64)
    sizes = np.asarray(offsets)[groups + 1] - starts
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    found: np.ndarray = np.arange(total) + np.repeat(starts - (ends - sizes), sizes)
    return found


def _name(ids: Any, number: int) -> Any:
    if ids is None:
        return int(number)
    found = ids[number]
    return found.item() if isinstance(found, np.generic) else found


def _grouped(keys: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
    found: tuple[np.ndarray, np.ndarray] = _counting_sort(keys, groups)
    return found


@njit
def _counting_sort(keys, groups):
    offsets = np.zeros(groups + 1, np.int64)
    for key in keys:
        offsets[key + 1] += 1
    for g in range(groups):
        offsets[g + 1] += offsets[g]
    at = offsets[:-1].copy()
    order = np.empty(len(keys), np.int32)
    for row in range(len(keys)):
        key = keys[row]
        order[at[key]] = row
        at[key] += 1
    return offsets, order


@njit
def _ranks(offsets, inputs, read_offsets, read_rows, row_view, home):
    sources, views = len(home), len(offsets) - 1
    waiting = np.zeros(views, np.int32)
    ranks = np.full(views, -1, np.int32)
    ready = np.empty(views, np.int32)
    tail = 0
    for v in range(views):
        for e in range(offsets[v], offsets[v + 1]):
            if inputs[e] >= sources:
                waiting[v] += 1
        if waiting[v] == 0:
            ready[tail] = v
            tail += 1
    head = 0
    while head < tail:
        v = ready[head]
        head += 1
        top = 0
        for e in range(offsets[v], offsets[v + 1]):
            if inputs[e] >= sources:
                top = max(top, ranks[inputs[e] - sources])
        ranks[v] = top + 1
        node = v + sources
        for k in range(read_offsets[node], read_offsets[node + 1]):
            w = row_view[read_rows[k]]
            waiting[w] -= 1
            if waiting[w] == 0:
                ready[tail] = w
                tail += 1
    return ranks
