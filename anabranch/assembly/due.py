"""What a step takes: arrivals are stored, and the rows that are due by now are put in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from anabranch.assembly.store import SLICE_BYTES, Events, refs_of
from anabranch.assembly.table import Event
from anabranch.flow.blocks import Block, concat, together
from anabranch.flow.instants import FOREVER

__all__ = ["ROW", "Due", "take_in"]

# Columns of the matrix "w" of an event: both hashes of its key, the hash of its kind, when it
# ended, the bit of its stream (and `MARK` if it has an end marker), and a hash of its content
# that decides ties.
ROW = ("h1", "h2", "kind", "end", "stream", "tie")
_TIE = ROW.index("tie")


class Due(NamedTuple):
    """Names and figures (by `Event`) of the rows that are due, and how many came and late."""

    refs: np.ndarray
    rows: np.ndarray
    came: int
    late: int


class _Part(NamedTuple):
    """Rows `start` to `stop` of a slice; the first `late` of them came late."""

    number: int
    block: Block
    start: int
    stop: int
    late: int


def take_in(
    stored: Events, arrivals: Sequence[Block], before: int, clock: int, limit: int | None
) -> Due:
    """Store what came; the rows of times after `before` up to `clock`, and what is late.

    Late is what is of time `limit` or before. Without a limit all that came is due, as in
    processing time.
    """
    parts: list[_Part] = []
    if limit is not None:
        for number, entry in stored.marks().items():
            if entry.last > before and entry.first <= clock:
                block = stored.read_marks(number)
                first, last = np.searchsorted(block.t, (before, clock), "right")
                parts.append(_Part(number, block, int(first), int(last), 0))
    came = 0
    for group in together(arrivals):
        fresh = concat(group).in_time_order()
        came += len(fresh)
        for piece in fresh.pieces(SLICE_BYTES) if len(fresh) else ():
            passed, missed = len(piece), 0
            if limit is not None:
                passed = int(np.searchsorted(piece.t, clock, "right"))
                missed = int(np.searchsorted(piece.t, limit, "right"))
            number = stored.append(piece, FOREVER if limit is None else clock)
            parts.append(_Part(number, piece, 0, passed, missed))
    refs, rows = _figures(parts, by_key=limit is None)
    return Due(refs, rows, came, sum(part.late for part in parts))


def _figures(parts: list[_Part], by_key: bool) -> tuple[np.ndarray, np.ndarray]:
    """Names and figures of the rows of all parts, in the order in which they are taken."""
    width = len(Event)
    parts = [part for part in parts if part.start < part.stop]
    if not parts:
        return np.empty(0, np.int64), np.empty((0, width), np.int64)
    refs = np.concatenate([refs_of(p.number, np.arange(p.start, p.stop)) for p in parts])
    t = np.concatenate([p.block.t[p.start : p.stop] for p in parts])
    w = np.concatenate([p.block.columns["w"][p.start : p.stop] for p in parts])
    late = np.concatenate([np.arange(p.stop - p.start) < p.late for p in parts]).astype(np.int64)
    # In processing time all come at once, and what is of one key is taken together.
    order = np.lexsort((w[:, _TIE], t, w[:, 1], w[:, 0])) if by_key else _order(t, w, late)
    rows = np.empty((len(t), width), np.int64)
    rows[:, : Event.T] = w[order, :3]
    rows[:, Event.T] = t[order]
    rows[:, Event.END : Event.LATE] = w[order, 3:5]
    rows[:, Event.LATE] = late[order]
    return refs[order], rows


def _order(t: np.ndarray, w: np.ndarray, late: np.ndarray) -> np.ndarray:
    """Rows in order of time, key and content, late ones after the others."""
    order = np.argsort(t + (late << np.int64(61)) if late.any() else t, kind="stable")
    equal = t[order[1:]] == t[order[:-1]]
    if equal.any():  # sort only the runs of equal times
        tied = np.zeros(len(t), bool)
        tied[1:] |= equal
        tied[:-1] |= equal
        places = np.flatnonzero(tied)
        rows = order[places]
        again = np.lexsort((w[rows, _TIE], w[rows, 1], w[rows, 0], t[rows], late[rows]))
        order[places] = rows[again]
    return order
