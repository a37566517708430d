"""The micro-batches of a running correlation as a table, and as lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from anabranch.calls import count
from anabranch.flow.metrics import (
    VERBS,
    State,
    batch_metrics,
    counts_of,
    held_by,
    loads_of,
    observes,
    reports_of,
    seconds_of,
    verbs_of,
)
from anabranch.spark.totals import plain_line

__all__ = ["STARTING", "BatchTable", "VerbTable", "brief", "counted"]

Columns = list[tuple[str, Callable[[dict[str, Any]], str | Text]]]
"""Headings, and what a column shows of a micro-batch's figures."""


STARTING = "starting Python workers (10 to 30 s the first time)"
_WAITING = f"waiting for the first batch: {STARTING}"
# What goes in and out.
_WORDS = {
    "correlate": ("rows", "pairs"),
    "dedupe": ("rows", "rows"),
    "nearest": ("objects", "hits"),
}
_TOTALS = (
    "rows_in",
    "comparisons",
    "pairs",
    "unmatched_rows",
    "duplicates",
    "late_rows",
    "rejected_rows",
    "seconds",
)


class BatchTable:
    """The latest micro-batches of a query as a table that rich can render.

    `update` reads what is new from the query's progress; rendering reads only the table. Batches
    that Spark still remembers from before the first `update` are shown and counted too.

    Parameters
    ----------
    keep
        How many batches to show.
    prediction
        What to hold the latest batch against; see `ab.estimate_state`.
    """

    def __init__(self, keep: int = 12, prediction: Any = None) -> None:
        self.batches: deque[dict[str, Any]] = deque(maxlen=keep)
        self.prediction = prediction
        self.total: dict[str, Any] = dict.fromkeys(_TOTALS, 0)
        self.count = 0
        self.status = _WAITING
        self.verb = "correlate"
        self._first: int | None = None
        self._last: tuple[str, int] | None = None
        self._seen: tuple[str, int, str] | None = None
        self._state: State = {}
        self._lines: list[str] = []

    def update(self, query: Any) -> list[dict[str, Any]]:
        """Take in the batches that have finished since the last call, and return their figures."""
        # Asked before progress: a query that is over by now has reported everything.
        active = bool(query.isActive)
        latest = query.lastProgress
        fresh: list[dict[str, Any]] = []
        if latest is not None:
            seen = (str(latest.runId), latest.batchId, latest.timestamp)
            if seen != self._seen or not active:
                fresh = [self._add(*found) for found in self._unseen(query.recentProgress)]
                self._seen = seen
        self.status = self._status(query, latest, active)
        return fresh

    def take_lines(self) -> list[str]:
        """One plain line for each batch since the last call."""
        lines, self._lines = self._lines, []
        return lines

    @property
    def caption(self) -> str:
        """Totals of all batches seen, and how the query is."""
        if not self.count:
            return self.status
        total, (came, found) = self.total, _WORDS[self.verb]
        rate = total["comparisons"] / total["seconds"] if total["seconds"] else 0.0
        span = f"batch {self._first}" if self.count == 1 else f"{self.count} batches"
        text = (
            f"{span}: {count(total['rows_in'])} {came}, {count(total['comparisons'])} comparisons "
            f"({count(rate)}/s), {count(total['pairs'])} {found}, {count(total['late_rows'])} late"
        )
        text += _beside(total, self.verb)
        if total["rejected_rows"]:
            text += f", {count(total['rejected_rows'])} rejected"
        text = f"{text}; {self.status}"
        if self.prediction is not None and self.batches:
            text += f"\n{self.prediction.beside(self.batches[-1])}"
        return text

    def __rich__(self) -> RenderableType:
        table = Table(
            box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="bold"
        )
        columns = self._columns()
        for heading, _ in columns:
            table.add_column(heading, justify="right", no_wrap=True)
        # A snapshot: another thread renders while this one adds.
        for figures in list(self.batches):
            table.add_row(*(cell(figures) for _, cell in columns))
        return Group(table, Text(self.caption))

    def _columns(self) -> Columns:
        came, found = _WORDS[self.verb]
        rejected: Columns = [("re-\njected", counted("rejected_rows", "red"))]
        return [
            ("\nbatch", lambda figures: str(figures["batch"])),
            (f"{came}\nin", counted("rows_in")),
            ("\ncompared", counted("comparisons")),
            ("per\nsecond", counted("comparisons_per_second")),
            (f"{found}\nout", counted("pairs", "green")),
            ("copies\nper row", lambda figures: f"{figures['copies_per_row']:.2f}"),
            ("\nlate", counted("late_rows", "yellow")),
            *(rejected if self.total["rejected_rows"] else []),
            ("state\nrows", counted("state_rows")),
            ("state\nMB", megabytes),
            (
                "worker s\nmax mean",
                lambda of: f"{of['slowest_worker_seconds']:.2f} {of['mean_worker_seconds']:.2f}",
            ),
        ]

    def _unseen(self, recent: Any) -> list[tuple[Any, list[Any]]]:
        found = []
        for progress in recent:
            name = (str(progress.runId), progress.batchId)
            if self._last is not None and name[0] == self._last[0] and name[1] <= self._last[1]:
                continue
            # Spark also reports triggers that found nothing, under the number of the next batch.
            if loads := self._loads(progress):
                self._last = name
                found.append((progress, loads))
        return found

    def _loads(self, progress: Any) -> list[Any]:
        return loads_of(progress)

    def _figures(self, progress: Any, loads: list[Any]) -> dict[str, Any]:
        names = progress.observedMetrics or {}
        self.verb = next((verb for verb in _WORDS if observes(names, verb)), self.verb)
        # Of several verbs in a query the table is one's; ab.metrics has the others' too.
        mine = reports_of(progress, self.verb) if observes(names, self.verb) else loads
        figures = batch_metrics(progress, mine, self._state)
        if self.verb == "dedupe":  # rows that found no partner are what it emits
            figures |= {"pairs": figures["emitted_rows"]}
        return figures

    def _text(self, figures: dict[str, Any]) -> str:
        return _line(figures, self.verb)

    def _add(self, progress: Any, loads: list[Any]) -> dict[str, Any]:
        figures = self._figures(progress, loads)
        self.count += 1
        if self._first is None:
            self._first = figures["batch"]
        self.total = {name: total + figures[name] for name, total in self.total.items()}
        # Spark runs batches without data for the watermark's sake: most say nothing.
        if not self.batches or any(figures[name] for name in self.total if name != "seconds"):
            self.batches.append(figures)
            self._lines.append(self._text(figures))
        return figures

    def _status(self, query: Any, latest: Any, active: bool) -> str:
        if not active:
            error = query.exception()
            return "the query has ended" if error is None else f"the query FAILED: {brief(error)}"
        if self.count:
            return "running"
        if latest is not None and latest.numInputRows and not verbs_of(latest):
            known = ", ".join(f"ab.{verb}" for verb in VERBS)
            return f"this query reports nothing: is one of {known} in it?"
        return _WAITING


