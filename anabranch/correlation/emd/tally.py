"""What a search did: pairs cut by each filter, accepted by a bound, decided exactly."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from anabranch.plans.ranges import range_of

__all__ = ["Tally"]


@dataclass
class Tally:
    """Counts of one worker's step.

    `solved` pairs were decided by their exact distance; `lessons` were solved although a bound had
    decided them, for the potentials that this leaves. `work` adds up, by range of the left row's
    key, the pairs that a search looked at one by one and what their exact decisions weigh; it is
    empty unless `ranges` says how to find a range.

    Examples
    --------
    >>> tally = Tally()
    >>> tally.cut("mean", 90)
    >>> tally.cut("blocks-8", 7)
    >>> tally.pruned, tally.total
    (Counter({'mean': 90, 'blocks-8': 7}), 97)
    """

    pruned: Counter[str] = field(default_factory=Counter)
    accepted: int = 0
    solved: int = 0
    lessons: int = 0
    ranges: tuple[float, float, int] | None = None
    work: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def cut(self, name: str, pairs: int) -> None:
        """So many pairs were shown not to match by this filter."""
        if pairs:
            self.pruned[name] += pairs

    @property
    def total(self) -> int:
        """Pairs cut by any filter."""
        return sum(self.pruned.values())

    def spend(self, keys: np.ndarray, units: np.ndarray) -> None:
        """Add the work of left rows with these keys."""
        if self.ranges is None:
            return
        low, high, count = self.ranges
        if len(self.work) != count:
            self.work = np.zeros(count)
        self.work += np.bincount(range_of(keys, low, high, count), units, count)
