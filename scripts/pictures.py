"""Draw every picture of the documentation, for light and for dark pages.

::

    python scripts/pictures.py [NAME ...]

writes ``docs/images/NAME.svg`` and ``docs/images/NAME-dark.svg``. The moving picture of the demo
is made by ``scripts/cast.py``, since it has to run the demo. The log in ``docs/images/story.json``
is that of a real query, with the entries of `anabranch.plans.log`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from matplotlib.patches import FancyBboxPatch, Rectangle

from anabranch.flow.pictures import COLOURS, INKS, Paper, paper
from anabranch.flow.sketch import INK
from anabranch.placement.call import place
from anabranch.plans.drawing import draw_story
from anabranch.predicates import cosine, differs, within

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"

LEFT, RIGHT = COLOURS["left"], COLOURS["right"]


# ---------------------------------------------------------------- pieces


def text(page: Paper, x: float, y: float, words: str, **style: Any) -> None:
    """Words on the page, in its ink and centred unless told otherwise."""
    given = {"ha": "center", "va": "center", "color": page.ink, **style}
    page.axes.text(x, y, words, **given)


def box(page: Paper, x: float, y: float, w: float, h: float, colour: str, **style: Any) -> None:
    """A rounded box with its lower left corner at x, y."""
    given = {"facecolor": page.box, "edgecolor": colour, "linewidth": 1.2, **style}
    shape = "round,pad=0,rounding_size=0.06"
    page.axes.add_patch(FancyBboxPatch((x, y), w, h, boxstyle=shape, **given))


def arrow(page: Paper, start: tuple, end: tuple, colour: str, **style: Any) -> None:
    """An arrow from one point to another."""
    given = {"arrowstyle": "-|>", "color": colour, "lw": 1.6, "shrinkA": 1, "shrinkB": 2, **style}
    page.axes.annotate("", end, start, arrowprops=given)


def timeline(page: Paper, times: Sequence[float], y: float, label: str = "event time") -> None:
    """The axis of time, with its ticks written below."""
    page.axes.plot([times[0] - 0.5, times[-1] + 0.6], [y, y], color=page.faint, lw=1)
    for at in times:
        page.axes.plot([at, at], [y, y - 0.08], color=page.faint, lw=1)
        text(page, at, y - 0.26, f"{at:g}", fontsize=9, color=page.faint)
    text(page, times[-1] + 0.75, y, label, ha="left", fontsize=9, color=page.faint)


def bar(page: Paper, start: float, end: float, y: float, colour: str, **style: Any) -> None:
    """A stretch of time."""
    given = {"color": colour, "alpha": 0.35, "linewidth": 0, **style}
    page.axes.add_patch(Rectangle((start, y - 0.14), end - start, 0.28, **given))


def dot(page: Paper, x: float, y: float, colour: str, words: str = "", **style: Any) -> None:
    """A row at its time."""
    page.axes.plot(x, y, "o", color=colour, markersize=9, **style)
    if words:
        text(page, x, y + 0.32, words, fontsize=9)


# ---------------------------------------------------------------- the pictures


def cells(name: str, x: float) -> tuple[list[tuple[float, float]], float, float]:
    """The lower left corners of a plan's workers, their width and their height."""
    if name == "grid":
        return [(x + 0.1 + 0.75 * (n % 2), 1.75 - 0.75 * (n // 2)) for n in range(4)], 0.65, 0.62
    if name == "triangle":
        at = [(row, column) for row in range(3) for column in range(row, 3)]
        return [(x + 0.53 * column, 1.95 - 0.6 * row) for row, column in at], 0.5, 0.5
    return [(x + 0.45, 2.15 - 0.52 * n) for n in range(4)], 0.7, 0.42


def plans(page: Paper) -> None:
    """Six plans: one left row and one right row, and where they meet."""
    cases = [
        ("broadcast", "broadcast(4)", [1], [0, 1, 2, 3], "left: one worker\nright: all workers"),
        ("grid", "grid(2, 2)", [0, 1], [1, 3], "left: a grid row\nright: a grid column"),
        ("segments", "segments(4)", [1], [1, 2], "left: by its time\nright: those in reach"),
        ("ranges", "ranges(4)", [2], [1, 2], "left: by its key\nright: those in reach"),
        ("keyed", "keyed(4)", [3], [3], "both: by the key\n"),
        ("triangle", "triangle(3)", [0, 1, 2], [1, 3, 4], "one stream: to each\npair of its group"),
    ]
    for number, (name, title, left, right, words) in enumerate(cases):
        x = number * 2.0
        text(page, x + 0.8, 3.9, title, weight="bold", color=COLOURS[name], fontsize=10.5)
        dot(page, x + 0.45, 3.35, LEFT, "L")
        dot(page, x + 1.15, 3.35, RIGHT, "R")
        corners, w, h = cells(name, x)
        for worker, corner in enumerate(corners):
            meets = worker in left and worker in right
            colour = COLOURS["good"] if meets else COLOURS["quiet"]
            box(page, *corner, w, h, colour, linewidth=2.4 if meets else 1.0)
            marks = [("L", LEFT)] * (worker in left) + [("R", RIGHT)] * (worker in right)
            for place_, (letter, ink) in enumerate(marks):
                at = corner[0] + w / 2 + (place_ - (len(marks) - 1) / 2) * 0.24
                text(page, at, corner[1] + h / 2 - 0.02, letter, color=ink, weight="bold")
        copies = len(left) + len(right)
        text(page, x + 0.8, 0.22, words, fontsize=8.5)
        text(page, x + 0.8, -0.25, f"{copies} copies", fontsize=8.5, color=page.faint)
        for side, start, ink in ((left, 0.45, LEFT), (right, 1.15, RIGHT)):
            for worker in side:
                across = w / 2 if name in ("grid", "triangle") else (0.0 if ink == LEFT else w)
                end = (corners[worker][0] + across, corners[worker][1] + h)
                arrow(page, (x + start, 3.3), end, ink, lw=1.1, alpha=0.75, mutation_scale=8)
    text(page, 5.8, -0.75, "Every pair meets in exactly one worker (green). Plans differ in copies "
         "and balance, never in results.", fontsize=9.5)  # fmt: skip
    page.axes.set(xlim=(-0.2, 11.9), ylim=(-1.0, 4.2))


def window(page: Paper) -> None:
    """The window of correlate: which right rows one left row joins."""
    timeline(page, range(8), 0)
    bar(page, 2, 6, 0.55, RIGHT)
    dot(page, 3, 1.25, LEFT, "left row at 3")
    for at in range(1, 8):
        inside = 2 <= at <= 6
        dot(page, at, 0.55, RIGHT, alpha=1.0 if inside else 0.25)
    for at, words in ((2, "3 - W_right"), (6, "3 + W_left")):
        page.axes.plot([at, at], [0, 0.95], color=page.faint, lw=0.8, ls=":")
        text(page, at, 1.06, words, fontsize=9)
    text(page, -0.6, 1.25, "left", ha="right", color=LEFT)
    text(page, -0.6, 0.55, "right", ha="right", color=RIGHT)
    text(page, 3.5, 1.95, 'window=("3 seconds", "1 second"): the left row joins right rows from 2 '
         "to 6, both ends included", fontsize=9.5)  # fmt: skip
    page.axes.set(xlim=(-1.4, 9.2), ylim=(-0.5, 2.2))


def watermark(page: Paper) -> None:
    """The watermark of correlate: one for both inputs, so an idle side holds nothing back."""
    timeline(page, range(0, 61, 10), 0, "")
    scale = {"fontsize": 9}
    for at, late in ((8, False), (20, False), (34, False), (50, False), (24, True)):
        y = 1.5
        dot(page, at, y, LEFT if not late else COLOURS["bad"])
    for at in (6, 17):
        dot(page, at, 0.75, RIGHT)
    bar(page, 19, 60, 0.75, COLOURS["quiet"], alpha=0.15)
    text(page, 29.5, 0.75, "right is idle: nothing waits for it", fontsize=8.5)
    page.axes.plot([40, 40], [0, 2.2], color=COLOURS["bad"], lw=1.4)
    text(page, 40, 2.38, "watermark = newest time of either side - 10 s", **scale)
    arrow(page, (50, 1.98), (40.2, 1.98), page.faint, lw=1)
    text(page, 45, 2.1, "10 s", **scale)
    text(page, 24, 1.85, "arrives now: late, dropped, counted", color=COLOURS["bad"], **scale)
    text(page, 50, 1.75, "newest row", va="bottom", **scale)
    text(page, -2, 1.5, "left", ha="right", color=LEFT)
    text(page, -2, 0.75, "right", ha="right", color=RIGHT)
    text(
        page, 30, -0.62, 'event time in seconds, watermark="10 seconds"', color=page.faint, **scale
    )
    page.axes.set(xlim=(-8, 63), ylim=(-0.8, 2.6))


def nearest(page: Paper) -> None:
    """The life of objects in a window of nearest, and what a query with k = 1 reports."""
    timeline(page, range(0, 15, 2), 0)
    for start, y, words in ((0, 1.35, "a, distance 1"), (4, 0.7, "b, distance 2")):
        bar(page, start, start + 10, y, LEFT if y > 1 else RIGHT)
        dot(page, start, y, LEFT if y > 1 else RIGHT)
        text(page, start + 5, y, f"{words}: in the window for 10 s", fontsize=9)
    for at, words in ((0, "a enters"), (10, "a expires, b enters")):
        page.axes.plot([at, at], [0, 1.85], color=COLOURS["good"], lw=1.4)
        text(page, at, 2.0, words, fontsize=9.5, color=COLOURS["good"])
    text(page, 4, 1.85, "b arrives: second, no hit", fontsize=9, color=page.faint)
    text(page, 7, 2.45, 'k=1, window="10 seconds": one query, two objects, two hits', fontsize=9.5)
    page.axes.set(xlim=(-1.5, 17.2), ylim=(-0.5, 2.7))


def assemble(page: Paper) -> None:
    """One key of assemble: first event, close, what comes later, a second window."""
    rows = [
        ("close.after(10 s)", 10, "closed: revision 0", 15, "revision 1"),
        ("close.gap(10 s)", 14, "closed: seq 0", 15, "second window: seq 1"),
    ]
    for number, (name, close, word, later, then) in enumerate(rows):
        y = 1.9 - 1.15 * number
        text(page, -1.2, y, name, ha="right", weight="bold", fontsize=9.5)
        bar(page, 0, close, y, COLOURS["good"])
        for at in (0, 2, 4):
            dot(page, at, y, LEFT)
        page.axes.plot([close, close], [y - 0.3, y + 0.3], color=page.ink, lw=1.6)
        text(page, close, y + 0.42, word, fontsize=8.5)
        dot(page, later + 2.5, y, RIGHT)
        text(page, later + 2.5, y + 0.42, then, fontsize=8.5, ha="left")
        if number == 0:
            bar(page, close, 20, y, COLOURS["quiet"], alpha=0.3)
            text(page, 14, y - 0.32, "remember", fontsize=8.5, color=page.faint)
        else:
            bar(page, later + 2.5, 27.5, y, COLOURS["good"])
            bar(page, close, later + 2.5, y, COLOURS["quiet"], alpha=0.3)
            page.axes.plot([27.5, 27.5], [y - 0.3, y + 0.3], color=page.ink, lw=1.6)
    text(page, 0, 2.38, "first event", fontsize=8.5, color=page.faint)
    timeline(page, (0, 5, 10, 15, 20, 25), 0, "event time (s)")
    page.axes.set(xlim=(-7.5, 32.5), ylim=(-0.5, 2.7))


def assemble_watermark(page: Paper) -> None:
    """Why results of assemble do not depend on the order of arrival."""
    text(page, 1.2, 2.1, "arrive in any order", fontsize=9.5)
    for number, at in enumerate((3, 5, 4, 7)):
        dot(page, 0.3 + 0.6 * number, 1.35, LEFT, f"{at}")
    arrow(page, (2.7, 1.35), (3.7, 1.35), page.faint)
    text(page, 3.2, 1.6, "watermark 5", fontsize=8.5)
    text(page, 4.9, 2.1, "processed by time", fontsize=9.5)
    for number, at in enumerate((3, 4, 5)):
        dot(page, 4.2 + 0.6 * number, 1.35, COLOURS["good"], f"{at}")
    text(page, 4.8, 0.85, "7 still waits", fontsize=8.5, color=page.faint)
    arrow(page, (6.0, 1.35), (7.0, 1.35), page.faint)
    text(page, 6.5, 1.6, "watermark 9", fontsize=8.5)
    dot(page, 7.5, 1.35, COLOURS["good"], "7")
    page.axes.plot([8.2, 8.2], [1.05, 1.65], color=page.ink, lw=1.6)
    text(page, 8.35, 1.35, "the window closes at 8", ha="left", fontsize=9)
    page.axes.set(xlim=(-0.2, 11.2), ylim=(0.6, 2.3))


def emd(page: Paper) -> None:
    """Two load profiles on a ring of four bins, and the mass that moves between them."""
    profiles = [("meter 1", (4, 1, 1, 2), LEFT), ("type 101", (5, 1, 1, 1), RIGHT)]
    for number, (name, masses, ink) in enumerate(profiles):
        x = 5.6 * number
        text(page, x + 1.7, 2.75, name, color=ink, weight="bold")
        for spot, mass in enumerate(masses):
            moved = 0.4 * ((number, spot) in ((0, 3), (1, 0)))
            given = {"color": ink, "alpha": 0.45, "linewidth": 0}
            page.axes.add_patch(Rectangle((x + spot, 0), 0.7, 0.4 * mass - moved, **given))
            given = {"facecolor": COLOURS["good"], "linewidth": 0}
            page.axes.add_patch(Rectangle((x + spot, 0.4 * mass - moved), 0.7, moved, **given))
            text(page, x + spot + 0.35, -0.22, ("night", "morning", "noon", "evening")[spot],
                 fontsize=8.5, color=page.faint)  # fmt: skip
    arrow(page, (3.75, 0.62), (5.55, 1.75), COLOURS["good"], connectionstyle="arc3,rad=-0.25")
    text(page, 4.3, 2.05, "1/8 of the mass,\none bin further", fontsize=9, color=COLOURS["good"])
    text(page, 4.7, -0.75, "The distance is the mass that moves times how far: 1/8 · 1 = 0.125. "
         "The day is a ring: night follows evening.", fontsize=9.5)  # fmt: skip
    page.axes.set(xlim=(-0.6, 10.0), ylim=(-1.0, 3.0))


def fitting(page: Paper) -> None:
    """Instances of a sample from their first event on, and the two limits that a fit chooses."""
    sample = [
        (0, 1.2, 2.4), (0, 0.9, 2.9, 3.8), (0, 2.0, 3.1, 4.9), (0, 0.4, 1.6, 4.4, 5.6),
        (0, 1.8, 4.0, 6.3), (0, 2.2, 3.5, 5.9, 7.2), (0, 3.3, 6.1, 12.4),
    ]  # fmt: skip
    limit = 9.3
    for number, times in enumerate(sample):
        y = 2.6 - 0.36 * number
        bar(page, 0, min(times[-1], limit), y, COLOURS["good"], alpha=0.25)
        for at in times:
            dot(page, at, y, LEFT if at <= limit else COLOURS["bad"])
        text(page, -0.6, y, f"{len(times)} events", ha="right", fontsize=8.5, color=page.faint)
    page.axes.plot([limit, limit], [0, 2.85], color=page.ink, lw=1.6)
    text(page, limit, 3.02, "timeout 9.3 s: at most a share cut of instances last longer",
         fontsize=9)  # fmt: skip
    text(page, 12.4, 0.74, "cut off", fontsize=8.5, color=COLOURS["bad"])
    text(page, -0.6, 3.02, "size 5: covers a\nshare cover", ha="right", fontsize=9)
    timeline(page, range(0, 13, 2), 0, "seconds from the first event")
    page.axes.set(xlim=(-4.2, 18.5), ylim=(-0.5, 3.3))


def policies(page: Paper) -> None:
    """How complete the rows of assemble are, against how long they took, on a real access log."""
    file = ROOT / "papers" / "dssis" / "results" / "dssis-windows.json"
    curves = json.loads(file.read_text())["access log"]["curves"]
    names = {
        "learned, risk r": ("close.learned", COLOURS["good"], "o", (8, 95.5)),
        "session gap": ("close.gap", COLOURS["segments"], "v", (27, 90)),
        "fixed wait T": ("close.after", COLOURS["broadcast"], "^", (45, 91)),
        "small window array (13, T)": ("close.count(13, T)", COLOURS["keyed"], "s", (31, 84)),
    }
    axes = page.axes
    for name, (label, colour, mark, at) in names.items():
        x, y = ([point[key] for point in curves[name]] for key in ("delay s", "precise"))
        axes.plot(x, y, marker=mark, color=colour, label=label, lw=2.2 if mark == "o" else 1.2)
        text(page, *at, label, color=colour, fontsize=10, ha="left", weight="bold")
    axes.set_axis_on()
    axes.spines[["top", "right"]].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(page.faint)
    axes.tick_params(colors=page.ink)
    axes.grid(color=page.faint, alpha=0.2)
    axes.set_xlabel("seconds from the first event of an instance to its row, mean", color=page.ink)
    axes.set_ylabel("instances complete in their first row, %", color=page.ink)
    axes.set(xlim=(0, 68), ylim=(77, 101.5))


def shops() -> Any:
    """The placement of the documentation: two shops, and a board that headquarters read."""
    return place(
        [
            ("board", "till_1", 4.0), ("board", "till_2", 5.0),
            ("shelf_1", "camera_1", 90.0), ("shelf_1", "stock", 2.0),
            ("shelf_2", "camera_2", 80.0), ("shelf_2", "stock", 3.0),
        ],
        {"till_1": "shop 1", "camera_1": "shop 1", "till_2": "shop 2", "camera_2": "shop 2",
         "stock": "cloud"},
        readers={"board": "cloud"},
    )  # fmt: skip


def traces(page: Paper) -> None:
    """How long traces are held by closing policies: the table of the page, drawn."""
    table = re.findall(
        r"^(\S.*?)  +([\d.]+)% +([\d.]+) s +([\d.]+) s +([\d.]+) s$",
        (ROOT / "docs" / "traces.md").read_text(),
        re.MULTILINE,
    )
    names = [re.sub(", as complete.*", "", name) for name, *_ in table]
    held = [float(row[4]) for row in table]
    learns = ["learned" in name for name in names]
    colours = [COLOURS["good" if one else "quiet"] for one in learns]
    at = page.axes
    at.set_axis_on()
    at.spines[["top", "right"]].set_visible(False)
    at.spines[["bottom", "left"]].set_color(page.faint)
    at.tick_params(colors=page.ink)
    at.barh(names, held, color=colours)
    at.invert_yaxis()
    at.set_xlim(0, 1.45 * max(held))
    at.set_xlabel("seconds that a trace is held in memory, on average", color=page.ink)
    for line, (row, seconds) in enumerate(zip(table, held, strict=True)):
        words = f"{row[4]} s; {row[1]} % complete"
        at.text(seconds + 0.4, line, words, color=page.ink, va="center", fontsize=9)


def follow(page: Paper) -> None:
    """A view that moves from the cloud to a device: who computes which pair."""
    moves, sends = 5.0, 8.0
    for name, y, ink in (("gps[ann]", 2.3, LEFT), ("gps[bob]", 1.7, RIGHT)):
        text(page, -0.7, y, name, ha="right", color=ink)
        for at in range(11):
            dot(page, at, y, ink)
    for start, end, y, words, ink in (
        (0, sends, 0.95, "the cloud is sent rows of both", COLOURS["quiet"]),
        (moves, 10.4, 0.5, "bob is sent rows of ann", RIGHT),
    ):
        bar(page, start, end, y, ink)
        text(page, (start + end) / 2, y, words, fontsize=8.5)
    for pairs, ink in ((((1, 2), (4, 6)), COLOURS["quiet"]), (((6, 7), (9, 8)), COLOURS["good"])):
        for ann, bob in pairs:
            page.axes.plot([ann, bob], [2.3, 1.7], color=ink, lw=2.6, zorder=0)
    page.axes.plot([moves, moves], [0.2, 3.0], color=page.ink, lw=1.4)
    text(page, moves, 3.2, "both devices have adopted: the view is at bob", fontsize=9)
    text(page, 2.5, 2.7, "found in the cloud", fontsize=9, color=page.faint)
    text(page, 7.5, 2.7, "found by bob", fontsize=9, color=COLOURS["good"])
    timeline(page, range(0, 11, 2), 0, "time")
    text(page, 5, -0.75, "A pair belongs to the place of its older row. The cloud is sent rows "
         "for one window longer.\nSo nothing is lost, and nothing is found twice.",
         fontsize=9.5)  # fmt: skip
    page.axes.set(xlim=(-3.0, 13.0), ylim=(-1.1, 3.4))


def groups(page: Paper) -> None:
    """Pairs as they come, and the groups that they make: opened, merged, closed after the gap."""
    pairs = [(1, "a b"), (2, "c d"), (4, "b e"), (6, "e c")]
    for at, words in pairs:
        dot(page, at, 2.3, LEFT, words)
    text(page, -0.6, 2.3, "pairs", ha="right", color=LEFT)
    bar(page, 1, 11, 1.4, COLOURS["good"])
    bar(page, 2, 6, 0.75, RIGHT)
    text(page, -0.6, 1.4, "group a|b", ha="right", weight="bold", fontsize=9.5)
    text(page, -0.6, 0.75, "group c|d", ha="right", weight="bold", fontsize=9.5)
    for at, y, word in (
        (1, 1.4, "opened"), (4, 1.4, "grew"), (6, 1.4, "grew"), (11, 1.4, "closed: a b c d e"),
        (2, 0.75, "opened"), (6, 0.75, "merged into a|b"),
    ):  # fmt: skip
        page.axes.plot([at, at], [y - 0.16, y + 0.16], color=page.ink, lw=1.6)
        side = {"ha": "left"} if at == 11 or "into" in word else {}
        text(page, at + (0.15 if side else 0), y + (0 if side else 0.3), word, fontsize=8.5, **side)
    arrow(page, (6, 1.08), (11, 1.08), page.faint, lw=1)
    text(page, 8.5, 0.92, "no pair for the gap", fontsize=8.5, color=page.faint)
    timeline(page, range(0, 13, 2), 0)
    page.axes.set(xlim=(-2.6, 15.2), ylim=(-0.5, 2.9))


def predicates(page: Paper) -> None:
    """A predicate of three conditions: which right rows one left row joins."""
    text(page, 89.2, 2.75, "cosine", fontsize=9, color=page.faint)
    for cosine_ in (0.8, 1):
        text(
            page, 89.2, 5 * cosine_ - 2.5, f"{cosine_:g}", ha="right", fontsize=9, color=page.faint
        )
    timeline(page, range(90, 111, 5), 0, "price")
    for corner, wide, high in (((95, 0), 10, 2.5), ((89.5, 1.5), 21, 1)):
        page.axes.add_patch(Rectangle(corner, wide, high, color=COLOURS["good"], alpha=0.18, lw=0))
    rows = [
        (97, 1.8, "joins", "good"), (102.5, 2.2, "joins", "good"), (100, 2.0, "in USD", "bad"),
        (99, 0.8, "unlike", "bad"), (107, 2.0, "too expensive", "bad"),
        (91, 0.6, "unlike, too cheap", "bad"),
    ]  # fmt: skip
    for price, cosine_, words, ink in rows:
        dot(page, price, cosine_, COLOURS[ink])
        text(page, price + 0.35, cosine_, words, ha="left", fontsize=9)
    text(page, 100, 2.9, "which right rows join a left row that costs 100 EUR", fontsize=9.5)
    page.axes.set(xlim=(87.5, 113.5), ylim=(-0.5, 3.05))


def rejects(page: Paper) -> None:
    """Rows of a stream: those that are compared, and those that are kept beside the result."""
    lanes = (("rows", 2.1, page.ink), ("compared", 1.25, COLOURS["good"]),
             ("rejects=", 0.55, COLOURS["bad"]))  # fmt: skip
    for words, y, ink in lanes:
        text(page, -4, y, words, ha="right", color=ink)
    why = {8: "late", 37: "'v' has 1 elements where 2 are expected"}
    for at in (4, 8, 24, 30, 37, 46):
        kept = at in why
        ink, y = (COLOURS["bad"], 0.55) if kept else (COLOURS["good"], 1.25)
        dot(page, at, 2.1, LEFT)
        arrow(page, (at, 2.0), (at, y + 0.12), ink, lw=1.1, mutation_scale=8)
        dot(page, at, y, ink)
        if kept:
            text(page, at + 1.3, y, why[at], ha="left", fontsize=9)
    page.axes.plot([16, 16], [0, 2.5], color=page.faint, lw=1.2, ls=":")
    text(page, 16, 2.65, "watermark", fontsize=9, color=page.faint)
    text(page, 8, 2.42, "comes now", fontsize=9)
    timeline(page, range(0, 61, 10), 0, "")
    text(page, 63, 0, "event time", ha="left", fontsize=9, color=page.faint)
    page.axes.set(xlim=(-13, 74), ylim=(-0.5, 2.8))


DRAWN: dict[str, tuple[Callable[[Paper], None], float]] = {
    "plans": (plans, 4.0),
    "window": (window, 2.2),
    "watermark": (watermark, 2.7),
    "nearest": (nearest, 2.6),
    "assemble": (assemble, 2.7),
    "assemble-watermark": (assemble_watermark, 1.7),
    "policies": (policies, 4.2),
    "emd": (emd, 2.9),
    "fitting": (fitting, 3.0),
    "traces": (traces, 2.9),
    "follow": (follow, 3.1),
    "groups": (groups, 2.8),
    "predicates": (predicates, 2.7),
    "rejects": (rejects, 2.6),
}


def draw(name: str, path: Path, dark: bool) -> None:
    """One picture for light or for dark pages."""
    if name == "place":
        shops().draw(path, dark=dark)
    elif name == "notebook":
        where = (cosine("v") >= 0.9) & (within("price", 2) | differs("shop"))
        # In a notebook its ink is that of the text around it.
        path.write_text(where._repr_html_().replace(INK, INKS[dark][0]))
    elif name == "story":
        entries = json.loads((IMAGES / "story.json").read_text())
        draw_story([SimpleNamespace(**entry) for entry in entries], path, dark=dark)
    else:
        make, height = DRAWN[name]
        page = paper("pictures", path, height, dark=dark)
        make(page)
        page.save(path)


def main(names: Sequence[str]) -> None:
    """Draw the pictures of these names, or all."""
    every = [*DRAWN, "place", "story", "notebook"]
    if unknown := set(names) - set(every):
        sys.exit(f"no picture {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    IMAGES.mkdir(exist_ok=True)
    for name in names or every:
        draw(name, IMAGES / f"{name}.svg", dark=False)
        draw(name, IMAGES / f"{name}-dark.svg", dark=True)
        print(f"docs/images/{name}.svg and {name}-dark.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
