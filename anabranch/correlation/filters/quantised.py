"""Cosine, dot product and Euclidean distance by products of bytes: several times a float32 product.

Vectors are rounded to bytes of one size of step per block. What rounding loses of a vector is known
(the norm of the difference, measured), so that a sum of byte products bounds the true product from
above: with ``a = ua * qa + ra`` and the same for b,

    a.b = ua * ub * qa.qb + ua * qa.rb + ra.b <= ua * ub * qa.qb + (|a| + |ra|) |rb| + |ra| |b|

Pairs whose bound falls short of the goal are out; all others are proposed. Where many are, since
data lie closely about the threshold, the product itself is cheaper. That is judged span by span,
each the right rows that a core's cache holds against all left ones: first by a sample, a few left
rows against all right ones of the span, and then for as long as it lasts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from anabranch.correlation.filters.dots import (
    Instructions,
    Work,
    lowest_bit,
    reaching,
    room,
)
from anabranch.correlation.filters.products import make_operand
from anabranch.correlation.filters.tiles import (
    Candidates,
    Pair,
    admit,
    put,
    scratch,
    stamp_of,
)
from anabranch.flow.blocks import Block
from anabranch.flow.goals import Goal, Operand, Scale, goal_of
from anabranch.flow.process import njit

__all__ = [
    "Bytes",
    "Instead",
    "byte_candidates",
    "limits_of",
    "made",
    "padded",
    "rounded",
    "row_bytes",
    "sign_of",
    "work_of",
]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_MOST = 127
# Right vectors that a core's second cache holds beside all else.
_PANEL_BYTES = 256 << 10
_STRETCH = 1 << 22  # pairs looked at at once, at least
# Of the pairs of a span so many are a sample, and finding too many may cost as much; and how many
# times as many proposals make a span one for the product where a sample has found it to be none.
_SAMPLE, _SMALL, _WORSE = 1 << 18, 1 / 32, 1.25
_LARGEST_SUM = 1 << 30
_ENDS = np.iinfo(np.int32)
_LEAST_UNIT = 2.0**-200  # of vectors that are nothing beside those of the other block


class Bytes(NamedTuple):
    """The vectors of a block as bytes: ``unit`` times a byte is about a number."""

    packed: np.ndarray
    unit: float
    lost: np.ndarray  # norm of what rounding took away, of each row
    moved: np.ndarray  # what moving the other side's bytes up adds to a row's sums
    scale: Scale


class Instead(NamedTuple):
    """What is done where bytes propose too many pairs."""

    most: Callable[[int], int]  # the most proposals with which so many pairs pay; -1 for none
    product: Callable[[tuple[int, int]], Iterator[Candidates]]  # of right rows between two places
    note: Callable[[bool], object]  # told in the end whether any span has paid


def byte_candidates(pair: Pair, work: Work, instead: Instead | None = None) -> Iterator[Candidates]:
    """Every pair whose bytes may reach their bound.

    With `instead`, spans of right rows with too many of them are left to the product.
    """
    by = work.by
    panels, each = len(work.starts) // by.cols, by.rows * by.cols
    size = each * (len(work.bounds) // by.rows) * min(work.span, panels)
    sample = max(each, min(_SAMPLE, int(size * _SMALL)))
    limits = _STRETCH, math.inf if instead is None else instead.most(sample) / sample
    at, out, others = (
        np.zeros(3, np.int64),
        scratch()[1],
        np.zeros(-(-panels // work.span), np.bool_),
    )
    while at[0] < panels:
        if found := _walk(work, pair.reach, pair.stamps, out, at, others, limits):
            yield out.first(found)
    if instead is None:
        return
    span = work.span * by.cols
    edges = np.flatnonzero(np.diff(others, prepend=False, append=False)).tolist()
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        yield from instead.product((first * span, min(last * span, len(pair.right))))
    if edges or at[2]:
        instead.note(bool(at[2]))


def work_of(
    pair: Pair, slot: str, kind: str, upward: bool, threshold: float, by: Instructions
) -> Work | None:
    """What there is to do for two blocks; None where 32 bits cannot hold the sums."""
    sign = sign_of(kind, upward)
    a, b = row_bytes(pair.left, slot, kind, by, sign), _column_bytes(pair.right, slot, kind, by)
    limits = limits_of(a, b, goal_of(kind, a.scale, b.scale, upward, threshold), by)
    if limits is None:
        return None
    starts, bounds = limits
    steps = -(-a.scale.width // 4)
    groups = -(-len(pair.left) // by.rows)
    return Work(
        by,
        a.packed,
        b.packed,
        steps,
        padded(starts, by.cols, 0),
        padded(bounds, by.rows, _ENDS.max),
        room(by),
        max(1, _PANEL_BYTES // (4 * steps * by.cols)),
        next(n for n in range(int(groups * 0.618) + 1, 2 * groups + 2) if math.gcd(n, groups) == 1),
    )


def limits_of(
    a: Bytes, b: Bytes, goal: Goal, by: Instructions
) -> tuple[np.ndarray, np.ndarray] | None:
    """Where sums of each right row begin, and what those of each left row must reach."""
    size = abs(goal.factor)
    unit = size * a.unit * b.unit
    if unit < _LEAST_UNIT:
        return None
    row = 0.0 if goal.row is None else goal.row.astype(np.float64)
    col = 0.0 if goal.col is None else goal.col.astype(np.float64)
    longest = a.scale.largest + a.lost.max()
    starts = np.ceil((col + size * longest * b.lost) / unit)
    largest = float(a.scale.width + 3) * _MOST * (by.most + by.shift)
    if np.abs(starts).max() + largest > _LARGEST_SUM:
        return None
    # One less, for what float64 rounds here.
    bounds = np.floor((goal.low - row - size * b.scale.largest * a.lost) / unit) - 1
    return starts, np.clip(bounds + a.moved, _ENDS.min, _ENDS.max)


def row_bytes(block: Block, slot: str, kind: str, by: Instructions, sign: int = 1) -> Bytes:
    """The bytes of a block by groups of rows, times `sign`; made once."""

    def make(of: Block) -> Bytes:
        operand = make_operand(of, slot, kind)
        return rounded(operand, by.rows, sign * _MOST, weight=by.shift)

    return block.derive(_key("row", slot, kind, by, sign), make)


def _column_bytes(block: Block, slot: str, kind: str, by: Instructions) -> Bytes:
    def make(of: Block) -> Bytes:
        return rounded(make_operand(of, slot, kind), by.cols, by.most, shift=by.shift)

    return block.derive(_key("column", slot, kind, by), make)


def made(pair: Pair, slot: str, kind: str, upward: bool, by: Instructions) -> tuple[bool, bool]:
    """Of which of two blocks there are the bytes that `work_of` needs."""
    row = _key("row", slot, kind, by, sign_of(kind, upward))
    return pair.left.has_derived(row), pair.right.has_derived(_key("column", slot, kind, by))


def _key(side: str, slot: str, kind: str, by: Instructions, sign: int = 1) -> tuple[Any, ...]:
    return f"{side} bytes", slot, kind == "cosine", sign, type(by).__name__


def sign_of(kind: str, upward: bool) -> int:
    """That of the left rows, so that pairs are looked for with large products."""
    return 1 if upward != (kind == "euclidean") else -1


def rounded(
    operand: Operand, together: int, most: int, *, weight: int = 0, shift: int = 0
) -> Bytes:
    """Bytes of up to `most`, moved up by `shift`, by groups of so many rows.

    The sum of a row counts `weight` times in what moving the other side's bytes up adds.
    """
    matrix, scale = operand
    unit = max(float(matrix.max()), -float(matrix.min())) / most or 1.0
    steps = -(-scale.width // 4)
    groups = -(-len(matrix) // together)
    packed = np.full(groups * together * steps * 4, shift, np.uint8)
    lost, sums = np.empty(len(matrix)), np.empty(len(matrix))
    words = packed.view(np.uint32).reshape(groups, steps, together)
    _round(matrix, unit, shift, words, lost, sums)
    # A little more than was measured, for what measuring rounds.
    lost = np.sqrt(lost) * (1 + 1e-6) + abs(unit) * 1e-9
    return Bytes(packed, abs(unit), lost, weight * sums, scale)


def padded(values: np.ndarray, together: int, filling: int) -> np.ndarray:
    """As many values as whole groups of rows or panels have places."""
    found = np.full(-(-len(values) // together) * together, filling, np.int32)
    found[: len(values)] = values
    return found


@njit(nogil=True, fastmath={"reassoc", "contract"})
def _round(matrix, unit, shift, words, lost, sums):  # pragma: no cover
    """Round to bytes, a row at a time, and put its words of four where its group has them.

    Sums may be added up in any order, so that registers are full: what that rounds otherwise is
    far less than what is added to `lost` later.
    """
    _, steps, together = words.shape
    inverse = 1.0 / unit
    line = np.full(4 * steps, shift, np.uint8)
    fours = line.view(np.uint32)
    for i in range(len(matrix)):
        group, r = divmod(i, together)
        square = total = 0.0
        for e in range(matrix.shape[1]):
            value = np.float64(matrix[i, e])
            whole = np.rint(value * inverse)
            rest = value - whole * unit
            square += rest * rest
            total += whole
            line[e] = np.uint8(np.int32(whole) + shift)
        lost[i], sums[i] = square, total
        for s in range(steps):
            words[group, s, r] = fours[s]


@njit(nogil=True)
def _walk(work, reach, stamps, out, at, others, limits):  # pragma: no cover
    """Go on from `at`, a panel and a group, until enough pairs have been looked at or room is out.

    `limits` are how many pairs are enough, and which share of them may be proposed. A span of
    which that is too few is marked in `others`, and nothing of it is proposed: its first groups are
    a sample, and it is given up later only where so much more is found that looking at all of it
    again costs less. ``at[2]`` counts the pairs of spans that are not. Returns how many pairs are
    proposed.
    """
    by, (low, high), (enough, share) = work.by, reach, limits
    groups, each = len(work.bounds) // by.rows, by.rows * by.cols
    panels = len(work.starts) // by.cols
    found = looked_at = 0
    while at[0] < panels:
        last = min(at[0] + work.span, panels)
        # What has been proposed of a span that room did not suffice for can not be taken back.
        judged = at[1] == 0
        if judged and (looked_at >= enough or 2 * found > len(out.left)):
            return found
        size = each * groups * (last - at[0])
        sample, slack = min(_SAMPLE, size * _SMALL), share * size * _SMALL
        begin, seen, too_many, growth = found, 0, False, 1.0
        while at[1] < groups and not too_many:
            if found + work.span * each > len(out.left):
                at[2] += seen
                return found
            group = at[1] * work.stride % groups
            at[1] += 1
            top = group * by.rows
            bottom = min(top + by.rows, len(low)) - 1
            first = max(at[0], low[top] // by.cols)
            for panel in range(first, min(last, -(-high[bottom] // by.cols))):
                seen += each
                if reaching(work, group, panel):  # type: ignore[call-arg]
                    found = _take(work, top, panel * by.cols, stamps, out, found)
                    if judged and found - begin > slack + growth * share * seen:
                        too_many = True
                        break
            if judged and growth == 1.0 and seen >= sample and not too_many:
                too_many, growth = found - begin > share * seen, _WORSE
        looked_at += seen
        if too_many:
            others[at[0] // work.span] = True
            found = begin
        else:
            at[2] += seen
        at[0], at[1] = last, 0
    return found


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
