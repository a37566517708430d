"""How well rows of events match the true instances: the measures of the DSSIS paper.

A row belongs to the instance of its first event. N is an instance's true size, K the number
of its own events in its *first* row; a row that holds anybody else's scores 0. Approximate
completeness at level g is the share of instances with ``K / N >= g`` (precise: g = 1), and the
paper's last line, "0 < g <= 1", a share of events: the sum of K over the sum of N.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.assembly.table import Column
from papers.dssis.arrays import Assembled

__all__ = ["LEVELS", "Score", "rows_of_sliding", "rows_of_windows", "score"]

LEVELS = (1.0, 0.85, 0.75)


@dataclass(frozen=True)
class Score:
    """Shares, 0 to 1.

    `completeness` is by the levels of `LEVELS`; `recall` the instances whose primary event opened a
    row; `correct` those that share no row with another; `correct_rows` the rows that hold one
    instance.
    """

    completeness: tuple[float, ...]
    events: float
    recall: float
    correct: float
    correct_rows: float


def score(row: np.ndarray, truth: np.ndarray, primary: np.ndarray) -> Score:
    """Rate an assignment of events to rows.

    Parameters
    ----------
    row
        For every event, in order of time, the number of its row. Rows are numbered in the
        order they were opened. A negative number is an event that is in no first row.
    truth
        For every event the number of its true instance, from 0.
    primary
        Whether it is the instance's primary event.

    Examples
    --------
    >>> truth = np.array([0, 0, 1, 0, 1])
    >>> found = score(np.array([0, 0, 1, 2, 1]), truth, np.array([True, False, True, False, False]))
    >>> found.completeness, found.events, found.recall, found.correct
    ((0.5, 0.5, 0.5), 0.8, 1.0, 1.0)
    """
    instances = int(truth.max()) + 1
    sizes = np.bincount(truth, minlength=instances)
    inside = row >= 0
    rows, who, leads = row[inside], truth[inside], primary[inside]
    count = int(rows.max()) + 1
    order = np.argsort(rows, kind="stable")
    sorted_rows = rows[order]
    first = np.flatnonzero(np.diff(sorted_rows, prepend=-1))
    owner = np.full(count, -1)
    owner[sorted_rows[first]] = who[order[first]]
    own = np.bincount(rows[who == owner[rows]], minlength=count)
    size = np.bincount(rows, minlength=count)
    foreign = own < size
    # The first row of every instance; later assignments of a reversed order win.
    first_row = np.full(instances, -1)
    used = np.flatnonzero(owner >= 0)[::-1]
    first_row[owner[used]] = used
    k = np.where(first_row >= 0, np.where(foreign[first_row], 0, own[first_row]), 0)
    opened = np.zeros(instances, bool)
    opened[who[order[first]][leads[order[first]]]] = True
    mixed = np.zeros(instances, bool)
    mixed[who[foreign[rows]]] = True
    return Score(
        completeness=tuple(float((k >= g * sizes).mean()) for g in LEVELS),
        events=float(k.sum() / sizes.sum()),
        recall=float(opened.mean()),
        correct=float(1 - mixed.mean()),
        correct_rows=float(1 - foreign[used].mean()),
    )


def rows_of_windows(found: Assembled, revised: bool = False) -> np.ndarray:
    """The row of every event; revisions are in no first row, unless they count too."""
    windows = found.windows
    parts = windows[:, [Column.OPENED, Column.H1, Column.H2, Column.SEQ]]
    # A revision has the key, the number and the opening of its window.
    order = np.lexsort(parts.T[::-1])
    fresh = np.any(np.diff(parts[order], axis=0, prepend=parts[order[:1]] - 1), axis=1)
    number = np.empty(len(windows), np.int64)
    number[order] = np.cumsum(fresh) - 1
    if not revised:
        number[windows[:, Column.REVISION] > 0] = -1
    rows: np.ndarray = number[found.row_of]
    return rows


def rows_of_sliding(key: np.ndarray, size: int) -> np.ndarray:
    """Count windows of `size` over the whole stream, grouped by key inside; the last is partial.

    Examples
    --------
    >>> rows_of_sliding(np.array([7, 8, 7, 7, 8, 8]), 3).tolist()
    [0, 1, 0, 2, 3, 3]
    """
    window = np.arange(len(key)) // size
    _, first, code = np.unique(
        np.stack([window, key]), axis=1, return_index=True, return_inverse=True
    )
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[code.ravel()]
