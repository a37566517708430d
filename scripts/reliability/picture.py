"""``python -m scripts.reliability.picture``: the readings of a soak, drawn light and dark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from anabranch.flow.pictures import COLOURS, paper
from scripts.reliability.lives import LIVES
from scripts.reliability.soak import RESULTS

__all__ = ["draw"]

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
_MEMORY = {"jvm_mb": "up", "heap_mb": "segments", "mean_worker_mb": "grid", "driver_mb": "left"}
_NAMES = {"jvm_mb": "JVM", "heap_mb": "its live heap", "mean_worker_mb": "a Python worker",
          "driver_mb": "driver's Python"}  # fmt: skip
_VERBS = dict(zip(LIVES, ("left", "right", "grid"), strict=True))


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


def main() -> None:
    """Draw the newest report."""
    report = json.loads((RESULTS / "soak.json").read_text())
    for dark in (False, True):
        draw(report, IMAGES / f"soak{'-dark' * dark}.svg", dark=dark)


if __name__ == "__main__":
    main()
