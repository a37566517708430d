"""Manhattan and Hamming distances, which no matrix product gives: compiled loops over a tile.

A left row meets a run of right rows at once, element by element, so that the sums of the whole run
are one vector and the compiler needs no sum across it; the right tile is transposed for that.
Hamming distances are exact at once. Manhattan distances are added in float32, with fast-math and a
safe margin; a run that is already too far after some elements is left there.

Letters: `x` and `y`, or `a` and `b`, are the two tiles, the second one transposed; r is a left row,
c a right row of the run, e an element, u a left row's element, d how many elements and n how many
right rows there are, j a right row of the block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba.core import types
from numba.core.extending import overload

from anabranch.correlation.filters.tiles import (
    Candidates,
    Pair,
    admit,
    put,
    scratch,
    stamp_of,
    tiles,
)
from anabranch.flow.bits import ones
from anabranch.flow.blocks import Block
from anabranch.flow.process import njit

__all__ = ["in_float32", "largest_of", "loop_candidates", "manhattan_bound"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg"

_EPSILON = 2.0**-24
_TILE = 512
_LANES = 128
_CHECK = 16
_FLOAT32_SAFE = 1e30


def loop_candidates(
    pair: Pair, slot: str, kind: str, upward: bool, threshold: float
) -> Iterator[Candidates]:
    """Every pair whose distance may be at or beyond the threshold on the wanted side."""
    x, y = pair.left.columns[slot], pair.right.columns[slot]
    limits: tuple[Any, Any] = _counts(x, upward, threshold)
    search = _hamming
    if kind == "manhattan":
        largest = max(largest_of(pair.left, slot), largest_of(pair.right, slot))
        limits = upward, manhattan_bound(x.shape[1], largest, upward, threshold)
        search = _manhattan
        x, y = in_float32(pair.left, slot), in_float32(pair.right, slot)
    _, out = scratch()
    for top, bottom, start, stop in tiles(pair, _TILE, _TILE):
        turned = np.ascontiguousarray(y[start:stop].T)
        if count := search(x[top:bottom], turned, *limits, top, start, pair.stamps, out):
            yield out.first(count)


def _counts(vectors: np.ndarray, upward: bool, threshold: float) -> tuple[np.int32, np.int32]:
    """The least and the greatest count that is wanted; counts are whole and have an end."""
    every = vectors.shape[1] * (64 if vectors.dtype == np.uint64 else 1)
    if upward:
        return np.int32(math.ceil(np.clip(threshold, 0, every + 1))), np.int32(every)
    return np.int32(0), np.int32(math.floor(np.clip(threshold, -1, every)))


def manhattan_bound(d: int, largest: float, upward: bool, threshold: float) -> np.float32:
    """The threshold less (or plus) what sums of `d` differences in float32 may get wrong.

    Numbers too small for float32 may be rounded, or be taken for zero.
    """
    if max(largest, threshold) > _FLOAT32_SAFE:  # leave every pair to the exact decision
        return np.float32(-np.inf if upward else np.inf)
    # Relative error of the sum, of the threshold itself, and of numbers too small for float32.
    margin = 4 * _EPSILON * ((d + 4) * d * largest + threshold) + d * 2.0**-124
    return np.float32(threshold - margin if upward else threshold + margin)


def in_float32(block: Block, slot: str) -> np.ndarray:
    """The vectors in float32; what is beyond its range saturates and is not relied on."""

    def make(of: Block) -> np.ndarray:
        vectors: np.ndarray = of.columns[slot]
        if vectors.dtype == np.float32:
            return vectors
        clipped: np.ndarray = np.clip(vectors, -_FLOAT32_SAFE, _FLOAT32_SAFE).astype(np.float32)
        return clipped

    return block.derive(("float32", slot), make)


def largest_of(block: Block, slot: str) -> float:
    """The greatest size of an element."""
    return block.derive(
        ("largest", slot), lambda of: float(np.abs(of.columns[slot]).max(initial=0.0))
    )


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _manhattan(a, b, upward, bound, top, start, stamps, out):  # pragma: no cover
    found, (d, n) = 0, b.shape
    room = np.empty(_LANES, np.float32)
    for r in range(len(a)):
        for begin in range(0, n, _LANES):
            end = min(begin + _LANES, n)
            total = room[: end - begin]
            total[:] = 0
            hit = True
            for first in range(0, d, _CHECK):
                for e in range(first, min(first + _CHECK, d)):
                    x, line = a[r, e], b[e, begin:end]
                    for c in range(len(total)):
                        total[c] += abs(x - line[c])
                hit = upward
                if not upward:
                    for c in range(len(total)):
                        hit |= total[c] <= bound
                    if not hit:
                        break
            if not hit:
                continue
            mine = stamp_of(top + r, stamps)
            for c in range(len(total)):
                # Written so that a sum that overflowed to infinity still counts as far.
                near = total[c] <= bound if not upward else not (total[c] < bound)
                if near:
                    j = start + begin + c
                    found = put(out, found, top + r, j, admit(mine, j, stamps))
    return found


def _unlike(u: Any, v: Any) -> Any:
    """How many bits of two words differ, or whether two elements do; compiled as below."""
    return np.bitwise_count(u ^ v) if isinstance(u, np.uint64) else u != v


@overload(_unlike, inline="always")
def _unlike_compiled(u, v):
    if u == types.uint64:
        return lambda u, v: np.int32(ones(u ^ v))
    return lambda u, v: np.int32(u != v)


@njit(nogil=True)
def _hamming(x, y, least, most, top, start, stamps, out):  # pragma: no cover
    found, (d, n) = 0, y.shape
    room = np.empty(_LANES, np.int32)
    for r in range(len(x)):
        for begin in range(0, n, _LANES):
            end = min(begin + _LANES, n)
            count = room[: end - begin]
            count[:] = 0
            for e in range(d):
                u, line = x[r, e], y[e, begin:end]
                for c in range(len(count)):
                    count[c] += _unlike(u, line[c])
            hit = False
            for c in range(len(count)):
                hit |= (count[c] >= least) & (count[c] <= most)
            if not hit:
                continue
            mine = stamp_of(top + r, stamps)
            for c in range(len(count)):
                if count[c] >= least and count[c] <= most:
                    j = start + begin + c
                    found = put(out, found, top + r, j, admit(mine, j, stamps))
    return found
