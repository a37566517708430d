"""Pictures of the running system, for light pages and for dark ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from anabranch.flow.pictures import INKS, PAGE, pyplot

__all__ = ["COLOURS", "draw"]

COLOURS = {"in": "#ef4444", "out": "#3b82f6", "both": "#10b981", "theirs": "#94a3b8"}
_IMAGES = Path(__file__).parent / "images"


def draw(figure: int, fill: Callable[[Any], None], legend: str = "best") -> None:
    """Have axes filled twice, and write ``figure-N.png`` and ``figure-N-dark.png``."""
    plt = pyplot()
    for dark in (False, True):
        ink, faint, _ = INKS[dark]
        page, axes = plt.subplots(figsize=(PAGE, 3.6), layout="constrained")
        fill(axes)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.tick_params(colors=faint)
        for label in (axes.xaxis.label, axes.yaxis.label):
            label.set_color(ink)
        for side in axes.spines.values():
            side.set_color(faint)
        axes.legend(frameon=False, labelcolor=ink, fontsize=9, loc=legend)
        ending = "-dark" if dark else ""
        page.savefig(_IMAGES / f"figure-{figure}{ending}.png", dpi=100, transparent=True)
        plt.close(page)
