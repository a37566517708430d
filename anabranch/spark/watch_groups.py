"""Running groups on the terminal: what `ab.watch` shows of a query that has no other verb."""

from __future__ import annotations

from typing import Any, ClassVar

from anabranch.calls import count
from anabranch.flow.metrics import VERBS, observes
from anabranch.spark.watch_batches import Columns, VerbTable, counted

__all__ = ["GroupsTable", "only_groups"]

_EVENTS = ("groups_opened", "groups_grown", "groups_merged", "groups_closed")
_LOST = {"late_rows": "late", "rejected_rows": "rejected", "dropped_pairs": "dropped"}


def only_groups(query: Any) -> bool:
    """Whether a query has reported groups, and no other verb."""
    names = {name for report in query.recentProgress for name in report.observedMetrics or {}}
    return observes(names, "groups") and not observes(names, *(v for v in VERBS if v != "groups"))


class GroupsTable(VerbTable):
    """The latest micro-batches of a query that groups pairs."""

    of: ClassVar[str] = "groups"
    columns: ClassVar[Columns] = [
        ("pairs\nin", counted("rows_in")),
        ("groups\nopened", counted("groups_opened")),
        ("\ngrown", counted("groups_grown")),
        ("\nmerged", counted("groups_merged")),
        ("\nclosed", counted("groups_closed")),
        ("groups\nopen", counted("open_groups")),
        ("pairs\nwaiting", counted("waiting_pairs")),
        ("\nlate", counted("late_rows")),
    ]

    @property
    def caption(self) -> str:
        """Totals of all batches seen, and how the query is."""
        if not self.count:
            return self.status
        return f"{self.count} batches: {_words(self.total)}; {self.status}"

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
