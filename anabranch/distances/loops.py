"""Manhattan and Hamming distances, which no matrix product gives: compiled loops over a tile.

Hamming distances are exact at once. Manhattan distances are added in float32, with fast-math and a
safe margin, sixteen elements at a time; a pair that is already too far is left there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.core.extending import intrinsic

from anabranch.blocks import Block
from anabranch.distances.tiles import Candidates, Pair, admit, scratch, tiles

__all__ = ["loop_candidates"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg"

_EPSILON = 2.0**-24
_TILE = 512
_FLOAT32_SAFE = 1e30


def loop_candidates(
    pair: Pair, slot: str, kind: str, upward: bool, threshold: float
) -> Iterator[Candidates]:
    """Every pair whose distance may be at or beyond the threshold on the wanted side."""
    x, y = pair.left.columns[slot], pair.right.columns[slot]
    bound = _manhattan_bound(pair, slot, upward, threshold) if kind == "manhattan" else 0.0
    _, out_i, out_j = scratch()
    for top, bottom, start, stop in tiles(pair, _TILE, _TILE):
        args = (top, start, pair.stamps, out_i, out_j)
        if kind == "manhattan":
            a, b = _float32(pair.left, slot), _float32(pair.right, slot)
            count = _manhattan(a[top:bottom], b[start:stop], upward, bound, *args)
        elif x.dtype == np.uint64:
            count = _bits(x[top:bottom], y[start:stop], upward, threshold, *args)
        else:
            count = _elements(x[top:bottom], y[start:stop], upward, threshold, *args)
        if count:
            yield Candidates(out_i[:count].copy(), out_j[:count].copy())


def _manhattan_bound(pair: Pair, slot: str, upward: bool, threshold: float) -> np.float32:
    """The threshold less (or plus) what float32 may get wrong."""
    d = pair.left.columns[slot].shape[1]
    largest = max(_largest(pair.left, slot), _largest(pair.right, slot))
    if max(largest, threshold) > _FLOAT32_SAFE:  # leave every pair to the exact decision
        return np.float32(-np.inf if upward else np.inf)
    # Relative error of the sum, of the threshold itself, and of numbers too small for float32.
    margin = 4 * _EPSILON * ((d + 4) * d * largest + threshold) + d * 2.0**-148
    return np.float32(threshold - margin if upward else threshold + margin)


def _float32(block: Block, slot: str) -> np.ndarray:
    """The vectors in float32; what is beyond its range saturates and is not relied on."""

    def make(of: Block) -> np.ndarray:
        vectors: np.ndarray = of.columns[slot]
        if vectors.dtype == np.float32:
            return vectors
        clipped: np.ndarray = np.clip(vectors, -_FLOAT32_SAFE, _FLOAT32_SAFE).astype(np.float32)
        return clipped

    return block.derive(("float32", slot), make)


def _largest(block: Block, slot: str) -> float:
    return block.derive(
        ("largest", slot), lambda of: float(np.abs(of.columns[slot]).max(initial=0.0))
    )


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _manhattan(a, b, upward, bound, top, start, stamps, out_i, out_j):  # pragma: no cover
    t, s, w_left, w_right, epoch, mask, right_epoch, right_mask = stamps
    found, d = 0, a.shape[1]
    for r in range(len(a)):
        u = a[r]
        for c in range(len(b)):
            v = b[c]
            total = np.float32(0)
            begin = 0
            while begin < d:
                end = min(begin + 16, d)
                part = np.float32(0)
                for e in range(begin, end):
                    part += abs(u[e] - v[e])
                total += part
                begin = end
                if not upward and total > bound:
                    break
            # Written so that a sum that overflowed to infinity still counts as far.
            near = total <= bound if not upward else not (total < bound)
            if near and admit(
                top + r, start + c, t, s, w_left, w_right, epoch, mask, right_epoch, right_mask
            ):
                out_i[found] = top + r
                out_j[found] = start + c
                found += 1
    return found


@intrinsic
def _ones(typing_context: Any, word: Any):
    """Number of set bits of a 64-bit word, as one instruction."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), build


@numba.njit(cache=True, nogil=True)
def _bits(x, y, upward, threshold, top, start, stamps, out_i, out_j):  # pragma: no cover
    t, s, w_left, w_right, epoch, mask, right_epoch, right_mask = stamps
    found, words = 0, x.shape[1]
    for r in range(len(x)):
        for c in range(len(y)):
            count = np.uint64(0)
            for w in range(words):
                count += _ones(x[r, w] ^ y[c, w])
            if (count >= threshold if upward else count <= threshold) and admit(
                top + r, start + c, t, s, w_left, w_right, epoch, mask, right_epoch, right_mask
            ):
                out_i[found] = top + r
                out_j[found] = start + c
                found += 1
    return found


@numba.njit(cache=True, nogil=True)
def _elements(x, y, upward, threshold, top, start, stamps, out_i, out_j):  # pragma: no cover
    t, s, w_left, w_right, epoch, mask, right_epoch, right_mask = stamps
    found, d = 0, x.shape[1]
    for r in range(len(x)):
        for c in range(len(y)):
            count = 0
            for e in range(d):
                count += x[r, e] != y[c, e]
            if (count >= threshold if upward else count <= threshold) and admit(
                top + r, start + c, t, s, w_left, w_right, epoch, mask, right_epoch, right_mask
            ):
                out_i[found] = top + r
                out_j[found] = start + c
                found += 1
    return found
