"""Which filter proposes the pairs of two blocks of vectors: the one that costs least on such data.

Products of bytes are several times as fast as the float32 product, unless too many pairs lie about
the threshold. Balls are faster still where rows lie in clusters, and have to be made first. What
pays is found by trying, on a sample, and remembered for the blocks that come next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from anabranch.correlation.filters.balls import ball_search
from anabranch.correlation.filters.dots import available
from anabranch.correlation.filters.products import product_candidates
from anabranch.correlation.filters.quantised import byte_candidates, work_of
from anabranch.correlation.filters.tiles import Candidates, Pair
from anabranch.flow.blocks import Block

__all__ = ["Habit", "Habits", "vector_candidates"]

_FEWEST = 1 << 16  # pairs, below which the product is done before bytes are made
# A proposed pair costs about as much to decide as some tens of cells of a product, at any width.
_TOO_MANY = 1 / 100
_ENOUGH_ROWS = 2048  # for balls
_FEW_ROWS = 64
# Balls cost a row about as much to make as so many comparisons of bytes; so they are made when a
# block has been compared that often, and are then at worst half of what its comparisons cost.
_SEEN_FIRST = 12_000
_WORTH = 0.4  # share of the pairs that balls may leave


@dataclass
class Habit:
    """Remembers whether something paid, and tries it again now and then.

    Examples
    --------
    >>> habit = Habit(pause=3)
    >>> habit.tries(), habit.note(paid=False)
    (True, False)
    >>> [habit.tries() for _ in range(5)]
    [False, False, False, True, True]
    """

    pause: int
    left: int = 0

    def tries(self) -> bool:
        """Whether to try it with the next pair of blocks."""
        waits = self.left > 0
        self.left -= waits
        return not waits

    def note(self, paid: bool) -> bool:
        """Hear whether it paid."""
        self.left = 0 if paid else self.pause
        return paid


@dataclass
class Habits:
    """What a matcher has learnt of its data."""

    bytes: Habit = field(default_factory=lambda: Habit(32))
    balls: Habit = field(default_factory=lambda: Habit(64))


def vector_candidates(
    pair: Pair, slot: str, kind: str, upward: bool, threshold: float, habits: Habits
) -> Iterator[Candidates]:
    """Every pair whose measure may reach the threshold (from below it if not `upward`)."""
    call = (pair, slot, kind, upward, threshold)
    if available() and len(pair.left) * len(pair.right) >= _FEWEST:
        found = _by_balls(*call, habits.balls) or _by_bytes(*call, habits.bytes)
        if found is not None:
            return found
    return product_candidates(*call)


def _by_bytes(
    pair: Pair, slot: str, kind: str, upward: bool, threshold: float, habit: Habit
) -> Iterator[Candidates] | None:
    if not habit.tries():
        return None
    work = work_of(pair, slot, kind, upward, threshold, available()[0])
    found = None if work is None else byte_candidates(pair, work, _TOO_MANY)
    habit.note(paid=found is not None)
    return found


def _by_balls(
    pair: Pair, slot: str, kind: str, upward: bool, threshold: float, habit: Habit
) -> Iterator[Candidates] | None:
    rows, others = sorted((pair.left, pair.right), key=len)
    near = kind != "dot" and upward == (kind == "cosine")
    if not near or len(others) < _ENOUGH_ROWS or len(rows) < _FEW_ROWS:
        return None
    if _seen(others, slot, len(rows)) < _SEEN_FIRST or not habit.tries():
        return None
    search = ball_search(pair, slot, kind, threshold, available()[0])
    if search is None or not habit.note(paid=search.share() < _WORTH):
        return None
    return search.candidates(pair)


def _seen(block: Block, slot: str, more: int) -> int:
    """How many rows those of a block have been compared with, `more` now."""
    tally: list[int] = block.derive(("compared", slot), lambda _: [0])
    tally[0] += more
    return tally[0]
