"""What views must find, in lines too plain to be wrong: every pair of rows, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from anabranch.edge.definitions import Definition, Stream, View

__all__ = ["Known", "Put", "twin"]


class Put(NamedTuple):
    """A row that an application put, as its outbox has it."""

    n: int
    t: int
    stamp: int
    values: Mapping[str, Any]


class Known(NamedTuple):
    """A view and the epochs at which it was added and removed."""

    number: int
    view: View
    definition: Definition
    first: int
    last: float


def twin(
    views: Iterable[Known],
    streams: list[Stream],
    rows: Mapping[int, list[Put]],
    where: Callable[[Definition, Put, Put], bool],
) -> set[tuple[int, ...]]:
    """The identities of all results: view, and numbers of the rows."""
    found = set()
    for number, view, definition, first, last in views:
        sides = []
        for stream, share in zip(view.inputs, view.shares, strict=False):
            mine = [row for row in _sampled(rows[stream], streams[stream].tick, share)]
            sides.append([row for row in mine if first <= row.stamp < last])
        if definition.kind == "each":
            found |= {(number, a.n) for a in sides[0] if where(definition, a, a)}
            continue
        for a in sides[0]:
            for b in sides[1]:
                near = -definition.window[0] <= a.t - b.t <= definition.window[1]
                if near and where(definition, a, b):
                    found.add((number, a.n, b.n))
    return found


def _sampled(rows: list[Put], tick: int, share: float) -> Iterable[Put]:
    """The first row of each tick whose reversed number, as a fraction, is below the share."""
    cells = set()
    for row in rows:
        cell = (row.n >> 32, row.t // tick) if tick else (0, 0)  # of an incarnation
        first = cell not in cells
        cells.add(cell)
        if not tick or (first and int(f"{cell[1] % 2**32:032b}"[::-1], 2) < share * 2**32):
            yield row
