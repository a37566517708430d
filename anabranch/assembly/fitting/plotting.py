"""Pictures of fits; matplotlib is needed here and nowhere else.

A fit is a `Distribution` or a `WindowFit`, which know this module and not the other way round.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from anabranch.assembly.fitting.sample import Floats
from anabranch.assembly.fitting.survival import Survival
from anabranch.flow.pictures import pyplot

__all__ = ["plot_distribution", "plot_windows"]


def plot_distribution(fit: Any, data: ArrayLike | None = None, *, axes: Any = None) -> Any:
    """Density and distribution side by side, over the data if it is given."""
    if axes is None:
        _, axes = pyplot().subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    seen = None if data is None else Survival(data)
    end = float(fit.ppf(0.999))
    _density(axes[0], fit, seen, end)
    _distribution(axes[1], fit, seen, end)
    return axes


def plot_windows(fit: Any) -> Any:
    """Sizes above, spans below; density left, distribution right; what was chosen is marked."""
    figure, axes = pyplot().subplots(2, 2, figsize=(9.5, 6.4), layout="constrained")
    end = max(float(fit.instance_size.values[-1]), float(fit.size_fit.ppf(0.999)))
    _density(axes[0, 0], fit.size_fit, fit.instance_size, end, whole=True)
    _distribution(axes[0, 1], fit.size_fit, fit.instance_size, end)
    end = max(float(fit.span_fit.ppf(0.999)), fit.timeout * 1.1)
    _density(axes[1, 0], fit.span_fit, fit.span, end)
    _distribution(axes[1, 1], fit.span_fit, fit.span, end)
    for axis, at, text in (
        (axes[0, 1], fit.size, f"size {fit.size}"),
        (axes[1, 1], fit.timeout, f"timeout {fit.timeout:.4g} s"),
    ):
        axis.axvline(at, color="tab:red", linewidth=1, label=text)
        axis.legend(loc="lower right")
    for axis in axes[0]:
        axis.set_xlabel("events of an instance")
    for axis in axes[1]:
        axis.set_xlabel("seconds from first to last event")
    figure.suptitle(f"{fit.instances:,} instances")
    return figure


def _density(
    axis: Any, fit: Any, seen: Survival | None, end: float, *, whole: bool = False
) -> None:
    if seen is not None:
        values, shares = seen.shares()
        inside = values <= end
        edges: Floats = np.arange(0, np.ceil(end) + 2) - 0.5 if whole else np.linspace(0, end, 61)
        axis.hist(
            values[inside], edges, weights=shares[inside] / np.diff(edges)[0], color="lightgray"
        )
    x = np.linspace(end / 2000, end, 500)
    axis.plot(x, fit.pdf(x), color="black", linewidth=1.2)
    axis.set(ylabel="density", xlim=(0, end), ylim=(0, None))


def _distribution(axis: Any, fit: Any, seen: Survival | None, end: float) -> None:
    if seen is not None:
        axis.step(
            np.concatenate([[0.0], seen.values]),
            np.concatenate([[0.0], seen.probabilities]),
            where="post",
            color="silver",
            linewidth=3,
            label="seen",
        )
    x = np.linspace(0, end, 500)
    axis.plot(x, fit.cdf(x), color="black", linewidth=1.2, label="fitted")
    axis.set(ylabel="probability", xlim=(0, end), ylim=(0, 1.02))
