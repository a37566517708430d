"""Running assemblies and groups on the terminal: `ab.watch` where nothing is compared."""

from __future__ import annotations

from typing import Any, ClassVar

from anabranch.calls import count
from anabranch.flow.metrics import VERBS, named
from anabranch.spark.watch_batches import BatchTable, Columns, VerbTable, counted

__all__ = ["AssemblyTable", "GroupsTable", "table_for"]

_EVENTS = ("groups_opened", "groups_grown", "groups_merged", "groups_closed")
_LOST = {"late_rows": "late", "rejected_rows": "rejected", "dropped_pairs": "dropped"}


def table_for(query: Any) -> type[BatchTable]:
    """The table of the verb that a query has reported, the first of several."""
    names = {name for report in query.recentProgress for name in report.observedMetrics or {}}
    first = next((verb for verb in VERBS if named(names, verb)), None)
    return {"assemble": AssemblyTable, "groups": GroupsTable}.get(first or "", BatchTable)


class AssemblyTable(VerbTable):
    """The latest micro-batches of a query that assembles, and what was predicted for it."""

    of: ClassVar[str] = "assemble"
    columns: ClassVar[Columns] = [
        ("\nevents", counted("rows_in")),
        ("in-\nstances", counted("instances")),
        ("by\ntimeout", counted("timeouts")),
        ("re-\nvised", counted("revisions")),
        ("open\nwindows", counted("open_windows")),
        ("held\nrows", counted("state_rows")),
    ]

    @property
    def caption(self) -> str:
        """Totals of all batches seen, and how the query is."""
        if not self.count:
            return self.status
        total, latest = self.total, self.batches[-1]
        text = (
            f"{self.count} batches: {count(total['rows_in'])} events, "
            f"{count(total['instances'])} instances ({count(total['timeouts'])} by timeout), "
            f"{count(total['revisions'])} revised, {count(total['late_rows'])} late"
        )
        for name, word in (("evicted", "evicted"), ("rejected_rows", "rejected")):
            if total[name]:
                text += f", {count(total[name])} {word}"
        text = f"{text}; {self.status}"
        if self.prediction is not None:
            text += f"\n{self.prediction.beside(latest)}"
        return text

    def _text(self, figures: dict[str, Any]) -> str:
        return (
            f"batch {figures['batch']}: {count(figures['rows_in'])} events in, "
            f"{count(figures['instances'])} instances out, "
            f"{count(figures['timeouts'])} by timeout, {count(figures['revisions'])} revised, "
            f"{count(figures['open_windows'])} windows open, "
            f"state {count(figures['state_rows'])} rows {figures['state_bytes'] / 1e6:.1f} MB"
        )


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
