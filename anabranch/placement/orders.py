"""Orders of a view graph, compiled: rows by what they read, views by their height.

Letters: v is a view, w one that reads it, e the place of an input in the rows of views.
"""

from __future__ import annotations

import numpy as np

from anabranch.flow.process import njit

__all__ = ["distinct", "grouped", "ranked"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"


def distinct(end: int, *numbers: np.ndarray) -> np.ndarray:
    """The different ones of some numbers from 0 to below an end, in ascending order.

    Marks are faster than `np.unique` unless there are far fewer numbers than marks.

    Examples
    --------
    >>> distinct(9, np.array([3, 1, 3]), np.array([8])).tolist()
    [1, 3, 8]
    """
    if sum(map(len, numbers)) * 64 < end:
        return np.unique(np.concatenate(numbers)).astype(np.int64)
    seen = np.zeros(end, bool)
    for some in numbers:
        seen[some] = True
    return np.flatnonzero(seen)


def grouped(keys: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each group begins, and the positions of its members, group by group.

    Examples
    --------
    >>> [part.tolist() for part in grouped(np.array([1, 0, 1]), 2)]
    [[0, 1, 3], [1, 0, 2]]
    """
    found: tuple[np.ndarray, np.ndarray] = _counting_sort(keys, groups)
    return found


@njit
def _counting_sort(keys, groups):
    offsets = np.zeros(groups + 1, np.int64)
    for key in keys:
        offsets[key + 1] += 1
    for g in range(groups):
        offsets[g + 1] += offsets[g]
    at = offsets[:-1].copy()
    order = np.empty(len(keys), np.int32)
    for row in range(len(keys)):
        key = keys[row]
        order[at[key]] = row
        at[key] += 1
    return offsets, order


@njit
def ranked(offsets, inputs, read_offsets, read_rows, row_view, home):
    sources, views = len(home), len(offsets) - 1
    waiting = np.zeros(views, np.int32)
    ranks = np.full(views, -1, np.int32)
    ready = np.empty(views, np.int32)
    tail = 0
    for v in range(views):
        for e in range(offsets[v], offsets[v + 1]):
            if inputs[e] >= sources:
                waiting[v] += 1
        if waiting[v] == 0:
            ready[tail] = v
            tail += 1
    head = 0
    while head < tail:
        v = ready[head]
        head += 1
        top = 0
        for e in range(offsets[v], offsets[v + 1]):
            if inputs[e] >= sources:
                top = max(top, ranks[inputs[e] - sources])
        ranks[v] = top + 1
        node = v + sources
        for k in range(read_offsets[node], read_offsets[node + 1]):
            w = row_view[read_rows[k]]
            waiting[w] -= 1
            if waiting[w] == 0:
                ready[tail] = w
                tail += 1
    return ranks
