"""Bins in a row: the distance is the area between two cumulative histograms.

Both blocks are sorted by mean, once for as long as they live. The means of a match are no further
apart than the threshold, so a left row meets one run of right rows. Sums over 8 and then 32 blocks
of the cumulative histograms cut most of what is left, since the sum of a block's differences is no
greater than the sum of their absolute values; one block would be the mean again. The rest is added
up in float32, and what is not clearly too far is decided and scored in whole numbers of a fine
fixed point: their sum is the same in any order, at the precision of float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.masses import cumulated, fixed_point, keys_of
from anabranch.correlation.emd.tally import Tally
from anabranch.correlation.emd.verdict import Limit
from anabranch.correlation.filters.tiles import Pair, admit, comparisons
from anabranch.flow.blocks import Block
from anabranch.flow.process import njit

__all__ = ["Found", "line_distances", "line_matches"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_ROWS, _COLS = 64, 128  # of a tile: 128 right rows of 256 bins stay in the second-level cache
_ROOM = 1 << 18
_RETRY = 16
_COARSE, _FINE = 8, 32


class Found(NamedTuple):
    """Matches: positions in the left and the right block, and their distances."""

    left: np.ndarray
    right: np.ndarray
    value: np.ndarray


class _Profile(NamedTuple):
    """A block in the order of its means."""

    means: np.ndarray
    rows: np.ndarray
    coarse: np.ndarray
    fine: np.ndarray
    narrow: np.ndarray
    exact: np.ndarray


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
    margin = limit.margin(known)
    near = np.float32(limit.near + margin)
    far = np.float32(limit.far - margin)
    if "mean" in filters and not limit.upward:
        reach = limit.near + known.epsilon
        first = np.searchsorted(b.means, a.means - reach, "left")
        last = np.searchsorted(b.means, a.means + reach, "right")
    else:
        first = np.zeros(len(a.means), np.int64)
        last = np.full(len(a.means), len(b.means))
    use = np.array([f in filters and not limit.upward for f in ("blocks-8", "blocks-32")])
    free = bool(_unchecked(pair))
    out_i, out_j = np.empty(_ROOM, np.int32), np.empty(_ROOM, np.int32)
    value = np.empty(_ROOM)
    work = np.zeros(len(a.means), np.int64)
    counts = np.zeros(3, np.int64)  # seen, cut by 8 sums, cut by 32 sums
    at = np.array([0, -1], np.int64)
    while at[0] < len(a.means):
        count = _search(
            a, b, first, last, use, near, far, limit.upward, limit.low, limit.high,
            free, pair.stamps, at, work, counts, 1 / fixed_point(known), out_i, out_j, value,
        )  # fmt: skip
        if count:
            yield Found(out_i[:count].copy(), out_j[:count].copy(), value[:count].copy())
    tally.cut("mean", comparisons(pair) - int(counts[0]))
    tally.cut("blocks-8", int(counts[1]))
    tally.cut("blocks-32", int(counts[2]))
    if tally.spans is not None:
        keys = keys_of(pair.left, slot, ground)
        tally.spend(keys[a.rows], work)


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


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _search(
    a, b, first, last, use, near, far, upward, low, high, free, stamps, at, work, counts,
    step, out_i, out_j, value,
):  # fmt: skip  # pragma: no cover
    """Fill the output from tile `at`, which then says where to go on.

    A stage that cuts too few pairs to pay for itself rests, and is tried again now and then.
    """
    t, s, w_left, w_right, epoch, mask, right_epoch, right_mask = stamps
    _, rows, coarse, fine, narrow, exact = a
    _, right_rows, right_coarse, right_fine, right_narrow, right_exact = b
    found, room = 0, len(out_i) - _ROWS * _COLS
    by_8, by_32, by_float = use[0], use[1], True
    seen = cut_8 = cut_32 = 0
    top, start = at[0], at[1]
    while top < len(rows):
        bottom = min(top + _ROWS, len(rows))
        begin, end = first[top], last[top]
        for i in range(top, bottom):
            begin, end = min(begin, first[i]), max(end, last[i])
        start = begin if start < 0 else start
        if (top // _ROWS) % _RETRY == 0:
            by_8, by_32, by_float = use[0], use[1], True
        old_seen, old_8, old_32, reached, kept = seen, cut_8, cut_32, 0, 0
        while start < end:
            if found > room:
                at[0], at[1] = top, start
                counts[0] += seen
                counts[1] += cut_8
                counts[2] += cut_32
                return found
            stop = min(start + _COLS, end)
            for i in range(top, bottom):
                before = seen
                u8, u32, u = coarse[i], fine[i], narrow[i]
                for j in range(max(start, first[i]), min(stop, last[i])):
                    if not free and not admit(
                        rows[i], right_rows[j], t, s, w_left, w_right,
                        epoch, mask, right_epoch, right_mask,
                    ):  # fmt: skip
                        continue
                    seen += 1
                    if by_8 and _apart(u8, right_coarse[j]) > near:
                        cut_8 += 1
                        continue
                    if by_32 and _apart(u32, right_fine[j]) > near:
                        cut_32 += 1
                        continue
                    reached += 1
                    if by_float:
                        rough = _apart(u, right_narrow[j])
                        if rough < far if upward else rough > near:
                            continue
                    kept += 1
                    area = _area(exact[i], right_exact[j]) * step
                    if area >= low and area <= high:
                        out_i[found] = rows[i]
                        out_j[found] = right_rows[j]
                        value[found] = area
                        found += 1
                work[i] += seen - before
            start = stop
        if seen - old_seen > 1000:
            after_8 = seen - old_seen - (cut_8 - old_8)
            by_8 = by_8 and (cut_8 - old_8) * 10 > seen - old_seen
            by_32 = by_32 and (cut_32 - old_32) * 8 > after_8
            by_float = by_float and kept * 2 < reached
        top, start = bottom, -1
    at[0], at[1] = top, -1
    counts[0] += seen
    counts[1] += cut_8
    counts[2] += cut_32
    return found
