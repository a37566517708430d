"""A finished placement: what it costs, why it is as it is, and how it changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import InvalidCall, renamed
from anabranch.placement.conflicts.resolution import Component, Resolution, resolve
from anabranch.placement.corenet import CorePlacement
from anabranch.placement.cost import (
    all_upload_cost,
    link_costs,
    node_locations,
    simple_costs,
    traffic,
)
from anabranch.placement.devices.optima import METHODS, LocalOptima, local_optima
from anabranch.placement.drawing import draw_placement, placement_html
from anabranch.placement.explaining import Explanation, explain
from anabranch.placement.graph import CLOUD, CLOUD_NAME, ViewGraph
from anabranch.placement.orders import distinct
from anabranch.placement.pinning import with_pins, with_usual_rates
from anabranch.placement.reading import read_changes
from anabranch.placement.rows import Pinned
from anabranch.placement.tables import id_column, listed

__all__ = ["Placement", "plan_graph"]

_EXACT = 1e-9


@dataclass(frozen=True, eq=False)
class Placement:
    """Where every view runs.

    Attributes
    ----------
    cost
        Total traffic of the plan, in units of cost.
    baseline_cost
        The same if every view ran in the cloud.
    bound
        No placement costs less than this.
    optimal
        Whether the plan is proved to cost the least possible.
    gap
        How far above the bound the plan is, as a fraction; 0 if it is optimal.
    methods
        How many devices were planned by which method, and how many groups of devices that wanted
        the same views were resolved by which.
    """

    graph: ViewGraph = field(repr=False)
    places: np.ndarray = field(repr=False)  # device number or -1, for each view
    cost: float
    baseline_cost: float
    bound: float
    methods: dict[str, int]
    local: LocalOptima = field(repr=False)
    components: tuple[Component, ...] = field(repr=False)
    time_limit: float = field(repr=False)
    core: CorePlacement | None = field(default=None, repr=False)

    @property
    def optimal(self) -> bool:
        """Whether nothing can cost less."""
        return self._proved() or self.cost <= self.bound * (1 + _EXACT)

    @property
    def gap(self) -> float:
        if self.optimal:
            return 0.0
        return (self.cost - self.bound) / self.bound if self.bound > 0 else float("inf")

    @cached_property
    def location(self) -> dict[Any, Any]:
        """The device of each view, or "cloud"."""
        return dict(zip(self._view_names(), self._device_names(self._named), strict=True))

    @property
    def _named(self) -> np.ndarray:
        """The places of views that have names: readers have none."""
        return self.places[: self.graph.views - self.graph.readers]

    @cached_property
    def site(self) -> dict[Any, Any]:
        """With a core network: the core node of each view that runs in the cloud."""
        if self.core is None:
            return {}
        views = np.flatnonzero(self._named < 0)
        names = self._view_names()
        return {names[v]: self.core.nodes[self.core.site[v]] for v in views}

    @renamed()
    def table(self) -> pa.Table:
        """One row per view: its location, and its inputs that cross a link.

        ``uploads`` are the inputs that leave their device for this view, ``downloads`` those that
        come to the device of this view; an input from one device to another is in both. Rates are
        what this view needs. A stream that several views need crosses a link once, so they do not
        add up to the cost; `traffic` does. Ids that no column of Arrow holds (of several types, or
        tuples) are given as text.
        """
        at = node_locations(self.graph, self.places)
        rows_at = np.repeat(self.places, np.diff(self.graph.offsets))
        here = at[self.graph.inputs]
        crosses = (here != rows_at) & (self.graph.rates > 0)
        columns = {
            "view": id_column(self._view_names()),
            "location": _dictionary(self._named, self.graph),
            "uploads": self._inputs(crosses & (here >= 0)),
            "downloads": self._inputs(crosses & (rows_at >= 0)),
        }
        if self.core is not None:
            sites = id_column(self.core.nodes).take(pa.array(self.core.site[: len(self._named)]))
            columns["site"] = pa.compute.if_else(pa.array(self._named < 0), sites, None)
        return pa.table(columns)

    @renamed()
    def traffic(self) -> pa.Table:
        """What crosses each link: stream, device, direction, rate, cost. Adds up to the cost.

        With a core network there are rows of direction "core" besides, without a device: what
        crosses each link of the core, and from which site to which, in two columns more,
        ``from_site`` and ``to_site``.
        """
        found = traffic(self.graph, self.places)
        node = np.concatenate([found.up_node, found.down_node])
        device = np.concatenate([found.up_device, found.down_device])
        rate = np.concatenate([found.up_rate, found.down_rate])
        upward = np.arange(len(node)) < len(found.up_node)
        price = np.where(upward, self.graph.up[device], self.graph.down[device])
        links = pa.table(
            {
                "stream": _named_nodes(node, self.graph),
                "device": _dictionary(device, self.graph),
                "direction": pa.array(np.where(upward, "up", "down"), pa.string()),
                "rate": pa.array(rate),
                "cost": pa.array(rate * price),
            }
        )
        if self.core is None:
            return links
        across, sites = self.core.traffic, id_column(self.core.nodes)
        inner = pa.table(
            {
                "stream": _named_nodes(across.node, self.graph),
                "device": pa.nulls(len(across.node), links.schema.field("device").type),
                "direction": pa.array(np.full(len(across.node), "core"), pa.string()),
                "rate": pa.array(across.rate),
                "cost": pa.array(across.cost),
                "from_site": sites.take(pa.array(across.origin)),
                "to_site": sites.take(pa.array(across.target)),
            }
        )
        return pa.concat_tables([links, inner], promote_options="default").unify_dictionaries()

    @renamed()
    def explain(self, view: Any) -> Explanation:
        """Why a view is where it is: what the plan would cost with it anywhere else.

        With capacities, places that a view would be too heavy for are marked.
        """
        return explain(self.graph, self.places, self._view_number(view))

    @renamed()
    def replan(
        self, changes: Any = (), *, pin: Mapping[Any, Any] | Pinned | None = None
    ) -> Placement:
        """The best plan after some rates have changed, reusing what the changes do not touch.

        Parameters
        ----------
        changes
            A table like `inputs`: view, input and its new rate, for the rows that changed.
        pin
            Views that must run at a place from now on, besides those pinned already.

        Returns
        -------
        Placement
            As good as one planned from scratch. Only devices with data below a changed view are
            planned again; other devices and their resolved conflicts are kept.
        """
        self._refuse_core("replan")
        rows, rates = read_changes(self.graph, changes)
        graph = with_usual_rates(self.graph.with_rates(rows, rates))
        changed = np.flatnonzero(graph.rates != self.graph.rates)
        views = distinct(graph.views, graph.row_view[rows], graph.row_view[changed])
        if pin is None:
            touched = graph.devices_below(views)
        else:
            graph, held = with_pins(graph, pin)
            views = distinct(graph.views, views, held)
            below = (one.devices_below(views) for one in (self.graph, graph))
            touched = distinct(graph.devices, *below)
        return _again(self, graph, self.local, self.components, touched)

    def without(self, *devices: Any) -> Placement:
        """The best plan after devices have failed.

        Views over their data cannot be kept up and leave the plan, with everything above them;
        only devices that shared such a view are planned again.
        """
        self._refuse_core("without")
        known = self._names(self.graph.device_ids, self.graph.devices)
        failed = _numbers(devices, known)
        if (failed < 0).any():
            names = [d for d, k in zip(devices, failed, strict=True) if k < 0]
            problem = f"unknown devices {listed(names)}: the plan has {listed(known)}; name each by"
            raise InvalidCall("without", [f"{problem} itself, as in without(a, b)"])
        lost = self.graph.views_over(failed)
        touched = np.union1d(self.graph.devices_below(lost), failed)
        graph, number = self.graph.without_views(lost)
        kept = number[self.local.view] >= 0
        local = replace(
            self.local, view=number[self.local.view[kept]], device=self.local.device[kept]
        )
        components = tuple(
            replace(c, views=number[c.views])
            for c in self.components
            if not np.isin(c.devices, touched).any()
        )
        return _again(self, graph, local, components, touched)

    @renamed()
    def draw(self, path: Any = None, *, most: int = 8, dark: bool = False) -> Any:
        """A map of the plan, as a figure and a file: see `drawing.draw_placement`."""
        return draw_placement(self.graph, self.places, self.summary(), path, most=most, dark=dark)

    def _repr_html_(self) -> str:
        return placement_html(self.graph, self.places, self.summary())

    @renamed()
    def summary(self) -> str:
        """A few lines for people."""
        held = self._named >= 0
        times = f" ({self.baseline_cost / self.cost:.2f} times less)" if self.cost > 0 else ""
        proof = "proved optimal" if self.optimal else f"within {self.gap:.2%} of a lower bound"
        how = ", ".join(f"{count:,} by {name}" for name, count in self.methods.items())
        return (
            f"{len(held):,} views: {int(held.sum()):,} on "
            f"{len(np.unique(self._named[held])):,} devices, {int((~held).sum()):,} in the cloud\n"
            f"cost {self.cost:,.6g}, against {self.baseline_cost:,.6g} with everything uploaded"
            f"{times}, {proof}\n"
            f"planned: {how or 'nothing, as no data are on devices'}"
        )

    def _proved(self) -> bool:
        solved = all(c.method != "local search" for c in self.components)
        exact = bool(np.all(self.local.value <= self.local.bound * (1 + _EXACT)))
        if self.core is None:
            return solved and exact
        # The two steps are best together if every device holds the smallest best set of all sets,
        # and its link costs the same both ways.
        own = not self.components and METHODS[-1] not in self.methods
        symmetric = bool(np.all(self.graph.up == self.graph.down))
        free = self.graph.capacity is None and self.graph.fixed is None
        return own and symmetric and free

    def _view_number(self, view: Any) -> int:
        at = int(_numbers([view], self._view_names())[0])
        if at < 0:
            there = listed(self._view_names())
            raise InvalidCall("explain", [f"no view {view!r}; the plan has {there}"])
        return at

    def _view_names(self) -> Any:
        return self._names(self.graph.view_ids, len(self._named))

    @staticmethod
    def _names(ids: Any, count: int) -> Any:
        names = np.arange(count) if ids is None else ids
        return names.tolist() if isinstance(names, np.ndarray) else list(names)

    def _device_names(self, numbers: np.ndarray) -> list[Any]:
        names = [*self._names(self.graph.device_ids, self.graph.devices), CLOUD_NAME]
        return [names[k] for k in numbers]

    def _inputs(self, wanted: np.ndarray) -> pa.Array:
        rows = np.flatnonzero(wanted)
        offsets = np.concatenate([[0], np.cumsum(wanted)])[self.graph.offsets]
        offsets = offsets[: len(self._named) + 1]
        rows = rows[: offsets[-1]]
        nodes, rates = _named_nodes(self.graph.inputs[rows], self.graph), self.graph.rates[rows]
        values = pa.StructArray.from_arrays([nodes, pa.array(rates)], ["stream", "rate"])
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)

    def _refuse_core(self, verb: str) -> None:
        if self.core is not None:
            why = "the plan has a core network, which is planned as a whole: call place again"
            raise InvalidCall(verb, [why])


def plan_graph(graph: ViewGraph, time_limit: float = 30.0) -> Placement:
    """The best placement for a view graph.

    Examples
    --------
    >>> from anabranch.placement.graph import pair_graph
    >>> plan = plan_graph(pair_graph([0], [1], [10.0], [6.0], sources=2, up=1.0, down=0.5))
    >>> plan.location, plan.cost, plan.optimal
    ({0: 0}, 9.0, True)
    """
    if not isinstance(graph, ViewGraph):
        raise TypeError(f"graph must be a ViewGraph, got {graph!r}: for tables there is ab.place")
    local = local_optima(graph, time_limit)
    return _finished(graph, local, resolve(graph, local, time_limit), time_limit)


def _again(
    old: Placement,
    graph: ViewGraph,
    local: LocalOptima,
    components: Iterable[Component],
    touched: np.ndarray,
) -> Placement:
    """Plan touched devices anew, keep the others, and resolve what is new."""
    part = graph.over(touched)
    inner = local_optima(part.graph, old.time_limit)
    threshold = local.threshold.copy()
    inside = np.isin(np.arange(graph.devices + 1), touched)  # the last of what is in the cloud
    threshold[inside[graph.home]] = np.inf
    resident = part.graph.home >= 0
    threshold[part.nodes[resident]] = inner.threshold[resident]
    stays = ~inside[local.device]
    merged = LocalOptima(
        threshold,
        np.concatenate([local.view[stays], part.views[inner.view]]),
        np.concatenate([local.device[stays], part.devices[inner.device]]),
        *(
            _patched(whole, part.devices, piece)
            for whole, piece in (
                (local.value, inner.value),
                (local.bound, inner.bound),
                (local.method, inner.method),
                (local.rigid, inner.rigid),
            )
        ),
    )
    known = tuple(c for c in components if not inside[c.devices].any())
    return _finished(graph, merged, resolve(graph, merged, old.time_limit, known), old.time_limit)


def _patched(whole: np.ndarray, at: np.ndarray, piece: np.ndarray) -> np.ndarray:
    out = whole.copy()
    out[at] = piece
    return out


def _finished(
    graph: ViewGraph, local: LocalOptima, resolved: Resolution, time_limit: float
) -> Placement:
    if graph.single_level and graph.shared and not local.method.any():  # all by the prefix rule
        cost, baseline = simple_costs(graph, resolved.location)
    else:
        cost, baseline = float(link_costs(graph, resolved.location).sum()), all_upload_cost(graph)
    counts = np.bincount(local.method, minlength=len(METHODS))
    methods = {METHODS[k]: int(n) for k, n in enumerate(counts) if n}
    methods.update(Counter(c.method for c in resolved.components))
    return Placement(
        graph=graph,
        places=resolved.location,
        cost=cost,
        baseline_cost=baseline,
        bound=float(min(resolved.bound, cost)),
        methods=methods,
        local=local,
        components=resolved.components,
        time_limit=time_limit,
    )


def _dictionary(numbers: np.ndarray, graph: ViewGraph) -> pa.Array:
    names = Placement._names(graph.device_ids, graph.devices)
    words = pa.array([*map(str, names), CLOUD_NAME])
    at = np.where(numbers == CLOUD, len(names), numbers).astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(at), words)


def _named_nodes(nodes: np.ndarray, graph: ViewGraph) -> pa.Array:
    names = Placement._names(graph.source_ids, graph.sources)
    if not graph.single_level:
        names = names + Placement._names(graph.view_ids, graph.views - graph.readers)
    return id_column(names).take(pa.array(nodes))


def _numbers(wanted: Iterable[Any], names: Sequence[Any]) -> np.ndarray:
    """The position of each name, -1 for what is none."""
    position = {name: k for k, name in enumerate(names)}
    # What cannot be hashed, such as a list of names, is no name.
    found = [position.get(name, -1) if isinstance(name, Hashable) else -1 for name in wanted]
    return np.array(found, np.int64)
