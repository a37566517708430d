"""The view graph: which inputs each view needs, at which rates, and where the sources live.

Nodes are numbered, sources first and views after them; devices are numbered too, and the cloud is
``CLOUD`` (-1). One row per input of a view, the rows of a view side by side. The names that a
caller knows are kept beside the numbers and are used for messages and results only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from anabranch.placement.orders import distinct, grouped, ranked
from anabranch.placement.rows import Links, Rows

__all__ = [
    "CLOUD",
    "CLOUD_NAME",
    "FREE",
    "Consumers",
    "Part",
    "ViewGraph",
    "pair_graph",
    "spread_rows",
]

CLOUD = -1
FREE = -2  # of a view that is not pinned
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
    fixed, readers, usual, sites
        Where each view is pinned, or ``FREE``; how many views at the end are readers, and which of
        them read all that there is; the site of those that are pinned to one. See `pinning`.

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
    fixed: np.ndarray | None = None
    readers: int = 0
    usual: np.ndarray | None = None
    sites: Mapping[int, Any] = field(default_factory=dict, repr=False)
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
    def pins(self) -> np.ndarray:
        """Where each view is pinned, or ``FREE``."""
        return np.full(self.views, FREE, np.int32) if self.fixed is None else self.fixed

    @property
    def start(self) -> np.ndarray:
        """Every view in the cloud, but for those that are pinned elsewhere."""
        found: np.ndarray = np.maximum(self.pins, CLOUD)
        return found

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
        return Consumers(*grouped(self.inputs, nodes))

    @cached_property
    def ranks(self) -> np.ndarray:
        """Height of each view: 1 over sources alone. -1 where a cycle keeps it from having one."""
        if self.single_level:
            return np.ones(self.views, np.int32)
        read = self.consumers
        found: np.ndarray = ranked(
            self.offsets, self.inputs, read.offsets, read.rows, self.row_view, self.home
        )
        return found

    @cached_property
    def sources_by_device(self) -> Consumers:
        """Sources of each device: ``rows[offsets[d]:offsets[d + 1]]``."""
        resident = np.flatnonzero(self.home >= 0).astype(np.int32)
        offsets, order = grouped(self.home[resident], self.devices)
        return Consumers(offsets, resident[order])

    def rows_of(self, views: np.ndarray) -> np.ndarray:
        """The rows of some views, in their order."""
        return spread_rows(self.offsets, views)

    def views_over(self, devices: np.ndarray) -> np.ndarray:
        """Views with data of any of these devices somewhere below them, in ascending order."""
        read = self.consumers
        frontier = spread_rows(self.sources_by_device.offsets, devices)
        frontier = self.sources_by_device.rows[frontier].astype(np.int64)
        seen = np.zeros(self.views, bool)
        if self.fixed is not None:
            seen[np.isin(self.pins, devices)] = True
        if not self.single_level:
            frontier = np.concatenate([frontier, np.flatnonzero(seen) + self.sources])
        while len(frontier):
            reached = self.row_view[read.rows[spread_rows(read.offsets, frontier)]]
            fresh = distinct(self.views, reached[~seen[reached]])
            seen[fresh] = True
            frontier = fresh + self.sources if not self.single_level else fresh[:0]
        return np.flatnonzero(seen)

    def over(self, devices: np.ndarray) -> Part:
        """The part that decides about these devices: the views over them.

        What those views read besides is fixed as far as these devices' links go, and becomes a
        source in the cloud. The part keeps its devices in ascending order.
        """
        devices = distinct(self.devices, devices)
        views = self.views_over(devices)
        rows = self.rows_of(views)
        nodes = distinct(self.sources + self.views, self.inputs[rows])
        code = np.empty(self.sources + self.views, np.int64)
        code[nodes] = np.arange(len(nodes))
        new_device = np.full(self.devices, CLOUD, np.int32)
        new_device[devices] = np.arange(len(devices), dtype=np.int32)
        is_source = nodes < self.sources
        inner = ~is_source
        inner[inner] = np.isin(nodes[inner] - self.sources, views)
        outer = ~inner
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
            inputs=new_node[code[self.inputs[rows]]],
            rates=self.rates[rows],
            home=home[outer],
            up=self.up[devices],
            down=self.down[devices],
            capacity=None if self.capacity is None else self.capacity[devices],
            load=None if self.load is None else self.load[views],
            shared=self.shared,
            # Somebody else's device is as far away as the cloud.
            fixed=None if self.fixed is None else _inside(self.fixed[views], new_device),
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
        found = np.zeros(self.devices + 1, bool)  # the last of what is nowhere
        frontier = np.asarray(views, np.int64)
        seen = np.zeros(0 if self.single_level else self.views, bool)
        while len(frontier):
            found[np.maximum(self.pins[frontier], -1)] = True
            inputs = self.inputs[self.rows_of(frontier)]
            leaf = inputs < self.sources
            found[self.home[inputs[leaf]]] = True
            frontier = distinct(self.views, inputs[~leaf] - self.sources)
            frontier = frontier[~seen[frontier]]
            seen[frontier] = True
        return np.flatnonzero(found[:-1])

    def with_rates(self, rows: np.ndarray, rates: np.ndarray) -> ViewGraph:
        """The same graph with some rates changed."""
        changed = self.rates.copy()
        changed[rows] = rates
        return self._alike(rates=changed)

    def with_places(self, views: np.ndarray, places: np.ndarray) -> ViewGraph:
        """The same graph with some views pinned besides."""
        fixed = self.pins.copy()
        fixed[views] = places
        return self._alike(fixed=fixed)

    def _alike(self, **changed: np.ndarray) -> ViewGraph:
        """The same views over the same inputs: what follows from these is not found again."""
        found = replace(self, **changed)  # type: ignore[arg-type]
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
        kept, named = np.flatnonzero(~gone), self.views - self.readers
        own = kept[kept < named]
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
            fixed=None if self.fixed is None else self.fixed[kept],
            readers=int((~gone[named:]).sum()),
            usual=None if self.usual is None else self.usual[~gone[named:]],
            view_ids=(own if self.view_ids is None else np.asarray(self.view_ids, object)[own]),
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


def _inside(fixed: np.ndarray, new_device: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.where(fixed >= 0, new_device[np.maximum(fixed, 0)], fixed)
    return found


def _name(ids: Any, number: int) -> Any:
    if ids is None:
        return int(number)
    found = ids[number]
    return found.item() if isinstance(found, np.generic) else found
