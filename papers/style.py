"""One colour and one line for each method in the pictures of all papers, as wide as a page."""

from __future__ import annotations

from typing import Any

from anabranch.flow.pictures import PAGE

__all__ = ["PAGE", "line_of"]

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
