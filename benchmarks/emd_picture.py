"""The picture of `emd.py`: rates by share of matches, chains side by side, streams on Spark."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["draw"]


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw what the result holds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    details = result["details"]
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), constrained_layout=True)
    for axis in axes:
        axis.grid(alpha=0.3)
    if "line" in details:
        rates = details["line"]["rates"]
        axes[0].loglog([max(r["share"], 1e-5) for r in rates], [r["million"] for r in rates], "o-")
        axes[0].set(
            title="line, 256 bins, one core", xlabel="share of pairs that match",
            ylabel="million pairs per second",
        )  # fmt: skip
    general = {
        f"{name} {share}": chains
        for name in ("8x8", "lab-64")
        for share, chains in details.get(name, {}).items()
    }
    if general:
        settings = list(general)
        for place, chain in enumerate(general[settings[0]]):
            heights = [general[s][chain]["pairs_per_second"] / 1e6 for s in settings]
            axes[1].bar(
                [x + 0.27 * place for x in range(len(settings))], heights, 0.25, label=chain
            )
        axes[1].set_xticks([x + 0.27 for x in range(len(settings))], settings, fontsize=8)
        axes[1].set(title="any metric, 64 bins, one core", ylabel="million pairs per second")
        axes[1].set_yscale("log")
        axes[1].legend()
    if "spark" in details:
        names = ["ours", "ShuffleJ", "Head-SJ"]
        seconds = [1 / median(details["spark"][n]["seconds_of_full_batches"]) for n in names]
        axes[2].bar(names, seconds)
        axes[2].set_yscale("log")
        axes[2].axhline(1, color="grey", linestyle="--")
        axes[2].set(title="Spark, local[2], window 5 s", ylabel="seconds of stream per second")
    figure.savefig(path, dpi=110)
    plt.close(figure)
