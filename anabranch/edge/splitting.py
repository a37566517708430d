"""Cuts results into parts that a message can carry: the broker takes no message of any size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from anabranch.edge.sections import Results, Section

__all__ = ["PART", "portions", "shared", "size_of"]

PART = 400_000
"""Bytes of results that share a message; one result may be more."""
_NUMBER = 9  # bytes of a number at most


def portions(
    sections: Iterable[Section], results: Iterable[Results], most: int = PART
) -> Iterator[tuple[Results, ...]]:
    """The results of each message, the first of which has the sections besides; at least one.

    How they are cut depends on these sections and results alone.

    Examples
    --------
    >>> row = np.arange(5)
    >>> found = Results(0, (row, row), (row, row), row, np.zeros(5))
    >>> [[len(one.stamp) for one in part] for part in portions((), [found, found], 200)]
    [[3], [2, 1], [3], [1]]
    >>> list(portions((), ()))
    [()]
    """
    part: list[Results] = []
    size = sum(int(_section_sizes(section).sum()) for section in sections)
    for found in results:
        ends = np.cumsum(_sizes(found))
        begin = taken = 0
        while begin < len(ends):
            end = int(np.searchsorted(ends, taken + most - size, side="right"))
            if end <= begin and size:
                yield tuple(part)
                part, size = [], 0
                continue
            end = max(end, begin + 1)
            part.append(_rows(found, begin, end))
            size += int(ends[end - 1]) - taken
            begin, taken = end, int(ends[end - 1])
    yield tuple(part)


def shared(
    sections: Sequence[Section], results: Sequence[Results], extras: dict[str, Any]
) -> Iterator[tuple[tuple[Section, ...], tuple[Results, ...], dict[str, Any]]]:
    """What each frame of a device carries; what is said besides is in the last."""
    parts = list(portions(sections, results))
    for number, part in enumerate(parts, 1):
        yield tuple(sections) if number == 1 else (), part, extras if number == len(parts) else {}


def size_of(results: Sequence[Results]) -> int:
    """How many bytes results have in a message, at most."""
    return sum(int(_sizes(found).sum()) for found in results)


def _rows(found: Results, begin: int, end: int) -> Results:
    if not begin and end == len(found.stamp):
        return found
    n, t, columns = (
        tuple(part[begin:end] for part in parts) for parts in (found.n, found.t, found.columns)
    )
    return Results(found.view, n, t, found.stamp[begin:end], found.score[begin:end], columns)


def _sizes(found: Results) -> np.ndarray:
    """Bytes of each result at most."""
    return _row_sizes(len(found.stamp), 2 * len(found.n) + 2, found.columns)


def _section_sizes(section: Section) -> np.ndarray:
    return _row_sizes(len(section.n), 2, section.columns)


def _row_sizes(rows: int, numbers: int, columns: Iterable[np.ndarray]) -> np.ndarray:
    sizes = np.full(rows, _NUMBER * numbers)
    for column in columns:
        if column.dtype == object:
            texts = (5 + len(text.encode(errors="replace")) for text in column)
            sizes += np.fromiter(texts, np.int64, rows)
        else:
            sizes += _NUMBER * (column.shape[1] if column.ndim == 2 else 1)
    return sizes
