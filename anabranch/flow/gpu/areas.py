"""The kernels for sums of absolute differences, which no matrix product gives.

They do what those in `join` do, in the same two steps, on rows that are stored by columns: a
program subtracts a run of left rows from a run of right rows, one column at a time. Where rows have
fewer `sums` than columns, `scan_areas` looks at those alone: the difference of two sums is no
greater than the sum of the differences. `report_areas` looks at all columns.
"""

from __future__ import annotations

import triton
import triton.language as tl

from anabranch.flow.gpu.join import _COUNT, _admitted, _list, _low_half

__all__ = ["report_areas", "scan_areas"]

# Triton reads the text of these functions; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


@triton.jit
def scan_areas(
    table,
    stretches,
    found,
    count,
    capacity,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    TILES: tl.constexpr,
    UPWARD: tl.constexpr,
):  # pragma: no cover
    """List (pair, left row, first right row) where one of `COLS` right rows reaches the bound.

    Behind the last row there are columns that are no numbers, so nothing is masked: the maximum
    takes no notice of them.
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
    low = _low_half(tl.load(row + 12))
    i = top + tl.arange(0, ROWS)
    single = tl.pointer_type(tl.float32)
    left_step, right_step = tl.load(row + 18), tl.load(row + 19)
    left_at = tl.load(row + 0).to(single) + i[:, None]
    right_at = tl.load(row + 1).to(single) + (start + tl.arange(0, COLS))[None, :]
    for tile in tl.range(0, tl.minimum(TILES, tl.cdiv(stop - start, COLS))):
        value = tl.zeros((ROWS, COLS), tl.float32)
        for column in tl.range(0, WIDTH, loop_unroll_factor=4):
            a = tl.load(left_at + column * left_step)
            b = tl.load(right_at + (tile * COLS + column * right_step))
            value += tl.abs(a - b)
        most = tl.max(value if UPWARD else -value, 1)
        if tl.max(most, 0) >= low:
            hit = (most >= low) & (i < left_rows)
            _list(hit, pair, i, start + tile * COLS, found, count, capacity)


@triton.jit
def report_areas(
    table,
    stretches,
    listed,
    found,
    counts,
    room,
    capacity,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    PART: tl.constexpr,
    UPWARD: tl.constexpr,
):  # pragma: no cover
    """List (pair, left row, right row) for the candidates among the rows that were listed.

    `counts` holds how many rows are listed, of which `room` are there, and then how many pairs are.
    """
    c = tl.arange(0, PART)
    single = tl.pointer_type(tl.float32)
    parts = tl.minimum(tl.load(counts), room) * (COLS // PART)
    for number in tl.range(tl.program_id(0), parts, tl.num_programs(0)):
        entry = number // (COLS // PART)
        pair = tl.load(listed + entry)
        i = tl.load(listed + room + entry)
        j = tl.load(listed + 2 * room + entry) + number % (COLS // PART) * PART + c
        row = table + pair * _COUNT
        stop = tl.load(stretches + tl.load(row + 11) + 2 * (i // ROWS) + 1).to(tl.int32)
        left_step, right_step = tl.load(row + 18), tl.load(row + 19)
        lefts, rights = tl.load(row + 2).to(single) + i, tl.load(row + 3).to(single) + j
        value = tl.zeros((PART,), tl.float32)
        for column in tl.range(0, WHOLE):
            value += tl.abs(
                tl.load(lefts + column * left_step) - tl.load(rights + column * right_step)
            )
        there = j < stop
        hit = ((value if UPWARD else -value) >= _low_half(tl.load(row + 12))) & there
        if tl.max(hit.to(tl.int32), 0) > 0:
            hit = hit & _admitted(row, i, j, there)
            _list(hit, pair, i, j, found, counts + 1, capacity)
