"""``|l - r| <= limit`` on one or two numbers: a sorted search, or a scan where most rows match.

The right block is sorted by its first number once, for as long as it lives. A left row's matches
are then one run of it, found by bisection; only its members are tested for the second number, the
window and ownership. If the runs would cover more than an eighth of the block, a scan of all pairs
in time order is faster.

Letters: i is a left row, j a right one, p a place among the sorted right rows, c one in a piece of
them; `a` and `b` are the bounds of its second number.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from anabranch.correlation.filters.tiles import (
    COLS,
    ROWS,
    Candidates,
    Pair,
    Tile,
    admit,
    put,
    scratch,
    stamp_of,
    tiles,
)
from anabranch.flow.blocks import Block
from anabranch.flow.process import njit
from anabranch.flow.words import ROUNDINGS, around, floats, shortened

__all__ = ["Band", "band_candidates", "band_size", "in_one_word"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg"

_SEGMENT = 128
_PIECE = 32
_LARGEST = sys.float_info.max  # a limit of whole numbers may be larger
# The rounding of the difference that decides, of the bound, and of the margin itself are each an
# ulp of the larger at most; where they cancel, the bound's own ulp is far smaller. Each number of
# words is a float of a few roundings more, and the larger is up to the sum of value and limit.
_MARGIN = 4 + 4 * ROUNDINGS


class Band(NamedTuple):
    """A slot of numbers (both int64, words of them or float64) and how far apart they may be.

    Numbers of several words are searched as if they were `short` where one holds each.
    """

    slot: str
    limit: float  # a whole number for int64
    short: bool = False

    def of(self, pair: Pair) -> Band:
        """The band as it is searched in two blocks."""
        return self._replace(short=in_one_word(pair.left, pair.right, self.slot) is not None)


class _Order(NamedTuple):
    values: np.ndarray
    rows: np.ndarray


class _Range(NamedTuple):
    """One band: left row i may meet right values from ``low[i]`` to ``high[i]``."""

    low: np.ndarray
    high: np.ndarray
    values: np.ndarray

    def within(self, tile: Tile) -> _Range:
        """What a tile needs of it."""
        top, bottom, start, stop = tile
        return _Range(self.low[top:bottom], self.high[top:bottom], self.values[start:stop])


class _Runs(NamedTuple):
    """Left row i meets ``rows[first[i]:last[i]]``, the right rows inside its first band."""

    first: np.ndarray
    last: np.ndarray
    rows: np.ndarray


def band_candidates(
    pair: Pair, bands: Sequence[Band], scan: bool | None = None
) -> Iterator[Candidates]:
    """Every pair inside the first two bands (integers exactly, floats with a margin)."""
    if scan is None:
        scan = band_size(pair, bands[0]) * 8 > len(pair.left) * len(pair.right)
    bands = [band.of(pair) for band in bands[:2]]
    return _by_scan(pair, bands) if scan else _by_order(pair, bands)


def band_size(pair: Pair, band: Band) -> int:
    """How many pairs the band alone admits (about, for floats)."""
    band = band.of(pair)
    low, high = _bounds(pair.left, band)
    order = _order(pair.right, band)
    first = np.searchsorted(order.values, low, "left")
    return int((np.searchsorted(order.values, high, "right") - first).sum())


def _bounds(block: Block, band: Band) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest right value that each left row may meet."""

    def make(of: Block) -> tuple[np.ndarray, np.ndarray]:
        values = _line(of, band)
        if values.dtype == np.int64:
            return around(values, int(band.limit))
        limit = float(min(band.limit, _LARGEST))
        with np.errstate(over="ignore"):
            margin = _MARGIN * np.spacing(np.maximum(np.abs(values), limit))
            return values - limit - margin, values + limit + margin

    return block.derive(("band bounds", band), make)


