"""Figures of the simulated peers as pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from anabranch.flow.pictures import pyplot
from papers.knn.peers.figures import MEASURES, PeerFigure, spread
from papers.style import PAGE, in_style, line_of, written

__all__ = ["draw"]


@in_style
def draw(figure: PeerFigure, path: Path) -> Path:
    """Write the picture of a figure : a panel for each data set and measure."""
    plot = pyplot()
    recipe = figure.recipe
    panels = [(data, measure) for data in recipe.data for measure in recipe.measures]
    across = min(2, len(panels))
    rows = -(-len(panels) // across)
    drawing, axes = plot.subplots(
        rows, across, figsize=(PAGE, 0.9 + 3.1 * rows), squeeze=False, layout="constrained"
    )
    for empty in axes.flat[len(panels) :]:
        empty.set_visible(False)
    for axis, (data, measure) in zip(axes.flat, panels, strict=False):
        for line in recipe.lines:
            runs = figure.values[data, line, measure]
            means = [float(np.mean(each)) for each in runs]
            spreads = [spread(each) for each in runs]
            axis.errorbar(recipe.values, means, spreads, capsize=2, label=line, **line_of(line))
        axis.set(
            title=f"{data} data", xlabel=recipe.axis, ylabel=MEASURES.get(measure, (measure,))[0]
        )
        if recipe.axis != "slack":
            axis.set_xscale("log")
            axis.set_xticks(recipe.values, [f"{value:g}" for value in recipe.values])
            axis.minorticks_off()
        positive = min(min(map(min, figure.values[data, n, measure])) for n in recipe.lines) > 0
        axis.set_yscale("log" if positive else "linear")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.yaxis.set_minor_formatter(lambda value, _: "")
    drawing.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    name = f"figure {recipe.name}" if recipe.name.isdigit() else recipe.name
    drawing.suptitle(f"D-ZaLaPS, {name}: {recipe.title}")
    return written(drawing, path)
