"""Draw the pictures of the gallery: every example is run, and what it found is drawn.

::

    python scripts/gallery.py [NAME ...]

writes ``docs/images/gallery-NAME.svg`` and ``gallery-NAME-dark.svg``. Needs the data of the
examples, as ``scripts/notebooks.py`` does.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from notebooks import chosen

from anabranch.flow.pictures import COLOURS, Paper, paper

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"

Found = Mapping[str, Any]


def axes(page: Paper, x: str, y: str) -> Any:
    """Axes with their names, in the colours of the page."""
    found = page.axes
    found.set_axis_on()
    found.spines[["top", "right"]].set_visible(False)
    found.spines[["bottom", "left"]].set_color(page.faint)
    found.tick_params(colors=page.ink)
    found.set_xlabel(x, color=page.ink)
    found.set_ylabel(y, color=page.ink)
    return found


def aircraft(page: Paper, found: Found) -> None:
    """Tracks of all aircraft, and where two came close."""
    table, meetings = found["table"], found["meetings"]
    at = axes(page, "longitude", "latitude")
    grey = {"color": COLOURS["quiet"], "markersize": 0.4, "alpha": 0.5, "rasterized": True}
    at.plot(table.lon, table.lat, ".", **grey)
    at.plot(meetings.left_lon, meetings.left_lat, "o", color=COLOURS["bad"], markersize=9)
    for number, meeting in enumerate(meetings.itertuples(), 1):
        place = (meeting.left_lon, meeting.left_lat)
        at.annotate(number, place, color="white", fontsize=6, ha="center", va="center")
        words = f"{number}  {' and '.join(meeting.aircraft)}: "
        words += f"{meeting.miles} NM, {meeting.feet:.0f} ft"
        row = 1.0 - 0.06 * number
        at.text(1.03, row, words, color=page.ink, fontsize=8, transform=at.transAxes)
    for name, (lat, lon) in found["AIRPORTS"].items():
        at.plot(lon, lat, "^", color=COLOURS["left"], markersize=8)
        at.annotate(name, (lon, lat - 0.05), color=page.ink, ha="center", va="top")
    at.set_aspect(1.5)


def news(page: Paper, found: Found) -> None:
    """What people said of two items, against their cosine."""
    at = axes(page, "cosine of two items", "share of pairs")
    edges = np.linspace(-0.1, 0.8, 31)
    for same, colour, words in (
        (False, "quiet", "different stories, by people"),
        (True, "good", "the same story"),
    ):
        score = found["scored"].score[found["same"] == same]
        share = np.full(len(score), 1 / len(score))
        at.hist(score, edges, weights=share, color=COLOURS[colour], alpha=0.7, label=words)
    at.legend(frameon=False, labelcolor=page.ink)


def promises(page: Paper, names: Sequence[str], parts: Mapping[str, Sequence[float]]) -> None:
    """A bar for each service: how often it kept its promise, broke it, or nobody knows."""
    at = axes(page, "instances", "")
    left = np.zeros(len(names))
    for part, colour in (("met", "good"), ("unknown", "quiet"), ("violated", "bad")):
        values = np.asarray(parts[part], float)
        at.barh(list(names), values, left=left, color=COLOURS[colour], label=part)
        left += values
    at.legend(frameon=False, labelcolor=page.ink)


def traces(page: Paper, found: Found) -> None:
    """Which routes of the shop keep what was promised."""
    kept = found["kept"]
    named = [f"{row.service}\nwithin {row.promised:g} s" for row in kept.itertuples()]
    promises(page, named, {part: kept[part] for part in ("met", "unknown", "violated")})


def page_views(page: Paper, found: Found) -> None:
    """Why page views were taken for over, and how long they lasted."""
    why = found["why"]
    at = axes(page, "page views", "")
    names = [f"{row.reason}\n{row.seconds:.1f} s on average" for row in why.itertuples()]
    at.barh(names, why.views, color=COLOURS["segments"])
    at.invert_yaxis()


def sensors(page: Paper, found: Found) -> None:
    """Faults and other readings by their distance to the nearest known fault."""
    later, known = found["later"], found["known"]
    points, faults = np.stack(later.v), np.stack(known.v)
    square = (points**2).sum(1)[:, None] + (faults**2).sum(1) - 2 * points @ faults.T
    near = np.sqrt(np.maximum(square, 0)).min(axis=1)
    at = axes(page, "distance to the nearest of 20 known faults", "share of readings as near")
    for fault, colour, words in ((True, "bad", "faults"), (False, "quiet", "other readings")):
        shown = np.sort(near[later.fault == fault])
        share = np.arange(1, len(shown) + 1) / len(shown)
        at.plot(shown[:: max(1, len(shown) // 500)], share[:: max(1, len(shown) // 500)],
                color=COLOURS[colour], linewidth=2.2, label=words)  # fmt: skip
    at.axvline(1.0, color=page.ink, linewidth=1, linestyle="--")
    at.set(xlim=(0, 4), ylim=(0, 1.02))
    at.legend(frameon=False, labelcolor=page.ink)


DRAWN: dict[str, tuple[Callable[[Paper, Found], None], float]] = {
    "aircraft": (aircraft, 5.2),
    "news": (news, 3.4),
    "traces": (traces, 3.0),
    "page_views": (page_views, 3.2),
    "sensors": (sensors, 3.4),
}


def draw(name: str, found: Found, path: Path, dark: bool) -> None:
    """One picture for light or for dark pages."""
    if name == "friend_finder":
        found["plan"].draw(path, most=3, dark=dark)
        return
    make, height = DRAWN[name]
    page = paper("gallery", path, height, dark=dark)
    make(page, found)
    page.save(path)


def main(names: Sequence[str]) -> None:
    """Draw the pictures of these names, or all."""
    sys.path.insert(0, str(ROOT / "examples"))
    sys.argv[1:] = []  # the names are ours: an example would take one for its file
    for name in chosen(list(names)):
        found = runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
        for dark in (False, True):
            draw(name, found, IMAGES / f"gallery-{name}{'-dark' * dark}.svg", dark)
        print(f"docs/images/gallery-{name}.svg and gallery-{name}-dark.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
