"""Walking two blocks tile by tile, and the test that every proposed pair must pass.

Both blocks are sorted by time. A tile is a run of left rows against a run of right rows that the
window lets them meet; filters look at a tile as a whole and call `admit` only on the few pairs
they propose: in the window, and owned by this worker (see `plans.routing`).

Letters of the compiled loops here and in the filters: `i` and `j` are positions of a left and a
right row in their blocks; `r` and `c` those in a tile, which begins at `top` and `start`; `d` is
the length of vectors, `e` a place in them; `p` and `q` are places in a sorted order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from anabranch.correlation.filters.ties import first_after
from anabranch.flow.blocks import Block
from anabranch.flow.owning import owned, owns
from anabranch.flow.process import njit
from anabranch.flow.sides import BEFORE
from anabranch.plans.routing import OTHER

__all__ = [
    "Candidates",
    "Pair",
    "Stamps",
    "Tile",
    "admitted",
    "comparisons",
    "may_meet",
    "scratch",
    "tiles",
    "uniform",
]

# mypy: disable-error-code="no-untyped-def"

# Measured: 960 x 2000 float32 is 7 MB and the fastest; widths that are powers of two lose a third.
ROWS, COLS = 960, 2000
_ENDS = np.iinfo(np.int64)


class Stamps(NamedTuple):
    """What `admit` reads of two blocks: the times that each left row may meet, and who owns what.

    The times stop at the ends of int64, so no row is lost to a sum that wraps. Where the window
    counts rows, positions in the right block stand for times.
    """

    earliest: np.ndarray
    latest: np.ndarray
    times: np.ndarray
    left_epoch: np.ndarray
    left_mask: np.ndarray
    right_epoch: np.ndarray
    right_mask: np.ndarray


@dataclass(frozen=True)
class Pair:
    """Two blocks in time order and the window between them; what filters work on.

    In a pair of `ordered` rows, those of one stream, the left one is earlier, by time and id.

    Examples
    --------
    >>> pair = Pair(Block.of([2**63 - 2], {}), Block.of([0, 2**63 - 1], {}), (5, 5))
    >>> int(pair.stamps.latest[0]) == 2**63 - 1, list(tiles(pair)), comparisons(pair)
    (True, [Tile(top=0, bottom=1, start=1, stop=2)], 1)
    """

    left: Block
    right: Block
    window: tuple[int, int]
    ordered: bool = False

    @cached_property
    def stamps(self) -> Stamps:
        """What `admit` needs."""
        a, b = self.left, self.right
        meets = self._ranks() if self._by_rows else self._later() or (*self.meets(a.t), b.t)
        return Stamps(*meets, a.epoch, a.mask, b.epoch, _mask(b, True))

    @property
    def _by_rows(self) -> bool:
        """Whether the window counts rows."""
        return BEFORE in self.left.columns

    def meets(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The earliest and the latest times that left rows of these times may meet."""
        ahead, back = self.window
        # Longer windows let every two rows meet: times are within 2**61 of 1970.
        first, last = _ENDS.min, _ENDS.max
        earliest = np.full(len(t), first) if back > last else np.maximum(t, first + back) - back
        latest = np.full(len(t), last) if ahead > last else np.minimum(t, last - ahead) + ahead
        return earliest, latest

    @cached_property
    def whole(self) -> bool:
        """Whether the window lets every left row meet every right one; there are some of both.

        Of windows that count rows it is not known.
        """
        if self._by_rows:
            return False
        earliest, latest = self.meets(self.left.t[[-1, 0]])
        if self.ordered and self.right.t[0] == earliest[0]:
            return False
        return bool(self.right.t[0] >= earliest[0] and self.right.t[-1] <= latest[1])

    @property
    def mirrored(self) -> Pair:
        """The same rows meet, left and right exchanged."""
        return Pair(self.right, self.left, self.window[::-1])

    def _ranks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which right rows each left row may meet, by position, and the positions.

        When a right row comes, the left row must be among the newest so many of the left rows
        before it, and the other way round. Both blocks are in order, so those are neighbours.
        """
        a, b = self.left, self.right
        ahead, back = self.window
        first = np.searchsorted(b.t, a.columns[BEFORE] - back, "left")
        last = np.searchsorted(b.columns[BEFORE], a.t + ahead, "right") - 1
        return first, last, b.derive("positions", _positions)

    def _later(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """The same by position, of rows of one stream among which some have the same time."""
        first = first_after(self.left, self.right) if self.ordered else None
        if first is None:
            return None
        last = np.searchsorted(self.right.t, self.meets(self.left.t)[1], "right") - 1
        return first, last, self.right.derive("positions", _positions)

    @cached_property
    def reach(self) -> tuple[np.ndarray, np.ndarray]:
        """Each left row may meet the right rows from the one position up to the other."""
        return _reach(self.stamps.times, self.stamps.earliest, self.stamps.latest)


class Tile(NamedTuple):
    """Left rows ``top:bottom`` against right rows ``start:stop``."""

    top: int
    bottom: int
    start: int
    stop: int


class Candidates(NamedTuple):
    """Proposed pairs: positions in the left and in the right block; also the room for them."""

    left: np.ndarray
    right: np.ndarray

    def first(self, count: int) -> Candidates:
        """A copy of the first so many."""
        return Candidates(self.left[:count].copy(), self.right[:count].copy())


def tiles(
    pair: Pair, rows: int = ROWS, cols: int = COLS, between: tuple[int, int] | None = None
) -> Iterator[Tile]:
    """Tiles that cover every pair inside the window, of the right rows `between` two positions."""
    count = len(pair.left)
    if count == 0 or len(pair.right) == 0:
        return
    low, high = pair.reach
    begin, end = between or (0, len(pair.right))
    top = 0
    while top < count:
        bottom = min(top + rows, count)
        # Where the window's edges cross the tile, a shorter one wastes less of the product.
        full = int((high[top:bottom] - low[top:bottom]).sum())
        if full < 0.75 * (bottom - top) * (high[bottom - 1] - low[top]):
            bottom = min(top + rows // 2, count)
        last = min(int(high[bottom - 1]), end)
        for start in range(max(int(low[top]), begin), last, cols):
            yield Tile(top, bottom, start, min(start + cols, last))
        top = bottom


_local = threading.local()


def scratch() -> tuple[np.ndarray, Candidates]:
    """Room for one tile of float32 values and for all its pairs; one per thread, used again."""
    if not hasattr(_local, "room"):
        size = ROWS * COLS
        out = Candidates(np.empty(size, np.int32), np.empty(size, np.int32))
        _local.room = np.empty(size, np.float32), out
    room: tuple[np.ndarray, Candidates] = _local.room
    return room


def comparisons(pair: Pair) -> int:
    """How many pairs of the two blocks the window lets join and this worker owns."""
    if len(pair.left) == 0 or len(pair.right) == 0:
        return 0
    if uniform(pair):
        if not _owned(pair, 0, 0):
            return 0
        if pair.whole:
            return len(pair.left) * len(pair.right)
        # Either side may be asked whom it meets; few rows of many cost less than the reverse.
        direct = pair.ordered or len(pair.left) <= len(pair.right)
        few = pair if direct else pair.mirrored
        low, high = few.reach
        return int((high - low).sum())
    stamps, total = pair.stamps, 0
    for rows, others in _owned_classes(pair):
        times = stamps.times[others]
        low, high = _reach(times, stamps.earliest[rows], stamps.latest[rows])
        total += int((high - low).sum())
    return total


def may_meet(pair: Pair) -> bool:
    """Whether this worker owns any pair of rows of the two blocks, whatever their times."""
    if len(pair.left) == 0 or len(pair.right) == 0:
        return False
    return next(_owned_classes(pair), None) is not None


def uniform(pair: Pair) -> bool:
    """Whether the stamps of all rows of either block are the same: all pairs are owned, or none."""
    return _uniform(pair.left) and _uniform(pair.right, True)


def _positions(block: Block) -> np.ndarray:
    found = np.arange(len(block))
    found.flags.writeable = False  # as stored times are: loops are compiled for that
    return found


def _reach(
    times: np.ndarray, earliest: np.ndarray, latest: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    return np.searchsorted(times, earliest, "left"), np.searchsorted(times, latest, "right")


def _mask(block: Block, right: bool = False) -> np.ndarray:
    """The masks by which a block's rows are taken for left rows, or for right ones."""
    return block.columns.get(OTHER, block.mask) if right else block.mask