class VerbTable(BatchTable):
    """The latest micro-batches of a query with one verb that compares nothing."""

    of: ClassVar[str]
    columns: ClassVar[Columns]

    def __init__(self, keep: int = 12, prediction: Any = None) -> None:
        super().__init__(keep, prediction)
        self.total = dict.fromkeys((*counts_of([], self.of), "seconds"), 0)

    def _columns(self) -> Columns:
        return [
            ("\nbatch", lambda figures: str(figures["batch"])),
            *self.columns,
            ("state\nMB", megabytes),
            ("\nseconds", lambda figures: f"{figures['seconds']:.2f}"),
        ]

    def _loads(self, progress: Any) -> list[Any]:
        return reports_of(progress, self.of)

    def _figures(self, progress: Any, loads: list[Any]) -> dict[str, Any]:
        self._state.update(((load.operator, load.worker), load) for load in loads)
        return {
            "batch": progress.batchId,
            "seconds": seconds_of(progress),
            **counts_of(loads, self.of),
            **held_by(self._state.values(), self.of),
        }


def counted(name: str, style: str = "") -> Callable[[dict[str, Any]], Text]:
    """A column of one figure, in a style if it is not 0."""
    return lambda figures: Text(count(figures[name]), style=style if figures[name] else "")


def megabytes(figures: dict[str, Any]) -> str:
    """The state."""
    return f"{figures['state_bytes'] / 1e6:.1f}"


def _beside(figures: dict[str, Any], verb: str) -> str:
    """What became of the rows that are not in what was emitted, or are in it alone."""
    if verb == "dedupe":
        return f", {count(figures['duplicates'])} duplicates"
    alone = figures["unmatched_rows"]
    return f", {count(alone)} without partner" if alone else ""


def _line(figures: dict[str, Any], verb: str) -> str:
    came, found = _WORDS[verb]
    text = (
        f"batch {figures['batch']}: {count(figures['rows_in'])} {came} in, "
        f"{count(figures['comparisons'])} comparisons, "
        f"{count(figures['comparisons_per_second'])}/s, {count(figures['pairs'])} {found} out, "
        f"{figures['copies_per_row']:.2f} copies per row, {count(figures['late_rows'])} late"
    ) + _beside(figures, verb)
    if figures["rejected_rows"]:
        text += f", {count(figures['rejected_rows'])} rejected"
    return text + (
        f", state {count(figures['state_rows'])} rows {figures['state_bytes'] / 1e6:.1f} MB, "
        f"workers {figures['slowest_worker_seconds']:.2f} s slowest "
        f"{figures['mean_worker_seconds']:.2f} s mean"
    )


def brief(error: Any) -> str:
    """One line of the many of a Spark error: our own error if it is one of ours, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    chosen = plain_line(str(error)) or (lines or ["unknown"])[0]
    return chosen if len(chosen) <= 300 else chosen[:297] + "..."
