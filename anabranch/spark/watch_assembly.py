"""A running assembly on the terminal: what `ab.watch` shows where there is no correlation."""

from __future__ import annotations

from typing import Any, ClassVar

from anabranch.calls import count
from anabranch.flow.metrics import observes
from anabranch.spark.watch_batches import Columns, VerbTable, counted

__all__ = ["AssemblyTable", "assembles"]


def assembles(query: Any) -> bool:
    """Whether a query has reported an assembly, and no correlation."""
    names = {name for report in query.recentProgress for name in report.observedMetrics or {}}
    return observes(names, "assemble") and not observes(names, "correlate", "dedupe", "nearest")


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
