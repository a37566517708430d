"""Walking two blocks tile by tile, and the test that every proposed pair must pass.

Both blocks are sorted by time. A tile is a run of left rows against a run of right rows that the
window lets them meet; filters look at a tile as a whole and call `admit` only on the few pairs
they propose: in the window, and owned by this worker (see `routing`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from anabranch.flow.blocks import Block
from anabranch.flow.process import njit

__all__ = ["Candidates", "Pair", "Tile", "comparisons", "scratch", "tiles"]

# mypy: disable-error-code="no-untyped-def"

# Measured: 960 x 2000 float32 is 7 MB and the fastest; widths that are powers of two lose a third.
ROWS, COLS = 960, 2000


class Pair(NamedTuple):
    """Two blocks in time order and the window between them; what filters work on."""

    left: Block
    right: Block
    window: tuple[int, int]

    @property
    def stamps(self) -> tuple[Any, ...]:
        """What `admit` needs, in its order."""
        a, b = self.left, self.right
        return (a.t, b.t, *self.window, a.epoch, a.mask, b.epoch, b.mask)


class Tile(NamedTuple):
    """Left rows ``top:bottom`` against right rows ``start:stop``."""

    top: int
    bottom: int
    start: int
    stop: int


class Candidates(NamedTuple):
    """Proposed pairs: positions in the left and in the right block."""

    left: np.ndarray
    right: np.ndarray


def tiles(pair: Pair, rows: int = ROWS, cols: int = COLS) -> Iterator[Tile]:
    """Tiles that cover every pair inside the window."""
    w_left, w_right = pair.window
    t, s = pair.left.t, pair.right.t
    if len(t) == 0 or len(s) == 0:
        return
    low = np.searchsorted(s, t - w_right, "left")
    high = np.searchsorted(s, t + w_left, "right")
    top = 0
    while top < len(t):
        bottom = min(top + rows, len(t))
        # Where the window's edges cross the tile, a shorter one wastes less of the product.
        full = int((high[top:bottom] - low[top:bottom]).sum())
        if full < 0.75 * (bottom - top) * (high[bottom - 1] - low[top]):
            bottom = min(top + rows // 2, len(t))
        for start in range(int(low[top]), int(high[bottom - 1]), cols):
            yield Tile(top, bottom, start, min(start + cols, int(high[bottom - 1])))
        top = bottom


_local = threading.local()


def scratch() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Room for one tile of float32 values and for all its pairs; one per thread, used again."""
    if not hasattr(_local, "room"):
        size = ROWS * COLS
        _local.room = (
            np.empty(size, np.float32),
            np.empty(size, np.int32),
            np.empty(size, np.int32),
        )
    room: tuple[np.ndarray, np.ndarray, np.ndarray] = _local.room
    return room


def comparisons(pair: Pair) -> int:
    """How many pairs of the two blocks the window lets join and this worker owns."""
    left, right = pair.left, pair.right
    if _uniform(left) and _uniform(right):
        if len(left) == 0 or len(right) == 0:
            return 0
        return _joinable(left.t, right.t, pair.window) if _owns(left, right, 0, 0) else 0
    total = 0
    for left_rows in _classes(left):
        for right_rows in _classes(right):
            if _owns(left, right, left_rows[0], right_rows[0]):
                total += _joinable(left.t[left_rows], right.t[right_rows], pair.window)
    return total


def _joinable(t: np.ndarray, s: np.ndarray, window: tuple[int, int]) -> int:
    w_left, w_right = window
    low = np.searchsorted(s, t - w_right, "left")
    return int((np.searchsorted(s, t + w_left, "right") - low).sum())


def _uniform(block: Block) -> bool:
    def make(of: Block) -> bool:
        alike = (of.epoch[1:] == of.epoch[:-1]) & (of.mask[1:] == of.mask[:-1])
        return bool(alike.all())

    return block.derive("uniform stamps", make)


def _classes(block: Block) -> list[np.ndarray]:
    """Positions of the rows that share both stamps, in time order."""

    def make(of: Block) -> list[np.ndarray]:
        _, epochs = np.unique(of.epoch, return_inverse=True)
        masks, which = np.unique(of.mask, return_inverse=True)
        _, classes = np.unique(epochs * len(masks) + which, return_inverse=True)
        return [np.flatnonzero(classes == c) for c in range(classes.max(initial=-1) + 1)]

    return block.derive("stamp classes", make)


def _owns(left: Block, right: Block, i: int, j: int) -> bool:
    a, b = int(left.epoch[i]), int(right.epoch[j])
    older = min(a, b)
    return bool((int(left.mask[i]) >> (a - older)) & (int(right.mask[j]) >> (b - older)) & 1)


@njit(inline="always")
def admit(i, j, t, s, w_left, w_right, epoch, mask, right_epoch, right_mask):  # pragma: no cover
    """Whether left row i and right row j may join here: window and ownership."""
    apart = t[i] - s[j]
    if apart < -w_left or apart > w_right:
        return False
    older = min(epoch[i], right_epoch[j])
    bits = (mask[i] >> (epoch[i] - older)) & (right_mask[j] >> (right_epoch[j] - older))
    return bits & 1 == 1
