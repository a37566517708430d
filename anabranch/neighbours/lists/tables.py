"""What compiled code is handed: tables of queries, lists, window and candidates.

Row q of a table's arrays belongs to query q. Compiled functions with loops take arrays out of
tables once, before them: each time that they do, references may be counted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.neighbours.lists.admission import Bounds

__all__ = ["Asked", "Held", "Lists", "Log", "Near", "One", "Source"]


class Asked(NamedTuple):
    """The queries, in the order of the lists."""

    measure: int
    centres: np.ndarray
    k: np.ndarray
    span: np.ndarray
    since: np.ndarray
    until: np.ndarray
    counted: bool
    bounds: Bounds


class Lists(NamedTuple):
    """The list of query q is ``size[q]`` entries of `scores` and `codes` from ``start[q]`` on.

    A code is ``2 * number + emitted``: the arrival's number, and whether it has been reported.
    A list keeps `spare` entries beyond k when it is cut. `tau` is its threshold, `oldest` a bound
    on its least number, `head` where its part of the log begins, and `changed` whether the k best
    are others than before.
    """

    start: np.ndarray
    size: np.ndarray
    spare: np.ndarray
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
    marks: np.ndarray


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


class One(NamedTuple):
    """One list on its way through a batch."""

    q: int
    k: int
    most: int  # entries beyond which it is cut
    span: int
    begin: int
    end: int  # the last instant
    before: int  # entries with lower numbers expire by then
    c_end: int  # where its candidates end


class Source(NamedTuple):
    """What arrivals are taken from: candidates, and the window that they are in."""

    place: np.ndarray
    score: np.ndarray
    clock: np.ndarray
    points: np.ndarray
    base: int
    fresh: int
