"""The story of a plan log as a chart: which plan stamped rows, which were live, and when."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from anabranch.errors import InvalidCall
from anabranch.flow.pictures import COLOURS, Paper, paper
from anabranch.flow.sketch import WIDTH, Sketch

__all__ = ["Axis", "Life", "axis_of", "draw_story", "lives", "moment", "story_html"]

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


class Axis(NamedTuple):
    """Where the micro-batches from which entries hold lie: in seconds, by the clock of the log.

    A log of which an entry has no time is drawn over micro-batches.
    """

    at: Mapping[int, float]
    end: float
    begin: datetime | None

    def label(self, batch: int) -> str:
        """A place on the axis in words."""
        if self.begin is None:
            return str(batch)
        when = self.begin + timedelta(seconds=self.at[batch])
        return f"{when:%H:%M:%S}\nbatch {batch}"

    def ticks(self, apart: float = 0.11) -> list[int]:
        """The batches that are named: as many as there is room for, a share of the axis each."""
        found: list[int] = []
        for batch in sorted(self.at):
            if not found or self.at[batch] - self.at[found[-1]] >= apart * self.end:
                found.append(batch)
        return found


def axis_of(entries: Sequence[Entry]) -> Axis:
    r"""By the wall clock at which entries were written; what still holds reaches to the edge.

    Examples
    --------
    >>> from anabranch.plans.hashed import grid
    >>> from anabranch.plans.log import Entry
    >>> times = ("2026-03-01T10:00:00+00:00", "2026-03-01T10:01:00+00:00")
    >>> log = [Entry(n, n, grid(2, 2), 7 * n, (n,), {}, {}, time) for n, time in enumerate(times)]
    >>> axis = axis_of(log)
    >>> axis.at, axis.end, axis.label(7)
    ({0: 0.0, 7: 60.0}, 70.0, '10:01:00\nbatch 7')
    """
    at: dict[int, float] = {}
    begin = None
    if all(entry.written for entry in entries):
        begin = datetime.fromisoformat(entries[0].written)
        latest = 0.0
        for entry in entries:
            seconds = (datetime.fromisoformat(entry.written) - begin).total_seconds()
            latest = max(latest, seconds)  # a clock may be put back
            at.setdefault(entry.first, latest)
    else:
        at = {entry.first: float(entry.first) for entry in entries}
    last = max(at.values())
    return Axis(at, last + max(2.0, last / 6), begin)


def draw_story(
    entries: Sequence[Entry], path: str | os.PathLike[str] | None = None, *, dark: bool = False
) -> Any:
    """A chart of a plan log: a bar a plan, over the wall clock, with its cause.

    A bar begins when the entry was written; the axis names the micro-batch from which it holds.

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
    axes, axis = page.axes, axis_of(entries)
    for row, life in enumerate(found):
        _bar(page, row, life, axis)
    axes.set_axis_on()
    axes.set_frame_on(False)
    axes.set(xlim=(0, axis.end), ylim=(len(found) - 0.4, -0.7))
    axes.set_yticks(range(len(found)), [f"plan {it.epoch}\n{it.plan}" for it in found])
    axes.tick_params(colors=page.ink, length=0)
    named = axis.ticks()
    axes.set_xticks([axis.at[batch] for batch in named], [axis.label(batch) for batch in named])
    clock = "" if axis.begin is None else f"{axis.begin:%Y-%m-%d} UTC, and the "
    axes.set_xlabel(f"{clock}micro-batch", color=page.ink)
    axes.grid(axis="x", color=page.faint, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    return page.save(path)


def story_html(entries: Sequence[Entry], path: str) -> str:
    """A small chart of the newest plans of the log at `path`: a bar a plan, over the clock."""
    page = Sketch()
    if not entries:
        page.text(0, 12, f"plan log {path}: no entries yet", room=WIDTH)
        return page.html("a plan log without entries")
    found = lives(entries)
    shown, axis = found[-_NEWEST:], axis_of(entries)
    begin = axis.at[shown[0].first]
    side = 190.0
    unit = (WIDTH - side) / (axis.end - begin)

    def bar(y: float, first: int, last: int | None, colour: str, fill: float) -> None:
        wide = ((axis.end if last is None else axis.at[last]) - axis.at[first]) * unit
        page.box(side + (axis.at[first] - begin) * unit, y, wide, 14, colour, fill=fill)

    y = 0.0
    for life in shown:
        colour = _colour(life)
        page.text(0, y + 12, f"{life.epoch}: {life.plan}", room=side - 8)
        bar(y, life.first, life.replaced, colour, 0.8)
        if life.replaced is not None:
            bar(y, life.replaced, life.retired, colour, 0.2)
        y += 20
    newest = max(axis.at)
    for batch in dict.fromkeys((shown[0].first, newest)):
        words = axis.label(batch).replace("\n", ", ") if axis.begin else f"micro-batch {batch}"
        last = batch == newest and batch != shown[0].first
        page.text(
            WIDTH if last else side, y + 14, words, anchor="end" if last else "start", faint=True
        )
    words = f"plan log {path}: {len(found)} plans; {found[-1].plan} is the newest"
    page.text(0, y + 32, words, room=WIDTH)
    return page.html(words)


def _colour(life: Life) -> str:
    return COLOURS.get(life.plan.partition("(")[0], COLOURS["keyed"])


def _bar(page: Paper, row: int, life: Life, axis: Axis) -> None:
    """Solid while the plan stamps rows, faint while it is only live."""
    colour, first = _colour(life), axis.at[life.first]
    replaced, retired = (
        axis.end if batch is None else axis.at[batch] for batch in (life.replaced, life.retired)
    )
    page.axes.barh(row, replaced - first, 0.42, first, color=colour)
    if life.replaced is not None:
        page.axes.barh(row, retired - replaced, 0.42, replaced, color=colour, alpha=0.3)
    when = moment(life.written) if life.written else ""
    text = ", ".join(part for part in (when, life.cause) if part)
    page.axes.text(first, row - 0.26, text, va="bottom", color=page.ink, fontsize=8.5)


def moment(written: str) -> str:
    """The moment an entry was written, by the wall clock.

    Examples
    --------
    >>> moment("2026-03-01T10:00:12.345+00:00")
    '2026-03-01 10:00:12 UTC'
    """
    return datetime.fromisoformat(written).strftime("%Y-%m-%d %H:%M:%S UTC")
