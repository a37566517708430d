"""Rows of the same key: both blocks sorted by key and time, then merged.

Keys are 64-bit codes: the key itself if it is an integer, else its hash, in which case a proposed
pair is checked against the text as well.

Letters: i is a place among the left rows, q one among the sorted right rows, j a right row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from anabranch.correlation.filters.tiles import Candidates, Pair, admit, put, scratch, stamp_of
from anabranch.flow.blocks import Block
from anabranch.flow.conversion import readable
from anabranch.flow.process import njit

__all__ = ["Group", "all_alike", "key_candidates", "shared_groups"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"


class Group(NamedTuple):
    """Rows of one key, in time order: positions in the left and in the right block."""

    left: np.ndarray
    right: np.ndarray


class _Order(NamedTuple):
    codes: np.ndarray  # distinct, rising
    begins: np.ndarray  # of each code's run in `rows`, and the end
    rows: np.ndarray


class _Wanted(NamedTuple):
    """Left rows: their codes, where these are or would be in the right order, whom to leave out."""

    codes: np.ndarray
    run: np.ndarray
    skip: np.ndarray


def shared_groups(pair: Pair, slot: str, at_least: int) -> tuple[list[Group], np.ndarray]:
    """Keys with at least so many pairs, and a flag for each left row that belongs to one."""
    left, right = _order(pair.left, slot), _order(pair.right, slot)
    _, a, b = np.intersect1d(left.codes, right.codes, assume_unique=True, return_indices=True)
    sizes = np.diff(left.begins)[a] * np.diff(right.begins)[b]
    big = sizes >= at_least
    groups = [
        Group(
            left.rows[left.begins[i] : left.begins[i + 1]],
            right.rows[right.begins[j] : right.begins[j + 1]],
        )
        for i, j in zip(a[big], b[big], strict=True)
    ]
    taken = np.zeros(len(pair.left), bool)
    for group in groups:
        taken[group.left] = True
    return groups, taken


def key_candidates(pair: Pair, slot: str, skip: np.ndarray) -> Iterator[Candidates]:
    """Every pair with equal codes, apart from left rows in `skip`."""
    order = _order(pair.right, slot)
    codes: np.ndarray = pair.left.columns[slot]
    wanted = _Wanted(codes, np.searchsorted(order.codes, codes), skip)
    _, out = scratch()
    at = np.array([0, 0], np.int64)
    while at[0] < len(pair.left):
        if count := _merge(wanted, order, pair.stamps, at, out):
            yield out.first(count)


def _order(block: Block, slot: str) -> _Order:
    def make(of: Block) -> _Order:
        codes = of.columns[slot]
        rows = np.argsort(codes, kind="stable").astype(np.int32)  # so a run is in time order
        distinct, begins = np.unique(codes[rows], return_index=True)
        return _Order(distinct, np.append(begins, len(rows)), rows)

    return block.derive(("key order", slot), make)


@njit(nogil=True)
def _merge(wanted, order, stamps, at, out):  # pragma: no cover
    """Fill the output from position `at`, which then says where to go on."""
    codes, run, skip = wanted
    distinct, begins, rows = order
    times = stamps.times
    found, room = 0, len(out.left)
    i, resume = at[0], at[1]
    while i < len(codes):
        if not skip[i] and run[i] < len(distinct) and distinct[run[i]] == codes[i]:
            mine = stamp_of(i, stamps)
            earliest, latest, _, _ = mine
            lo, end = begins[run[i]], begins[run[i] + 1]
            hi = end
            while lo < hi:  # the first row of the run that the window lets in
                middle = (lo + hi) // 2
                if times[rows[middle]] < earliest:
                    lo = middle + 1
                else:
                    hi = middle
            for q in range(max(lo, resume), end):
                j = rows[q]
                if times[j] > latest:
                    break
                if admit(mine, j, stamps):
                    if found == room:
                        at[0], at[1] = i, q
                        return found
                    found = put(out, found, i, j, True)
        i, resume = i + 1, 0
    at[0], at[1] = i, 0
    return found


def all_alike(pair: Pair, slot: str) -> bool:
    """Whether all rows of both blocks have one and the same value."""

    def only_value(of: Block) -> Any:
        column = of.columns[slot]
        if isinstance(column, np.ndarray):
            values = np.unique(column)
            return values[0] if len(values) == 1 else None
        texts = pc.unique(column)
        return readable(texts[0]) if len(texts) == 1 else None

    left, right = (
        block.derive(("only value", slot), only_value) for block in (pair.left, pair.right)
    )
    return left is not None and bool(left == right)
