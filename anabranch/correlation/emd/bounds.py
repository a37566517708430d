"""Bounds of the Earth Mover's Distance of single pairs, compiled.

Mass that both histograms have in a bin need not move if the ground distance is a metric, so most
bounds look only at what is left after *cancelling* it. All of them compute in float64 in a fixed
order; the caller compares them with the threshold and its tolerance.

==================  ====================================================================
`cheapest_first`    upper: moves mass over the cheapest pair of bins that is left
`regretted`         upper: moves mass where the second best way costs most more than the best
                    (Vogel's approximation), then two flows swap targets for as long as it helps
`source_order`      upper: every source in turn fills its nearest bins
`independent`       lower: every source fills its nearest bins as if it were alone, and
                    the same for targets (LB_IM of Assent et al., 2006)
==================  ====================================================================

Letters of the compiled loops: `p` and `q` are two histograms, `i` a bin that mass leaves, `j` one
where it arrives, `k` a rank among the nearest bins of another, `u` and `v` parts of a flow, `n` how
many parts there are, `left` the mass that is still to move.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.correlation.emd.ground import Ground
from anabranch.flow.cache import CACHE
from anabranch.flow.process import njit

__all__ = [
    "DUST",
    "Flow",
    "Routes",
    "cancel",
    "cheapest_first",
    "compact",
    "flow_of",
    "independent",
    "left_over",
    "mended",
    "regretted",
    "routes_of",
    "source_order",
]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

# Less than this is what rounding leaves of equal masses.
DUST = 1e-15
_PASSES = 6  # over a flow that begins well


class Routes(NamedTuple):
    """The ways between bins, sorted by cost: all of them, and those out of each bin."""

    costs: np.ndarray
    sources: np.ndarray
    targets: np.ndarray
    nearest: np.ndarray

    @property
    def nbytes(self) -> int:
        """Bytes held: 20 for each pair of bins."""
        return sum(part.nbytes for part in self)


class Flow(NamedTuple):
    """Room for the parts of a flow: from which bin, to which, how much."""

    begins: np.ndarray
    ends: np.ndarray
    masses: np.ndarray


def routes_of(ground: Ground) -> Routes:
    """The sorted ways of a ground distance; the process keeps those last asked for.

    Examples
    --------
    >>> routes = routes_of(Ground("line", 3))
    >>> routes is routes_of(Ground("line", 3)), routes.nearest[0].tolist(), routes.nbytes
    (True, [0, 1, 2], 156)
    """
    # All queries share them, so they are their own owner: they go once nobody has asked for long.
    token = f"routes {ground.digest} {len(ground.costs)}"
    return CACHE.kept(token, token, lambda: _sorted_ways(ground.costs))


def _sorted_ways(costs: np.ndarray) -> Routes:
    cells = np.argsort(costs, axis=None, kind="stable")
    sources, targets = np.divmod(cells, len(costs))
    ways = sources != targets  # equal mass is cancelled before anything moves
    return Routes(
        costs,
        sources[ways].astype(np.int32),
        targets[ways].astype(np.int32),
        np.argsort(costs, axis=1, kind="stable").astype(np.int32),
    )


@njit(nogil=True)
def cancel(p, q, supply, demand):  # pragma: no cover
    """What must leave and what must arrive; the mass to move."""
    total = 0.0
    for c in range(len(p)):
        apart = p[c] - q[c]
        supply[c] = apart if apart > DUST else 0.0
        demand[c] = -apart if apart < -DUST else 0.0
        total += supply[c]
    return total


@njit(nogil=True)
def cheapest_first(p, q, routes, limit, supply, demand):  # pragma: no cover
    """The cost of moving mass over the cheapest way left; infinity if it will exceed `limit`."""
    costs, sources, targets, _ = routes
    left = cancel(p, q, supply, demand)
    spent = 0.0
    for way in range(len(sources)):
        if left <= DUST:
            break
        i, j = sources[way], targets[way]
        a, b = supply[i], demand[j]
        if a == 0.0 or b == 0.0:
            continue
        cost = costs[i, j]
        if spent + left * cost > limit:  # every way from here on costs at least this
            return np.inf
        flow = min(a, b)
        supply[i] = a - flow
        demand[j] = b - flow
        spent += flow * cost
        left -= flow
    return spent + left_over(left, routes)


@njit(nogil=True)
def flow_of(bins):  # pragma: no cover
    """Room for a flow and for the parts that mending adds."""
    most = 3 * bins
    return Flow(np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most))


@njit(inline="always")
def left_over(left, routes):  # pragma: no cover
    """What dust that was not moved costs at most."""
    costs, sources, targets, _ = routes
    return max(left, 0.0) * costs[sources[-1], targets[-1]] if len(sources) else 0.0


@njit(nogil=True)
def _best_two(i, begin, room, nearest):  # pragma: no cover
    """The nearest two bins of bin i with room, from rank `begin` on, and the rank of the first.

    -1 stands for a bin that there is not.
    """
    bins = len(room)
    at = begin
    while at < bins and room[nearest[i, at]] <= 0.0:
        at += 1
    if at == bins:
        return -1, -1, at
    for k in range(at + 1, bins):
        if room[nearest[i, k]] > 0.0:
            return nearest[i, at], nearest[i, k], at
    return nearest[i, at], -1, at


@njit(nogil=True)
def regretted(p, q, routes, limit, supply, demand):  # pragma: no cover
    """The cost of the flow of Vogel's approximation, mended; infinity if it ends beyond `limit`.

    The bin whose second best way costs most more than its best one goes first.
    """
    costs, nearest = routes.costs, routes.nearest
    left = cancel(p, q, supply, demand)
    bins = len(p)
    flow = flow_of(bins)
    # The best and the second best way of each bin among those that are open; -1 if unknown.
    best, second = np.full(bins, -1, np.int32), np.full(bins, -1, np.int32)
    at = np.zeros(bins, np.int32)
    spent, n = 0.0, 0
    while left > DUST and n < 2 * bins:
        worst, chosen = -1.0, -1
        for i in range(bins):
            leaves = supply[i] > 0.0
            if not leaves and demand[i] <= 0.0:
                continue
            room = demand if leaves else supply
            if best[i] < 0 or room[best[i]] <= 0.0 or (second[i] >= 0 and room[second[i]] <= 0.0):
                best[i], second[i], at[i] = _best_two(i, at[i], room, nearest)
                if best[i] < 0:
                    continue
            regret = np.inf
            if second[i] >= 0:
                regret = costs[i, second[i]] - costs[i, best[i]]
            if regret > worst:
                worst, chosen = regret, i
        if chosen < 0:
            break
        i, j = chosen, best[chosen]
        if supply[chosen] <= 0.0:
            i, j = j, i
        mass = min(supply[i], demand[j])
        supply[i] = supply[i] - mass
        demand[j] = demand[j] - mass
        flow.begins[n], flow.ends[n], flow.masses[n] = i, j, mass
        n += 1
        spent += mass * costs[i, j]
        left -= mass
    spent += left_over(left, routes)
    if spent <= limit:
        return spent
    return mended(spent, n, flow, costs, limit, _PASSES)


@njit(nogil=True)
def mended(spent, n, flow, costs, limit, passes):  # pragma: no cover
    """The cost of a flow of n parts once two of them swap targets where that helps."""
    begins, ends, masses = flow
    most = len(masses)
    for turn in range(passes):
        before = spent
        for u in range(n):
            for v in range(u):
                m = min(masses[u], masses[v])
                if m <= 0.0:
                    continue
                i, j, k, e = begins[u], ends[u], begins[v], ends[v]
                gain = costs[i, j] + costs[k, e] - costs[i, e] - costs[k, j]
                if gain <= 1e-12:
                    continue
                # Both parts swap targets; what is left of the greater one stays as it was.
                spent -= m * gain
                rest_u, rest_v = masses[u] - m, masses[v] - m
                ends[u], ends[v] = e, j
                masses[u], masses[v] = m, m
                if rest_u + rest_v > 0.0 and n < most:
                    begins[n] = i if rest_u > 0.0 else k
                    ends[n] = j if rest_u > 0.0 else e
                    masses[n] = max(rest_u, rest_v)
                    n += 1
                elif rest_u + rest_v > 0.0:
                    return np.inf
                if spent <= limit:
                    return spent
        # Passes gain less and less, so as many as are left would not be enough.
        if spent - limit > (passes - 1 - turn) * (before - spent):
            break
    return spent if spent <= limit else np.inf


@njit(nogil=True)
def source_order(p, q, routes, limit, supply, demand):  # pragma: no cover
    """The cost if each source in turn fills the nearest bins that have room."""
    costs, nearest = routes.costs, routes.nearest
    left = cancel(p, q, supply, demand)
    spent = 0.0
    for i in range(len(p)):
        if supply[i] == 0.0:
            continue
        for k in range(nearest.shape[1]):
            j = nearest[i, k]
            if demand[j] == 0.0:
                continue
            flow = min(supply[i], demand[j])
            supply[i] -= flow
            demand[j] -= flow
            spent += flow * costs[i, j]
            left -= flow
            if spent > limit:
                return np.inf
            if supply[i] <= 0.0:
                break
    return spent + left_over(left, routes)


@njit(nogil=True)
def independent(p, q, routes, limit, cancelled, supply, demand):  # pragma: no cover
    """The cost if each source, or each target, had all the others to itself: the greater.

    Stops as soon as it exceeds `limit`.
    """
    if cancelled:
        cancel(p, q, supply, demand)
    else:
        for c in range(len(p)):
            supply[c], demand[c] = p[c], q[c]
    return max(_one_way(supply, demand, routes, limit), _one_way(demand, supply, routes, limit))


@njit(nogil=True)
def _one_way(supply, room, routes, limit):  # pragma: no cover
    costs, _, _, nearest = routes
    spent = 0.0
    for i in range(len(supply)):
        left = supply[i]
        if left == 0.0:
            continue
        for k in range(nearest.shape[1]):
            j = nearest[i, k]
            flow = min(left, room[j])
            if flow > 0.0:
                spent += flow * costs[i, j]
                left -= flow
                if left <= 0.0:
                    break
        if spent > limit:
            break
    return spent


@njit(nogil=True)
def compact(p, q, costs):  # pragma: no cover
    """The cancelled problem: bins and masses that leave, bins and masses that arrive, costs."""
    n = len(p)
    sources, targets = np.empty(n, np.int64), np.empty(n, np.int64)
    a, b = np.empty(n), np.empty(n)
    rows = cols = 0
    leaving = arriving = 0.0
    for c in range(n):
        apart = p[c] - q[c]
        if apart > DUST:
            sources[rows], a[rows] = c, apart
            leaving += apart
            rows += 1
        elif apart < -DUST:
            targets[cols], b[cols] = c, -apart
            arriving -= apart
            cols += 1
    matrix = np.empty((rows, cols))
    for i in range(rows):
        for j in range(cols):
            matrix[i, j] = costs[sources[i], targets[j]]
    if rows and cols:
        for j in range(cols):  # rounding: what leaves must arrive
            b[j] *= leaving / arriving
    return sources[:rows], a[:rows].copy(), targets[:cols], b[:cols].copy(), matrix
