"""What compiled code is handed: tables of queries, lists, window and candidates.

Row q of a table's arrays belongs to query q. Compiled functions read fields once, before their
loops: each time that an array is taken out of a tuple, its references are counted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["NEVER", "Asked", "Held", "Lists", "Log", "Near"]

NEVER = int(np.iinfo(np.int64).max) // 4
"""Later than every instant, and above every number."""


class Asked(NamedTuple):
    """The queries, in the order of the lists."""

    measure: int
    centres: np.ndarray
    k: np.ndarray
    spare: np.ndarray
    span: np.ndarray
    since: np.ndarray
    until: np.ndarray
    counted: bool


class Lists(NamedTuple):
    """The list of query q is ``size[q]`` entries of `scores` and `codes` from ``start[q]`` on.

    A code is ``2 * number + emitted``: the arrival's number, and whether it has been reported.
    `tau` is the threshold, `oldest` a bound on the least number, `head` where the query's part of
    the log begins, and `changed` whether the k best are others than before.
    """

    start: np.ndarray
    size: np.ndarray
    tau: np.ndarray
    oldest: np.ndarray
    head: np.ndarray
    changed: np.ndarray
    scores: np.ndarray
    codes: np.ndarray


class Held(NamedTuple):
    """The window of all queries: its first object has the number `base`, new ones begin at `fresh`.

    `clock` is what windows are measured on: `times` or, if they are counted, numbers.
    """

    clock: np.ndarray
    times: np.ndarray
    points: np.ndarray
    base: int
    fresh: int


class Near(NamedTuple):
    """Candidates of query q from ``starts[q]`` on: places among the new objects, and scores.

    `direct` are queries that no index covers, which look at all new objects themselves.
    """

    starts: np.ndarray
    place: np.ndarray
    score: np.ndarray
    direct: np.ndarray


class Log(NamedTuple):
    """Numbers that were reported and then cut: for each list a chain that begins at its `head`."""

    number: np.ndarray
    following: np.ndarray
    used: int
