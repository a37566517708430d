"""Bins in a row: the distance is the area between two cumulative histograms.

Both blocks are sorted by mean, once for as long as they live. The means of a match are no further
apart than the threshold, so a left row meets one run of right rows. Sums over 8 and then 32 blocks
of the cumulative histograms cut most of what is left, since the sum of a block's differences is no
greater than the sum of their absolute values; one block would be the mean again. The rest is added
up in float32, and what is not clearly too far is decided and scored in whole numbers of a fine
fixed point: their sum is the same in any order, at the precision of float64.

Letters of the compiled loops: `a` and `b` are the two profiles, `i` and `j` places in them, `u` and
`v` rows of their tables, `c` a column, `s`, `c8`, `c32` and `k` how many pairs a tile has seen, its
two stages have cut and it has kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.limit import Limit
from anabranch.correlation.emd.masses import cumulated, fixed_point, keys_of
from anabranch.correlation.emd.runs import Found, Progress, Runs
from anabranch.correlation.emd.tally import Tally
from anabranch.correlation.filters.tiles import Pair, admit, comparisons, stamp_of
from anabranch.flow.blocks import Block
from anabranch.flow.process import njit

__all__ = ["line_columns", "line_distances", "line_matches"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_ROWS, _COLS = 64, 128  # of a tile: 128 right rows of 256 bins stay in the second-level cache
_ROOM = 1 << 18
_RETRY = 16
_COARSE, _FINE = 8, 32


class _Profile(NamedTuple):
    """A block in the order of its means."""

    means: np.ndarray
    rows: np.ndarray
    coarse: np.ndarray
    fine: np.ndarray
    narrow: np.ndarray
    exact: np.ndarray


class _Rule(NamedTuple):
    """What matches: areas from `low` to `high`, in units of ``1 / step``.

    By float32 a pair is surely too far beyond `near`, and surely too near below `far`. Without
    `free` every pair is tested for window and ownership.
    """

    near: np.float32
    far: np.float32
    upward: bool
    low: float
    high: float
    step: float
    free: bool


def line_distances(
    left: Block, right: Block, slot: str, ground: Ground, i: np.ndarray, j: np.ndarray
) -> np.ndarray:
    """The distance of left row ``i[p]`` and right row ``j[p]``, for every p."""
    out = np.empty(len(i))
    if len(i):
        step = 1 / fixed_point(ground.of(left.columns[slot].shape[1]))
        a, b = cumulated(left, slot, ground), cumulated(right, slot, ground)
        _distances(a, b, i, j, step, out)
    return out


def line_matches(
    pair: Pair, slot: str, ground: Ground, limit: Limit, filters: tuple[str, ...], tally: Tally
) -> Iterator[Found]:
    """Every pair of the two blocks that joins here."""
    if not len(pair.left) or not len(pair.right):
        return
    known = ground.of(pair.left.columns[slot].shape[1])
    a, b = _profile(pair.left, slot, known), _profile(pair.right, slot, known)
    if "mean" in filters and not limit.upward:
        runs = Runs.within(a.means, b.means, limit.near + known.epsilon)
    else:
        runs = Runs.everything(len(a.means), len(b.means))
    use = np.array([f in filters and not limit.upward for f in ("blocks-8", "blocks-32")])
    rule, progress = _rule(limit, known, pair), Progress.begin(len(a.means), 3, inside=-1)
    out = Found.room(_ROOM)
    while not progress.done:
        if count := _search(a, b, runs, rule, use, pair.stamps, progress, out):
            yield out.first(count)
    seen, by_8, by_32 = (int(count) for count in progress.counts)
    tally.cut("mean", comparisons(pair) - seen)
    tally.cut("blocks-8", by_8)
    tally.cut("blocks-32", by_32)
    if tally.ranges is not None:
        keys = keys_of(pair.left, slot, ground)
        tally.spend(keys[a.rows], progress.work)


def line_columns(
    block: Block, slot: str, ground: Ground
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cumulative histograms, sums over 32 blocks of them, both in float32, and their means."""
    known = ground.of(block.columns[slot].shape[1])
    whole, step = cumulated(block, slot, ground), 1 / fixed_point(known)
    narrow = (whole * step).astype(np.float32)
    return narrow, _block_sums(whole, _FINE, step), whole.sum(axis=1) * step


def _rule(limit: Limit, ground: Ground, pair: Pair) -> _Rule:
    margin = limit.margin(ground)
    return _Rule(
        np.float32(limit.near + margin),
        np.float32(limit.far - margin),
        limit.upward,
        limit.low,
        limit.high,
        1 / fixed_point(ground),
        _unchecked(pair),
    )


def _unchecked(pair: Pair) -> bool:
    """Whether every pair of the two blocks is in the window and owned here."""
    return comparisons(pair) == len(pair.left) * len(pair.right)


