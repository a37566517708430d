"""Figures as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from anabranch.flow.pictures import plain_number, pyplot
from papers.style import PAGE, in_style, line_of, written
from papers.vico.simulation.figures import Figure

__all__ = ["draw"]


@in_style
def draw(figure: Figure, path: Path) -> Path:
    """Write the picture of a figure."""
    drawing, axes = pyplot().subplots(1, 2, figsize=(PAGE, 4.0), layout="constrained")
    if figure.series:
        _over_time(figure, axes[0])
        _means(figure, axes[1])
    else:
        _over_hosts(figure, axes)
    lines = axes[0].get_legend_handles_labels()
    drawing.legend(*lines, loc="outside lower center", ncols=5)
    drawing.suptitle(f"ViCo, {_headline(figure)}")
    return written(drawing, path)


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
        done = [100 * float(np.mean(point.recall)) for point in points]
        axes[0].errorbar(hosts, means, spreads, capsize=2, label=method, **line_of(method))
        axes[1].plot(hosts, done, **line_of(method))
    axes[0].set(xlabel="hosts", ylabel="comparisons per second")
    axes[1].set(xlabel="hosts", ylabel="pairs done of pairs due, %")
    for axis in axes:
        if growth:
            axis.set(xscale="log", yscale="log")
            axis.xaxis.set_major_formatter(lambda value, _: plain_number(value))
        axis.yaxis.set_major_formatter(lambda value, _: plain_number(value))


def _over_time(figure: Figure, axis: Any) -> None:
    for method in figure.recipe.methods:
        mean = np.array(figure.series[method]).mean(axis=0)
        at = (np.arange(len(mean)) + 0.5) * figure.recipe.sample
        axis.plot(at, mean, label=method, **(line_of(method) | {"marker": ""}))
    axis.set(xlabel="seconds", ylabel="comparisons per second", ylim=(0, None))


def _means(figure: Figure, axis: Any) -> None:
    for place, point in enumerate(figure.points):
        axis.errorbar(point.mean, place, xerr=point.spread, capsize=3, **line_of(point.method))
    axis.set_yticks(range(len(figure.points)), [point.method for point in figure.points])
    axis.set(xlabel="comparisons per second, mean", ylim=(len(figure.points) - 0.5, -0.5))
    axis.set_xlim(left=0)
