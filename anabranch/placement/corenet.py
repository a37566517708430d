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

from anabranch.errors import InvalidCall
from anabranch.placement.devices.mincut import Network
from anabranch.placement.graph import ViewGraph
from anabranch.placement.reading import is_cost

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
        problems = []
        for link in self.links:
            if not isinstance(link, (tuple, list)) or len(link) != 3 or not is_cost(link[2]):
                problems.append(f"link {link!r} must be (site, site, cost of at least 0)")
        if not self.links:
            problems.append("a core network needs at least one link")
        elif not problems and not self._is_tree():
            problems.append(
                "the links are not a tree: two-step planning is exact on trees only; leave out "
                "links that close a cycle, and join what is apart"
            )
        known = set(self.nodes) if not problems else None
        for name, mapping in (("attached", self.attached), ("sites", self.sites)):
            if known is not None and (strange := [v for v in mapping.values() if v not in known]):
                problems.append(f"{name} names sites without a link: {strange[:5]!r}")
        if problems:
            raise InvalidCall("a core network", problems)

    @property
    def nodes(self) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(n for a, b, _ in self.links for n in (a, b)))

    def _is_tree(self) -> bool:
        parent = {node: node for node in self.nodes}

        def root(node: Any) -> Any:
            while parent[node] != node:
                node = parent[node]
            return node

        for a, b, _ in self.links:
            if root(a) == root(b):
                return False
            parent[root(a)] = root(b)
        return len(self.links) == len(self.nodes) - 1


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
    lacking = [
        name for k in range(graph.devices) if (name := graph.device_name(k)) not in core.attached
    ]
    if lacking:
        problems.append(f"attached gives no site for devices {lacking[:5]!r}")
    lacking = [
        name
        for k in np.flatnonzero(graph.home < 0)
        if (name := graph.source_name(int(k))) not in core.sites
    ]
    if lacking:
        problems.append(f"sites gives no site for sources in the cloud {lacking[:5]!r}")
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
    sources_only = fixed.copy()
    held = places >= 0
    fixed[graph.sources :][held] = of_device[places[held]]
    site = np.where(fixed >= 0, fixed, number[nodes[0]])
    free = fixed < 0
    bound = 0.0
    crossing = []
    for near, below, price in _subtrees(core, number):
        side = _side(graph, fixed, below)
        # Sides are nested and links come nearest first: the deepest subtree is written last.
        site[side & free] = below[0]
        top = _across(graph, side)
        node = np.flatnonzero(top > 0)
        outward = np.where(side[node], below[0], near)
        inward = np.where(side[node], near, below[0])
        crossing.append(CoreTraffic(node, outward, inward, top[node], price * top[node]))
        bound += price * float(_across(graph, _side(graph, sources_only, below)).sum())
    found = CoreTraffic(*(np.concatenate(column) for column in zip(*crossing, strict=True)))
    return CorePlacement(nodes, site[graph.sources :], found, bound)


def _subtrees(core: CoreNetwork, number: Mapping[Any, int]) -> list[tuple[int, list[int], float]]:
    """For every link its near end, the sites on its far side seen from the first, and its cost.

    Nearest links come first, and the far end of a link first of its side.
    """
    neighbours: dict[int, list[tuple[int, float]]] = {k: [] for k in number.values()}
    for a, b, price in core.links:
        neighbours[number[a]].append((number[b], float(price)))
        neighbours[number[b]].append((number[a], float(price)))

    found: list[tuple[int, list[int], float]] = []

    def below(node: int, parent: int) -> list[int]:
        inside = [node]
        for other, _ in neighbours[node]:
            if other != parent:
                inside += below(other, node)
        return inside

    frontier = [(0, -1)]
    while frontier:
        node, parent = frontier.pop(0)
        for other, price in neighbours[node]:
            if other != parent:
                found.append((node, below(other, node), price))
                frontier.append((other, node))
    return found


def _side(graph: ViewGraph, fixed: np.ndarray, below: Sequence[int]) -> np.ndarray:
    """The smallest best set of nodes on the far side of one link."""
    network = Network()
    inside = np.isin(fixed, below)
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