def in_one_word(left: Block, right: Block, slot: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The numbers of both blocks, if each is one number or one word holds it."""
    found = []
    for block in (left, right):
        column = block.columns[slot]
        if column.ndim == 2:
            column = block.derive(("in one word", slot), lambda of: shortened(of.columns[slot]))
        if column is None:
            return None
        found.append(column)
    return found[0], found[1]


def _line(block: Block, band: Band) -> np.ndarray:
    """The numbers of a slot, one for each row: floats near to them where words are needed."""
    if band.short:
        line = in_one_word(block, block, band.slot)
        assert line is not None
        return line[0]
    return block.derive(("band line", band.slot), lambda of: floats(of.columns[band.slot]))


def _order(block: Block, band: Band) -> _Order:
    def make(of: Block) -> _Order:
        values = _line(of, band)
        rows = np.argsort(values, kind="stable").astype(np.int32)
        return _Order(values[rows], rows)

    return block.derive(("band order", band.slot, band.short), make)


def _beside(block: Block, first: Band, second: Band) -> np.ndarray:
    """The second number in the order of the first: the inner loop then goes one way in memory."""

    def make(of: Block) -> np.ndarray:
        values: np.ndarray = _line(of, second)[_order(of, first).rows]
        return values

    return block.derive(("band beside", *first, *second), make)


def _by_order(pair: Pair, bands: Sequence[Band]) -> Iterator[Candidates]:
    (low, high), order = _bounds(pair.left, bands[0]), _order(pair.right, bands[0])
    first = np.searchsorted(order.values, low, "left")
    last = np.searchsorted(order.values, high, "right")
    runs = _Runs(first, last, order.rows)
    second = len(bands) > 1
    more = _Range(low[:0], high[:0], order.values[:0])
    if second:
        more = _Range(*_bounds(pair.left, bands[1]), _beside(pair.right, bands[0], bands[1]))
    _, out = scratch()
    at = np.array([0, 0], np.int64)
    while at[0] < len(pair.left):
        if count := _search(runs, second, more, pair.stamps, at, out):
            yield out.first(count)


def _by_scan(pair: Pair, bands: Sequence[Band]) -> Iterator[Candidates]:
    ranges = [_Range(*_bounds(pair.left, band), _line(pair.right, band)) for band in bands]
    _, out = scratch()
    for tile in tiles(pair, ROWS, COLS):
        parts = [of.within(tile) for of in ranges]
        scan = _scan_one if len(parts) == 1 else _scan_two
        if count := scan(*parts, tile.top, tile.start, pair.stamps, out):
            yield out.first(count)


@njit(nogil=True)
def _search(runs, second, more, stamps, at, out):  # pragma: no cover
    """Fill the output from position `at`, which then says where to go on."""
    first, last, rows = runs
    low, high, other = more
    found, room = 0, len(out.left)
    i, skip = at[0], at[1]
    while i < len(first):
        mine = stamp_of(i, stamps)
        begin = first[i] + skip
        while begin < last[i]:
            end = min(begin + _PIECE, last[i])
            if second:
                # A piece without a hit, by far the most common, is left without a branch per row.
                a, b = low[i], high[i]
                piece = other[begin:end]
                hit = False
                for c in range(len(piece)):
                    hit |= (piece[c] >= a) & (piece[c] <= b)
                if not hit:
                    begin = end
                    continue
            for p in range(begin, end):
                if second and (other[p] < low[i] or other[p] > high[i]):
                    continue
                j = rows[p]
                if admit(mine, j, stamps):
                    if found == room:
                        at[0], at[1] = i, p - first[i]
                        return found
                    found = put(out, found, i, j, True)
            begin = end
        i, skip = i + 1, 0
    at[0], at[1] = i, 0
    return found


@njit(nogil=True)
def _scan_one(band, top, start, stamps, out):  # pragma: no cover
    low, high, values = band
    found, n = 0, len(values)
    for r in range(len(low)):
        a, b = low[r], high[r]
        for begin in range(0, n, _SEGMENT):
            segment = values[begin : min(begin + _SEGMENT, n)]
            hit = False
            for c in range(len(segment)):
                hit |= (segment[c] >= a) & (segment[c] <= b)
            if hit:
                mine = stamp_of(top + r, stamps)
                for c in range(len(segment)):
                    if segment[c] >= a and segment[c] <= b:
                        j = start + begin + c
                        found = put(out, found, top + r, j, admit(mine, j, stamps))
    return found


@njit(nogil=True)
def _scan_two(band, other, top, start, stamps, out):  # pragma: no cover
    low, high, values = band
    low2, high2, values2 = other
    found, n = 0, len(values)
    for r in range(len(low)):
        a, b, a2, b2 = low[r], high[r], low2[r], high2[r]
        for begin in range(0, n, _SEGMENT):
            end = min(begin + _SEGMENT, n)
            x, y = values[begin:end], values2[begin:end]
            hit = False
            for c in range(len(x)):
                hit |= (x[c] >= a) & (x[c] <= b) & (y[c] >= a2) & (y[c] <= b2)
            if hit:
                mine = stamp_of(top + r, stamps)
                for c in range(len(x)):
                    if x[c] >= a and x[c] <= b and y[c] >= a2 and y[c] <= b2:
                        j = start + begin + c
                        found = put(out, found, top + r, j, admit(mine, j, stamps))
    return found
