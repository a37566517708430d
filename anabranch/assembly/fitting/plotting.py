"""Pictures of fits; only what is asked for as a plot needs matplotlib.

A fit is a `Distribution` or a `WindowFit`, which know this module and not the other way round.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from anabranch.assembly.fitting.sample import Floats
from anabranch.assembly.fitting.survival import Survival
from anabranch.flow.pictures import COLOURS, PAGE, pyplot
from anabranch.flow.sketch import WIDTH, Sketch

__all__ = ["plot_distribution", "plot_windows", "windows_html"]

_POINTS = 80  # of a line in the small picture


def plot_distribution(fit: Any, data: ArrayLike | None = None, *, axes: Any = None) -> Any:
    """Density and distribution side by side, over the data if it is given."""
    if axes is None:
        _, axes = pyplot().subplots(1, 2, figsize=(PAGE, 3.2), layout="constrained")
    seen = None if data is None else Survival(data)
    end = float(fit.ppf(0.999))
    _density(axes[0], fit, seen, end)
    _distribution(axes[1], fit, seen, end)
    return axes


def plot_windows(fit: Any) -> Any:
    """Sizes above, durations below; density left, distribution right; what was chosen is marked."""
    figure, axes = pyplot().subplots(2, 2, figsize=(PAGE, 5.6), layout="constrained")
    end = max(float(fit.instance_size.values[-1]), float(fit.size_fit.ppf(0.999)))
    _density(axes[0, 0], fit.size_fit, fit.instance_size, end, whole=True)
    _distribution(axes[0, 1], fit.size_fit, fit.instance_size, end)
    end = max(float(fit.duration_fit.ppf(0.999)), fit.timeout * 1.1)
    _density(axes[1, 0], fit.duration_fit, fit.instance_duration, end)
    _distribution(axes[1, 1], fit.duration_fit, fit.instance_duration, end)
    for axis, at, text in (
        (axes[0, 1], fit.size, f"size {fit.size}"),
        (axes[1, 1], fit.timeout, f"timeout {fit.timeout:.4g} s"),
    ):
        axis.axvline(at, color=COLOURS["bad"], linewidth=1.4, label=text)
        axis.legend(loc="lower right")
    for axis in axes[0]:
        axis.set_xlabel("events of an instance")
    for axis in axes[1]:
        axis.set_xlabel("seconds from first to last event")
    figure.suptitle(f"{fit.instances:,} instances")
    return figure


def windows_html(fit: Any) -> str:
    """Two small distributions, seen (grey) and fitted, and what was chosen from them."""
    page = Sketch()
    words = f"close at {fit.size} events or after {fit.timeout:.4g} seconds"
    page.text(0, 12, words, bold=True, room=WIDTH)
    rate = "" if fit.rate is None else f", {fit.rate:.4g}/s"
    page.text(0, 30, f"from {fit.instances:,} instances of {fit.events:,} events{rate}", faint=True)
    wide = WIDTH / 2 - 20
    for x, seen, fitted, chosen, unit, shift in (
        (0.0, fit.instance_size, fit.size_fit, fit.size, "events", 0.5),
        (WIDTH / 2 + 10, fit.instance_duration, fit.duration_fit, fit.timeout, "seconds", 0.0),
    ):
        end = max(float(fitted.ppf(0.99)), chosen * 1.1)
        at = np.linspace(0, end, _POINTS)
        across, base = x + at / end * wide, 150.0

        def line(shares: Floats, across: Floats = across, base: float = base) -> Any:
            return zip(across, base - 100 * np.asarray(shares), strict=True)

        page.line([(x, 50), (x, base), (x + wide, base)], faint=True)
        page.line(line(seen.cdf(at)), COLOURS["quiet"], width=4)
        page.line(line(fitted.cdf(at + shift)), COLOURS["left"])
        mark = x + chosen / end * wide
        page.line([(mark, 50), (mark, base)], COLOURS["bad"], dashes="4 3")
        covers = f"{chosen:.4g} {unit} cover {float(seen.cdf(chosen)):.1%}"
        page.text(min(mark, x + wide), 46, covers, anchor="end", colour=COLOURS["bad"])
        page.text(x, base + 16, "0", faint=True)
        page.text(x + wide, base + 16, f"{end:.4g} {unit}", anchor="end", faint=True)
    for number, note in enumerate(fit.notes):
        page.text(0, 184 + 16 * number, f"note: {note}", faint=True, room=WIDTH)
    return page.html(words)


def _density(
    axis: Any, fit: Any, seen: Survival | None, end: float, *, whole: bool = False
) -> None:
    if seen is not None:
        values, shares = seen.shares()
        inside = values <= end
        edges: Floats = np.arange(0, np.ceil(end) + 2) - 0.5 if whole else np.linspace(0, end, 61)
        axis.hist(
            values[inside],
            edges,
            weights=shares[inside] / np.diff(edges)[0],
            color=COLOURS["quiet"],
            alpha=0.5,
        )
    x = np.linspace(end / 2000, end, 500)
    axis.plot(x, fit.pdf(x), color=COLOURS["left"], linewidth=1.8)
    axis.set(ylabel="density", xlim=(0, end), ylim=(0, None))


def _distribution(axis: Any, fit: Any, seen: Survival | None, end: float) -> None:
    if seen is not None:
        axis.step(
            np.concatenate([[0.0], seen.values]),
            np.concatenate([[0.0], seen.probabilities]),
            where="post",
            color=COLOURS["quiet"],
            linewidth=3,
            label="seen",
        )
    x = np.linspace(0, end, 500)
    axis.plot(x, fit.cdf(x), color=COLOURS["left"], linewidth=1.8, label="fitted")
    axis.set(ylabel="probability", xlim=(0, end), ylim=(0, 1.02))