def _uniform(block: Block, right: bool = False) -> bool:
    def make(of: Block) -> bool:
        mask = _mask(of, right)
        return bool(((of.epoch[1:] == of.epoch[:-1]) & (mask[1:] == mask[:-1])).all())

    return block.derive(("uniform stamps", right), make)


def _classes(block: Block, right: bool = False) -> list[np.ndarray]:
    """Positions of the rows that share both stamps, in time order."""

    def make(of: Block) -> list[np.ndarray]:
        _, epochs = np.unique(of.epoch, return_inverse=True)
        masks, which = np.unique(_mask(of, right), return_inverse=True)
        _, classes = np.unique(epochs * len(masks) + which, return_inverse=True)
        return [np.flatnonzero(classes == c) for c in range(classes.max(initial=-1) + 1)]

    return block.derive(("stamp classes", right), make)


def _owned_classes(pair: Pair) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for rows in _classes(pair.left):
        for others in _classes(pair.right, True):
            if _owned(pair, rows[0], others[0]):
                yield rows, others


def _owned(pair: Pair, i: int, j: int) -> bool:
    a, b = pair.left, pair.right
    return bool(owned(a.epoch[i], a.mask[i], b.epoch[j], _mask(b, True)[j]))


@njit(inline="always")
def stamp_of(i, stamps):  # pragma: no cover
    """What `admit` needs of left row i; loops read it once a row."""
    return (
        stamps.earliest[i],
        stamps.latest[i],
        stamps.left_epoch[i],
        stamps.left_mask[i],
    )


@njit(inline="always")
def admit(mine, j, stamps):  # pragma: no cover
    """Whether the left row with this stamp and right row j may join here: window and ownership."""
    earliest, latest, epoch, mask = mine
    time = stamps.times[j]
    # Without branches: of what a filter proposes, most is admitted.
    owned_here = owns(epoch, mask, stamps.right_epoch[j], stamps.right_mask[j])
    return (time >= earliest) & (time <= latest) & owned_here


def admitted(pair: Pair, i: np.ndarray, j: np.ndarray) -> Iterator[Candidates]:
    """Those of some pairs that the window lets join and this worker owns."""
    stamps = pair.stamps
    good = owned(
        stamps.left_epoch[i], stamps.left_mask[i], stamps.right_epoch[j], stamps.right_mask[j]
    )
    good &= (stamps.times[j] >= stamps.earliest[i]) & (stamps.times[j] <= stamps.latest[i])
    if good.any():
        # As other filters have them, or what decides would be compiled once more.
        yield Candidates(i[good].astype(np.int32), j[good].astype(np.int32))


@njit(inline="always")
def put(out, found, i, j, good):  # pragma: no cover
    """Write a pair after `found` others, to stay if it is good; how many there are now."""
    out.left[found] = i
    out.right[found] = j
    return found + good
