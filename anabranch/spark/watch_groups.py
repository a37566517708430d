"""Running groups on the terminal: what `ab.watch` shows of a query that has no other verb."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from anabranch.calls import count
from anabranch.flow.load import GroupsLoad
from anabranch.flow.metrics import VERBS, counts_of, held_by, observes, reports_of, seconds_of
from anabranch.spark.watch_batches import BatchTable

__all__ = ["GroupsTable", "only_groups"]

_EVENTS = ("groups_opened", "groups_grown", "groups_merged", "groups_closed")
_LOST = {"late_rows": "late", "rejected_rows": "rejected", "dropped_pairs": "dropped"}


def only_groups(query: Any) -> bool:
    """Whether a query has reported groups, and no other verb."""
    names = {name for report in query.recentProgress for name in report.observedMetrics or {}}
    return observes(names, "groups") and not observes(names, *(v for v in VERBS if v != "groups"))


class GroupsTable(BatchTable):
    """The latest micro-batches of a query that groups pairs."""

    def __init__(self, keep: int = 12, prediction: Any = None) -> None:
        super().__init__(keep, prediction)
        self.total = dict.fromkeys((*counts_of([], "groups"), "seconds"), 0)
        self._workers: dict[tuple[str, int], GroupsLoad] = {}

    @property
    def caption(self) -> str:
        """Totals of all batches seen, and how the query is."""
        if not self.count:
            return self.status
        return f"{self.count} batches: {_words(self.total)}; {self.status}"

    def __rich__(self) -> RenderableType:
        table = Table(
            box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="bold"
        )
        headings = ["\nbatch", "pairs\nin", "groups\nopened", "\ngrown", "\nmerged", "\nclosed"]
        headings += ["groups\nopen", "pairs\nwaiting", "\nlate", "state\nMB", "\nseconds"]
        for heading in headings:
            table.add_column(heading, justify="right", no_wrap=True)
        for figures in list(self.batches):
            names = ("rows_in", *_EVENTS, "open_groups", "waiting_pairs", "late_rows")
            table.add_row(
                str(figures["batch"]),
                *(count(figures[name]) for name in names),
                f"{figures['state_bytes'] / 1e6:.1f}",
                f"{figures['seconds']:.2f}",
            )
        return Group(table, Text(self.caption))

    def _loads(self, progress: Any) -> list[Any]:
        return reports_of(progress, "groups")

    def _figures(self, progress: Any, loads: list[Any]) -> dict[str, Any]:
        self._workers.update(((load.operator, load.worker), load) for load in loads)
        return {
            "batch": progress.batchId,
            "seconds": seconds_of(progress),
            **counts_of(loads, "groups"),
            **held_by(self._workers.values(), "groups"),
        }

    def _text(self, figures: dict[str, Any]) -> str:
        return (
            f"batch {figures['batch']}: {_words(figures)}, {count(figures['open_groups'])} open, "
            f"{count(figures['waiting_pairs'])} pairs waiting, "
            f"state {figures['state_bytes'] / 1e6:.1f} MB"
        )


def _words(figures: dict[str, Any]) -> str:
    opened, grown, merged, closed = (count(figures[name]) for name in _EVENTS)
    text = (
        f"{count(figures['rows_in'])} pairs in, {opened} groups opened, {grown} grown, "
        f"{merged} merged, {closed} closed"
    )
    lost = (f", {count(figures[name])} {word}" for name, word in _LOST.items() if figures[name])
    return text + "".join(lost)
