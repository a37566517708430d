"""``reference``: an upper bound by the way round one of a few fixed histograms."""

from __future__ import annotations

import numpy as np

from anabranch.correlation.emd.bounds import Routes, cheapest_first
from anabranch.correlation.emd.profile import Profile
from anabranch.correlation.emd.survivors import Survivors
from anabranch.flow.process import njit

__all__ = ["References"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_REFERENCES = 8


class References:
    """A few histograms of the first left block, and the ways round by them."""

    def __init__(self) -> None:
        self._chosen: np.ndarray | None = None

    def around(self, of: Survivors, routes: Routes) -> np.ndarray:
        """An upper bound of the distance of each pair."""
        if self._chosen is None:
            places = len(of.a.rows)
            spread = np.linspace(0, places - 1, min(_REFERENCES, places)).astype(int)
            self._chosen = of.a.masses[spread].copy()
        one, two = self._legs(of.a, routes), self._legs(of.b, routes)
        ways: np.ndarray = (one[of.left] + two[of.right]).min(axis=1)
        return ways

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return 0 if self._chosen is None else self._chosen.nbytes

    def _legs(self, of: Profile, routes: Routes) -> np.ndarray:
        """An upper bound of the distance of each row to each reference."""
        assert self._chosen is not None
        # A stored block outlives the search that chose these references; the next chooses others.
        name = self._chosen.tobytes()
        if of.legs is None or of.legs[0] != name:
            legs = np.empty((len(of.masses), len(self._chosen)))
            _measure(of.masses, self._chosen, routes, legs)
            of.legs = name, legs
        return of.legs[1]


@njit(nogil=True)
def _measure(table, references, routes, out):  # pragma: no cover
    n = table.shape[1]
    supply, demand = np.empty(n), np.empty(n)
    for r in range(len(table)):
        for o in range(len(references)):
            out[r, o] = cheapest_first(table[r], references[o], routes, np.inf, supply, demand)
