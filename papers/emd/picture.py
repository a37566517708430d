"""The pictures of `papers.emd.figures`: one for each figure of the paper, a panel for each join."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anabranch.flow.pictures import plain_number, pyplot
from papers.emd.tables import select
from papers.style import PAGE, in_style, line_of, written

__all__ = ["FIGURES", "draw"]

FIGURES = {
    6: ("period", "imbalance", "feedback period (s)", "imbalance"),
    7: ("ranges", "seconds", "number of ranges", "busy seconds"),
    8: ("share", "imbalance", "share of pairs that match", "imbalance"),
    9: ("share", "solved", "share of pairs that match", "exact solutions"),
    10: ("share", "delay", "share of pairs that match", "delay of a row (s)"),
    11: ("share", "throughput", "share of pairs that match", "left rows per second"),
    12: ("window", "delay", "window (s)", "delay of a row (s)"),
    13: ("window", "throughput", "window (s)", "left rows per second"),
    14: ("workers", "throughput", "workers", "left rows per second"),
}


@in_style
def draw(result: dict[str, Any], number: int, path: Path) -> None:
    """Write the picture of a figure of the paper."""
    x, y, below, beside = FIGURES[number]
    figure, axes = pyplot().subplots(1, 2, figsize=(PAGE, 3.6), layout="constrained", sharey=True)
    for axis, join in zip(axes, ("S-SS", "S-M"), strict=True):
        _panel(axis, select(result["points"], result["rate"], x, join), x, y)
        axis.set(title=join.replace("-", " with "), xlabel=below)
    axes[0].set_ylabel(beside)
    lines = {label: it for axis in axes for it, label in zip(*_legend(axis), strict=True)}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=4)
    written(figure, path)


def _legend(axis: Any) -> tuple[list[Any], list[str]]:
    handles, labels = axis.get_legend_handles_labels()
    return handles, labels


def _panel(axis: Any, rows: list[dict[str, Any]], x: str, y: str) -> None:
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        if len(mine) > 1:  # the default point alone is no line
            axis.plot([r[x] for r in mine], [r[y] for r in mine], label=method, **line_of(method))
    if x == "share":
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axis.yaxis.set_major_formatter(lambda value, _: plain_number(value))
    if y in ("throughput", "delay"):
        axis.set_yscale("log")
        axis.yaxis.set_minor_formatter(lambda value, _: "")
