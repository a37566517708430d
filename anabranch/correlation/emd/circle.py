"""Bins on a circle: the area between cumulative histograms, less the flow that goes round.

A flow of c round the whole circle may be added to any way of moving the mass, so the distance is
the least over c of the sum of ``|difference - c|``; the median of the differences is best. The same
least over 8 and 32 block sums is a lower bound of it. Keys, the mean distance from bin 0, narrow
the search to a run of right rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.line import Found
from anabranch.correlation.emd.masses import KEY_SLACK, cumulated, fixed_point, keys_of
from anabranch.correlation.emd.tally import Tally
from anabranch.correlation.emd.verdict import Limit
from anabranch.correlation.filters.tiles import Pair, admit, comparisons
from anabranch.flow.blocks import Block
from anabranch.flow.process import njit

__all__ = ["circle_distances", "circle_matches"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_ROOM = 1 << 18
_COARSE, _FINE = 8, 32


class _Profile(NamedTuple):
    """A block in the order of its keys; block sums are whole numbers like the histograms."""

    keys: np.ndarray
    rows: np.ndarray
    coarse: np.ndarray
    fine: np.ndarray
    exact: np.ndarray


def circle_distances(
    left: Block, right: Block, slot: str, ground: Ground, i: np.ndarray, j: np.ndarray
) -> np.ndarray:
    """The distance of left row ``i[p]`` and right row ``j[p]``, for every p."""
    out = np.empty(len(i))
    if len(i):
        bins = left.columns[slot].shape[1]
        a, b = cumulated(left, slot, ground), cumulated(right, slot, ground)
        _distances(a, b, i, j, bins, 1 / fixed_point(ground.of(bins)), out)
    return out


def circle_matches(
    pair: Pair, slot: str, ground: Ground, limit: Limit, filters: tuple[str, ...], tally: Tally
) -> Iterator[Found]:
    """Every pair of the two blocks that joins here."""
    if not len(pair.left) or not len(pair.right):
        return
    bins = pair.left.columns[slot].shape[1]
    known = ground.of(bins)
    a, b = _profile(pair.left, slot, known), _profile(pair.right, slot, known)
    if "mean" in filters and not limit.upward:
        reach = limit.near + KEY_SLACK * known.largest
        first = np.searchsorted(b.keys, a.keys - reach, "left")
        last = np.searchsorted(b.keys, a.keys + reach, "right")
    else:
        first = np.zeros(len(a.keys), np.int64)
        last = np.full(len(a.keys), len(b.keys))
    use = np.array([f in filters and not limit.upward for f in ("blocks-8", "blocks-32")])
    step = 1 / fixed_point(known)
    sizes = _sizes(bins, _COARSE), _sizes(bins, _FINE)
    out_i, out_j = np.empty(_ROOM, np.int32), np.empty(_ROOM, np.int32)
    value = np.empty(_ROOM)
    work = np.zeros(len(a.keys), np.int64)
    counts = np.zeros(3, np.int64)
    at = np.array([0, 0], np.int64)
    while at[0] < len(a.keys):
        count = _search(
            a, b, first, last, use, sizes, bins, step, 1e-12 * known.largest / step,
            limit.near, limit.low, limit.high, pair.stamps, at, work, counts, out_i, out_j, value,
        )  # fmt: skip
        if count:
            yield Found(out_i[:count].copy(), out_j[:count].copy(), value[:count].copy())
    tally.cut("mean", comparisons(pair) - int(counts[0]))
    tally.cut("blocks-8", int(counts[1]))
    tally.cut("blocks-32", int(counts[2]))
    tally.spend(a.keys, work)


def _profile(block: Block, slot: str, ground: Ground) -> _Profile:
    def make(of: Block) -> _Profile:
        keys = keys_of(of, slot, ground)
        rows = np.argsort(keys, kind="stable").astype(np.int32)
        exact = cumulated(of, slot, ground)[rows]
        sums = [_block_sums(exact, _sizes(ground.bins or 1, n)) for n in (_COARSE, _FINE)]
        return _Profile(keys[rows], rows, sums[0], sums[1], exact)

    return block.derive(("emd circle", slot, ground.digest), make)


def _sizes(bins: int, blocks: int) -> np.ndarray:
    """How many bins each block has."""
    edges = np.linspace(0, bins, min(blocks, bins) + 1).round().astype(np.int64)
    return np.diff(edges)


def _block_sums(table: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    sums: np.ndarray = np.add.reduceat(table, np.cumsum(sizes) - sizes, axis=1)
    return sums


@njit(nogil=True)
def _select(values, n, k):  # pragma: no cover
    """The k-th smallest of the first n values, which change places."""
    low, high = 0, n - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return values[k]


@njit(nogil=True)
def _round(u, v, n, room):  # pragma: no cover
    """The least sum of ``|u - v - c|`` over c."""
    for c in range(n):
        room[c] = u[c] - v[c]
    middle = _select(room, n, n // 2)
    total = np.int64(0)
    for c in range(n):
        total += abs(room[c] - middle)
    return total


@njit(nogil=True)
def _round_blocks(u, v, sizes):  # pragma: no cover
    """The least sum of ``|u_b - v_b - size_b c|`` over c, from below."""
    n = len(sizes)
    best = -1.0
    # The least is at a kink, where one term is zero; n is small.
    for k in range(n):
        c = np.float64(u[k] - v[k]) / sizes[k]
        total = 0.0
        for b in range(n):
            total += abs(np.float64(u[b] - v[b]) - sizes[b] * c)
        if best < 0 or total < best:
            best = total
    return best


@njit(nogil=True)
def _distances(x, y, i, j, bins, step, out):  # pragma: no cover
    room = np.empty(bins, np.int64)
    for p in range(len(i)):
        out[p] = _round(x[i[p]], y[j[p]], bins, room) * step


@njit(nogil=True)
def _search(
    a, b, first, last, use, sizes, bins, step, slack, near, low, high, stamps, at, work, counts,
    out_i, out_j, value,
):  # fmt: skip  # pragma: no cover
    """Fill the output from position `at`, which then says where to go on."""
    t, s, w_left, w_right, epoch, mask, right_epoch, right_mask = stamps
    _, rows, coarse, fine, exact = a
    _, right_rows, right_coarse, right_fine, right_exact = b
    room = np.empty(bins, np.int64)
    beyond = near / step + slack
    found, skip = 0, at[1]
    i = at[0]
    while i < len(rows):
        for p in range(first[i] + skip, last[i]):
            if not admit(
                rows[i], right_rows[p], t, s, w_left, w_right, epoch, mask, right_epoch, right_mask
            ):
                continue
            if found == len(out_i):
                at[0], at[1] = i, p - first[i]
                return found
            counts[0] += 1
            work[i] += 1
            if use[0] and _round_blocks(coarse[i], right_coarse[p], sizes[0]) > beyond:
                counts[1] += 1
                continue
            if use[1] and _round_blocks(fine[i], right_fine[p], sizes[1]) > beyond:
                counts[2] += 1
                continue
            area = _round(exact[i], right_exact[p], bins, room) * step
            if area >= low and area <= high:
                out_i[found] = rows[i]
                out_j[found] = right_rows[p]
                value[found] = area
                found += 1
        i, skip = i + 1, 0
    at[0], at[1] = i, 0
    return found
