"""The two compiled loops of the chain: lower bounds over runs of rows, then bounds of single pairs.

The first looks at every pair in a run, cheapest filter first, and lets few through. The second
tries to accept what is left by an upper bound, or to rule it out by a dearer lower bound.
"""

from __future__ import annotations

import math

import numpy as np

from anabranch.correlation.emd.bounds import (
    Routes,
    cheapest_first,
    exchanged,
    independent,
    regretted,
    source_order,
)
from anabranch.correlation.emd.ground import Ground
from anabranch.correlation.emd.profile import Profile, axis_of
from anabranch.correlation.emd.verdict import Limit
from anabranch.correlation.filters.tiles import admit
from anabranch.flow.process import njit

__all__ = ["SCANNED", "scan", "settle"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

# In the order in which the scan applies them.
SCANNED = ("centroid", "normal", "potentials", "duals", "projections")
_BLOCK = 8
# Of pairs whose greedy flow costs this much more than the limit few match.
_HOPE = 1.1


def scan(
    a: Profile, b: Profile, lessons, learnt: int, first, last, flags, limit: Limit,
    ground: Ground, stamps, at, rows: int, survivors: int, counts, work,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Survivors of the next left rows, as places in the two profiles; `at` says where to go on.

    Left rows are taken in the order of their block, that is of time.
    """
    margin = limit.margin(ground)
    edges = np.zeros(0)
    if a.moments.shape[1]:
        edges = axis_of(ground.potential)[1]
    out_i, out_j = np.empty(survivors, np.int32), np.empty(survivors, np.int32)
    directions = 0
    if a.shadows.shape[1]:
        directions = a.shadows.shape[1] // (len(ground.costs) - 1)
    found = _scan(
        (a.spot, a.pool, a.centres, a.moments, a.shadows, lessons[0]),
        (b.rows, b.pool, b.centres, b.moments, b.shadows, lessons[1]),
        -(-learnt // _BLOCK) * _BLOCK, first, last, flags, limit.near + ground.epsilon,
        np.float32(limit.near + margin), ground.metric == "manhattan", directions, edges,
        stamps, at, rows, counts, work, out_i, out_j,
    )  # fmt: skip
    return out_i[:found], out_j[:found]


def settle(
    x: np.ndarray,
    y: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    routes: Routes,
    limit: Limit,
    filters: frozenset[str],
    around: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """For each pair a bound, and 0 (open), 1 (matches) or 2 (does not); how many were cut."""
    value, state = np.full(len(left), np.nan), np.zeros(len(left), np.int8)
    if limit.upward:
        # Far pairs are wanted: what can be moved for less is ruled out.
        use = np.array([False, False, False, "greedy" in filters, False, False])
        below = np.nextafter(limit.low, -np.inf)
        _settle(x, y, left, right, routes, below, np.inf, use, value, state)
        close = state == 1
        state[close], value[close] = 2, np.nan
        return value, state, {"greedy": int(close.sum())}
    names = ("im", "source-greedy", "im-cancelled", "greedy", "exchange", "regret")
    use = np.array([name in filters for name in names])
    if around is not None:
        sure = around <= limit.high
        value[sure], state[sure] = around[sure], 1
    near = limit.near * (1 + 1e-12)
    cut = _settle(x, y, left, right, routes, limit.high, near, use, value, state)
    return value, state, {"im": int(cut[0]), "im-cancelled": int(cut[1])}


@njit(nogil=True)
def _settle(x, y, left, right, routes, high, near, use, value, state):  # pragma: no cover
    n = x.shape[1]
    supply, demand = np.empty(n), np.empty(n)
    cut = np.zeros(2, np.int64)
    hope = high * _HOPE if use[5] else high
    for k in range(len(left)):
        if state[k] != 0:
            continue
        p, q = x[left[k]], y[right[k]]
        if use[0] and independent(p, q, routes, near, False, supply, demand) > near:
            state[k] = 2
            cut[0] += 1
            continue
        if use[1]:
            bound = source_order(p, q, routes, high, supply, demand)
            if bound <= high:
                value[k], state[k] = bound, 1
                continue
        if use[2] and independent(p, q, routes, near, True, supply, demand) > near:
            state[k] = 2
            cut[1] += 1
            continue
        rough = 0.0
        if use[3]:
            # Where regret is to follow, how far beyond the limit this one ends says whether it may.
            rough = cheapest_first(p, q, routes, hope, supply, demand)
            if rough <= high:
                value[k], state[k] = rough, 1
                continue
        if use[4]:
            bound = exchanged(p, q, routes, high, supply, demand)
            if bound <= high:
                value[k], state[k] = bound, 1
                continue
        if use[5] and rough <= hope:
            bound = regretted(p, q, routes, high, supply, demand)
            if bound <= high:
                value[k], state[k] = bound, 1
    return cut


@njit(nogil=True)
def _beyond(u, v, count, near):  # pragma: no cover
    """Whether any of the first `count` keys are too far apart, eight at a time."""
    for begin in range(0, count, _BLOCK):
        hit = False
        for c in range(begin, begin + _BLOCK):
            hit |= abs(u[c] - v[c]) > near
        if hit:
            return True
    return False


@njit(nogil=True)
def _cross(u, v, edges):  # pragma: no cover
    """A lower bound by the signed area left and right of where two fitted normals cross.

    The area to the left minus the area to the right of any place is no more than the area between
    the two cumulative histograms; where the fitted normals cross it is likely to be large.
    """
    m, s, o, r = u[0], u[1], v[0], v[1]
    last = len(edges) - 1
    whole = u[2 + last] - v[2 + last]
    best = abs(whole)
    if s != r and last > 0:
        cross = (m * r - o * s) / (r - s)
        if edges[0] < cross < edges[last]:
            k = min(max(np.searchsorted(edges, cross), 1), last)
            for e in (k - 1, k):
                best = max(best, abs(2 * (u[2 + e] - v[2 + e]) - whole))
    return best


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _shadow(u, v, directions, manhattan, near):  # pragma: no cover
    """Whether the distance along one direction (Manhattan: all axes together) is too great."""
    width = len(u) // directions
    total = np.float32(0)
    for k in range(directions):
        part = np.float32(0)
        for c in range(k * width, (k + 1) * width):
            part += abs(u[c] - v[c])
        total += part
        if part > near or (manhattan and total > near):
            return True
    return False


@njit(nogil=True)
def _scan(
    a, b, learnt, first, last, flags, near, near32, manhattan, directions, edges,
    stamps, at, most, counts, work, out_i, out_j,
):  # fmt: skip  # pragma: no cover
    t, s, w_left, w_right, epoch, mask, right_epoch, right_mask = stamps
    spot, pool, centres, moments, shadows, lessons = a
    rows, right_pool, right_centres, right_moments, right_shadows, right_lessons = b
    found, room = 0, len(out_i)
    row, skip = at[0], at[1]
    end = min(row + most, len(spot))
    while row < end:
        i = spot[row]
        for j in range(first[i] + skip, last[i]):
            if not admit(row, rows[j], t, s, w_left, w_right, epoch, mask, right_epoch, right_mask):
                continue
            if found == room:
                at[0], at[1] = row, j - first[i]
                return found
            counts[0] += 1
            work[i] += 1
            if flags[0] and centres.shape[1]:
                apart = 0.0
                for c in range(centres.shape[1]):
                    e = abs(centres[i, c] - right_centres[j, c])
                    apart += e if manhattan else e * e
                if (apart if manhattan else math.sqrt(apart)) > near:
                    counts[1] += 1
                    continue
            if flags[1] and len(edges) and _cross(moments[i], right_moments[j], edges) > near:
                counts[2] += 1
                continue
            if flags[2] and _beyond(pool[i], right_pool[j], pool.shape[1], near32):
                counts[3] += 1
                continue
            if flags[3] and _beyond(lessons[i], right_lessons[j], learnt, near32):
                counts[4] += 1
                continue
            if (
                flags[4]
                and directions
                and _shadow(shadows[i], right_shadows[j], directions, manhattan, near32)
            ):
                counts[5] += 1
                continue
            out_i[found] = i
            out_j[found] = j
            found += 1
        row, skip = row + 1, 0
    at[0], at[1] = row, 0
    return found
