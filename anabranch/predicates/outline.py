"""A predicate as a small picture: what must hold together, what may instead, and how near is near.

Each condition has a line of numbers, or of differences, on which the part that matches is marked.
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.flow.pictures import COLOURS
from anabranch.flow.sketch import WIDTH, Sketch

__all__ = ["Outline", "outline_html"]

_HIGH, _LINE, _INDENT = 24.0, 110.0, 16.0
_GOOD = COLOURS["good"]
# Which stretches of the line match, from 0 to 1, and whether their ends do.
_PARTS: dict[str, list[tuple[float, float]]] = {
    ">=": [(0.5, 1.0)],
    ">": [(0.5, 1.0)],
    "<=": [(0.0, 0.5)],
    "<": [(0.0, 0.5)],
    "within": [(0.3, 0.7)],
    "beyond": [(0.0, 0.3), (0.7, 1.0)],
    "same": [(0.5, 0.5)],
    "differs": [(0.0, 0.5), (0.5, 1.0)],
}
_CLOSED = {">=", "<=", "within", "same"}


class Outline(NamedTuple):
    """A condition in words and where it matches; or what joins several, and those."""

    words: str
    matches: str = ""
    parts: tuple[Outline, ...] = ()
    score: bool = False


def outline_html(drawn: Outline, words: str) -> str:
    """The picture of a predicate; `words` is all of it as text."""
    page = Sketch()
    _put(page, drawn, 0.0, 0.0)
    return page.html(words)


def _put(page: Sketch, part: Outline, x: float, y: float) -> float:
    """Draw a part with its upper left corner at x, y; the y below it."""
    if part.parts:
        page.text(x, y + 16, part.words, faint=True)
        below = y + _HIGH
        for inner in part.parts:
            below = _put(page, inner, x + _INDENT, below)
        page.line([(x + 4, y + _HIGH), (x + 4, below - 4)], faint=True)
        return below
    _stretch(page, part.matches, x, y + 12)
    side = x + _LINE + 12
    if part.score:
        page.text(WIDTH, y + 16, "score", anchor="end", faint=True)
    page.text(side, y + 16, part.words, room=WIDTH - side - 48 * part.score)
    return y + _HIGH


def _stretch(page: Sketch, matches: str, x: float, y: float) -> None:
    """A line of numbers with the part that matches; nothing is known of other conditions."""
    page.line([(x, y), (x + _LINE, y)], faint=True)
    for low, high in _PARTS.get(matches, []):
        page.line([(x + low * _LINE, y), (x + high * _LINE, y)], _GOOD, width=4)
        for end in {low, high} - {0.0, 1.0}:
            page.dot(x + end * _LINE, y, _GOOD, filled=matches in _CLOSED)
