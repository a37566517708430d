"""The benchmark's result as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from anabranch.flow.pictures import plain_number, pyplot
from papers.style import PAGE, in_style, ink, written

__all__ = ["draw"]

_COLOURS = ("#10b981", "#3b82f6", "#8b5cf6", "#d97706", "#94a3b8")
_BARS = (
    "cosine",
    "euclidean",
    "cosine, window admits 44 %",
    "cosine, 1e-3 of pairs match",
    "plain numpy",
)
_GOALS = {16: 0.8, 64: 0.9, 576: 0.8}


@in_style
def draw(result: dict[str, Any], path: Path) -> None:
    """Write the panels for which there are figures."""
    panels = {"kernel": _kernel, "growth": _growth, "join": _join}
    details = result["details"]
    shown = [name for name in panels if name in details]
    if not shown:
        return
    # One below the other, so that it can be read on a page 830 pixels wide.
    figure, axes = pyplot().subplots(len(shown), 1, figsize=(PAGE, 3.2 * len(shown)), squeeze=False)
    for name, axis in zip(shown, axes[:, 0], strict=True):
        panels[name](axis, details)
    told = [about for about in result["sections"].values() if about != "unknown"]
    cpus = sorted({f"{about['cpu']}, {about['cores']} cores" for about in told})
    small = " (quick run: sizes too small for the targets)" if result["quick"] else ""
    figure.suptitle(f"correlate: {'; '.join(cpus)}{small}", fontsize=10)
    figure.tight_layout()
    written(figure, path)


def _kernel(axis: Axes, details: dict[str, Any]) -> None:
    widths = details["kernel"]["widths"]
    step = 0.8 / len(_BARS)
    for place, (name, colour) in enumerate(zip(_BARS, _COLOURS, strict=True)):
        at = [n - 0.4 + step * (place + 0.5) for n in range(len(widths))]
        axis.bar(at, [found["ratios"][name] for found in widths], step, label=name, color=colour)
    for n, found in enumerate(widths):
        goal = _GOALS[found["width"]]
        label = "goal for cosine and euclidean" if n == 0 else ""  # one entry in the legend
        axis.hlines(goal, n - 0.4, n - 0.4 + 2 * step, "#ef4444", lw=2, label=label)
    axis.axhline(1, color=ink(), lw=0.8, ls=":")
    axis.set_xticks(range(len(widths)), [f"{found['width']} dimensions" for found in widths])
    axis.set_ylabel("speed, bare matrix product = 1")
    axis.set_title("One core: find, test and score the matches", fontsize=10)
    axis.set_ylim(0, 1.75)  # room for the legend
    axis.legend(fontsize=7, loc="upper center", ncols=2, frameon=False)


def _growth(axis: Axes, details: dict[str, Any]) -> None:
    points = details["growth"]["points"]
    rows = [point["window_rows"] for point in points]
    inside = [point["worker_rate"] for point in points]
    whole = [point["rate"] for point in points]
    axis.plot(rows, inside, "o-", color=_COLOURS[1], label="in the workers' step")
    axis.plot(rows, whole, "s-", color=_COLOURS[0], label="end to end, fixed cost included")
    if "stream" in details:
        bare = details["stream"]["bare_rate"]
        axis.axhline(bare, color=ink(), lw=0.8, ls=":", label="bare products on both cores")
    axis.set_xscale("log")
    axis.set_xticks(rows, [f"{count / 1000:g}k" for count in rows])
    axis.minorticks_off()
    axis.set_ylim(bottom=0)
    axis.yaxis.set_major_formatter(lambda value, _: plain_number(value))
    axis.set_xlabel("rows a side in the window")
    axis.set_ylabel("comparisons per second")
    axis.set_title("Spark, two cores: the window grows", fontsize=10)
    axis.legend(fontsize=8, frameon=False)


def _join(axis: Axes, details: dict[str, Any]) -> None:
    found = details["join"]
    bars = {
        "constant-key join": found["rates"]["constant-key join"],
        "correlate, the same few rows": found["rates"]["correlate"],
        "correlate, full windows": found["full_rate"],
    }
    if "stream" in details:
        bars["bare products, both cores"] = details["stream"]["bare_rate"]
    colours = ["#94a3b8", _COLOURS[1], _COLOURS[0], ink()]
    # Points, not bars: on a log axis a length means nothing.
    for place, (value, colour) in enumerate(zip(bars.values(), colours, strict=False)):
        axis.plot(value, place, "o", color=colour, markersize=10)
        axis.text(value * 1.4, place, f"{plain_number(value)}/s", va="center", fontsize=9)
    axis.set_yticks(range(len(bars)), list(bars))
    axis.grid(axis="x", alpha=0.3)
    axis.set_xscale("log")
    axis.set_xlim(min(bars.values()) / 5, max(bars.values()) * 20)
    axis.set_ylim(len(bars) - 0.5, -0.5)
    axis.xaxis.set_major_formatter(lambda value, _: plain_number(value))
    axis.set_xlabel("comparisons per second, 64-d cosine (log scale)")
    axis.set_title("Against what Spark users write today", fontsize=10)
