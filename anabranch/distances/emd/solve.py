"""The exact distance of single pairs by the network simplex of POT, and the dual it leaves.

Only what is left after cancelling equal mass is handed to the solver, through the entry with the
least overhead. POT is imported when the first pair is solved: lines and circles never need it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from anabranch.distances.emd.bounds import compact

__all__ = ["Solution", "solve"]

# mypy: disable-error-code="no-untyped-call"

_ITERATIONS = 1_000_000
_OPTIMAL = 1


class Solution(NamedTuple):
    """A distance, and a potential under which the two keys are that far apart."""

    value: float
    potential: np.ndarray | None


_entry: Any = None


def solve(p: np.ndarray, q: np.ndarray, costs: np.ndarray, dual: bool = False) -> Solution:
    """The Earth Mover's Distance of two histograms of mass 1.

    With `dual`, also the 1-Lipschitz potential ``f_i = min_j (c_ij - v_j)`` of the optimal dual v:
    it is at least as good as the dual itself, and defined for bins without mass too.

    Examples
    --------
    >>> costs = np.abs(np.arange(3.0)[:, None] - np.arange(3.0)[None])
    >>> found = solve(np.array([1.0, 0, 0]), np.array([0, 0.5, 0.5]), costs, dual=True)
    >>> found.value, float(found.potential @ [1, -0.5, -0.5])
    (1.5, 1.5)
    """
    global _entry
    if _entry is None:
        from ot.lp.emd_wrap import emd_c

        _entry = emd_c
    _, a, targets, b, matrix = compact(p, q, costs)
    if len(a) == 0 or len(b) == 0:
        return Solution(0.0, None)
    _, value, _, v, code = _entry(a, b, matrix, _ITERATIONS, 1)
    if code != _OPTIMAL:
        raise ArithmeticError(
            f"the network simplex gave up on a pair of histograms of {len(p)} bins (code {code})"
        )
    potential = (costs[:, targets] - v).min(axis=1) if dual else None
    return Solution(max(float(value), 0.0), potential)
