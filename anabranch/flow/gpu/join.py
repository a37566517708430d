"""The kernels: one finds rows that reach a bound somewhere, the other the pairs that do.

`scan` multiplies. A program takes a run of left rows and, one after the other, runs of right rows;
of each such tile it looks at nothing but the largest value of every left row, and lists the rows
where that reaches the bound. `report` multiplies the few listed rows again, each with the right
rows of its tile, tests the bound, the window and the ownership of every pair, and lists pairs. So
the first kernel, which does nearly all of the work, stays small enough to run at full speed.

Which pairs of blocks there are, where their rows lie and what they must reach is in a table of
64-bit numbers: one launch serves blocks of any number and size.

Letters: i is a left row, j right rows; r, c and e are places in a tile: of its left rows, of its
right rows and of their elements; `a` and `b` are elements of left and of right rows.
"""

from __future__ import annotations

from types import FunctionType

import triton
import triton.language as tl

from anabranch.flow.owning import owned

__all__ = ["FIELDS", "report", "scan"]

# Triton reads the text of these functions; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

FIELDS = (
    "left_matrix",  # addresses in the memory of the device
    "right_matrix",
    "left_more",  # norms of the rows, or all columns of rows whose matrix holds sums of them
    "right_more",
    "left_times",
    "right_times",
    "left_epochs",
    "right_epochs",
    "left_masks",
    "right_masks",
    "left_rows",  # how many there are
    "stretches",  # where the stretches of this pair begin: two numbers for each run of left rows
    "bounds",  # `low` and `factor` of its goal, two float32 in one number
    "shares",  # what norms of left and of right rows count for in it, likewise
    "back",  # the window; rows up to the one time and from the other on have no end of it
    "ahead",
    "endless_back",
    "endless_ahead",
    "left_step",  # of matrices that are stored by columns: from one column to the next
    "right_step",
)
"""The columns of the table; the kernels know them by their numbers."""

_COUNT = tl.constexpr(len(FIELDS))
_FIRST = tl.constexpr(-(2**63))
_LAST = tl.constexpr(2**63 - 1)

# The one rule, compiled once more; Triton's interpreter wants its language beside a function.
_owned = triton.jit(FunctionType(owned.__code__, {**owned.__globals__, "tl": tl}, "owned"))


