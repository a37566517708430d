"""The story of a plan log as a chart: which plan stamped rows, which were live, and when."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from anabranch.errors import InvalidCall
from anabranch.flow.pictures import COLOURS, Paper, paper
from anabranch.flow.sketch import WIDTH, Sketch

__all__ = ["Life", "draw_story", "lives", "moment", "story_html"]

_NEWEST = 12  # plans in the small chart


class Entry(Protocol):
    """What the chart reads of an entry of a log (`anabranch.plans.log.Entry`)."""

    @property
    def epoch(self) -> int: ...
    @property
    def plan(self) -> Any: ...
    @property
    def first(self) -> int: ...
    @property
    def live(self) -> tuple[int, ...]: ...
    @property
    def cause(self) -> Mapping[str, Any]: ...
    @property
    def written(self) -> str: ...


class Life(NamedTuple):
    """The life of one plan in micro-batches: it stamps rows from `first` until `replaced`.

    From then until `retired` it is live: rows are also sent where it sends them. None means that
    this has not happened yet.
    """

    epoch: int
    plan: str
    cause: str
    written: str
    first: int
    replaced: int | None
    retired: int | None


def lives(entries: Sequence[Entry]) -> list[Life]:
    """The life of every plan of a log, oldest first.

    Examples
    --------
    >>> from anabranch.plans.hashed import grid
    >>> from anabranch.plans.log import Entry
    >>> log = [Entry(0, 0, grid(2, 2), 0, (0,), {"rule": "start"}),
    ...        Entry(1, 1, grid(4, 1), 5, (0, 1), {"rule": "shape"}),
    ...        Entry(2, 1, grid(4, 1), 15, (1,), {})]
    >>> [(it.epoch, it.first, it.replaced, it.retired) for it in lives(log)]
    [(0, 0, 5, 15), (1, 5, None, None)]
    """
    begun: dict[int, Entry] = {}
    for entry in entries:
        begun.setdefault(entry.epoch, entry)
    found = []
    for epoch, entry in begun.items():
        later = [it.first for it in entries if it.epoch > epoch]
        gone = [it.first for it in entries if it.epoch > epoch and epoch not in it.live]
        cause = str(entry.cause.get("rule", ""))
        found.append(
            Life(
                epoch,
                str(entry.plan),
                cause,
                entry.written,
                entry.first,
                min(later, default=None),
                min(gone, default=None),
            )
        )
    return found


def draw_story(
    entries: Sequence[Entry], path: str | os.PathLike[str] | None = None, *, dark: bool = False
) -> Any:
    """A chart of a plan log: a bar a plan, over micro-batches, with the time it was asked for.

    Parameters
    ----------
    entries
        Those of ``ab.plans.PlanLog(path).entries()``.
    path
        The file to write, .svg, .png or .pdf; None only returns the figure.
    dark
        Whether the page behind the picture is dark.

    Returns
    -------
    matplotlib.figure.Figure
        It needs matplotlib: ``pip install 'anabranch[plots]'``.
    """
    if not entries:
        raise InvalidCall("draw", ["the log has no entries yet: start the query first"])
    found = lives(entries)
    page = paper("draw", path, 1.2 + 0.55 * len(found), dark=dark)
    axes, end = page.axes, _end(entries)
    for row, life in enumerate(found):
        _bar(page, row, life, end)
    axes.set_axis_on()
    axes.set_frame_on(False)
    axes.set(xlim=(0, end), ylim=(len(found) - 0.4, -0.7))
    axes.set_yticks(range(len(found)), [f"plan {it.epoch}\n{it.plan}" for it in found])
    axes.tick_params(colors=page.ink, length=0)
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("micro-batch", color=page.ink)
    axes.grid(axis="x", color=page.faint, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    return page.save(path)


def story_html(entries: Sequence[Entry], path: str) -> str:
    """A small chart of the newest plans of the log at `path`: a bar a plan, over micro-batches."""
    page = Sketch()
    if not entries:
        page.text(0, 12, f"plan log {path}: no entries yet", room=WIDTH)
        return page.html("a plan log without entries")
    found = lives(entries)
    shown, end = found[-_NEWEST:], _end(entries)
    begin = shown[0].first
    side = 190.0
    unit = (WIDTH - side) / (end - begin)

    def bar(y: float, first: int, last: int | None, colour: str, fill: float) -> None:
        wide = ((end if last is None else last) - first) * unit
        page.box(side + (first - begin) * unit, y, wide, 14, colour, fill=fill)

    y = 0.0
    for life in shown:
        colour = _colour(life)
        page.text(0, y + 12, f"{life.epoch}: {life.plan}", room=side - 8)
        bar(y, life.first, life.replaced, colour, 0.8)
        if life.replaced is not None:
            bar(y, life.replaced, life.retired, colour, 0.2)
        y += 20
    page.text(side, y + 14, f"micro-batch {begin}", faint=True)
    page.text(WIDTH, y + 14, f"{end}", anchor="end", faint=True)
    words = f"plan log {path}: {len(found)} plans; {found[-1].plan} is the newest"
    page.text(0, y + 32, words, room=WIDTH)
    return page.html(words)


def _end(entries: Sequence[Entry]) -> int:
    """The last micro-batch of a chart: what still holds reaches to the edge."""
    last = max(entry.first for entry in entries)
    return last + max(2, last // 6)


def _colour(life: Life) -> str:
    return COLOURS.get(life.plan.partition("(")[0], COLOURS["keyed"])


def _bar(page: Paper, row: int, life: Life, end: int) -> None:
    """Solid while the plan stamps rows, faint while it is only live."""
    colour = _colour(life)
    stamps = (end if life.replaced is None else life.replaced) - life.first
    page.axes.barh(row, stamps, 0.42, life.first, color=colour)
    if life.replaced is not None:
        rest = (end if life.retired is None else life.retired) - life.replaced
        page.axes.barh(row, rest, 0.42, life.replaced, color=colour, alpha=0.3)
    when = moment(life.written) if life.written else ""
    text = ", ".join(part for part in (when, life.cause) if part)
    page.axes.text(life.first, row - 0.26, text, va="bottom", color=page.ink, fontsize=8.5)


def moment(written: str) -> str:
    """The moment an entry was written, by the wall clock.

    Examples
    --------
    >>> moment("2026-03-01T10:00:12.345+00:00")
    '2026-03-01 10:00:12 UTC'
    """
    return datetime.fromisoformat(written).strftime("%Y-%m-%d %H:%M:%S UTC")
