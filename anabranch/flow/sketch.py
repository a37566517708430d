"""Small pictures as HTML, for notebooks: inline SVG without a style sheet, a script or a file.

Ink is the colour of the text around the picture, so that light and dark pages both show it; other
colours are those of `anabranch.flow.pictures`. Whatever is written is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["INK", "WIDTH", "Sketch"]

INK = "currentColor"
WIDTH = 560.0  # of a picture, in pixels
_SIZE = 12.0  # of letters
_LETTER = 0.56  # mean width of a letter, in sizes
# What no document may hold, escaped or not.
_NO_CHARACTER = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Sketch:
    """A picture that grows downwards as marks are added; x and y are pixels from the upper left.

    Examples
    --------
    >>> page = Sketch(120)
    >>> page.box(0, 0, 100, 20, "#10b981", words="a < b")
    >>> page.height, "a &lt; b" in page.html("one box"), "<b>" in page.html("<b>")
    (20, True, False)
    """

    def __init__(self, width: float = WIDTH) -> None:
        self.width, self.height = width, 0.0
        self._marks: list[str] = []

    def box(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        colour: str = INK,
        *,
        fill: float = 0.15,
        words: object = "",
    ) -> None:
        """A box of a colour, filled by so much of it, with words in its middle."""
        edge = 0.35 if colour == INK else 0.9
        self._add(
            f'<rect x="{x:.4g}" y="{y:.4g}" width="{w:.4g}" height="{h:.4g}" rx="3" '
            f'fill="{colour}" fill-opacity="{fill:g}" stroke="{colour}" '
            f'stroke-opacity="{edge:g}"/>',
            y + h,
        )
        if words != "":
            self.text(x + w / 2, y + h / 2 + 4, words, anchor="middle", room=w - 4)

    def text(
        self,
        x: float,
        y: float,
        words: object,
        *,
        anchor: str = "start",
        faint: bool = False,
        bold: bool = False,
        colour: str = INK,
        room: float | None = None,
    ) -> None:
        """Words on a line at y, cut to the room that there is; all of them show on hovering."""
        whole = str(words)
        most = len(whole) if room is None else max(1, int(room / (_SIZE * _LETTER)))
        title = f"<title>{_escaped(whole)}</title>" if len(whole) > most else ""
        shown = whole[: most - 1] + "…" if len(whole) > most else whole
        style = ' opacity="0.65"' * faint + ' font-weight="600"' * bold
        self._add(
            f'<text x="{x:.4g}" y="{y:.4g}" text-anchor="{anchor}" fill="{colour}"{style}>'
            f"{title}{_escaped(shown)}</text>",
            y + 5,
        )

    def line(
        self,
        points: Iterable[Sequence[float]],
        colour: str = INK,
        *,
        width: float = 1.5,
        faint: bool = False,
        dashes: str = "",
    ) -> None:
        """A line through points."""
        at = [(float(x), float(y)) for x, y in points]
        style = ' stroke-opacity="0.35"' * faint
        style += f' stroke-dasharray="{dashes}"' if dashes else ""
        path = " ".join(f"{x:.5g},{y:.5g}" for x, y in at)
        self._add(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"'
            f"{style}/>",
            max((y for _, y in at), default=0.0),
        )

    def dot(self, x: float, y: float, colour: str, *, filled: bool = True) -> None:
        """A dot, or a ring."""
        fill = f'fill="{colour}"' if filled else 'fill="none"'
        self._add(f'<circle cx="{x:.4g}" cy="{y:.4g}" r="3.5" {fill} stroke="{colour}"/>', y + 3.5)

    def html(self, label: object) -> str:
        """The picture; `label` is read out in place of it."""
        high = self.height + 2
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{_escaped(label)}" '
            f'width="{self.width:g}" height="{high:.4g}" viewBox="-1 -1 {self.width + 2:g} '
            f'{high:.4g}" font-family="system-ui, sans-serif" font-size="{_SIZE:g}">'
            f"{''.join(self._marks)}</svg>"
        )

    def _add(self, mark: str, bottom: float) -> None:
        self._marks.append(mark)
        self.height = max(self.height, bottom)


def _escaped(words: object) -> str:
    return escape(_NO_CHARACTER.sub("", str(words)))
