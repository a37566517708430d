"""What a device may send: whoever is enrolled can send any bytes, and no place may fear them."""

from __future__ import annotations

import numpy as np

from anabranch.edge.book import Book
from anabranch.edge.ownership import CLOUD
from anabranch.edge.sections import Results, Section, is_column, shape_of

__all__ = ["LATEST", "results_problem", "section_problem"]

LATEST = 1 << 62
"""Times are below it, so that a window after one is still a time."""


def section_problem(
    section: Section, device: str, incarnation: int, book: Book, shapes: dict[int, list[int]]
) -> str | None:
    """What is wrong with a section of a device's; None if nothing is.

    `shapes` has the lengths of the vectors of each stream, as its first section had them.
    """
    streams = book.streams
    if not 0 <= section.stream < len(streams) or streams[section.stream].home != device:
        return "sections of a foreign stream"
    if not 0 <= section.stamp <= book.epoch:
        return "sections with a stamp that nobody gave"
    if section.watermark >= LATEST or not 0.0 <= section.band <= 1.0:
        return "sections of other columns"
    if not len(section.n):
        return None
    n, t = section.n, section.t
    if n[0] >> 32 != incarnation or n[-1] >> 32 != incarnation or t[0] < 0 or t[-1] >= LATEST:
        return "sections with numbers or times that cannot be"
    if len(n) > 1 and ((n[1:] <= n[:-1]).any() or (t[1:] < t[:-1]).any()):
        return "sections with numbers or times that cannot be"
    shape = shape_of(section, streams[section.stream])
    if shape is None or shapes.setdefault(section.stream, shape) != shape:
        return "sections of other columns"
    return None


def results_problem(found: Results, origin: str, book: Book) -> str | None:
    """What is wrong with results that a place has found; None if nothing is."""
    if not 0 <= found.view < len(book.views):
        return "results of an unknown view"
    if origin != CLOUD and origin not in book.hosts[found.view]:
        return "results of a foreign view"
    view = book.views[found.view]
    rows = len(found.stamp)
    sides = len(found.n) == len(found.t) == len(view.inputs)
    if not sides or {*map(len, found.n), *map(len, found.t), len(found.score)} != {rows}:
        return "results of another form"
    if not rows or not 0 <= found.stamp.min() <= found.stamp.max() <= book.epoch:
        return "results of another form"
    kept = [
        book.streams[stream].columns[name]
        for stream, names in zip(view.inputs, book.definitions[view.definition].keep, strict=False)
        for name in names
    ]
    good = len(kept) == len(found.columns) and found.score.dtype == np.float64
    if not good or not all(map(is_column, found.columns, kept)):
        return "results of another form"
    return None
