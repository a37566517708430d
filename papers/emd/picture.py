"""The picture of `emd_figures.py`: one panel per figure of the paper and join."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.emd.tables import select

__all__ = ["draw"]

_PANELS = (
    ("period", "imbalance", "figure 6: imbalance by feedback period (s)"),
    ("spans", "seconds", "figure 7: busy seconds by number of spans"),
    ("share", "imbalance", "figure 8: imbalance by share of matches"),
    ("share", "solved", "figure 9: exact solutions by share of matches"),
    ("share", "delay", "figure 10: delay of a row (s) by share of matches"),
    ("share", "throughput", "figure 11: left rows/s by share of matches"),
    ("window", "delay", "figure 12: delay of a row (s) by window (s)"),
    ("window", "throughput", "figure 13: left rows/s by window (s)"),
    ("workers", "throughput", "figure 14: left rows/s by workers"),
)


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw what the result holds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(_PANELS), 2, figsize=(11, 2.9 * len(_PANELS)), constrained_layout=True, squeeze=False
    )
    for line, (x, y, title) in zip(axes, _PANELS, strict=True):
        for axis, join in zip(line, ("S-SS", "S-M"), strict=True):
            rows = select(result["points"], result["rate"], x, join)
            methods = list(dict.fromkeys(row["method"] for row in rows))
            for method in methods:
                mine = [row for row in rows if row["method"] == method]
                if len(mine) > 1:  # the default point alone is no line
                    axis.plot([r[x] for r in mine], [r[y] for r in mine], "o-", label=method)
            axis.set_title(f"{title}, {join.replace('-', ' with ')}", fontsize=9)
            axis.grid(alpha=0.3)
            if x == "share":
                axis.set_xscale("log")
            if y in ("throughput", "delay"):
                axis.set_yscale("log")
            if methods:
                axis.legend(fontsize=7)
    figure.savefig(path, dpi=90)
    plt.close(figure)
