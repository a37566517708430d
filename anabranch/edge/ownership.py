"""Who computes a pair of rows while views move: the law, written once.

Every row is stamped with the newest epoch that its producer had adopted. A view has boundaries
(epoch, place, kind). A pair is computed at the place of the boundary that `owner` names and nowhere
else, and `reach` brings both rows there. An *overlap* boundary leaves pairs with an older
row to the older place, until no such pair can come. A *backfill* boundary takes them over: it is
used with the place `NOWHERE`, which ends a view.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

__all__ = [
    "CLOUD",
    "EARLIEST",
    "LATEST",
    "NOWHERE",
    "Boundary",
    "horizon",
    "marks",
    "owner",
    "owners",
    "reach",
    "retire",
]

CLOUD = "cloud"
NOWHERE = ""
LATEST = (1 << 63) - 1
"""A time after all others: the end of what is not yet known to end."""
EARLIEST = -(1 << 63)
"""A time before all others: the watermark of a stream of which nothing has been promised."""


@dataclass(frozen=True)
class Boundary:
    """From `epoch` on a view is at `place`.

    Rows with a time after `until` meet no row that belongs to this boundary: they need not be sent
    there. That is known once every source has adopted a later boundary; it is `EARLIEST` if all
    rows have been sent that the place needs.
    """

    epoch: int
    place: str
    kind: str = "overlap"
    until: int = LATEST


def owner(bounds: Sequence[Boundary], one: int, other: int) -> int:
    """The number of the boundary that owns a pair, by the stamps of its rows; -1 if none does.

    Examples
    --------
    >>> bounds = [Boundary(2, "cloud"), Boundary(7, "ann")]
    >>> owner(bounds, 6, 6), owner(bounds, 7, 6), owner(bounds, 7, 9), owner(bounds, 1, 9)
    (0, 0, 1, -1)
    >>> owner([*bounds, Boundary(9, NOWHERE, "backfill")], 6, 9)
    2
    """
    low, high = min(one, other), max(one, other)
    own = -1
    for number, bound in enumerate(bounds):
        if bound.epoch <= low or (own >= 0 and bound.epoch <= high and bound.kind == "backfill"):
            own = number
    return own


def owners(bounds: Sequence[Boundary], one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """`owner` of many pairs."""
    low, high = np.minimum(one, other), np.maximum(one, other)
    own = np.full(low.shape, -1)
    for number, bound in enumerate(bounds):
        takes = bound.epoch <= low
        if bound.kind == "backfill":
            takes |= (own >= 0) & (bound.epoch <= high)
        own[takes] = number
    return own


def reach(bounds: Sequence[Boundary], stamp: int) -> list[tuple[str, int]]:
    """The places where rows of a stamp may meet others, each with the last time at which they may.

    Examples
    --------
    >>> reach([Boundary(2, "cloud", until=50), Boundary(7, "ann"), Boundary(9, "bob")], 8)
    [('cloud', 50), ('ann', 9223372036854775807)]
    """
    before = [bound for bound in bounds if bound.epoch <= stamp]
    found = []
    for bound in before:
        # With a partner stamped under this boundary, the row belongs to whoever owns the two.
        place = bounds[owner(bounds, bound.epoch, stamp)].place
        if place != NOWHERE:
            found.append((place, LATEST if bound is before[-1] else bound.until))
    return found


def retire(bounds: Sequence[Boundary], epoch: int, until: int) -> tuple[Boundary, ...]:
    """The boundaries, of which the one of `epoch` is known to end."""
    return tuple(replace(b, until=until) if b.epoch == epoch else b for b in bounds)


def horizon(bounds: Sequence[Boundary], place: str) -> int:
    """The last time of a row that a place needs for any of its boundaries."""
    return max((bound.until for bound in bounds if bound.place == place), default=EARLIEST)


def marks(bounds: Sequence[Boundary], window: int) -> list[tuple[int, int]]:
    """What retired boundaries promise: (epoch, mark), no row stamped below it is after the mark."""
    pairs = itertools.pairwise(bounds)
    return [(later.epoch, b.until - window) for b, later in pairs if EARLIEST < b.until < LATEST]
