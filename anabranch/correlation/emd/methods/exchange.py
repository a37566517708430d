"""``exchange``: the flow of ``greedy``, mended by letting its parts swap targets.

Letters: `p` and `q` are two histograms, `i` a bin that mass leaves, `j` one where it arrives, `a`
and `b` the masses that are there and have room, `n` how many parts the flow has.
"""

from __future__ import annotations

import numpy as np

from anabranch.correlation.emd.bounds import DUST, cancel, flow_of, left_over, mended
from anabranch.flow.process import njit

__all__ = ["exchanged"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

# A flow that begins this much beyond the limit is not worth mending; one is mended so often.
_HOPE, _PASSES = 1.15, 2


@njit(nogil=True)
def exchanged(p, q, routes, limit, supply, demand):  # pragma: no cover
    """The cost of the flow of `cheapest_first` once no two of its parts gain by swapping targets.

    Stops as soon as it is within `limit`; infinity if it starts or ends beyond it.
    """
    costs, sources, targets, _ = routes
    left = cancel(p, q, supply, demand)
    flow = flow_of(len(p))
    spent, n = 0.0, 0
    for way in range(len(sources)):
        if left <= DUST or n >= 2 * len(p):
            break
        i, j = sources[way], targets[way]
        a, b = supply[i], demand[j]
        if a == 0.0 or b == 0.0:
            continue
        cost = costs[i, j]
        if spent + left * cost > _HOPE * limit:
            return np.inf
        mass = min(a, b)
        supply[i] = a - mass
        demand[j] = b - mass
        flow.begins[n], flow.ends[n], flow.masses[n] = i, j, mass
        n += 1
        spent += mass * cost
        left -= mass
    return mended(spent + left_over(left, routes), n, flow, costs, limit, _PASSES)
