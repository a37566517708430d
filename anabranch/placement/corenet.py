"""A core network behind the cloud: several sites instead of one, joined by a tree of links.

Two steps: the star is planned first as if the cloud were one place, then the views that it leaves
in the cloud are placed on the core. The second step is exact: one minimum cut per core link splits
the streams at that link, and the smallest sides of the links of a rooted tree are nested.

Whether the two steps together are best depends on the costs (flaw F8). With equal costs up and down
they are: pulling a device's best set to its side never costs more on a symmetric link. Otherwise
the result is held against a bound (the star's, plus every link's cut with nothing but the sources
fixed), and it is called optimal only where it meets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from anabranch.errors import InvalidCall, renamed
from anabranch.placement.devices.mincut import Network
from anabranch.placement.graph import ViewGraph
from anabranch.placement.tables import is_cost, is_id, listed

__all__ = ["CoreNetwork", "CorePlacement", "CoreTraffic", "place_on_core"]


@dataclass(frozen=True)
class CoreNetwork:
    """Sites of the cloud and the links between them.

    Parameters
    ----------
    links
        ``(site, site, cost per unit)``, the same cost both ways; a tree.
    attached
        The site at which each device enters.
    sites
        The site of each source that lives in the cloud.

    Examples
    --------
    >>> CoreNetwork([("east", "west", 3.0)], {"P": "east"}, {"news": "west"}).nodes
    ('east', 'west')
    """

    links: Sequence[tuple[Any, Any, float]]
    attached: Mapping[Any, Any]
    sites: Mapping[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = _link_problems(self.links)
        if not problems and not self._is_tree():
            problems.append(
                "the links are not a tree: two-step planning is exact on trees only; leave out "
                "links that close a cycle, and join what is apart"
            )
        known = None if problems else set(self.nodes)
        for name, mapping in (("attached", self.attached), ("sites", self.sites)):
            if not isinstance(mapping, Mapping):
                problems.append(f"{name} must be a dict to sites, got {mapping!r}")
            elif known is not None:
                strange = [v for v in mapping.values() if not is_id(v) or v not in known]
                if strange:
                    problems.append(f"{name} names sites without a link: {listed(strange)}")
        if problems:
            raise InvalidCall("CoreNetwork", problems)

    @property
    def nodes(self) -> tuple[Any, ...]:
        """The sites, as they first appear in the links."""
        return tuple(dict.fromkeys(n for a, b, _ in self.links for n in (a, b)))

    def _is_tree(self) -> bool:
        number = {name: k for k, name in enumerate(self.nodes)}
        ends = [number[a] for a, _, _ in self.links], [number[b] for _, b, _ in self.links]
        size = len(number)
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        joined = coo_array((np.ones(len(ends[0])), ends), shape=(size, size))
        parts: int = connected_components(joined, directed=False)[0]
        return parts == 1 and len(self.links) == size - 1


# Arguments that are missing or that there are not, in our words as in every call.
CoreNetwork.__init__ = renamed()(CoreNetwork.__init__)  # type: ignore[method-assign]


def _link_problems(links: Any) -> list[str]:
    if not isinstance(links, Sequence) or isinstance(links, (str, bytes)):
        return [f"links must be a list of (site, site, cost), got {links!r}"]
    if not links:
        return ["links must have at least one link, (site, site, cost)"]
    return [
        f"links: {link!r} must be (site, site, cost of at least 0)"
        for link in links
        if not isinstance(link, (tuple, list))
        or len(link) != 3
        or not all(map(is_id, link[:2]))
        or not is_cost(link[2])
    ][:5]


class CoreTraffic(NamedTuple):
    """What crosses the links of the core: a stream, from which site to which, rate and cost."""

    node: np.ndarray
    origin: np.ndarray
    target: np.ndarray
    rate: np.ndarray
    cost: np.ndarray


@dataclass(frozen=True, eq=False)
class CorePlacement:
    """The site of every view (those on devices: where their device enters), and the core's cost."""

    nodes: tuple[Any, ...]
    site: np.ndarray
    traffic: CoreTraffic
    bound: float

    @property
    def cost(self) -> float:
        return float(self.traffic.cost.sum())


def core_problems(core: CoreNetwork, graph: ViewGraph) -> list[str]:
    """What a core network leaves unsaid about a graph."""
    problems = []
    strange = [
        name
        for name in core.attached
        if name not in {graph.device_name(k) for k in range(graph.devices)}
    ]
    strange += [
        name
        for name in core.sites
        if name not in {graph.source_name(k) for k in range(graph.sources)}
    ]
    if strange:
        problems.append(f"core names unknown devices or sources {listed(strange)}")
    lacking = [
        name for k in range(graph.devices) if (name := graph.device_name(k)) not in core.attached
    ]
    if lacking:
        problems.append(f"attached gives no site for devices {listed(lacking)}")
    lacking = [
        name
        for k in np.flatnonzero(graph.home < 0)
        if (name := graph.source_name(int(k))) not in core.sites
    ]
    if lacking:
        problems.append(f"sites gives no site for sources in the cloud {listed(lacking)}")
    if not graph.shared:
        problems.append("a core network needs shared streams: leave shared=False out")
    return problems


