"""The picture of `emd.py`: rates by share of matches, chains side by side, streams on Spark."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from anabranch.flow.pictures import plain_number, pyplot
from papers.style import PAGE, in_style, line_of, written

__all__ = ["draw"]

# Chains of filters, and whose they are; histograms, and what their bins are.
_CHAINS = {"default": "ours", "paper": "EMD-DDSJ", "head-sj": "Head-SJ"}
_BINS = {"8x8": "8 x 8 places", "lab-64": "64 colours"}


@in_style
def draw(result: dict[str, Any], path: Path) -> None:
    """Draw what the result holds."""
    details = result["details"]
    figure, axes = pyplot().subplots(3, 1, figsize=(PAGE, 9.6), layout="constrained")
    for axis in axes:
        axis.grid(alpha=0.3)
    if "line" in details:
        rates = details["line"]["rates"]
        shares = [max(r["share"], 1e-5) for r in rates]
        axes[0].loglog(shares, [r["million"] for r in rates], **line_of("ours"))
        axes[0].set(
            title="line, 256 bins, one core", xlabel="share of pairs that match",
            ylabel="million pairs per second",
        )  # fmt: skip
    general = {
        f"{_BINS[name]}, {share} match": chains
        for name in _BINS
        for share, chains in details.get(name, {}).items()
    }
    if general:
        settings = list(general)
        for chain in general[settings[0]]:
            heights = [general[s][chain]["pairs_per_second"] / 1e6 for s in settings]
            # Points, not bars: on a log axis a length means nothing.
            axes[1].plot(range(len(settings)), heights, label=chain, **line_of(_CHAINS[chain]))
        axes[1].set_xticks(range(len(settings)), settings)
        axes[1].set(title="any metric, 64 bins, one core", ylabel="million pairs per second")
        axes[1].set_yscale("log")
        axes[1].legend()
    if "spark" in details:
        names = ["ours", "ShuffleJ", "Head-SJ"]
        seconds = [1 / median(details["spark"][n]["seconds_of_full_batches"]) for n in names]
        axes[2].barh(names, seconds, 0.5, color=[line_of(name)["color"] for name in names])
        axes[2].set_xlim(right=1.1 * max(seconds))  # room for the figures
        for name, value in zip(names, seconds, strict=True):
            axes[2].annotate(
                plain_number(value), (value, name), (4, -3), textcoords="offset points"
            )
        axes[2].axvline(1, color="grey", linestyle="--")
        axes[2].set(title="Spark, local[2], window 5 s", xlabel="seconds of stream per second")
    for axis in axes[:2]:
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes[0].xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    written(figure, path)
