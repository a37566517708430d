"""Which filter proposes the pairs of two blocks of vectors: the one that costs least on such data.

Products of bytes are several times as fast as the float32 product, unless too many pairs lie about
the threshold. Balls are faster still where rows lie in clusters. Both have to be made first, which
pays where rows are compared often: `costs` says when. How many pairs lie about the threshold is
found by trying, on a sample of each span of a block, and remembered with the block and for those
that come next.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import partial

from anabranch.correlation.filters.balls import ball_search, likely_share
from anabranch.correlation.filters.costs import (
    Making,
    balls_pay,
    may_pay,
    most_proposed,
    to_come,
)
from anabranch.correlation.filters.dots import available
from anabranch.correlation.filters.products import product_candidates
from anabranch.correlation.filters.quantised import Instead, byte_candidates, made, work_of
from anabranch.correlation.filters.tiles import Candidates, Pair
from anabranch.flow.blocks import Block

__all__ = ["Habit", "Habits", "vector_candidates"]

_ENOUGH_ROWS = 2048  # for balls
_FEW_ROWS = 64
# Balls cost a row about as much to make as so many comparisons of bytes; so they are made when a
# block has been compared that often, and are then at worst half of what its comparisons cost.
_SEEN_FIRST = 12_000
_DOUBT = 0.25  # of a share that is guessed before balls are made: they may leave much less


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
    """What a matcher has learnt of its data, for blocks that have no habits of their own."""

    bytes: Habit = field(default_factory=lambda: Habit(32))
    balls: Habit = field(default_factory=lambda: Habit(64))


class _Learnt:
    """What was learnt of the larger of two blocks, once something was tried on it; else of all.

    One block that lies about the threshold says much of those that have not been tried, which
    spares making their bytes in vain. Of one whose bytes have paid it says nothing.
    """

    def __init__(self, pair: Pair, what: tuple[Hashable, ...], common: Habit) -> None:
        self._block = max(pair.left, pair.right, key=len)
        self._key, self._common = ("habit", *what), common

    def tries(self) -> bool:
        """Whether to try it."""
        known = self._block.has_derived(self._key)
        return (self._own() if known else self._common).tries()

    def note(self, paid: bool) -> bool:
        """Hear whether it paid."""
        if not self._block.has_derived(self._key):
            self._common.note(paid)
        return self._own().note(paid)

    def _own(self) -> Habit:
        return self._block.derive(self._key, lambda _: Habit(self._common.pause), shares=True)


def vector_candidates(
    pair: Pair, slot: str, kind: str, upward: bool, threshold: float, habits: Habits
) -> Iterator[Candidates]:
    """Every pair whose measure may reach the threshold (from below it if not `upward`)."""
    call = (pair, slot, kind, upward, threshold)
    size, width = len(pair.left) * len(pair.right), pair.left.columns[slot].shape[1]
    # Most pairs of small blocks are told by their size alone.
    if available() and may_pay(width, size, [], 0, type(available()[0]).__name__):
        pairs = _within(pair)
        seen = _seen(pair.left, slot, pairs), _seen(pair.right, slot, pairs)
        found = _by_balls(*call, habits.balls, seen) or _by_bytes(*call, habits.bytes, pairs, seen)
        if found is not None:
            return found
    return product_candidates(*call)


def _by_bytes(
    pair: Pair,
    slot: str,
    kind: str,
    upward: bool,
    threshold: float,
    habit: Habit,
    pairs: int,
    seen: tuple[int, int],
) -> Iterator[Candidates] | None:
    by = available()[0]
    name, width = type(by).__name__, pair.left.columns[slot].shape[1]
    there = made(pair, slot, kind, upward, by)
    # What has been compared so often will be once more, if its window lets it.
    both = [
        Making(0 if has else len(block), min(before, later))
        for has, block, before, later in zip(
            there, (pair.left, pair.right), seen, _expected(pair), strict=True
        )
    ]
    if not may_pay(width, pairs, both, len(pair.left) + len(pair.right), name):
        return None
    learnt = _Learnt(pair, ("bytes", slot, kind, upward, threshold), habit)
    if not learnt.tries():
        return None
    if (work := work_of(pair, slot, kind, upward, threshold, by)) is None:
        learnt.note(paid=False)
        return None
    return byte_candidates(
        pair,
        work,
        Instead(
            lambda count: most_proposed(width, count, name),
            partial(product_candidates, pair, slot, kind, upward, threshold),
            learnt.note,
        ),
    )


def _by_balls(
    pair: Pair,
    slot: str,
    kind: str,
    upward: bool,
    threshold: float,
    habit: Habit,
    seen: tuple[int, int],
) -> Iterator[Candidates] | None:
    turned = len(pair.left) > len(pair.right)
    rows, others = (pair.right, pair.left) if turned else (pair.left, pair.right)
    if len(others) < _ENOUGH_ROWS or len(rows) < _FEW_ROWS:
        return None
    if seen[not turned] < (_SEEN_FIRST - len(rows)) * len(others):
        return None
    learnt = _Learnt(pair, ("balls", slot, kind, upward, threshold), habit)
    if not learnt.tries():
        return None
    by, width = available()[0], pair.left.columns[slot].shape[1]
    call = (pair, slot, kind, upward, threshold, by)
    if not balls_pay(width, likely_share(*call) * _DOUBT, type(by).__name__):
        learnt.note(paid=False)
        return None
    search = ball_search(*call)
    pays = search is not None and balls_pay(width, search.share(), type(by).__name__)
    if not learnt.note(pays) or search is None:
        return None
    return search.candidates(pair)


def _within(pair: Pair) -> int:
    """How many pairs the window lets meet."""
    if pair.whole:
        return len(pair.left) * len(pair.right)
    low, high = pair.reach
    return int((high - low).sum())


def _seen(block: Block, slot: str, more: int) -> int:
    """In how many pairs the rows of a block have been compared; it is `more` from now on."""
    tally: list[int] = block.derive(("compared", slot), lambda _: [0])
    tally[0] += more
    return tally[0] - more


def _expected(pair: Pair) -> tuple[float, float]:
    """How many more comparisons the rows of either block will see, going by times and windows."""
    (a, b), (ahead, back) = (pair.left, pair.right), pair.window
    first, second = ((len(of), int(of.t[0]), int(of.t[-1])) for of in (a, b))
    return to_come(first, second, ahead), to_come(second, first, back)