def place_on_core(core: CoreNetwork, graph: ViewGraph, places: np.ndarray) -> CorePlacement:
    """The best sites for the views that a plan left in the cloud, and what the core then costs."""
    nodes = core.nodes
    number = {name: k for k, name in enumerate(nodes)}
    of_device = np.array(
        [number[core.attached[graph.device_name(k)]] for k in range(graph.devices)], int
    )
    fixed = np.full(graph.sources + graph.views, -1)
    for k in range(graph.sources):
        home = int(graph.home[k])
        name = core.sites[graph.source_name(k)] if home < 0 else None
        fixed[k] = number[name] if home < 0 else of_device[home]
    held = places >= 0
    tree = _rooted(core, number)
    alone = _positions(tree, fixed)
    fixed[graph.sources :][held] = of_device[places[held]]
    for view, name in graph.sites.items():
        fixed[graph.sources + view] = number[name]
    at = _positions(tree, fixed)
    site = np.where(fixed >= 0, fixed, tree.order[0])
    bound = 0.0
    crossing = []
    # Sides are nested and links nearer to the root come first: the deepest is written last.
    for k in range(1, len(tree.order)):
        far, near, price = tree.order[k], tree.near[k], tree.price[k]
        side = _side(graph, at, k, tree.last[k])
        site[side & (fixed < 0)] = far
        top = _across(graph, side)
        node = np.flatnonzero(top > 0)
        outward = np.where(side[node], far, near)
        inward = np.where(side[node], near, far)
        crossing.append(CoreTraffic(node, outward, inward, top[node], price * top[node]))
        if held.any():
            top = _across(graph, _side(graph, alone, k, tree.last[k]))
        bound += price * float(top.sum())
    found = CoreTraffic(*(np.concatenate(column) for column in zip(*crossing, strict=True)))
    return CorePlacement(nodes, site[graph.sources :], found, bound)


class _Tree(NamedTuple):
    """Sites in the order of a walk that goes down first: a subtree is a stretch of it.

    Site ``order[k]`` hangs from ``near[k]`` by a link of cost ``price[k]``, and its subtree is
    ``order[k:last[k]]``. The first is the root.
    """

    order: np.ndarray
    near: np.ndarray
    price: np.ndarray
    last: np.ndarray


def _rooted(core: CoreNetwork, number: Mapping[Any, int]) -> _Tree:
    neighbours: list[list[tuple[int, float]]] = [[] for _ in number]
    for a, b, price in core.links:
        neighbours[number[a]].append((number[b], float(price)))
        neighbours[number[b]].append((number[a], float(price)))
    walk = []
    waiting = [(0, -1, 0.0)]
    while waiting:
        site, near, price = waiting.pop()
        walk.append((site, near, price))
        waiting += [(other, site, cost) for other, cost in neighbours[site] if other != near]
    order, near_ends, prices = zip(*walk, strict=True)
    position = {site: k for k, site in enumerate(order)}
    size = np.ones(len(order), int)
    for k in range(len(order) - 1, 0, -1):
        size[position[near_ends[k]]] += size[k]
    last = np.arange(len(order)) + size
    return _Tree(np.array(order), np.array(near_ends), np.array(prices), last)


def _positions(tree: _Tree, site: np.ndarray) -> np.ndarray:
    """Where in the walk each site is, -1 for those that are not known yet."""
    position = np.empty(len(tree.order) + 1, int)
    position[tree.order] = np.arange(len(tree.order))
    position[-1] = -1
    found: np.ndarray = position[site]
    return found


def _side(graph: ViewGraph, fixed: np.ndarray, first: int, last: int) -> np.ndarray:
    """The smallest best set of nodes on the far side of one link, a stretch of the walk."""
    inside = (fixed >= first) & (fixed < last)
    if not inside.any():
        return inside
    network = Network()
    free = np.flatnonzero(fixed < 0)
    at = np.where(inside, 0, 1)
    at[free] = network.add_nodes(len(free))
    hub, rim = at[graph.inputs], at[graph.row_view + graph.sources]
    ones = np.ones(len(hub))
    network.add_levels(graph.inputs, hub, rim, graph.rates, ones, upward=True)
    network.add_levels(graph.inputs, hub, rim, graph.rates, ones, upward=False)
    side: np.ndarray = network.cut()[at]
    return side


def _across(graph: ViewGraph, side: np.ndarray) -> np.ndarray:
    """The rate at which each node crosses a link, 0 for those that do not."""
    crosses = side[graph.inputs] != side[graph.row_view + graph.sources]
    top = np.zeros(len(side))
    np.maximum.at(top, graph.inputs[crosses], graph.rates[crosses])
    return top
