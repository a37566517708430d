"""The second compiled loop of the chain: bounds of single pairs.

It tries to accept what passed the scan by an upper bound, or to rule it out by a lower bound that
is too expensive for every pair.

Letters: `k` is a pair, `x` and `y` are the two blocks, `p` and `q` its two histograms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.correlation.emd.bounds import (
    Routes,
    cheapest_first,
    independent,
    regretted,
    source_order,
)
from anabranch.correlation.emd.limit import Limit
from anabranch.correlation.emd.methods.exchange import exchanged
from anabranch.correlation.emd.survivors import IN, OPEN, OUT, Survivors
from anabranch.flow.process import njit

__all__ = ["try_bounds"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

# Of pairs whose greedy flow costs this much more than the limit few match.
_HOPE = 1.1


class _Pairs(NamedTuple):
    """Masses of both sides, and pairs of places in them with what is known of these."""

    x: np.ndarray
    y: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    state: np.ndarray


class _Use(NamedTuple):
    """Which bounds are tried, in this order; a lower one beyond `near` rules a pair out."""

    im: bool
    source_greedy: bool
    im_cancelled: bool
    greedy: bool
    exchange: bool
    regret: bool
    high: float
    near: float


def try_bounds(
    of: Survivors, routes: Routes, limit: Limit, filters: frozenset[str]
) -> dict[str, int]:
    """Decide open pairs by bounds as far as these filters can; how many each of them cut."""
    pairs = _Pairs(of.a.masses, of.b.masses, of.left, of.right, of.value, of.state)
    if limit.upward:
        # Far pairs are wanted: what can be moved for less is ruled out.
        below = float(np.nextafter(limit.low, -np.inf))
        greedy = "greedy" in filters
        _try(pairs, routes, _Use(False, False, False, greedy, False, False, below, np.inf))
        close = of.state == IN
        of.state[close], of.value[close] = OUT, np.nan
        return {"greedy": int(close.sum())}
    use = _Use(
        "im" in filters,
        "source-greedy" in filters,
        "im-cancelled" in filters,
        "greedy" in filters,
        "exchange" in filters,
        "regret" in filters,
        limit.high,
        limit.near * (1 + 1e-12),
    )
    cut = _try(pairs, routes, use)
    return {"im": int(cut[0]), "im-cancelled": int(cut[1])}


@njit(nogil=True)
def _try(pairs, routes, use):  # pragma: no cover
    x, y, left, right, value, state = pairs
    supply, demand = np.empty(x.shape[1]), np.empty(x.shape[1])
    cut = np.zeros(2, np.int64)
    high, near = use.high, use.near
    hope = high * _HOPE if use.regret else high
    for k in range(len(left)):
        if state[k] != OPEN:
            continue
        p, q = x[left[k]], y[right[k]]
        if use.im and independent(p, q, routes, near, False, supply, demand) > near:
            state[k] = OUT
            cut[0] += 1
            continue
        bound = np.inf
        if use.source_greedy:
            bound = source_order(p, q, routes, high, supply, demand)
        if (
            bound > high
            and use.im_cancelled
            and independent(p, q, routes, near, True, supply, demand) > near
        ):
            state[k] = OUT
            cut[1] += 1
            continue
        rough = 0.0
        if bound > high and use.greedy:
            # Where regret is to follow, how far beyond the limit this one ends says whether it may.
            bound = rough = cheapest_first(p, q, routes, hope, supply, demand)
        if bound > high and use.exchange:
            bound = exchanged(p, q, routes, high, supply, demand)
        if bound > high and use.regret and rough <= hope:
            bound = regretted(p, q, routes, high, supply, demand)
        if bound <= high:
            value[k], state[k] = bound, IN
    return cut
