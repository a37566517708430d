"""A running assembly on the terminal: what `ab.watch` shows where there is no correlation."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from anabranch.calls import count
from anabranch.flow.load import AssembleLoad
from anabranch.flow.metrics import counts_of, held_by, observes, reports_of, seconds_of
from anabranch.spark.watch_batches import BatchTable

__all__ = ["AssemblyTable", "assembles"]


def assembles(query: Any) -> bool:
    """Whether a query has reported an assembly, and no correlation."""
    names = {name for report in query.recentProgress for name in report.observedMetrics or {}}
    return observes(names, "assemble") and not observes(names, "correlate", "dedupe", "nearest")


class AssemblyTable(BatchTable):
    """The latest micro-batches of a query that assembles, and what was predicted for it."""

    def __init__(self, keep: int = 12, prediction: Any = None) -> None:
        super().__init__(keep, prediction)
        self.total = dict.fromkeys((*counts_of([], "assemble"), "seconds"), 0)
        self._buckets: dict[tuple[str, int], AssembleLoad] = {}

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

    def __rich__(self) -> RenderableType:
        table = Table(
            box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="bold"
        )
        headings = ["\nbatch", "\nevents", "in-\nstances", "by\ntimeout", "re-\nvised"]
        headings += ["open\nwindows", "held\nrows", "state\nMB", "\nseconds"]
        for heading in headings:
            table.add_column(heading, justify="right", no_wrap=True)
        for figures in list(self.batches):
            table.add_row(
                str(figures["batch"]),
                *(
                    count(figures[name])
                    for name in ("rows_in", "instances", "timeouts", "revisions")
                ),
                count(figures["open_windows"]),
                count(figures["state_rows"]),
                f"{figures['state_bytes'] / 1e6:.1f}",
                f"{figures['seconds']:.2f}",
            )
        return Group(table, Text(self.caption))

    def _loads(self, progress: Any) -> list[Any]:
        return reports_of(progress, "assemble")

    def _figures(self, progress: Any, loads: list[Any]) -> dict[str, Any]:
        self._buckets.update(((load.operator, load.worker), load) for load in loads)
        return {
            "batch": progress.batchId,
            "seconds": seconds_of(progress),
            **counts_of(loads, "assemble"),
            **held_by(self._buckets.values(), "assemble"),
        }

    def _text(self, figures: dict[str, Any]) -> str:
        return (
            f"batch {figures['batch']}: {count(figures['rows_in'])} events in, "
            f"{count(figures['instances'])} instances out, "
            f"{count(figures['timeouts'])} by timeout, {count(figures['revisions'])} revised, "
            f"{count(figures['open_windows'])} windows open, "
            f"state {count(figures['state_rows'])} rows {figures['state_bytes'] / 1e6:.1f} MB"
        )
