"""A placement as a map: the cloud above, devices below, and what crosses each link between them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anabranch.calls import is_whole
from anabranch.errors import InvalidCall
from anabranch.flow.pictures import COLOURS, Paper, paper, plain_number
from anabranch.flow.sketch import WIDTH, Sketch
from anabranch.placement.cost import traffic
from anabranch.placement.graph import CLOUD, CLOUD_NAME, ViewGraph

__all__ = ["draw_placement", "placement_html"]

_ROW = 4  # devices side by side
_NAMES = 2  # views named in a box
_HIGH, _WIDE = 1.0, 1.9


class Device(NamedTuple):
    """A device, its sources and views, and the rates over its link: now, and all in the cloud."""

    name: str
    sources: list[str]
    views: list[str]
    up: float
    down: float
    up_before: float


def draw_placement(
    graph: ViewGraph,
    places: np.ndarray,
    title: str,
    path: str | os.PathLike[str] | None = None,
    *,
    most: int = 8,
    dark: bool = False,
) -> Any:
    """A map: what runs where, and what crosses each link, now and with all views in the cloud.

    Parameters
    ----------
    graph, places, title
        Of the plan.
    path
        The file to write, .svg, .png or .pdf; None only returns the figure.
    most
        The number of devices to draw, those first whose links carry most.
    dark
        Whether the page behind the picture is dark.

    Returns
    -------
    matplotlib.figure.Figure
        It needs matplotlib: ``pip install 'anabranch[plots]'``.

    Examples
    --------
    >>> import anabranch as ab
    >>> plan = ab.place([("w", "p", 10), ("w", "q", 2)], {"p": "P", "q": "Q"})
    >>> [text.get_text() for text in plan.draw().axes[0].texts][:2]
    ['cloud', 'no views']
    """
    if not is_whole(most):
        raise InvalidCall("draw", [f"most must be a whole number of at least 1, got {most!r}"])
    shown = _devices(graph, places, int(most))
    rows = max(1, -(-len(shown) // _ROW))
    page = paper("draw", path, 2.1 + 2.1 * rows, dark=dark)
    wide = min(_ROW, max(1, len(shown))) * (_WIDE + 0.3)
    kept = _names(graph.view_ids, np.flatnonzero(places == CLOUD))
    text = [CLOUD_NAME, *(_views(kept) or ["no views"])]
    _box(page, 0.0, 0.0, max(wide - 0.3, 3.0), text, COLOURS["quiet"])
    for number, device in enumerate(shown):
        row, column = divmod(number, _ROW)
        count = min(_ROW, len(shown) - row * _ROW)
        x = (column - (count - 1) / 2) * (_WIDE + 0.3)
        _device(page, x, -2.1 * (row + 1), device, hidden=row > 0)
    others = graph.devices - len(shown)
    rest = f"and {others:,} more {'device' if others == 1 else 'devices'}" if others else ""
    page.axes.text(0, -2.1 * rows - 0.8, rest, ha="center", color=page.faint)
    page.axes.text(0, 0.62, title, ha="center", va="bottom", color=page.ink)
    half = max(wide, 3.6) / 2
    page.axes.set(xlim=(-half, half), ylim=(-2.1 * rows - 0.95, 1.4))
    return page.save(path)


def placement_html(graph: ViewGraph, places: np.ndarray, title: str) -> str:
    """A small map: the cloud, the devices whose links carry most, and what crosses the links."""
    page = Sketch()
    top = 0.0
    for words in title.splitlines():
        page.text(0, top + 12, words, room=WIDTH)
        top += 16
    shown = _devices(graph, places, _ROW)
    kept = _names(graph.view_ids, np.flatnonzero(places == CLOUD))
    cloud = f"{CLOUD_NAME}: {', '.join(_views(kept) or ['no views'])}"
    page.box(0, top + 6, WIDTH, 24, COLOURS["quiet"], words=cloud)
    wide = WIDTH / max(1, len(shown))
    for number, device in enumerate(shown):
        _small_device(page, number * wide, top + 30, wide - 8, device)
    if others := graph.devices - len(shown):
        more = f"and {others:,} more {'device' if others == 1 else 'devices'}"
        page.text(WIDTH, page.height + 14, more, anchor="end", faint=True)
    return page.html(title)


def _small_device(page: Sketch, x: float, y: float, wide: float, device: Device) -> None:
    """A device and its link to the cloud at y; what the link would carry without it is faint."""
    low, middle = y + 54, x + wide / 2
    for at, rate, colour, side in (
        (middle - 8, device.up, COLOURS["up"], "end"),
        (middle + 8, device.down, COLOURS["down"], "start"),
    ):
        page.line([(at, y), (at, low)], colour, width=2.0 if rate else 0.8, faint=not rate)
        arrow = "↑" if side == "end" else "↓"
        nudge = -6 if side == "end" else 6
        page.text(at + nudge, y + 24, f"{arrow} {plain_number(rate)}", anchor=side)
    if device.up_before > device.up:
        words = f"before {plain_number(device.up_before)}"
        page.text(middle - 14, y + 40, words, anchor="end", faint=True, room=wide / 2 - 14)
    colour = COLOURS["good"] if device.views else COLOURS["quiet"]
    lines = [*_views(device.views), f"sources {', '.join(_few(device.sources, 2))}"]
    page.box(x, low, wide, 22 + 16 * len(lines), colour)
    page.text(middle, low + 16, device.name, anchor="middle", bold=True, room=wide - 8)
    for number, words in enumerate(lines, 2):
        page.text(middle, low + 16 * number, words, anchor="middle", room=wide - 8)


def _devices(graph: ViewGraph, places: np.ndarray, most: int) -> list[Device]:
    """The devices whose links carry most, or would if all views ran in the cloud."""
    now = traffic(graph, places)
    before = traffic(graph, np.full_like(places, CLOUD))
    up = np.bincount(now.up_device, now.up_rate, graph.devices)
    down = np.bincount(now.down_device, now.down_rate, graph.devices)
    up_before = np.bincount(before.up_device, before.up_rate, graph.devices)
    first = np.argsort(-np.maximum(up + down, up_before), kind="stable")[:most]
    return [
        Device(
            _names(graph.device_ids, [d])[0],
            _names(graph.source_ids, np.flatnonzero(graph.home == d)),
            _names(graph.view_ids, np.flatnonzero(places == d)),
            float(up[d]),
            float(down[d]),
            float(up_before[d]),
        )
        for d in first
    ]


def _names(ids: Any, numbers: Any) -> list[str]:
    """The names of nodes that have one, or else their numbers."""
    if ids is None:
        return [str(number) for number in numbers]
    return [str(ids[number]) for number in numbers if number < len(ids)]


def _device(page: Paper, x: float, y: float, device: Device, hidden: bool) -> None:
    """A device and its link; `hidden` links pass behind the row above and are drawn short."""
    lines = [f"sources {', '.join(_few(device.sources, 2))}", *_views(device.views)]
    colour = COLOURS["good"] if device.views else COLOURS["quiet"]
    _box(page, x, y, _WIDE, [device.name, *lines], colour)
    top = y + _HIGH * 1.5 if hidden else -_HIGH / 2
    bottom = y + _HIGH / 2
    _arrow(page, x - 0.35, bottom, top, device.up, COLOURS["up"])
    _arrow(page, x + 0.35, top, bottom, device.down, COLOURS["down"])
    middle = bottom + 0.55
    before = device.up_before
    saved = f"\nbefore {plain_number(before)}" if before > device.up else ""
    page.axes.text(
        x - 0.42, middle, f"{plain_number(device.up)} up{saved}", ha="right", va="center",
        color=page.ink, fontsize=8.5,
    )  # fmt: skip
    page.axes.text(
        x + 0.42, middle, f"{plain_number(device.down)} down", ha="left", va="center",
        color=page.ink, fontsize=8.5,
    )  # fmt: skip


def _arrow(page: Paper, x: float, start: float, end: float, rate: float, colour: str) -> None:
    style = {
        "arrowstyle": "-|>",
        "color": colour if rate else page.faint,
        "lw": 1.8 if rate else 0.6,
    }
    if not rate:
        style["linestyle"] = ":"
    page.axes.annotate("", (x, end), (x, start), arrowprops=style)


def _box(page: Paper, x: float, y: float, width: float, lines: Sequence[str], colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    corner = (x - width / 2, y - _HIGH / 2)
    page.axes.add_patch(
        FancyBboxPatch(
            corner, width, _HIGH, boxstyle="round,pad=0,rounding_size=0.1", facecolor=page.box,
            edgecolor=colour, linewidth=1.4,
        )
    )  # fmt: skip
    name, *rest = lines
    page.axes.text(x, y + 0.28, name, ha="center", va="center", color=page.ink, weight="bold")
    page.axes.text(
        x, y - 0.14, "\n".join(rest), ha="center", va="center", color=page.ink, fontsize=8.5,
        linespacing=1.25,
    )  # fmt: skip


def _views(names: Sequence[str]) -> list[str]:
    return [f"runs {name}" for name in _few(names, _NAMES)]


def _few(names: Sequence[str], most: int) -> list[str]:
    """The first names, and how many more there are."""
    short = [name if len(name) <= 16 else name[:15] + "…" for name in names[:most]]
    return [*short, f"{len(names) - most:,} more"] if len(names) > most else short
