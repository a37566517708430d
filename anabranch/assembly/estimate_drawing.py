"""What an assembly will hold, as a small picture: a window's life, and shares of instances."""

from __future__ import annotations

from typing import Any

from anabranch.flow.pictures import COLOURS, plain_number
from anabranch.flow.sketch import WIDTH, Sketch

__all__ = ["estimate_html"]

_SIDE = 150.0  # where bars begin


def estimate_html(estimate: Any) -> str:
    """The picture of an `anabranch.assembly.predicting.StateEstimate`, which knows this module."""
    page = Sketch()
    page.text(0, 12, f"at {estimate.rate:.4g} instances/s", bold=True)
    most = max(estimate.peak, 1e-9)
    held = f"{plain_number(estimate.windows)}, at peak {plain_number(estimate.peak)}"
    _bar(page, 24, "open windows", 1.0, COLOURS["left"], "", fill=0.15)
    _bar(page, 24, "", estimate.windows / most, COLOURS["left"], held)
    events = f"{plain_number(estimate.tuples)}, {plain_number(estimate.storage)}B"
    page.text(0, 60, "events held")
    page.text(_SIDE, 60, events)
    last = max(estimate.row_after, 1e-9)
    closes = estimate.closes_after
    _bar(page, 70, "a window closes", closes / last, COLOURS["good"], f"after {closes:.3g} s")
    _bar(page, 92, "its row comes", 1.0, COLOURS["quiet"], f"after {last:.3g} s", 0.25)
    for number, (name, share, colour) in enumerate(
        (
            ("whole at once", estimate.complete, "good"),
            ("full early", estimate.full, "left"),
            ("second windows", estimate.second, "right"),
        )
    ):
        y = 122.0 + 22 * number
        _bar(page, y, name, 1.0, COLOURS["quiet"], "", 0.1)
        _bar(page, y, "", share, COLOURS[colour], f"{share:.1%} of instances")
    return page.html(estimate)


def _bar(
    page: Sketch, y: float, name: str, share: float, colour: str, words: str, fill: float = 0.55
) -> None:
    """A bar with its name before it and a figure on it."""
    page.text(0, y + 14, name)
    page.box(_SIDE, y, max(1.0, (WIDTH - _SIDE) * min(share, 1.0)), 18, colour, fill=fill)
    page.text(_SIDE + 8, y + 14, words)
