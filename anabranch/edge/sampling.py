"""Samples that are nested: who asks for less gets a part of what others get.

Time is cut into ticks, and only the first row of a tick can be sampled. The priority of a tick is
its number with the bits reversed, as a fraction; a share takes the ticks whose priority is below
it. Ticks of a share lie nearly evenly, nothing is remembered, and anybody can recompute it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["bands", "priorities", "sampled", "share_of"]

_BITS = 32
_ALL = 2**_BITS - 1
_FEW = 8


def priorities(t: np.ndarray, tick: int) -> np.ndarray:
    """The priority of each time, from 0 to below 1; 0 for all if there is no tick.

    Examples
    --------
    >>> priorities(np.arange(8), 1).tolist()
    [0.0, 0.5, 0.25, 0.75, 0.125, 0.625, 0.375, 0.875]
    """
    if not tick:
        return np.zeros(len(t))
    if len(t) <= _FEW:  # numpy takes as long for one as for a hundred
        cells = (cell & _ALL for cell in (t // tick).tolist())
        return np.array([int(f"{cell:032b}"[::-1], 2) / 2.0**_BITS for cell in cells])
    value = (t // tick).astype(np.uint64).astype(np.uint32)
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        wide = np.uint32(shift)
        value = ((value >> wide) & np.uint32(mask)) | ((value & np.uint32(mask)) << wide)
    value = (value >> np.uint32(16)) | (value << np.uint32(16))
    found: np.ndarray = value / 2.0**_BITS
    return found


def sampled(t: np.ndarray, tick: int, share: float) -> np.ndarray:
    """Which times a share takes; each is the first of its tick.

    Examples
    --------
    >>> np.flatnonzero(sampled(np.arange(12), 1, 1 / 3)).tolist()
    [0, 2, 4, 8, 10]
    """
    found: np.ndarray = priorities(t, tick) < share
    return found


def share_of(every: int, tick: int) -> float:
    """The share that has a row every so many microseconds.

    Examples
    --------
    >>> share_of(20_000_000, 1_000_000), share_of(1, 1_000_000)
    (0.05, 1.0)
    """
    return min(1.0, tick / every) if tick else 1.0


def bands(t: np.ndarray, tick: int, shares: Sequence[float]) -> list[tuple[float, np.ndarray]]:
    """Rows by the shares in use between which they lie: the lower one, and which rows.

    Rows at or above the largest share are in none.

    Examples
    --------
    >>> [(low, rows.tolist()) for low, rows in bands(np.arange(8), 1, [0.5, 0.2])]
    [(0.0, [0, 4]), (0.2, [2, 6])]
    """
    edges = sorted({0.0, *shares})
    at = np.searchsorted(edges, priorities(t, tick), side="right") - 1
    found = [(low, np.flatnonzero(at == k)) for k, low in enumerate(edges[:-1])]
    return [(low, rows) for low, rows in found if len(rows)]
