"""What a plan looks like: the workers in lines and columns, and what those stand for."""

from __future__ import annotations

from typing import NamedTuple

from anabranch.flow.pictures import COLOURS
from anabranch.flow.sketch import WIDTH, Sketch

__all__ = ["Cells", "cells_html"]

_LINES, _COLUMNS = 8, 16  # that are drawn
_HIGH, _SIDE = 24.0, 110.0


class Cells(NamedTuple):
    """The worker of each cell, line by line, what lines and columns hold, and how wide they are."""

    cells: list[list[int]]
    across: str
    down: str = ""
    widths: list[int] | None = None

    @classmethod
    def in_a_line(cls, workers: int, across: str = "rows by hash") -> Cells:
        """A cell for each worker, side by side."""
        return cls([list(range(workers))], across)


def cells_html(title: str, plan: str, drawn: Cells, note: str = "") -> str:
    """A plan as a small picture."""
    page = Sketch()
    page.text(0, 12, title, bold=True, room=WIDTH)
    side = _SIDE if drawn.down else 0.0
    page.text(side, 32, f"{drawn.across} →", faint=True)
    top, lines = 40.0, drawn.cells[:_LINES]
    columns = min(_COLUMNS, len(lines[0]))
    shares = (drawn.widths or [1] * columns)[:columns]
    unit = min(60.0 * columns, WIDTH - side) / max(1, sum(shares))
    colour = COLOURS.get(plan, COLOURS["keyed"])
    for number, line in enumerate(lines):
        x = side
        for share, worker in zip(shares, line, strict=False):
            page.box(x, top, share * unit - 2, _HIGH - 2, colour, words=worker)
            x += share * unit
        if drawn.down and number == 0:
            page.text(0, top + 16, f"{drawn.down} ↓", faint=True)
        top += _HIGH
    hidden = len(drawn.cells) > len(lines) or len(drawn.cells[0]) > columns
    notes = [f"the first {len(lines)} by {columns} cells"] * hidden + [note] * bool(note)
    for words in notes:
        page.text(0, top + 14, words, faint=True, room=WIDTH)
        top += 16
    return page.html(f"{title}: {len(drawn.cells)} by {len(drawn.cells[0])} cells of workers")
