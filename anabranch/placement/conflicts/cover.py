"""Streams that both want a view, in a graph of one level: a vertex cover with levels.

Where downloads are cheap two devices may each want to hold the same view. No device needs to keep
more than it wants by itself, so only the wanted views matter, and of two streams that want one view
at least one must upload at the rate it needs there. Raising stream i to level l costs an extra
``e_i(l) = min over t >= l of cost_i(t) - cost_i(best)``. The paper's cover knows two
states per stream and misses the levels between (flaw F5).

Trees are solved by a recursion over the levels. Elsewhere a linear program is solved first: its
variables that come out whole are so in some best answer (Nemhauser and Trotter), and what is left,
usually nothing, goes to HiGHS as an integer program.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from anabranch.flow.process import njit
from anabranch.placement.conflicts.trees import Conflicts, cover_trees
from anabranch.placement.devices.program import solve_binary

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Cover", "Ladder", "ladders", "levelled_cover"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"


class Ladder(NamedTuple):
    """Levels of each unit, rising: entries ``offsets[u]:offsets[u + 1]``.

    `extra` is what reaching a level costs at least, `best` the level that is then best to take.
    """

    offsets: np.ndarray
    level: np.ndarray
    extra: np.ndarray
    best: np.ndarray


class Cover(NamedTuple):
    """The level entry taken by each unit (-1: none), and what the choice costs per component."""

    taken: np.ndarray
    component: np.ndarray
    cost: np.ndarray
    bound: np.ndarray
    method: np.ndarray


def ladders(
    unit: np.ndarray,
    rate: np.ndarray,
    price: np.ndarray,
    up: np.ndarray,
    value: np.ndarray,
    contested: np.ndarray,
) -> tuple[Ladder, np.ndarray]:
    """The levels of each unit that contested views ask for, and the entry of each contested row.

    Parameters
    ----------
    unit, rate, price
        All rows that the units want to keep.
    up, value
        Upload cost and least own cost of each unit.
    contested
        Which of the rows another unit wants as well.
    """
    order = np.lexsort((rate, unit))
    extra, best = _extras(unit[order], rate[order], price[order], up, value)
    at = order[contested[order]]
    kept = np.flatnonzero(contested[order])
    fresh = np.ones(len(at), bool)
    fresh[1:] = (unit[at][1:] != unit[at][:-1]) | (rate[at][1:] != rate[at][:-1])
    entry_of = np.full(len(unit), -1)
    entry_of[at] = np.cumsum(fresh) - 1
    first = kept[fresh]
    offsets = np.searchsorted(unit[at[fresh]], np.arange(len(up) + 1))
    ladder = Ladder(offsets, rate[at[fresh]], extra[first], best[first])
    return ladder, entry_of


def levelled_cover(ladder: Ladder, a: np.ndarray, b: np.ndarray, time_limit: float) -> Cover:
    """Choose levels so that of the two entries of every conflict at least one is reached.

    Examples
    --------
    >>> ladder = Ladder(np.array([0, 2, 3, 4]), np.array([1.0, 2, 1, 1]),
    ...                 np.array([2.0, 5, 3, 2]), np.array([1.0, 2, 1, 1]))
    >>> found = levelled_cover(ladder, np.array([0, 1]), np.array([2, 3]), 1.0)
    >>> found.taken.tolist(), found.cost.tolist(), found.method.tolist()
    ([0, -1, 3], [4.0], ['levelled tree'])
    """
    units = len(ladder.offsets) - 1
    owner = np.repeat(np.arange(units), np.diff(ladder.offsets))
    ends = owner[a], owner[b]
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(len(a)), ends), shape=(units, units))
    count, component = connected_components(links, directed=False)
    edges = np.bincount(component[ends[0]], minlength=count)
    tree = edges == np.bincount(component, minlength=count) - 1
    taken = np.full(units, -1)
    on_tree = tree[component[ends[0]]]
    if on_tree.any():
        conflicts = Conflicts(ends[0][on_tree], ends[1][on_tree], a[on_tree], b[on_tree])
        cover_trees(ladder, conflicts, taken)
    method = np.where(tree, "levelled tree", "lp kernel").astype(object)
    slack = np.zeros(count)
    if not tree.all():
        cyclic = ~on_tree
        kernel = _kernel(ladder, owner, a[cyclic], b[cyclic], component, count, time_limit)
        wanted = ~tree[component]
        taken[wanted] = kernel.taken[wanted]
        method[kernel.integer & ~tree] = "lp kernel + milp"
        method[kernel.searched & ~tree] = "local search"
        slack = np.where(tree, 0.0, kernel.slack)
    paid = np.where(taken >= 0, ladder.extra[np.maximum(taken, 0)], 0.0)
    cost = np.bincount(component, paid, count)
    bound = np.maximum(cost - slack, 0.0)
    return Cover(taken, component, cost, bound, method)


class _Kernel(NamedTuple):
    taken: np.ndarray
    slack: np.ndarray  # per component: how far above a lower bound the answer may be
    integer: np.ndarray
    searched: np.ndarray


class _Choices(NamedTuple):
    """Take entries (0 or 1) at least total `step` such that ``matrix @ taken >= low``."""

    step: np.ndarray
    matrix: csr_array
    low: np.ndarray

    def part(self, members: np.ndarray) -> _Choices:
        """What is left for some entries once all others are fixed as the relaxation has them."""
        kept = self.matrix[:, members]
        # With its other entry whole, a condition holds whatever this one is.
        rows = np.flatnonzero(np.diff(kept.indptr) == 2)
        return _Choices(self.step[members], kept[rows], self.low[rows])


def _choices(ladder: Ladder, owner: np.ndarray, a: np.ndarray, b: np.ndarray) -> _Choices:
    """One entry of each conflict, and no level without those below it."""
    step = ladder.extra.copy()
    inner = np.flatnonzero(owner[1:] == owner[:-1]) + 1
    step[inner] -= ladder.extra[inner - 1]
    row = np.arange(len(a) + len(inner))
    rows = np.concatenate([row[: len(a)], row[: len(a)], row[len(a) :], row[len(a) :]])
    columns = np.concatenate([a, b, inner - 1, inner])
    values = np.concatenate([np.ones(2 * len(a) + len(inner)), -np.ones(len(inner))])
    from scipy.sparse import coo_array, csr_array

    matrix = csr_array(coo_array((values, (rows, columns)), shape=(len(row), len(owner))))
    return _Choices(step, matrix, np.concatenate([np.ones(len(a)), np.zeros(len(inner))]))


def _kernel(
    ladder: Ladder,
    owner: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    component: np.ndarray,
    count: int,
    time_limit: float,
) -> _Kernel:
    from scipy.optimize import LinearConstraint

    choices = _choices(ladder, owner, a, b)
    reached = _relaxation(choices)
    half = np.flatnonzero((reached > 0) & (reached < 1))
    integer = np.zeros(count, bool)
    searched = np.zeros(count, bool)
    slack = np.zeros(count)
    deadline = time.monotonic() + time_limit
    for members in _connected(choices.part(half), half):
        small = choices.part(members)
        home = component[owner[members[0]]]
        integer[home] = True
        relaxed = float(small.step @ reached[members])
        answer, bound, proved = solve_binary(
            small.step,
            LinearConstraint(small.matrix, small.low, np.inf),
            len(members),
            deadline - time.monotonic(),
        )
        if proved and answer is not None:
            reached[members] = np.round(answer)
            continue
        # All of them may be taken; then drop what is not needed.
        start = np.ones(len(members)) if answer is None else np.round(answer)
        reached[members] = _lower(small, start, time_limit)
        searched[home] = True
        slack[home] += max(float(small.step @ reached[members]) - max(bound, relaxed), 0.0)
    taken = np.full(len(ladder.offsets) - 1, -1)
    at = np.flatnonzero(reached > 0.5)
    taken[owner[at]] = at  # entries rise within a unit: the last one written is the highest
    return _Kernel(taken, slack, integer, searched)


def _relaxation(choices: _Choices) -> np.ndarray:
    """An optimal vertex of the linear program: every entry is 0, 1 or one half."""
    used = np.unique(choices.matrix.indices)
    scale = 1.0 / max(float(choices.step.max()), 1e-300)
    from scipy.optimize import linprog

    solved = linprog(
        choices.step[used] * scale,
        A_ub=-choices.matrix[:, used],
        b_ub=-choices.low,
        bounds=(0, 1),
        method="highs-ds",  # the dual simplex ends in a vertex
    )
    if solved.x is None:
        raise RuntimeError(f"HiGHS gave no answer to a linear program: {solved.message}")
    reached = np.zeros(len(choices.step))
    reached[used] = solved.x
    whole = np.round(reached)
    return np.where(np.abs(reached - whole) < 1e-6, whole, reached)


def _connected(part: _Choices, entries: np.ndarray) -> list[np.ndarray]:
    """Entries that conditions tie together, group by group."""
    if not len(entries):
        return []
    from scipy.sparse.csgraph import connected_components

    _, label = connected_components(abs(part.matrix).T @ abs(part.matrix), directed=False)
    order = np.argsort(label, kind="stable")
    return np.split(entries[order], np.flatnonzero(np.diff(label[order])) + 1)


def _lower(choices: _Choices, chosen: np.ndarray, time_limit: float) -> np.ndarray:
    """Local search: drop what may be dropped, the most expensive first; then swap one for more."""
    deadline = time.monotonic() + time_limit
    step, low = choices.step, choices.low
    by_column = choices.matrix.tocsc()
    chosen = chosen.copy()
    value = choices.matrix @ chosen

    def column(k: int) -> tuple[np.ndarray, np.ndarray]:
        span = slice(by_column.indptr[k], by_column.indptr[k + 1])
        return by_column.indices[span], by_column.data[span]

    def drop_all() -> None:
        dropped = True
        while dropped:
            dropped = False
            for k in np.argsort(-step):
                rows, weight = column(k)
                if chosen[k] and np.all(value[rows] - weight >= low[rows]):
                    chosen[k] = 0
                    value[rows] -= weight
                    dropped = True

    drop_all()
    best = float(step @ chosen)
    for k in np.argsort(step):
        if chosen[k]:
            continue
        if time.monotonic() > deadline:
            break
        saved, saved_value = chosen.copy(), value.copy()
        rows, weight = column(int(k))
        chosen[k] = 1
        value[rows] += weight
        if np.any(value[rows] < low[rows]):
            chosen, value = saved, saved_value
            continue
        drop_all()
        now = float(step @ chosen)
        if now < best - 1e-12:
            best = now
        else:
            chosen, value = saved, saved_value
    return chosen


@njit
def _extras(unit, rate, price, up, value):
    # Rows are sorted by unit and rising rate. cost(t) for t = a row's rate keeps what is above it.
    extra = np.empty(len(unit))
    best = np.empty(len(unit))
    k = len(unit) - 1
    while k >= 0:
        u = unit[k]
        kept = 0.0
        least, least_level = np.inf, 0.0
        while k >= 0 and unit[k] == u:
            level = rate[k]
            cost = up[u] * level + kept
            if cost < least:
                least, least_level = cost, level
            while k >= 0 and unit[k] == u and rate[k] == level:
                extra[k] = max(least - value[u], 0.0)
                best[k] = least_level
                kept += price[k]
                k -= 1
    return extra, best
