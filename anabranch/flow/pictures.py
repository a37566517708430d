"""The style of every picture: colours, sizes, and matplotlib, which is asked for only here.

One colour means one thing in all pictures. Backgrounds are transparent, and `dark` pictures are
made for dark pages. Sizes are those of a page 830 pixels wide.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.calls import Check
from anabranch.errors import InvalidCall, extra

__all__ = [
    "COLOURS",
    "INKS",
    "PAGE",
    "Paper",
    "paper",
    "plain_number",
    "pyplot",
    "refuse_unwritable",
    "undated",
]

PAGE = 8.3  # inches: 830 pixels at 100 to the inch
SUFFIXES = (".svg", ".png", ".pdf")

COLOURS = {
    "left": "#3b82f6",
    "right": "#f97316",
    "broadcast": "#8b5cf6",
    "grid": "#10b981",
    "segments": "#d97706",
    "keyed": "#64748b",
    "ranges": "#ec4899",
    "selective": "#06b6d4",
    "triangle": "#65a30d",
    "up": "#ef4444",
    "down": "#3b82f6",
    "good": "#10b981",
    "bad": "#ef4444",
    "quiet": "#94a3b8",
}

# Ink, faint ink and boxes on light pages, and on dark ones.
INKS = {False: ("#1f2328", "#656d76", "#eef1f4"), True: ("#e6edf3", "#8b949e", "#21262d")}


class Paper(NamedTuple):
    """A figure with one empty set of axes, and the colours of its page."""

    figure: Any
    axes: Any
    ink: str
    faint: str
    box: str

    def save(self, path: str | os.PathLike[str] | None) -> Any:
        """The figure, written to a file if there is a path."""
        if path is not None:
            self.figure.savefig(path, transparent=True, metadata=undated(path))
        return self.figure


def paper(
    call: str, path: str | os.PathLike[str] | None, height: float, *, dark: bool = False
) -> Paper:
    """An empty page of a height in inches for the picture that `call` will write to `path`.

    Raises
    ------
    InvalidCall
        If nothing can be written to the path, or `dark` is neither True nor False.
    AnabranchError
        Without matplotlib.
    """
    check = Check()
    for problem in _path_problems(path):
        check.say(problem)
    check.flag("dark", dark)
    check.refuse(call)
    _matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    ink, faint, box = INKS[dark]
    with rc_context({"font.size": 10, "text.color": ink}):
        figure = Figure(figsize=(PAGE, height), dpi=100, layout="constrained")
        axes = figure.add_subplot()
    axes.set_axis_off()
    return Paper(figure, axes, ink, faint, box)


def plain_number(value: float) -> str:
    """A number as people write it: 700 M, not 7e+08.

    Examples
    --------
    >>> [plain_number(x) for x in (0.25, 3, 1234.5, 7.1e8, 0)]
    ['0.25', '3', '1.23 k', '710 M', '0']
    """
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def pyplot() -> Any:
    """``matplotlib.pyplot``, or an error that says how to get it."""
    _matplotlib()
    from matplotlib import pyplot

    return pyplot


def _matplotlib() -> None:
    with extra("plots", "a picture", "matplotlib"):
        import matplotlib
    # Text as outlines looks alike everywhere; a fixed salt makes the same picture the same file.
    matplotlib.rcParams["svg.hashsalt"] = "anabranch"


def refuse_unwritable(call: str, path: Any) -> None:
    """Raise if matplotlib could not write a picture of any format to a path or an open file."""
    if path is not None and not hasattr(path, "write") and (problems := _file_problems(path)):
        raise InvalidCall(call, problems)


def _path_problems(path: Any) -> list[str]:
    if path is None:
        return []
    if isinstance(path, (str, os.PathLike)) and (file := Path(path)).suffix not in SUFFIXES:
        return [f"path must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, got {str(file)!r}"]
    return _file_problems(path)


def _file_problems(path: Any) -> list[str]:
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        return [f"path must be the name of a file to write, or None, got {path!r}"]
    file = Path(path)
    if not file.absolute().parent.is_dir():
        return [f"there is no folder {str(file.parent)!r} to write {file.name} to, as path asks"]
    return []


def undated(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Metadata without the moment of writing, so that the same picture is the same file."""
    return (
        {}
        if Path(path).suffix == ".png"
        else {"CreationDate" if Path(path).suffix == ".pdf" else "Date": None}
    )
