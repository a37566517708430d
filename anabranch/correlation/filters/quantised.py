"""Cosine, dot product and Euclidean distance by products of bytes: several times a float32 product.

Vectors are rounded to bytes of one size of step per block. What rounding loses of a vector is known
(the norm of the difference, measured), so that a sum of byte products bounds the true product from
above: with ``a = ua * qa + ra`` and the same for b,

    a.b = ua * ub * qa.qb + ua * qa.rb + ra.b <= ua * ub * qa.qb + (|a| + |ra|) |rb| + |ra| |b|

Pairs whose bound falls short of the goal are out; all others are proposed. Where too many are
proposed, since data lie closely about the threshold, the product itself is cheaper; a `Habit`
notices that from a sample of rows, before a pair of blocks has cost much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from anabranch.correlation.filters.dots import (
    Instructions,
    Work,
    available,
    lowest_bit,
    reaching,
    room,
)
from anabranch.correlation.filters.products import (
    Goal,
    Scale,
    goal_of,
    make_operand,
    product_candidates,
)
from anabranch.correlation.filters.tiles import (
    Candidates,
    Pair,
    admit,
    put,
    scratch,
    stamp_of,
)
from anabranch.flow.blocks import Block
from anabranch.flow.process import njit

__all__ = ["Habit", "byte_candidates", "quantised_candidates", "work_of"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_MOST = 127
# Right vectors that a core's second cache holds beside all else.
_PANEL_BYTES = 256 << 10
_FEWEST = 1 << 16  # pairs, below which the product is done before bytes are made
_SAMPLE, _STRETCH = 1 << 18, 1 << 22  # pairs looked at before the share of proposed is judged
# A proposed pair costs about as much to decide as 60 cells of a product at any width.
_TOO_MANY = 1 / 250
_PAUSE = 32  # pairs of blocks for which the product is used, once bytes have not paid
_LARGEST_SUM = 1 << 30
_LEAST_UNIT = 2.0**-200  # of vectors that are nothing beside those of the other block


class Bytes(NamedTuple):
    """The vectors of a block as bytes: ``unit`` times a byte is about a number."""

    packed: np.ndarray
    unit: float
    lost: np.ndarray  # norm of what rounding took away, of each row
    moved: np.ndarray  # what moving the other side's bytes up adds to a row's sums
    scale: Scale


class Habit:
    """Remembers whether bytes were worth their while.

    Examples
    --------
    >>> habit = Habit()
    >>> habit.note(proposed=900, looked_at=1000)
    False
    >>> [habit.tries_bytes() for _ in range(33)].index(True)
    32
    """

    def __init__(self) -> None:
        self._pause = 0

    def tries_bytes(self) -> bool:
        """Whether to try them with the next pair of blocks."""
        self._pause -= self._pause > 0
        return self._pause == 0

    def note(self, proposed: int, looked_at: int) -> bool:
        """Hear how many of some pairs were proposed; whether they were few enough."""
        few = proposed <= looked_at * _TOO_MANY
        self._pause = 0 if few else _PAUSE + 1
        return few


def quantised_candidates(
    pair: Pair, slot: str, kind: str, upward: bool, threshold: float, habit: Habit
) -> Iterator[Candidates]:
    """Every pair whose measure may reach the threshold: by bytes where they pay."""
    call = (pair, slot, kind, upward, threshold)
    work = None
    if available() and len(pair.left) * len(pair.right) >= _FEWEST and habit.tries_bytes():
        work = work_of(*call, available()[0])
    if work is None:
        yield from product_candidates(*call)
        return
    (_, out), at = scratch(), np.zeros(2, np.int64)
    found, looked_at = _walk(work, pair.reach, pair.stamps, out, at, _SAMPLE)
    if not habit.note(found, looked_at):
        yield from product_candidates(*call)
        return
    while looked_at:
        if found:
            yield out.first(found)
        found, looked_at = _walk(work, pair.reach, pair.stamps, out, at, _STRETCH)
        if looked_at:
            habit.note(found, looked_at)


def byte_candidates(pair: Pair, work: Work) -> Iterator[Candidates]:
    """Every pair whose bytes may reach their bound, however many."""
    (_, out), at = scratch(), np.zeros(2, np.int64)
    looked_at = 1
    while looked_at:
        found, looked_at = _walk(work, pair.reach, pair.stamps, out, at, _STRETCH)
        if found:
            yield out.first(found)


def work_of(
    pair: Pair, slot: str, kind: str, upward: bool, threshold: float, by: Instructions
) -> Work | None:
    """What there is to do for two blocks; None where 32 bits cannot hold the sums."""
    sign = 1 if upward != (kind == "euclidean") else -1
    a, b = _left(pair.left, slot, kind, by, sign), _right(pair.right, slot, kind, by)
    goal = goal_of(kind, a.scale, b.scale, upward, threshold)
    steps = -(-a.scale.width // 4)
    if abs(goal.factor) * a.unit * b.unit < _LEAST_UNIT:
        return None
    starts, bounds = _limits(a, b, goal)
    largest = 4.0 * steps * _MOST * (by.most + by.shift)
    if np.abs(starts).max() + largest > _LARGEST_SUM:
        return None
    ends = np.iinfo(np.int32)
    groups = -(-len(pair.left) // by.rows)
    return Work(
        by,
        a.packed,
        b.packed,
        steps,
        _padded(starts, by.cols, 0),
        _padded(np.clip(bounds, ends.min, ends.max), by.rows, ends.max),
        room(by),
        max(1, _PANEL_BYTES // (4 * steps * by.cols)),
        next(n for n in range(int(groups * 0.618) + 1, 2 * groups + 2) if math.gcd(n, groups) == 1),
    )


def _limits(a: Bytes, b: Bytes, goal: Goal) -> tuple[np.ndarray, np.ndarray]:
    """Where sums of each right row begin, and what those of each left row must reach."""
    size = abs(goal.factor)
    unit = size * a.unit * b.unit
    row = 0.0 if goal.row is None else goal.row.astype(np.float64)
    col = 0.0 if goal.col is None else goal.col.astype(np.float64)
    longest = a.scale.largest + a.lost.max()
    starts = np.ceil((col + size * longest * b.lost) / unit)
    # One less, for what float64 rounds here.
    bounds = np.floor((goal.low - row - size * b.scale.largest * a.lost) / unit) - 1
    return starts, bounds + a.moved


def _left(block: Block, slot: str, kind: str, by: Instructions, sign: int) -> Bytes:
    """The bytes of left rows, times `sign`; made once."""

    def make(of: Block) -> Bytes:
        return _made(of, slot, kind, by.rows, sign * _MOST, by.shift, 0)

    return block.derive(("left bytes", slot, kind == "cosine", sign, type(by).__name__), make)


def _right(block: Block, slot: str, kind: str, by: Instructions) -> Bytes:
    """The bytes of right rows, moved up; made once."""

    def make(of: Block) -> Bytes:
        return _made(of, slot, kind, by.cols, by.most, 0, by.shift)

    return block.derive(("right bytes", slot, kind == "cosine", type(by).__name__), make)


def _made(
    block: Block, slot: str, kind: str, together: int, most: int, weight: int, shift: int
) -> Bytes:
    """Bytes of up to `most`, by groups of so many rows; sums of a row count `weight` times."""
    matrix, scale = make_operand(block, slot, kind)
    unit = float(np.abs(matrix).max()) / most or 1.0
    steps = -(-scale.width // 4)
    groups = -(-len(matrix) // together)
    packed = np.full(groups * together * steps * 4, shift, np.uint8)
    lost, sums = np.empty(len(matrix)), np.empty(len(matrix))
    _round(matrix, unit, together, steps, shift, packed, lost, sums)
    # A little more than was measured, for what measuring rounds.
    lost = np.sqrt(lost) * (1 + 1e-6) + abs(unit) * 1e-9
    return Bytes(packed, abs(unit), lost, weight * sums, scale)


def _padded(values: np.ndarray, together: int, filling: int) -> np.ndarray:
    found = np.full(-(-len(values) // together) * together, filling, np.int32)
    found[: len(values)] = values
    return found


@njit(nogil=True)
def _round(matrix, unit, together, steps, shift, packed, lost, sums):  # pragma: no cover
    """Round to bytes, four places of each of a group's rows at a time."""
    for i in range(len(matrix)):
        group, r = divmod(i, together)
        begin = (group * steps * together + r) * 4
        square = total = 0.0
        for e in range(matrix.shape[1]):
            value = np.float64(matrix[i, e])
            whole = np.rint(value / unit)
            square += (value - whole * unit) ** 2
            total += whole
            packed[begin + e // 4 * together * 4 + e % 4] = np.uint8(np.int64(whole) + shift)
        lost[i], sums[i] = square, total


@njit(nogil=True)
def _walk(work, reach, stamps, out, at, most):  # pragma: no cover
    """Go on from `at`, a panel and a group, until about `most` pairs have been looked at.

    Returns how many were proposed, and how many looked at: 0 at the end.
    """
    by, span, (low, high) = work.by, work.span, reach
    groups, panels = len(work.bounds) // by.rows, len(work.starts) // by.cols
    each = by.rows * by.cols
    found = looked_at = 0
    while at[0] < panels:
        last = min(at[0] + span, panels)
        while at[1] < groups:
            if looked_at >= most or found + span * each > len(out.left):
                return found, looked_at
            group = at[1] * work.stride % groups
            at[1] += 1
            top = group * by.rows
            bottom = min(top + by.rows, len(low)) - 1
            first = max(at[0], low[top] // by.cols)
            for panel in range(first, min(last, -(-high[bottom] // by.cols))):
                looked_at += each
                if reaching(work, group, panel):  # type: ignore[call-arg]
                    found = _take(work, top, panel * by.cols, stamps, out, found)
        at[0], at[1] = last, 0
    return found, looked_at


@njit(nogil=True)
def _take(work, top, start, stamps, out, found):  # pragma: no cover
    """Propose the pairs of a tile whose bits are set."""
    by, masks = work.by, work.masks
    lanes = by.cols // masks.shape[1]
    for r in range(min(by.rows, len(stamps.earliest) - top)):
        for v in range(masks.shape[1]):
            mask = masks[r, v]
            if mask == 0:
                continue
            mine = stamp_of(top + r, stamps)
            while mask:
                j = start + v * lanes + lowest_bit(mask)  # type: ignore[call-arg]
                mask &= mask - 1
                if j < len(stamps.times):
                    found = put(out, found, top + r, j, admit(mine, j, stamps))
    return found
