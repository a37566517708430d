"""The readings of a soak, drawn light and dark.

``python -m scripts.reliability.soak`` does it; this module alone draws the kept report again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from anabranch.flow.pictures import COLOURS, paper
from scripts.reliability import RESULTS
from scripts.reliability.lives import LIVES

__all__ = ["draw", "draw_both"]

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
_MEMORY = {"jvm_mb": "up", "heap_mb": "segments", "mean_worker_mb": "grid", "driver_mb": "left"}
_NAMES = {"jvm_mb": "JVM", "heap_mb": "its live heap", "mean_worker_mb": "a Python worker",
          "driver_mb": "driver's Python"}  # fmt: skip
_COLOURS = ("left", "right", "grid", "broadcast", "ranges", "keyed")
_VERBS = dict(zip(LIVES, _COLOURS, strict=True))


def draw(report: dict[str, Any], path: Path, *, dark: bool) -> None:
    """Three charts over minutes: memory, seconds of a micro-batch, checkpoints."""
    page = paper("soak", path, 2.9, dark=dark)
    page.figure.delaxes(page.axes)
    charts = page.figure.subplots(1, 3)
    readings = report["readings"]
    minutes = [reading["seconds"] / 60 for reading in readings]
    for name, colour in _MEMORY.items():
        charts[0].plot(minutes, [r[name] for r in readings], color=COLOURS[colour],
                       label=_NAMES[name])  # fmt: skip
    for verb, colour in _VERBS.items():
        if f"{verb}_batch_seconds" not in readings[0]:
            continue  # an older report
        for chart, name in zip(charts[1:], ("batch_seconds", "checkpoint_kb"), strict=True):
            values = [r[f"{verb}_{name}"] for r in readings]
            chart.plot(minutes, values, color=COLOURS[colour], label=verb)
    titles = ("memory, MB", "micro-batch, seconds", "checkpoint, KB")
    for chart, title in zip(charts, titles, strict=True):
        chart.set_title(title, color=page.ink, fontsize=10)
        chart.set_xlabel("minutes", color=page.ink)
        chart.set_ylim(bottom=0)
        chart.set_facecolor("none")
        chart.tick_params(colors=page.faint, labelsize=8)
        for edge in chart.spines.values():
            edge.set_color(page.faint)
        chart.legend(fontsize=7, frameon=False, labelcolor=page.ink)
    page.save(path)


def draw_both(report: dict[str, Any], kept: Path) -> None:
    """Light and dark: for the documentation if the report is kept there, else beside it."""
    folder = IMAGES if kept.resolve() == (RESULTS / "soak.json").resolve() else kept.parent
    for dark in (False, True):
        draw(report, folder / f"{kept.stem}{'-dark' * dark}.svg", dark=dark)


def main() -> None:
    """Draw the kept report."""
    kept = RESULTS / "soak.json"
    draw_both(json.loads(kept.read_text()), kept)


if __name__ == "__main__":
    main()