@triton.jit
def _low_half(both):  # pragma: no cover
    return (both & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _high_half(both):  # pragma: no cover
    return (both >> 32).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _list(hit, pair, i, j, found, count, capacity):  # pragma: no cover
    """Append what is hit to a list of triples; all are counted, those that fit are written."""
    ones = hit.to(tl.int32)
    many = tl.sum(ones, 0)
    if many > 0:
        before = tl.atomic_add(count, many.to(tl.int64))
        place = before + (tl.cumsum(ones, 0) - 1)
        fits = hit & (place < capacity)
        tl.store(found + place, pair + ones * 0, mask=fits)
        tl.store(found + capacity + place, i + ones * 0, mask=fits)
        tl.store(found + 2 * capacity + place, j + ones * 0, mask=fits)


@triton.jit
def _admitted(row, i, j, there):  # pragma: no cover
    """Whether left row i and right rows j may join here: window and owner."""
    long = tl.pointer_type(tl.int64)
    # The window: the same 64-bit comparisons as on a CPU.
    mine = tl.load(tl.load(row + 4).to(long) + i)
    time = tl.load(tl.load(row + 5).to(long) + j, mask=there, other=0)
    earliest = tl.where(mine <= tl.load(row + 16), _FIRST, mine - tl.load(row + 14))
    latest = tl.where(mine >= tl.load(row + 17), _LAST, mine + tl.load(row + 15))
    left, left_mask = tl.load(tl.load(row + 6).to(long) + i), tl.load(tl.load(row + 8).to(long) + i)
    right = tl.load(tl.load(row + 7).to(long) + j, mask=there, other=0)
    right_mask = tl.load(tl.load(row + 9).to(long) + j, mask=there, other=0)
    return (time >= earliest) & (time <= latest) & _owned(left, left_mask, right, right_mask)


@triton.jit
def scan(
    table,
    stretches,
    like,
    found,
    count,
    capacity,
    WIDTH: tl.constexpr,
    DEPTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    TILES: tl.constexpr,
    STAGES: tl.constexpr,
    NORMS: tl.constexpr,
    NEGATIVE: tl.constexpr,
):  # pragma: no cover
    """List (pair, left row, first right row) where one of `COLS` right rows reaches the bound.

    `like` is a matrix of rows, for its type. Rows have `WIDTH` elements, of which `DEPTH` at a time
    are multiplied. Beyond its rows a matrix has room that may be read, so nothing is masked.
    """
    pair = tl.program_id(2)
    row = table + pair * _COUNT
    left_rows = tl.load(row + 10).to(tl.int32)
    top = tl.program_id(0) * ROWS
    if top >= left_rows:
        return
    stretch = stretches + tl.load(row + 11) + 2 * tl.program_id(0)
    start = tl.load(stretch).to(tl.int32) + tl.program_id(1) * (TILES * COLS)
    stop = tl.load(stretch + 1).to(tl.int32)
    if start >= stop:
        return
    bounds, shares = tl.load(row + 12), tl.load(row + 13)
    low, factor = _low_half(bounds), _high_half(bounds)
    r, c, e = tl.arange(0, ROWS), tl.arange(0, COLS), tl.arange(0, DEPTH)
    i = top + r
    # Triton cannot know that addresses from a table are those of aligned memory.
    lefts = tl.multiple_of(tl.load(row + 0).to(like.dtype), 16) + top.to(tl.int64) * WIDTH
    rights = tl.multiple_of(tl.load(row + 1).to(like.dtype), 16) + start.to(tl.int64) * WIDTH
    left_at = lefts + (r[:, None] * WIDTH + e[None, :])
    right_at = rights + (c[None, :] * WIDTH + e[:, None])
    if NORMS:
        norms = tl.load(tl.load(row + 2).to(tl.pointer_type(tl.float32)) + i)
        left_part = _low_half(shares) * norms
        right_norms = tl.load(row + 3).to(tl.pointer_type(tl.float32)) + start + c
    if DEPTH == WIDTH:
        a = tl.load(left_at)
    for tile in tl.range(0, tl.minimum(TILES, tl.cdiv(stop - start, COLS)), num_stages=STAGES):
        if DEPTH == WIDTH:
            value = tl.dot(a, tl.load(right_at + tile * (COLS * WIDTH)))
        else:
            value = tl.zeros((ROWS, COLS), tl.float32)
            for first in tl.range(0, WIDTH, DEPTH, num_stages=STAGES):
                b = tl.load(right_at + (tile * (COLS * WIDTH) + first))
                value = tl.dot(tl.load(left_at + first), b, value)
        if NEGATIVE:
            value = -value
        if NORMS:
            # Behind the last row norms are no numbers, of which the maximum takes no notice.
            value = value * factor + (_high_half(shares) * tl.load(right_norms + tile * COLS))[None]
            most = tl.max(value, 1) + left_part
        else:
            most = tl.max(value, 1)
        if tl.max(most, 0) >= low:
            hit = (most >= low) & (i < left_rows)
            _list(hit, pair, i, start + tile * COLS, found, count, capacity)


@triton.jit
def report(
    table,
    stretches,
    like,
    listed,
    found,
    counts,
    room,
    capacity,
    WIDTH: tl.constexpr,
    DEPTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    PART: tl.constexpr,
    NORMS: tl.constexpr,
    NEGATIVE: tl.constexpr,
):  # pragma: no cover
    """List (pair, left row, right row) for the candidates among the rows that `scan` listed.

    `counts` holds how many rows are listed, of which `room` are there, and then how many pairs are.
    A program takes `PART` of the `COLS` right rows of an entry, so that all fits into registers.
    """
    c, e = tl.arange(0, PART), tl.arange(0, DEPTH)
    single = tl.pointer_type(tl.float32)
    parts = tl.minimum(tl.load(counts), room) * (COLS // PART)
    for number in tl.range(tl.program_id(0), parts, tl.num_programs(0)):
        entry = number // (COLS // PART)
        pair = tl.load(listed + entry)
        i = tl.load(listed + room + entry)
        start = tl.load(listed + 2 * room + entry) + number % (COLS // PART) * PART
        row = table + pair * _COUNT
        stop = tl.load(stretches + tl.load(row + 11) + 2 * (i // ROWS) + 1).to(tl.int32)
        j = start + c
        bounds, shares = tl.load(row + 12), tl.load(row + 13)
        lefts = tl.multiple_of(tl.load(row + 0).to(like.dtype), 16) + i.to(tl.int64) * WIDTH
        rights = tl.multiple_of(tl.load(row + 1).to(like.dtype), 16) + start.to(tl.int64) * WIDTH
        products = tl.zeros((PART, DEPTH), tl.float32)
        for first in tl.range(0, WIDTH, DEPTH):
            a = tl.load(lefts + first + e).to(tl.float32)
            b = tl.load(rights + (c[:, None] * WIDTH + (first + e)[None, :])).to(tl.float32)
            products += a[None, :] * b
        value = tl.sum(products, 1)
        if NEGATIVE:
            value = -value
        if NORMS:
            left_norm = tl.load(tl.load(row + 2).to(single) + i)
            right_norm = tl.load(tl.load(row + 3).to(single) + j)
            value = value * _high_half(bounds) + _high_half(shares) * right_norm
            value += _low_half(shares) * left_norm
        there = j < stop
        hit = (value >= _low_half(bounds)) & there
        if tl.max(hit.to(tl.int32), 0) > 0:
            hit = hit & _admitted(row, i, j, there)
            _list(hit, pair, i, j, found, counts + 1, capacity)
