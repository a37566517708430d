"""Pairs that passed the scan of a chain, and what has become of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from anabranch.correlation.emd.profile import Profile

__all__ = ["IN", "OPEN", "OUT", "Survivors"]

# A pair is open until a bound or its distance says that it matches or that it does not.
OPEN, IN, OUT = 0, 1, 2


@dataclass
class Survivors:
    """Pairs as places in two profiles; `value` is a distance or a bound of it, NaN if unknown.

    With `exact_scores` no bound may stand for the distance of a match.
    """

    a: Profile
    b: Profile
    left: np.ndarray
    right: np.ndarray
    exact_scores: bool
    value: np.ndarray = field(init=False)
    state: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.value = np.full(len(self.left), np.nan)
        self.state = np.zeros(len(self.left), np.int8)

    def accept(self, pairs: np.ndarray, values: np.ndarray) -> None:
        """These pairs match."""
        self.state[pairs], self.value[pairs] = IN, values

    def rule_out(self, pairs: np.ndarray) -> None:
        """These pairs do not."""
        self.state[pairs] = OUT

    def apart(self, pairs: np.ndarray) -> np.ndarray:
        """The differences of the masses of these pairs, one row each."""
        difference: np.ndarray = self.a.masses[self.left[pairs]] - self.b.masses[self.right[pairs]]
        return difference

    @property
    def matches(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places and values of the pairs that match."""
        good = np.flatnonzero(self.state == IN)
        return self.left[good], self.right[good], self.value[good]
