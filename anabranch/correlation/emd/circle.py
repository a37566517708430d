"""Bins on a circle: the area between cumulative histograms, less the flow that goes round.

A flow of c round the whole circle may be added to any way of moving the mass, so the distance is
the least over c of the sum of ``|difference - c|``; the median of the differences is best. The same
least over 8 and 32 block sums is a lower bound of it. Keys, the mean distance from bin 0, narrow
the search to a run of right rows.

Letters of the compiled loops: `a` and `b` are the two profiles, `i` and `p` places in them, `u` and
`v` rows of their tables, `c` a column or the flow round the circle, `n` how many columns there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.limit import Limit
from anabranch.correlation.emd.masses import KEY_SLACK, cumulated, fixed_point, keys_of
from anabranch.correlation.emd.runs import Found, Progress, Runs
from anabranch.correlation.emd.tally import Tally
from anabranch.correlation.filters.tiles import Pair, admit, comparisons, stamp_of
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


class _Rule(NamedTuple):
    """What matches: distances from `low` to `high`, in units of ``1 / step``.

    `by_8` and `by_32` say whether block sums are tried; beyond `beyond` they rule a pair out.
    """

    by_8: bool
    by_32: bool
    sizes_8: np.ndarray
    sizes_32: np.ndarray
    beyond: float
    low: float
    high: float
    step: float


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
        runs = Runs.within(a.keys, b.keys, limit.near + KEY_SLACK * known.largest)
    else:
        runs = Runs.everything(len(a.keys), len(b.keys))
    rule, progress = _rule(limit, known, filters), Progress.begin(len(a.keys), 3)
    out = Found.room(_ROOM)
    while not progress.done:
        if count := _search(a, b, runs, rule, bins, pair.stamps, progress, out):
            yield out.first(count)
    seen, by_8, by_32 = (int(count) for count in progress.counts)
    tally.cut("mean", comparisons(pair) - seen)
    tally.cut("blocks-8", by_8)
    tally.cut("blocks-32", by_32)
    tally.spend(a.keys, progress.work)


def _rule(limit: Limit, ground: Ground, filters: tuple[str, ...]) -> _Rule:
    bins, step = ground.bins or 1, 1 / fixed_point(ground)
    return _Rule(
        "blocks-8" in filters and not limit.upward,
        "blocks-32" in filters and not limit.upward,
        _sizes(bins, _COARSE),
        _sizes(bins, _FINE),
        limit.near / step + 1e-12 * ground.largest / step,
        limit.low,
        limit.high,
        step,
    )


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
def _search(a, b, runs, rule, bins, stamps, progress, out):  # pragma: no cover
    """Fill the output from ``progress.at``, which then says where to go on."""
    at, counts, work = progress
    first, last = runs
    _, rows, coarse, fine, exact = a
    _, right_rows, right_coarse, right_fine, right_exact = b
    by_8, by_32, sizes_8, sizes_32, beyond, low, high, step = rule
    room = np.empty(bins, np.int64)
    found, skip = 0, at[1]
    i = at[0]
    while i < len(rows):
        mine = stamp_of(rows[i], stamps)
        for p in range(first[i] + skip, last[i]):
            if not admit(mine, right_rows[p], stamps):
                continue
            if found == len(out.left):
                at[0], at[1] = i, p - first[i]
                return found
            counts[0] += 1
            work[i] += 1
            if by_8 and _round_blocks(coarse[i], right_coarse[p], sizes_8) > beyond:
                counts[1] += 1
                continue
            if by_32 and _round_blocks(fine[i], right_fine[p], sizes_32) > beyond:
                counts[2] += 1
                continue
            area = _round(exact[i], right_exact[p], bins, room) * step
            if area >= low and area <= high:
                out.left[found] = rows[i]
                out.right[found] = right_rows[p]
                out.value[found] = area
                found += 1
        i, skip = i + 1, 0
    at[0], at[1] = i, 0
    return found
