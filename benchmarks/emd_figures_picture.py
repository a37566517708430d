"""The picture of `emd_figures.py`: one panel per figure of the paper and join."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["draw"]

_PANELS = (
    ("6", "period", "imbalance", "figure 6: imbalance by feedback period (s)"),
    ("7", "spans", "seconds", "figure 7: busy seconds by number of spans"),
    ("thresholds", "share", "solved", "figure 9: exact solutions by share of matches"),
    ("thresholds", "share", "delay", "figure 10: delay of a row (s) by share of matches"),
    ("thresholds", "share", "throughput", "figure 11: left rows/s by share of matches"),
    ("windows", "window", "delay", "figure 12: delay of a row (s) by window (s)"),
    ("windows", "window", "throughput", "figure 13: left rows/s by window (s)"),
    ("workers", "workers", "throughput", "figure 14: left rows/s by workers"),
)


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw the panels that the result holds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = [panel for panel in _PANELS if panel[0] in result]
    if not panels:
        return
    figure, axes = plt.subplots(
        len(panels), 2, figsize=(11, 2.9 * len(panels)), constrained_layout=True, squeeze=False
    )
    for line, (section, x, y, title) in zip(axes, panels, strict=True):
        for axis, join in zip(line, ("S-SS", "S-M"), strict=True):
            rows = [row for row in result[section] if row["join"] == join]
            for method in dict.fromkeys(row["method"] for row in rows):
                mine = [row for row in rows if row["method"] == method]
                axis.plot([r[x] for r in mine], [r[y] for r in mine], "o-", label=method)
            axis.set_title(f"{title}, {join.replace('-', ' with ')}", fontsize=9)
            axis.grid(alpha=0.3)
            if x == "share":
                axis.set_xscale("log")
            if y in ("throughput", "delay"):
                axis.set_yscale("log")
            if rows:
                axis.legend(fontsize=7)
    figure.savefig(path, dpi=90)
    plt.close(figure)
