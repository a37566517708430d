"""``triangle``: what is known of the left row before, and how far away that row is."""

from __future__ import annotations

import numpy as np

from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.limit import Limit
from anabranch.correlation.emd.profile import Known
from anabranch.correlation.emd.solve import solve
from anabranch.correlation.emd.survivors import IN, Survivors
from anabranch.correlation.emd.tally import Tally

__all__ = ["triangle"]

_WORTHWHILE = 4  # pairs of one left row for which a triangle pays


def triangle(
    of: Survivors, row: int, pairs: np.ndarray, ground: Ground, limit: Limit, tally: Tally
) -> None:
    """Decide pairs of this left row by what is known of the row before it, and note what is known.

    An accepted pair has an upper bound of its distance as its value.
    """
    before, mine = of.b.before, of.a.masses[row]
    if before is None or not np.array_equal(before.masses, mine):  # else the same row goes on
        of.b.before = Known(mine, len(of.b.rows))
        if before is not None:
            _from(before, of.b.before, of, pairs, ground, limit, tally)
    assert of.b.before is not None
    sure = np.flatnonzero((of.left == row) & (of.state == IN))
    of.b.before.know(of.right[sure], 0.0, of.value[sure])


def _from(
    before: Known,
    now: Known,
    of: Survivors,
    pairs: np.ndarray,
    ground: Ground,
    limit: Limit,
    tally: Tally,
) -> None:
    known = pairs[np.isfinite(before.high[of.right[pairs]])]
    if len(known) < _WORTHWHILE:
        return
    step = solve(before.masses, now.masses, ground.costs).value
    tally.solved += 1
    at = of.right[known]
    low = np.maximum(before.low[at] - step, step - before.high[at])
    high = before.high[at] + step
    far = low > limit.near + ground.epsilon
    of.rule_out(known[far])
    tally.cut("triangle", int(far.sum()))
    if not of.exact_scores:
        sure = high <= limit.high
        of.accept(known[sure], high[sure])
        tally.accepted += int(sure.sum())
    now.know(at, np.maximum(low, 0.0), high)