def _profile(block: Block, slot: str, ground: Ground) -> _Profile:
    def make(of: Block) -> _Profile:
        whole, step = cumulated(of, slot, ground), 1 / fixed_point(ground)
        means = whole.sum(axis=1) * step
        rows = np.argsort(means, kind="stable").astype(np.int32)
        exact = whole[rows]
        return _Profile(
            means[rows],
            rows,
            _block_sums(exact, _COARSE, step),
            _block_sums(exact, _FINE, step),
            (exact * step).astype(np.float32),
            exact,
        )

    return block.derive(("emd line", slot, ground.digest), make)


def _block_sums(table: np.ndarray, blocks: int, step: float) -> np.ndarray:
    """Sums over so many neighbouring runs of columns, in float32."""
    width = table.shape[1]
    edges = np.linspace(0, width, min(blocks, max(width, 1)) + 1).round().astype(np.int64)
    sums = np.zeros((len(table), blocks), np.float32)
    if width:
        sums[:, : len(edges) - 1] = np.add.reduceat(table, edges[:-1], axis=1) * step
    return sums


@njit(nogil=True)
def _area(u, v):  # pragma: no cover
    total = np.int64(0)
    for c in range(len(u)):
        total += abs(u[c] - v[c])
    return total


@njit(nogil=True)
def _distances(x, y, i, j, step, out):  # pragma: no cover
    for p in range(len(i)):
        out[p] = _area(x[i[p]], y[j[p]]) * step


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _apart(u, v):  # pragma: no cover
    total = np.float32(0)
    for c in range(len(u)):
        total += abs(u[c] - v[c])
    return total


@njit(inline="always")
def _tile(a, b, runs, rule, by, stamps, tile, work, out, found):  # pragma: no cover
    """Search the tile ``(top, bottom, start, stop)`` after `found` matches.

    `by` says which of the three stages run: 8 sums, 32 sums, float32. Returns the matches so far,
    the pairs seen, cut by 8 sums, cut by 32 sums, and left over by the third stage.
    """
    top, bottom, start, stop = tile
    by_8, by_32, by_float = by
    near, far, upward, low, high, step, free = rule
    _, rows, coarse, fine, narrow, exact = a
    _, right_rows, right_coarse, right_fine, right_narrow, right_exact = b
    (first, last), (left, right, value) = runs, out
    seen = cut_8 = cut_32 = kept = 0
    for i in range(top, bottom):
        before, mine = seen, stamp_of(rows[i], stamps)
        u8, u32, u = coarse[i], fine[i], narrow[i]
        for j in range(max(start, first[i]), min(stop, last[i])):
            if not free and not admit(mine, right_rows[j], stamps):
                continue
            seen += 1
            if by_8 and _apart(u8, right_coarse[j]) > near:
                cut_8 += 1
                continue
            if by_32 and _apart(u32, right_fine[j]) > near:
                cut_32 += 1
                continue
            if by_float:
                rough = _apart(u, right_narrow[j])
                if rough < far if upward else rough > near:
                    continue
            kept += 1
            area = _area(exact[i], right_exact[j]) * step
            if area >= low and area <= high:
                left[found], right[found], value[found] = rows[i], right_rows[j], area
                found += 1
        work[i] += seen - before
    return found, seen, cut_8, cut_32, kept


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _search(a, b, runs, rule, use, stamps, progress, out):  # pragma: no cover
    """Fill the output from tile ``progress.at``, which then says where to go on.

    A stage that cuts too few pairs to pay for itself rests, and is tried again now and then.
    """
    at, counts, work = progress
    n, room, found = len(a.rows), len(out.left) - _ROWS * _COLS, 0
    by = (use[0], use[1], True)
    top, start = at[0], at[1]
    while top < n:
        bottom = min(top + _ROWS, n)
        begin, end = runs.first[top:bottom].min(), runs.last[top:bottom].max()
        start = begin if start < 0 else start
        if (top // _ROWS) % _RETRY == 0:
            by = (use[0], use[1], True)
        seen = cut_8 = cut_32 = kept = 0
        while start < end and found <= room:
            stop = min(start + _COLS, end)
            tile = (top, bottom, start, stop)
            found, s, c8, c32, k = _tile(a, b, runs, rule, by, stamps, tile, work, out, found)
            seen, cut_8, cut_32, kept = seen + s, cut_8 + c8, cut_32 + c32, kept + k
            start = stop
        counts[0] += seen
        counts[1] += cut_8
        counts[2] += cut_32
        if start < end:
            at[0], at[1] = top, start
            return found
        if seen > 1000:
            by = (
                by[0] and cut_8 * 10 > seen,
                by[1] and cut_32 * 8 > seen - cut_8,
                by[2] and kept * 2 < seen - cut_8 - cut_32,
            )
        top, start = bottom, -1
    at[0], at[1] = top, -1
    return found
