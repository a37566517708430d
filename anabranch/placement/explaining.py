"""Why a view is where it is, in numbers: the plan's cost with the view anywhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.placement.cost import link_costs
from anabranch.placement.devices.program import fits, viable
from anabranch.placement.graph import CLOUD, FREE, ViewGraph

__all__ = ["Explanation", "Option", "explain"]


@dataclass(frozen=True)
class Option:
    """A place the view could be, and what the plan would cost more with it there.

    `follows` are views that rested on this one and would go to the cloud with it. Where `fits` is
    False the device cannot carry the view beside those that it has, however cheap that would be.
    """

    place: Any
    extra: float
    follows: tuple[Any, ...] = ()
    fits: bool = True


@dataclass(frozen=True)
class Need:
    """One input of the view: where it is, what the view needs, what leaves its device anyway."""

    stream: Any
    place: Any
    rate: float
    uploaded: float


@dataclass(frozen=True)
class Explanation:
    """The numbers that decided; printed as sentences."""

    view: Any
    place: Any
    needs: tuple[Need, ...]
    options: tuple[Option, ...]
    readers: tuple[Need, ...] = ()
    pinned: bool = False

    def __str__(self) -> str:
        lines = [f"{self.view} runs {_at(self.place)}{', where it is pinned' * self.pinned}."]
        for need in self.needs:
            text = f"  needs {need.stream} ({_at(need.place)}) at {need.rate:g}"
            if need.place != "cloud":
                text += f"; its device uploads {need.uploaded:g} of it for all views"
            lines.append(text)
        for reader in self.readers:
            lines.append(f"  is read {_at(reader.place)} at {reader.rate:g}")
        for option in self.options:
            text = f"  {_at(option.place)} the plan would cost {option.extra:+g}"
            if option.follows:
                text += f", with {', '.join(map(str, option.follows))} moving to the cloud"
            if not option.fits:
                text += f" (beyond {option.place}'s capacity)"
            lines.append(text)
        return "\n".join(lines)


def _at(place: Any) -> str:
    return "in the cloud" if place == "cloud" else f"on {place}"


def explain(graph: ViewGraph, places: np.ndarray, view: int) -> Explanation:
    """Compare the place of a view with every other that it may have.

    Only streams near the view change, so only the views that read them are priced.
    """
    rows = np.arange(graph.offsets[view], graph.offsets[view + 1])
    inputs = graph.inputs[rows]
    at = np.concatenate([graph.home, places])
    read = graph.consumers
    pinned = graph.pins[view] != FREE
    allowed = {CLOUD, *(int(at[u]) for u in inputs)} if not pinned else set()
    near = _near(graph, view)
    lookup = np.full(graph.views, -1)
    lookup[near] = np.arange(len(near))
    small = _excerpt(graph, places, near)
    here = places[near]
    now = link_costs(small, here).sum()
    options = []
    for place in sorted(allowed - {int(places[view])}):
        moved = here.copy()
        moved[lookup[view]] = place
        moved = viable(small, moved)
        extra = float(link_costs(small, moved).sum() - now)
        changed = np.flatnonzero((moved != here) & (near != view))
        follows = tuple(graph.view_name(int(near[k])) for k in changed)
        whole = places.copy()
        whole[near] = moved
        options.append(Option(graph.device_name(place), extra, follows, fits(graph, whole)))
    needs = []
    for row, u in zip(rows, inputs, strict=True):
        consumers = read.rows[read.offsets[u] : read.offsets[u + 1]]
        away = places[graph.row_view[consumers]] != at[u]
        uploaded = float(graph.rates[consumers[away]].max(initial=0.0))
        needs.append(
            Need(
                graph.node_name(int(u)),
                graph.device_name(int(at[u])),
                float(graph.rates[row]),
                uploaded,
            )
        )
    options.sort(key=lambda option: option.extra)
    place = graph.device_name(int(places[view]))
    own = read.rows[slice(*read.offsets[view + graph.sources :][:2])] if graph.readers else ()
    readers = tuple(
        Need(graph.view_name(view), graph.device_name(int(places[w])), float(graph.rates[row]), 0.0)
        for row, w in ((int(row), int(graph.row_view[row])) for row in own)
        if w >= graph.views - graph.readers
    )
    return Explanation(
        graph.view_name(view), place, tuple(needs), tuple(options), readers, bool(pinned)
    )


def _near(graph: ViewGraph, view: int) -> np.ndarray:
    """Every view that reads a stream which moving this view, and what rests on it, can change."""
    moving = np.array([view], np.int64)
    read = graph.consumers
    if not graph.single_level:
        frontier = moving
        while len(frontier):
            nodes = frontier + graph.sources
            rows = np.concatenate([read.rows[read.offsets[n] : read.offsets[n + 1]] for n in nodes])
            frontier = np.setdiff1d(graph.row_view[rows], moving).astype(np.int64)
            moving = np.union1d(moving, frontier)
    streams = np.unique(graph.inputs[graph.rows_of(moving)]).astype(np.int64)
    if not graph.single_level:
        streams = np.union1d(streams, moving + graph.sources)
    rows = np.concatenate([read.rows[read.offsets[n] : read.offsets[n + 1]] for n in streams])
    return np.union1d(graph.row_view[rows], moving).astype(np.int64)


def _excerpt(graph: ViewGraph, places: np.ndarray, views: np.ndarray) -> ViewGraph:
    """Some views alone; views that they read besides become sources where those views are."""
    rows = graph.rows_of(views)
    nodes, code = np.unique(graph.inputs[rows], return_inverse=True)
    inner = (nodes >= graph.sources) & np.isin(nodes - graph.sources, views)
    outer = nodes[~inner]
    number = np.empty(len(nodes), np.int32)
    number[~inner] = np.arange(len(outer))
    number[inner] = np.searchsorted(views, nodes[inner] - graph.sources) + len(outer)
    at = np.concatenate([graph.home, places])
    return ViewGraph(
        offsets=np.concatenate([[0], np.cumsum(np.diff(graph.offsets)[views])]),
        inputs=number[code],
        rates=graph.rates[rows],
        home=at[outer].astype(np.int32),
        up=graph.up,
        down=graph.down,
        shared=graph.shared,
        fixed=None if graph.fixed is None else graph.fixed[views],
    )
