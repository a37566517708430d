"""The style sheet of the papers' pictures: as wide as a page, for light and for dark ones.

One colour and one line for each method in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from anabranch.flow.pictures import INKS, PAGE, pyplot, undated

__all__ = ["PAGE", "in_both", "in_style", "ink", "line_of", "written"]

R = TypeVar("R")

# Colour and dashes; of lines that lie on each other the lower one shows between the dashes.
_LINES: dict[str, tuple[str, Any]] = {
    "ours": ("#10b981", "-"),
    "EMD-DDSJ": ("#ec4899", "-"),
    "ShuffleJ": ("#8b5cf6", "-"),
    "Head-SJ": ("#64748b", "-"),
    "PA": ("#3b82f6", "-"),
    "PA-starving": ("#ef4444", (0, (1, 1.5))),
    "PA-open": ("#64748b", (0, (5, 3))),
    "RAPF": ("#f97316", (0, (5, 3))),
    "RAPF b=w/2": ("#10b981", (0, (2, 3))),
    "small window array (13, T)": ("#64748b", "-"),
    "fixed wait T": ("#8b5cf6", (0, (5, 3))),
    "session gap": ("#d97706", "-"),
    "learned, risk r": ("#10b981", "-"),
    "planner, Zipf friends": ("#10b981", "-"),
    "planner, Facebook-like, sampled": ("#3b82f6", "-"),
    "one cut (SciPy)": ("#f97316", "-"),
    "cut per device (extrapolated)": ("#64748b", "-"),
    "centralised": ("#64748b", "-"),
    "adaptive": ("#3b82f6", "-"),
    "80% never meet, else log-uniform": ("#10b981", "-"),
    "log-normal, median 0.001, sigma 1.8": ("#3b82f6", "-"),
    "never meeting drawn per pair": ("#d97706", "-"),
    "symmetric, as the first": ("#ec4899", "-"),
    "uniform": ("#8b5cf6", "-"),
    "SSP": ("#8b5cf6", "-"),
    "CSP": ("#d97706", "-"),
    "grid": ("#10b981", "-"),
    "LLF-Distribution": ("#ef4444", "-"),
    "LLF-Diffusion": ("#64748b", "-"),
    "SSP-roleAdapt": ("#ec4899", "-"),
    "SSP-shapeAdapt": ("#10b981", "-"),
    "CSP-segmentAdapt": ("#3b82f6", "-"),
    "CSP-roleAdapt": ("#ec4899", "-"),
    "CSP-fullAdapt": ("#06b6d4", "-"),
    "CSP-anyPlan": ("#10b981", "-"),
}


def line_of(method: str) -> dict[str, Any]:
    """How the line of a method is drawn.

    Examples
    --------
    >>> line_of("ours")["color"]
    '#10b981'
    """
    if method not in _LINES:
        return {"marker": "o", "markersize": 4}
    colour, dashes = _LINES[method]
    return {"color": colour, "linestyle": dashes, "marker": "o", "markersize": 4, "linewidth": 1.8}


def in_style(draw: Callable[..., R]) -> Callable[..., R]:
    """Have a function draw by the style sheet; ``dark=True`` is for dark pages."""

    @wraps(draw)
    def styled(*args: Any, dark: bool = False) -> R:
        pyplot()
        from matplotlib import rc_context

        with rc_context(_sheet(dark)):
            return draw(*args)

    return styled


def in_both(draw: Callable[..., Any], stem: Path, *given: Any) -> None:
    """Draw for light pages and for dark ones: ``NAME.svg`` and ``NAME-dark.svg``."""
    for dark, ending in ((False, ""), (True, "-dark")):
        draw(*given, stem.with_name(f"{stem.name}{ending}.svg"), dark=dark)


def ink() -> str:
    """The colour of text on the page that is being drawn."""
    return str(pyplot().rcParams["text.color"])


def _sheet(dark: bool) -> Any:  # matplotlib names all its settings in a type
    ink, faint, box = INKS[dark]
    return {
        "font.size": 10,
        "axes.titlesize": 10,
        "figure.titlesize": 11,
        "legend.fontsize": 9,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.titlecolor": ink,
        "axes.edgecolor": faint,
        "xtick.color": faint,
        "ytick.color": faint,
        "xtick.labelcolor": ink,
        "ytick.labelcolor": ink,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": faint,
        "grid.alpha": 0.25,
        "legend.frameon": False,
        "legend.facecolor": box,
    }


def written(figure: Any, path: Path) -> Path:
    """Write a drawing, the same one always as the same file, and forget it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100, metadata=undated(path))
    pyplot().close(figure)
    return path
