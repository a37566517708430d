"""What the compiled methods are handed, and room for what each query needs in its turn.

Row q of a table's arrays belongs to query q. Methods take the arrays out of their tables and make
room for the largest query before the loop over queries. Otherwise references would be counted, and
memory asked for, for every query of every batch, which for few objects takes as long as the rest.

Letters, here and in the methods: q a query, k how many it wants, n how many a list holds (or, of a
skyband, the three numbers of `skyband`), i the next object that came, e an instant, f how many are
in a filter, o an object that leaves the buffer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.flow.process import njit
from anabranch.neighbours.lists.scoring import CHUNK

__all__ = ["Bands", "Ranked", "room_for_band", "room_for_list", "room_to_see"]

# The functions below are compiled; mypy and coverage do not see their insides.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"


class Ranked(NamedTuple):
    """Lists of objects as `ranked` says; that of query q from ``offsets[q]`` on, if of many."""

    offsets: np.ndarray
    scores: np.ndarray
    ints: np.ndarray


class Bands(NamedTuple):
    """The skybands of all queries: each ``tops[q]`` best, then the candidates.

    Candidates are pruned above `limits`, which outgrow what is left of them by `gamma`.
    """

    offsets: np.ndarray
    scores: np.ndarray
    ints: np.ndarray
    tops: np.ndarray
    limits: np.ndarray
    gamma: float


@njit(nogil=True)
def room_to_see(points):  # pragma: no cover
    """What `fill` needs, one query after another: points turned, room for scores, and scratch."""
    return points.T.copy(), np.empty(len(points)), np.empty((8, CHUNK))


@njit(nogil=True)
def room_for_list(sizes):  # pragma: no cover
    """Room for the list of any query, and for one object more."""
    most = sizes.max() + 1 if len(sizes) else 0
    return np.empty(most), np.empty((most, 3), np.int64)


@njit(nogil=True)
def room_for_band(asked, bands, coming):  # pragma: no cover
    """Room for the skyband of any query, to which at most `coming` objects come, and its `n`."""
    top, top_ints = room_for_list(asked.k)
    longest = 0
    for q in range(len(asked.k)):
        longest = max(longest, bands.offsets[q + 1] - bands.offsets[q])
    room = longest + coming + 2
    cand, cand_ints = np.empty(room), np.empty((room, 3), np.int64)
    return top, top_ints, cand, cand_ints, np.zeros(3, np.int64)
