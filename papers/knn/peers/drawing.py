"""Figures of the simulated peers as pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from papers.knn.peers.figures import MEASURES, PeerFigure, spread
from papers.screen import pyplot, save

__all__ = ["draw"]


def draw(figure: PeerFigure, path: Path) -> Path:
    """Write the picture of a figure as PNG: a panel for each data set and measure."""
    recipe = figure.recipe
    panels = [(data, measure) for data in recipe.data for measure in recipe.measures]
    drawing, axes = pyplot().subplots(
        1, len(panels), figsize=(1 + 3.7 * len(panels), 4), squeeze=False
    )
    for axis, (data, measure) in zip(axes[0], panels, strict=True):
        for line in recipe.lines:
            rows = figure.values[data, line, measure]
            means = [float(np.mean(runs)) for runs in rows]
            spreads = [spread(runs) for runs in rows]
            axis.errorbar(recipe.values, means, spreads, marker="o", capsize=2, label=line)
        axis.set(title=data, xlabel=recipe.axis, ylabel=MEASURES.get(measure, (measure,))[0])
        if recipe.axis != "slack":
            axis.set_xscale("log")
            axis.set_xticks(recipe.values, [f"{value:g}" for value in recipe.values])
            axis.minorticks_off()
        positive = min(min(map(min, figure.values[data, n, measure])) for n in recipe.lines) > 0
        axis.set_yscale("log" if positive else "linear")
    axes[0][0].legend(fontsize="small")
    name = f"figure {recipe.name}" if recipe.name.isdigit() else recipe.name
    drawing.suptitle(f"D-ZaLaPS, {name}: {recipe.title}")
    return save(drawing, path, dpi=100)
