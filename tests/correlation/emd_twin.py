"""The Earth Mover's Distance as defined: a linear program over all flows, nothing cancelled."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from tests.correlation import twin


def emd(p: np.ndarray, q: np.ndarray, costs: np.ndarray) -> float:
    """The least cost of a flow with the histograms as its margins.

    Examples
    --------
    >>> line = np.abs(np.arange(3)[:, None] - np.arange(3)[None])
    >>> emd(np.array([2, 0, 0]), np.array([0, 1, 1]), line)
    1.5
    """
    n = len(p)
    p, q = np.asarray(p, float) / np.sum(p), np.asarray(q, float) / np.sum(q)
    out, into = np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))
    found = linprog(
        costs.ravel(), A_eq=np.vstack([out, into])[:-1], b_eq=np.concatenate([p, q])[:-1]
    )
    assert found.status == 0, found.message
    return float(found.fun)


def dual(p: np.ndarray, q: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Feasible and optimal duals of the same program; not conjugate to each other."""
    n = len(p)
    rows = np.kron(np.eye(n), np.ones((n, 1))), np.kron(np.ones((n, 1)), np.eye(n))
    goal = -np.concatenate([p / np.sum(p), q / np.sum(q)])
    bound = float(costs.max()) * 2 + 1
    found = linprog(goal, A_ub=np.hstack(rows), b_ub=costs.ravel(), bounds=(-bound, bound))
    assert found.status == 0, found.message
    return found.x[:n], found.x[n:]


def distances(left: twin.Rows, right: twin.Rows, costs: np.ndarray) -> dict:
    """The distance of every pair of rows, by their ids."""
    right = list(right)
    return {(a["id"], b["id"]): emd(a["h"], b["h"], costs) for a in left for b in right}


def clear_threshold(values: list[float], share: float) -> float:
    """A threshold that about this share of the distances is below, and none is close to."""
    known = np.unique(np.concatenate([[0.0], values, [max(values, default=0.0) + 1]]))
    gaps = np.flatnonzero(np.diff(known) > 1e-5)
    at = gaps[min(int(share * len(gaps)), len(gaps) - 1)]
    return float((known[at] + known[at + 1]) / 2)
