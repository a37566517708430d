"""``|l - r| <= limit`` on one or two numbers: a sorted search, or a scan where most rows match.

The right block is sorted by its first number once, for as long as it lives. A left row's matches
are then one run of it, found by bisection; only its members are tested for the second number, the
window and ownership. If the runs would cover more than an eighth of the block, a scan of all pairs
in time order is faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from anabranch.correlation.filters.tiles import COLS, ROWS, Candidates, Pair, admit, scratch, tiles
from anabranch.flow.blocks import Block
from anabranch.flow.process import njit

__all__ = ["Band", "band_candidates", "band_size"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_SEGMENT = 128
_PIECE = 32
_SIGN = np.uint64(1 << 63)


class Band(NamedTuple):
    """A slot of numbers (both int64 or both float64) and how far apart they may be."""

    slot: str
    limit: float  # a whole number for int64


class _Order(NamedTuple):
    values: np.ndarray
    rows: np.ndarray


def band_candidates(
    pair: Pair, bands: Sequence[Band], scan: bool | None = None
) -> Iterator[Candidates]:
    """Every pair inside the first two bands (integers exactly, floats with a margin)."""
    lows, highs = zip(*(_bounds(pair.left, band) for band in bands[:2]), strict=True)
    values = [pair.right.columns[band.slot] for band in bands[:2]]
    if scan is None:
        scan = band_size(pair, bands[0]) * 8 > len(pair.left) * len(pair.right)
    if scan:
        yield from _by_scan(pair, lows, highs, values)
    else:
        yield from _by_order(pair, bands, lows, highs, values)


def band_size(pair: Pair, band: Band) -> int:
    """How many pairs the band alone admits (about, for floats)."""
    low, high = _bounds(pair.left, band)
    order = _order(pair.right, band.slot)
    first = np.searchsorted(order.values, low, "left")
    return int((np.searchsorted(order.values, high, "right") - first).sum())


def _bounds(block: Block, band: Band) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest right value that each left row may meet."""

    def make(of: Block) -> tuple[np.ndarray, np.ndarray]:
        values = of.columns[band.slot]
        if values.dtype == np.int64:
            # As numbers from 0 to 2**64 - 1, so that the ends of the range stop them.
            most = np.uint64(min(int(band.limit), 2**64 - 1))
            raised = values.view(np.uint64) ^ _SIGN
            low = raised - np.minimum(raised, most)
            high = raised + np.minimum(~raised, most)
            return (low ^ _SIGN).view(np.int64), (high ^ _SIGN).view(np.int64)
        # The rounding of the difference that decides, of the bound, and of the margin itself are
        # each an ulp of the larger at most; where they cancel, the bound's own ulp is far smaller.
        limit = float(band.limit)
        with np.errstate(over="ignore"):
            margin = 4 * np.spacing(np.maximum(np.abs(values), limit))
            return values - limit - margin, values + limit + margin

    return block.derive(("band bounds", band), make)


def _order(block: Block, slot: str) -> _Order:
    def make(of: Block) -> _Order:
        rows = np.argsort(of.columns[slot], kind="stable").astype(np.int32)
        return _Order(of.columns[slot][rows], rows)

    return block.derive(("band order", slot), make)


def _beside(block: Block, first: str, second: str) -> np.ndarray:
    """The second number in the order of the first: the inner loop then goes one way in memory."""

    def make(of: Block) -> np.ndarray:
        values: np.ndarray = of.columns[second][_order(of, first).rows]
        return values

    return block.derive(("band beside", first, second), make)


def _by_order(pair, bands, lows, highs, values) -> Iterator[Candidates]:
    order = _order(pair.right, bands[0].slot)
    first = np.searchsorted(order.values, lows[0], "left")
    last = np.searchsorted(order.values, highs[0], "right")
    second = len(values) > 1
    other = _beside(pair.right, bands[0].slot, bands[1].slot) if second else values[0][:0]
    low, high = (lows[1], highs[1]) if second else (lows[0][:0], highs[0][:0])
    _, out_i, out_j = scratch()
    at = np.array([0, 0], np.int64)
    while at[0] < len(pair.left):
        count = _runs(
            first, last, order.rows, second, other, low, high, pair.stamps, at, out_i, out_j
        )
        if count:
            yield Candidates(out_i[:count].copy(), out_j[:count].copy())


def _by_scan(pair, lows, highs, values) -> Iterator[Candidates]:
    second = len(values) > 1
    _, out_i, out_j = scratch()
    for top, bottom, start, stop in tiles(pair, ROWS, COLS):
        args = (lows[0][top:bottom], highs[0][top:bottom], values[0][start:stop])
        if second:
            more = (lows[1][top:bottom], highs[1][top:bottom], values[1][start:stop])
            count = _scan_two(*args, *more, top, start, pair.stamps, out_i, out_j)
        else:
            count = _scan_one(*args, top, start, pair.stamps, out_i, out_j)
        if count:
            yield Candidates(out_i[:count].copy(), out_j[:count].copy())


@njit(nogil=True)
def _runs(
    first, last, rows, second, other, low, high, stamps, at, out_i, out_j
):  # pragma: no cover
    """Fill the output from position `at`, which then says where to go on."""
    t, s, w_left, w_right, epoch, mask, right_epoch, right_mask = stamps
    found, room = 0, len(out_i)
    i, skip = at[0], at[1]
    while i < len(first):
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
                if admit(i, j, t, s, w_left, w_right, epoch, mask, right_epoch, right_mask):
                    if found == room:
                        at[0], at[1] = i, p - first[i]
                        return found
                    out_i[found] = i
                    out_j[found] = j
                    found += 1
            begin = end
        i, skip = i + 1, 0
    at[0], at[1] = i, 0
    return found


@njit(nogil=True)
def _scan_one(low, high, values, top, start, stamps, out_i, out_j):  # pragma: no cover
    t, s, w_left, w_right, epoch, mask, right_epoch, right_mask = stamps
    found, n = 0, len(values)
    for r in range(len(low)):
        a, b = low[r], high[r]
        for begin in range(0, n, _SEGMENT):
            segment = values[begin : min(begin + _SEGMENT, n)]
            hit = False
            for c in range(len(segment)):
                hit |= (segment[c] >= a) & (segment[c] <= b)
            if hit:
                for c in range(len(segment)):
                    if segment[c] >= a and segment[c] <= b:
                        i, j = top + r, start + begin + c
                        if admit(i, j, t, s, w_left, w_right, epoch, mask, right_epoch, right_mask):
                            out_i[found] = i
                            out_j[found] = j
                            found += 1
    return found


@njit(nogil=True)
def _scan_two(
    low, high, values, low2, high2, values2, top, start, stamps, out_i, out_j
):  # pragma: no cover
    t, s, w_left, w_right, epoch, mask, right_epoch, right_mask = stamps
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
                for c in range(len(x)):
                    if x[c] >= a and x[c] <= b and y[c] >= a2 and y[c] <= b2:
                        i, j = top + r, start + begin + c
                        if admit(i, j, t, s, w_left, w_right, epoch, mask, right_epoch, right_mask):
                            out_i[found] = i
                            out_j[found] = j
                            found += 1
    return found
