"""Views that stay where they are told, and readers: where the last hop of a view goes.

A reader is a view more, pinned to the place where it reads, that needs one view and that nobody
needs: with it the last hop is counted as any other. Readers come after all views that have names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from anabranch.errors import InvalidCall
from anabranch.placement.graph import CLOUD, CLOUD_NAME, FREE, ViewGraph
from anabranch.placement.rows import Pinned
from anabranch.placement.tables import is_cost, is_id, listed

__all__ = [
    "Reader",
    "Wishes",
    "declare",
    "pinned_graph",
    "read_wishes",
    "unknown_views",
    "with_pins",
    "with_usual_rates",
]


class Reader(NamedTuple):
    """Who reads a view, and how much of it; None for all that the view puts out."""

    view: Any
    place: Any
    rate: float | None


class Wishes(NamedTuple):
    """Readers and pins as they were given, and the sites behind the cloud."""

    readers: Any = None
    pin: Any = None
    sites: tuple[Any, ...] = ()


class Fixed(NamedTuple):
    """Readers and pins, read."""

    readers: list[Reader]
    pins: dict[Any, Any]


def read_wishes(wishes: Wishes, problems: list[str]) -> Fixed:
    """Who reads what and what stays where, in whichever form it was given.

    Examples
    --------
    >>> read_wishes(Wishes({"board": ["cloud", "S1"], "map": {"S2": 3.0}}), []).readers
    [Reader(view='board', place='cloud', rate=None), Reader(view='board', place='S1', rate=None), \
Reader(view='map', place='S2', rate=3.0)]
    """
    readers: list[Reader] = []
    pins: dict[Any, Any] = {}
    known = len(problems)
    for name, given in (("readers", wishes.readers), ("pin", wishes.pin)):
        if given is not None and not isinstance(given, Mapping):
            problems.append(
                f'{name} must be a dict of views and places, such as {{"board": "cloud"}}, got '
                f"{type(given).__name__}"
            )
    if isinstance(wishes.readers, Mapping):
        for view, where in wishes.readers.items():
            readers += [Reader(view, place, rate) for place, rate in _places(where)]
        twice = [r.view for k, r in enumerate(readers) if r[:2] in [x[:2] for x in readers[:k]]]
        if twice:
            problems.append(f"readers of {listed(twice)} name a place twice")
        wrong = [r.view for r in readers if r.rate is not None and not is_cost(r.rate)]
        if wrong:
            problems.append(f"rates of readers must be at least 0, but are not for {listed(wrong)}")
    if isinstance(wishes.pin, Mapping):
        pins = dict(wishes.pin)
    nowhere = [r.view for r in readers if not is_id(r.place)]
    nowhere += [view for view, place in pins.items() if not is_id(place)]
    if nowhere:
        problems.append(
            f'readers and pin name places: a device or "cloud"; they do not for {listed(nowhere)}'
        )
    return Fixed(readers, pins) if len(problems) == known else Fixed([], {})


def _places(where: Any) -> list[tuple[Any, Any]]:
    if isinstance(where, Mapping):
        return list(where.items())
    if isinstance(where, (list, tuple, set, frozenset)):
        return [(place, None) for place in where]
    return [(where, None)]


def unknown_views(fixed: Fixed, views: Iterable[Any], problems: list[str]) -> None:
    """Note the views of readers and pins that there are not."""
    asked = dict.fromkeys([*(r.view for r in fixed.readers), *fixed.pins])
    known = set(views) if asked else set()
    if strange := [view for view in asked if view not in known]:
        problems.append(
            f"readers or pin name unknown views {listed(strange)}: the table has {listed(views)}"
        )


def declare(
    fixed: Fixed, devices: list[Any], sites: Iterable[Any], named: set[Any], problems: list[str]
) -> None:
    """Add to the devices those without a source that readers and pins name, if they are meant.

    A device without a source is meant if its cost or its capacity is given too.
    """
    known = {*devices, CLOUD_NAME, *sites}
    asked = dict.fromkeys([r.place for r in fixed.readers] + list(fixed.pins.values()))
    fresh = [place for place in asked if place not in known]
    devices += [place for place in fresh if place in named]
    strange = [place for place in fresh if place not in named]
    if strange:
        problems.append(
            f"readers or pin name unknown places {listed(strange)}: the devices of sources are "
            f"{listed(devices)}; a device without a source is made known by its download_cost"
        )


def pinned_graph(
    graph: ViewGraph, fixed: Fixed, sites: Iterable[Any], problems: list[str]
) -> ViewGraph:
    """The graph with its pins, and with a view more for every reader."""
    if not (fixed.readers or fixed.pins):
        return graph
    views = {graph.view_name(v): v for v in range(graph.views)}
    device = {graph.device_name(d): d for d in range(graph.devices)}
    device |= {place: CLOUD for place in (CLOUD_NAME, *sites) if place not in device}
    at = np.full(graph.views + len(fixed.readers), FREE, np.int32)
    for view, place in fixed.pins.items():
        at[views[view]] = device[place]
    at[graph.views :] = [device[r.place] for r in fixed.readers]
    within = {views[view]: place for view, place in fixed.pins.items() if place in set(sites)}
    within |= {
        graph.views + k: r.place for k, r in enumerate(fixed.readers) if r.place in set(sites)
    }
    count = len(fixed.readers)
    found = replace(
        graph,
        offsets=np.concatenate([graph.offsets, graph.offsets[-1] + 1 + np.arange(count)]),
        inputs=np.concatenate(
            [graph.inputs, [views[r.view] + graph.sources for r in fixed.readers]]
        ).astype(np.int32),
        rates=np.concatenate([graph.rates, [r.rate or 0.0 for r in fixed.readers]]),
        load=None if graph.load is None else np.concatenate([graph.load, np.zeros(count)]),
        fixed=at,
        readers=count,
        usual=np.array([r.rate is None for r in fixed.readers], bool),
        sites=within,
    )
    problems += _heavy(found)
    return with_usual_rates(found)


def with_pins(graph: ViewGraph, pin: Mapping[Any, Any] | Pinned) -> tuple[ViewGraph, np.ndarray]:
    """The graph with some views pinned besides, and the numbers of those views.

    Examples
    --------
    >>> from anabranch.placement.graph import pair_graph
    >>> graph, views = with_pins(pair_graph([0], [1], [5.0], [1.0], sources=2), {0: "cloud"})
    >>> graph.pins.tolist(), views.tolist()
    ([-1], [0])
    """
    problems: list[str] = []
    if isinstance(pin, Pinned):
        return _with_places(graph, pin.views, pin.places, problems), pin.views
    pins = read_wishes(Wishes(pin=pin), problems).pins
    numbers = {graph.view_name(v): v for v in range(graph.views - graph.readers)} if pins else {}
    device = {graph.device_name(d): d for d in range(CLOUD, graph.devices)}
    for what, names, known in (("views", pins, numbers), ("places", pins.values(), device)):
        if strange := [name for name in names if name not in known]:
            problems.append(
                f"pin names unknown {what} {listed(strange)}: there are {listed(known)}"
            )
    views = np.array([] if problems else [numbers[view] for view in pins], np.int64)
    places = np.array([] if problems else [device[place] for place in pins.values()], np.int32)
    return _with_places(graph, views, places, problems), views


def _with_places(
    graph: ViewGraph, views: np.ndarray, places: np.ndarray, problems: list[str]
) -> ViewGraph:
    if not problems:
        graph = graph.with_places(views, places)
        problems += _heavy(graph)
    if problems:
        raise InvalidCall("replan", problems)
    return graph


def _heavy(graph: ViewGraph) -> list[str]:
    """What is wrong if pins alone are more than a device can carry."""
    if graph.capacity is None or graph.load is None:
        return []
    held = graph.pins >= 0
    weight = np.bincount(graph.pins[held], graph.load[held], graph.devices)
    heavy = np.flatnonzero(weight > graph.capacity * (1 + 1e-12))
    names = [graph.device_name(int(d)) for d in heavy]
    return [f"pin puts more on {listed(names)} than capacity allows"] if names else []


def with_usual_rates(graph: ViewGraph) -> ViewGraph:
    """Readers who did not say how much get what a view puts out.

    That is the largest rate at which other views need it; where none does, all that it needs
    itself: then it is taken to pass on what it gets.
    """
    if graph.usual is None or not graph.usual.any():
        return graph
    named = graph.views - graph.readers
    last = int(graph.offsets[named])  # readers have a row each, after all others
    put_out = np.zeros(graph.sources + graph.views)
    np.maximum.at(put_out, graph.inputs[:last], graph.rates[:last])
    total = np.bincount(graph.row_view[:last], graph.rates[:last], named)
    needed = np.zeros(graph.sources + graph.views, bool)
    needed[graph.inputs[:last]] = True
    view = graph.inputs[last:] - graph.sources
    rates = np.where(needed[graph.inputs[last:]], put_out[graph.inputs[last:]], total[view])
    at = np.flatnonzero(graph.usual)
    return graph.with_rates(last + at, rates[at])
