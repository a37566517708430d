"""Figures of the simulated peers as pictures; matplotlib is needed here only."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from anabranch.errors import AnabranchError
from papers.knn.peers.figures import MEASURES, PeerFigure, spread

__all__ = ["draw"]


def draw(figure: PeerFigure, path: Path) -> Path:
    """Write the picture of a figure as PNG: a panel for each data set and measure."""
    try:
        import matplotlib
    except ImportError as error:
        raise AnabranchError(
            "pictures need matplotlib: pip install matplotlib, or ask for the JSON alone"
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    recipe = figure.recipe
    panels = [(data, measure) for data in recipe.data for measure in recipe.measures]
    drawing, axes = pyplot.subplots(
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
    drawing.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=100)
    pyplot.close(drawing)
    return path
