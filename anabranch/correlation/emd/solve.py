"""The exact distance of single pairs by the network simplex of POT, and the dual it leaves.

Only what is left after cancelling equal mass is handed to the solver, through the entry with the
least overhead. POT is imported when the first pair is solved: lines and circles never need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from anabranch.correlation.emd.bounds import compact
from anabranch.errors import extra

__all__ = ["Solution", "solve"]

# mypy: disable-error-code="no-untyped-call"

_ITERATIONS = 1_000_000
_OPTIMAL = 1


@dataclass(frozen=True)
class Solution:
    """A distance, and a potential under which the two keys are that far apart.

    The potential is ``f_i = min_j (c_ij - v_j)`` of the optimal dual v of the targets: 1-Lipschitz,
    at least as good as the dual itself, and defined for bins without mass too. It is computed when
    it is asked for, since most solutions only decide. Equal histograms leave none.
    """

    value: float
    _costs: np.ndarray
    _targets: np.ndarray | None = None
    _dual: np.ndarray | None = None

    @cached_property
    def potential(self) -> np.ndarray | None:
        """The potential of the optimal dual."""
        if self._dual is None:
            return None
        potential: np.ndarray = (self._costs[:, self._targets] - self._dual).min(axis=1)
        return potential


_entry: Any = None


def solve(p: np.ndarray, q: np.ndarray, costs: np.ndarray) -> Solution:
    """The Earth Mover's Distance of two histograms of mass 1.

    Examples
    --------
    >>> costs = np.abs(np.arange(3.0)[:, None] - np.arange(3.0)[None])
    >>> found = solve(np.array([1.0, 0, 0]), np.array([0, 0.5, 0.5]), costs)
    >>> found.value, float(found.potential @ [1, -0.5, -0.5])
    (1.5, 1.5)
    """
    global _entry
    if _entry is None:
        with extra("emd", "the Earth Mover's Distance of points or a matrix", "ot"):
            from ot.lp.emd_wrap import emd_c

        _entry = emd_c
    _, a, targets, b, matrix = compact(p, q, costs)
    if len(a) == 0 or len(b) == 0:
        return Solution(0.0, costs)
    _, value, _, v, code = _entry(a, b, matrix, _ITERATIONS, 1)
    if code != _OPTIMAL:
        raise ArithmeticError(
            f"the network simplex gave up on a pair of histograms of {len(p)} bins (code {code})"
        )
    return Solution(max(float(value), 0.0), costs, targets, v)
