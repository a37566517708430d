"""Zones: which worker has which query, so that queries near each other share a worker."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["workers_for", "zones"]

# Estimated from kernel figures: an object costs a worker about 2 us to read and keep, and 35 ps
# for each of the k of each query. Beyond this sum of k another worker saves more than it costs.
_WORTH_A_WORKER = 50_000


def zones(points: np.ndarray, workers: int, weights: Sequence[float] | None = None) -> np.ndarray:
    """A worker for each query point.

    The space is halved, along the axis on which the points spread most, again and again, until
    there is a zone for every worker; each holds its share of the points.

    Examples
    --------
    >>> zones(np.array([[0.0], [9.0], [1.0], [8.0]]), 2).tolist()
    [0, 1, 0, 1]
    >>> np.bincount(zones(np.random.default_rng(0).random((100, 2)), 3)).tolist()
    [33, 34, 33]
    """
    shares = np.ones(workers) if weights is None else np.asarray(weights, np.float64)
    found = np.zeros(len(points), np.int64)
    waiting = [(np.arange(len(points)), 0, workers)]
    while waiting:
        rows, first, last = waiting.pop()
        if last - first == 1:
            found[rows] = first
            continue
        middle = (first + last) // 2
        part = shares[first:middle].sum() / max(shares[first:last].sum(), 1e-300)
        if len(rows):
            axis = int(np.argmax(np.ptp(points[rows], axis=0)))
            rows = rows[np.argsort(points[rows, axis], kind="stable")]
        cut = round(len(rows) * part)
        waiting += [(rows[:cut], first, middle), (rows[cut:], middle, last)]
    return found


def workers_for(queries: int, total_k: int, most: int) -> int:
    """How many workers pay for so many queries with this sum of all k, if there are `most`.

    Examples
    --------
    >>> [workers_for(queries, 9 * queries, 8) for queries in (400, 10_000, 100_000)]
    [1, 2, 8]
    """
    return max(1, min(most, -(-total_k // _WORTH_A_WORKER), queries))
