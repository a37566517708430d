"""Figures as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from anabranch.flow.pictures import pyplot
from papers.screen import save
from papers.vico.simulation.figures import Figure

__all__ = ["draw"]


def draw(figure: Figure, path: Path) -> Path:
    """Write the picture of a figure as PNG."""
    drawing, axes = pyplot().subplots(1, 2, figsize=(11, 4.2))
    if figure.series:
        _over_time(figure, axes[0])
        _bars(figure, axes[1])
    else:
        _over_hosts(figure, axes)
    drawing.suptitle(f"ViCo, {_headline(figure)}")
    return save(drawing, path, dpi=110)


def _headline(figure: Figure) -> str:
    recipe = figure.recipe
    settings = recipe.settings
    low, high = settings.rates
    name = f"figure {recipe.name}" if recipe.name.isdigit() else recipe.name
    return f"{name}: {recipe.title}, {low:g} to {high:g} frames/s, beta {settings.beta:g}"


def _over_hosts(figure: Figure, axes: Any) -> None:
    growth = len({point.operators for point in figure.points}) > 1
    for method in figure.recipe.methods:
        points = figure.curve(method)
        hosts = [point.hosts for point in points]
        spreads = [point.spread for point in points]
        means = [point.mean for point in points]
        axes[0].errorbar(hosts, means, spreads, marker="o", capsize=2, label=method)
        axes[1].plot(hosts, [np.mean(point.recall) for point in points], marker="o")
    axes[0].set(xlabel="hosts", ylabel="comparisons per second")
    axes[1].set(xlabel="hosts", ylabel="recall (pairs done / due)")
    if growth:
        for axis in axes:
            axis.set(xscale="log", yscale="log")
    axes[0].legend()


def _over_time(figure: Figure, axis: Any) -> None:
    for method in figure.recipe.methods:
        rows = np.array(figure.series[method])
        at = (np.arange(rows.shape[1]) + 0.5) * figure.recipe.sample
        mean, spread = rows.mean(axis=0), rows.std(axis=0)
        (line,) = axis.plot(at, mean, label=method)
        axis.fill_between(at, mean - spread, mean + spread, color=line.get_color(), alpha=0.15)
    axis.set(xlabel="seconds", ylabel="comparisons per second", ylim=(0, None))
    axis.legend(fontsize="small")


def _bars(figure: Figure, axis: Any) -> None:
    names = [point.method for point in figure.points]
    means = [point.mean for point in figure.points]
    axis.barh(names, means, xerr=[point.spread for point in figure.points], capsize=3)
    axis.invert_yaxis()
    axis.set(xlabel="comparisons per second, mean after warm-up")
