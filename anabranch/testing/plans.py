"""The law of plans, for every plan: yours and ours."""

from __future__ import annotations

import pickle

import numpy as np

from anabranch.flow.hashing import mix
from anabranch.plans.plan import LEFT, RIGHT, SIDES, Plan, Routes, Rows, read_back
from anabranch.plans.ranges import Ranges

__all__ = ["check_plan"]


def check_plan(
    plan: Plan, window: tuple[int, int] = (60_000_000, 30_000_000), rows: int = 300, seed: int = 0
) -> None:
    """Raise `AssertionError` unless `plan` obeys the law of plans.

    Random rows of both sides are routed; every pair that the window lets join and that the plan
    says may match must meet in exactly one worker, and rows of a side that it sends `once` go to
    one worker. It must also answer for a row alone, and survive pickling and its JSON form, if it
    has one. A plan of ranges must be bound first.

    Examples
    --------
    >>> from anabranch.plans.hashed import grid
    >>> check_plan(grid(3, 2))
    """
    if not isinstance(plan, Plan):
        raise TypeError(f"check_plan takes a plan such as ab.grid(2, 2), got {plan!r}")
    random = np.random.default_rng(seed)
    left, right = (_drawn(plan, window, rows, random) for _ in (LEFT, RIGHT))
    homes = [_homes(plan, side, of, window) for side, of in ((LEFT, left), (RIGHT, right))]
    apart = left.t[:, None] - right.t[None, :]
    due = (apart >= -window[0]) & (apart <= window[1]) & plan.may_match(left, right)
    meetings = _meetings(*homes)
    wrong = np.argwhere(due & (meetings != 1))
    if len(wrong):
        i, j = wrong[0]
        raise AssertionError(
            f"{plan}: {len(wrong)} of {int(due.sum())} joinable pairs do not meet exactly once; "
            f"left t={left.t[i]} goes to {np.flatnonzero(homes[LEFT][i]).tolist()}, right "
            f"t={right.t[j]} to {np.flatnonzero(homes[RIGHT][j]).tolist()}"
        )
    for side, where in enumerate(homes):
        several = ((where > 0).sum(axis=1) != 1).any()
        assert not (plan.once(side) and several), f"{plan}: rows of {SIDES[side]} lie on several"
    # A plan class of one's own need not be fit for a log.
    twins = [pickle.loads(pickle.dumps(plan)), read_back(plan) or plan]
    for side, of in ((LEFT, left), (RIGHT, right)):
        some = random.permutation(rows)[: rows // 7]
        again = _homes(plan, side, of.take(some), window)
        assert (again == homes[side][some]).all(), f"{plan}: a row's workers depend on other rows"
        for twin in twins:
            same = _homes(twin, side, of, window)
            assert (same == homes[side]).all(), f"{plan}: a copy of the plan routes differently"


def _drawn(plan: Plan, window: tuple[int, int], rows: int, random: np.random.Generator) -> Rows:
    """Rows with few keys, and values within and beyond a plan's range and on its edges."""
    t = np.sort(random.integers(0, 6 * max(*window, 1), rows)) + 10**15
    low, high, ranges = 0.0, 1.0, 10
    if isinstance(plan, Ranges):
        low, high, ranges = plan.low or 0.0, plan.high or 0.0, plan.ranges
    width = high - low
    anywhere = random.uniform(low - 0.1 * width, high + 0.1 * width, rows)
    edges = low + width * random.integers(0, ranges + 1, rows) / ranges
    value = np.where(random.random(rows) < 0.3, edges, anywhere)
    ids, keys = random.integers(0, 10**9, rows), random.integers(0, 20, rows)
    return Rows(t, mix(ids), mix(keys), value)


def _meetings(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """In how many workers each left row shares a role with each right row."""
    one, two, both = (
        (left & bits == bits).astype(np.int64) @ (right & bits == bits).T.astype(np.int64)
        for bits in (1, 2, 3)
    )
    total: np.ndarray = one + two - both
    return total


def _homes(plan: Plan, side: int, rows: Rows, window: tuple[int, int]) -> np.ndarray:
    """A row by worker matrix of the roles that its copy has there, 0 where none goes."""
    offsets, workers, roles = Routes(*plan.route(side, rows, window))
    n = len(rows.t)
    assert len(offsets) == n + 1 and offsets[-1] == len(workers), f"{plan}: offsets do not fit"
    if len(workers):
        found = workers.min(), workers.max()
        assert found[0] >= 0 and found[1] < plan.workers, f"{plan}: worker out of range, {found}"
    copies, at = np.zeros((n, plan.workers), np.int8), np.repeat(np.arange(n), np.diff(offsets))
    np.add.at(copies, (at, workers), 1)
    assert copies.max(initial=0) <= 1, f"{plan}: a row goes to the same worker twice"
    if roles is None:
        return copies
    assert np.isin(roles, (1, 2, 3)).all(), f"{plan}: roles are 1, 2 or 3, got {set(roles)}"
    copies[at, workers] = roles
    return copies
