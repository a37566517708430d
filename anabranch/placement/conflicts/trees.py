"""Conflicts that form trees: the best levels by a recursion over them, compiled.

Letters: u, v units, p the parent of a unit, s a state of a unit: 0 is "no level", s is its entry
``offsets[u] + s - 1``; k a position.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.flow.process import njit

__all__ = ["Conflicts", "cover_trees"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"


class Conflicts(NamedTuple):
    """Two units each, and the entry of either that resolves the conflict."""

    unit_a: np.ndarray
    unit_b: np.ndarray
    entry_a: np.ndarray
    entry_b: np.ndarray


class _Forest(NamedTuple):
    """Units from the roots down, each with its parent and the two entries of their conflict."""

    order: np.ndarray
    parent: np.ndarray
    mine: np.ndarray
    theirs: np.ndarray


@njit
def cover_trees(ladder, conflicts, taken):
    """Set the level entry that each unit takes, -1 for none, where conflicts form trees."""
    units = len(ladder.offsets) - 1
    starts, at = _neighbours(units, conflicts)
    forest = _forest(units, conflicts, starts, at)
    base = ladder.offsets + np.arange(units + 1)  # first state of each unit
    cost = _state_costs(ladder, forest, base)
    _choose(ladder, forest, base, cost, taken)


@njit
def _neighbours(units, conflicts):
    # The conflicts of each unit: k, or -k - 1 where the unit is the second of conflict k.
    starts = np.zeros(units + 1, np.int64)
    for k in range(len(conflicts.unit_a)):
        starts[conflicts.unit_a[k] + 1] += 1
        starts[conflicts.unit_b[k] + 1] += 1
    for u in range(units):
        starts[u + 1] += starts[u]
    at = starts[:-1].copy()
    found = np.empty(starts[units], np.int64)
    for k in range(len(conflicts.unit_a)):
        u, v = conflicts.unit_a[k], conflicts.unit_b[k]
        found[at[u]] = k
        at[u] += 1
        found[at[v]] = -k - 1
        at[v] += 1
    return starts, found


@njit
def _forest(units, conflicts, starts, of):
    parent = np.full(units, -1, np.int64)
    mine = np.full(units, -1, np.int64)
    theirs = np.full(units, -1, np.int64)
    seen = np.zeros(units, np.bool_)
    order = np.empty(units, np.int64)
    count = 0
    for root in range(units):
        if seen[root] or starts[root] == starts[root + 1]:
            continue
        seen[root] = True
        order[count] = root
        head = count
        count += 1
        while head < count:
            u = order[head]
            head += 1
            for j in range(starts[u], starts[u + 1]):
                k = of[j] if of[j] >= 0 else -of[j] - 1
                v = conflicts.unit_b[k] if of[j] >= 0 else conflicts.unit_a[k]
                if not seen[v]:
                    seen[v] = True
                    parent[v] = u
                    mine[v] = conflicts.entry_b[k] if of[j] >= 0 else conflicts.entry_a[k]
                    theirs[v] = conflicts.entry_a[k] if of[j] >= 0 else conflicts.entry_b[k]
                    order[count] = v
                    count += 1
    return _Forest(order[:count].copy(), parent, mine, theirs)


@njit
def _state_costs(ladder, forest, base):
    # From the leaves up: what a unit's state costs with everything below it at its best. A child is
    # free where its parent's state resolves their conflict, and forced to its own entry elsewhere.
    offsets, units = ladder.offsets, len(ladder.offsets) - 1
    cost = np.zeros(base[units])
    relief = np.zeros(base[units])  # what becomes cheaper from this state of a parent on
    whole = np.zeros(units)  # what children cost if all of them are forced
    for k in range(len(forest.order) - 1, -1, -1):
        u = forest.order[k]
        p = forest.parent[u]
        running = whole[u]
        free, forced = np.inf, np.inf
        need = forest.mine[u] - offsets[u] + 1 if p >= 0 else 0
        for s in range(base[u + 1] - base[u]):
            running += relief[base[u] + s]
            own = ladder.extra[offsets[u] + s - 1] if s > 0 else 0.0
            cost[base[u] + s] = running + own
            free = min(free, running + own)
            if s >= need:
                forced = min(forced, running + own)
        if p >= 0:
            whole[p] += forced
            relief[base[p] + forest.theirs[u] - offsets[p] + 1] += free - forced
    return cost


@njit
def _choose(ladder, forest, base, cost, taken):
    # From the roots down: the cheapest state that the parent's state leaves.
    offsets = ladder.offsets
    state = np.zeros(len(offsets) - 1, np.int64)
    for u in forest.order:
        low = 0
        p = forest.parent[u]
        if p >= 0 and state[p] < forest.theirs[u] - offsets[p] + 1:
            low = forest.mine[u] - offsets[u] + 1
        choice = low
        for s in range(low + 1, base[u + 1] - base[u]):
            if cost[base[u] + s] < cost[base[u] + choice]:
                choice = s
        state[u] = choice
        taken[u] = offsets[u] + choice - 1 if choice > 0 else -1
