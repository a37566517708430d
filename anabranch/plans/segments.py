"""The plan ``segments``: time is cut into segments, and each has a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from anabranch.calls import LONGEST, Duration, describe, microseconds
from anabranch.errors import renamed
from anabranch.plans.arguments import (
    NO_MASTER,
    other_side,
    refuse,
    share_problems,
    shares,
    side_problems,
    worker_problems,
)
from anabranch.plans.cells import Cells
from anabranch.plans.hashed import Slotted
from anabranch.plans.plan import RIGHT, SIDES, Routes, Rows, loggable

__all__ = ["Segments", "csp", "segments"]

_DRAWN = 24  # segments
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@loggable
@dataclass(frozen=True)
class Segments(Slotted):
    """Each segment of time has a worker (ViCo, section 2.2).

    Rows of `side` go to all segments that their window touches, those of the other side to the one
    of their own time. Segments are assigned to workers through a slot table known in advance, so
    that a copied row also reaches the workers of segments that have not begun.
    """

    length: int
    side: str = "right"
    name: ClassVar[str] = "segments"

    @classmethod
    def of_fields(cls, **fields: Any) -> Segments:
        return segments(**{**fields, "length": f"{fields.get('length')}us"})

    def route(self, side: int, rows: Rows, window: tuple[int, int]) -> Routes:
        t, slots = rows.t, len(self._table)
        if SIDES[side] != self.side:
            return Routes(np.arange(len(t) + 1), self._table[(t // self.length) % slots])
        # -W_left <= l - r <= W_right: a right row meets lefts in [r - W_left, r + W_right], a
        # left row meets rights in [l - W_right, l + W_left]. No time lies beyond 64 bits.
        w_left, w_right = window
        back, ahead = (w_left, w_right) if side == RIGHT else (w_right, w_left)
        first = (np.maximum(t, _LEAST + back) - back) // self.length
        last = (np.minimum(t, _MOST - ahead) + ahead) // self.length
        # As many neighbouring segments as workers meet all of them, unless shares are uneven.
        most = self.workers if self.weights is None else slots
        touched = np.minimum(last - first + 1, most)
        # Column s of `homes` is the worker of the s-th segment touched, or the first one again.
        step = np.arange(int(touched.max(initial=1)))
        homes = self._table[(first[:, None] + np.minimum(step, touched[:, None] - 1)) % slots]
        homes.sort(axis=1)
        fresh = np.ones(homes.shape, bool)
        fresh[:, 1:] = homes[:, 1:] != homes[:, :-1]
        offsets = np.zeros(len(t) + 1, np.int64)
        np.cumsum(fresh.sum(axis=1), out=offsets[1:])
        return Routes(offsets, homes[fresh])

    def once(self, side: int) -> bool:
        return self.workers == 1 or SIDES[side] != self.side

    def cells(self) -> Cells:
        turns = self._table[:_DRAWN].tolist()
        return Cells([turns], f"segments of {describe(self.length)}, in turn")

    def __str__(self) -> str:
        return f"segments({self.workers}, length={describe(self.length)}, side={self.side})"


@renamed(segment="length", master=NO_MASTER)
def segments(
    workers: int,
    length: Duration = "10 seconds",
    side: str = "right",
    *,
    weights: Sequence[float] | None = None,
) -> Segments:
    """Cut time into segments, one worker each; rows of `side` go to all that their window touches.

    `length` is that of a segment. Rows of the other side go to the segment of their own time.

    Examples
    --------
    >>> print(segments(4, length="90 seconds"))
    segments(4, length=90 seconds, side=right)
    """
    problems = worker_problems("workers", workers) + side_problems(side)
    problems += share_problems("weights", weights, workers)
    us = 0
    try:
        us = microseconds(length)
        if not 0 < us <= LONGEST:
            problems.append(
                f"length must be longer than zero and at most {describe(LONGEST)}, got {length!r}"
            )
    except ValueError as error:
        problems.append(f"length: {error}")
    refuse("segments", problems)
    return Segments(int(workers), us, side, weights=None if weights is None else shares(weights))


@renamed()
def csp(
    workers: int,
    segment: Duration = "10 seconds",
    master: str = "left",
    *,
    weights: Sequence[float] | None = None,
) -> Segments:
    """The coupled stream partition of the ViCo paper: `segments`, by the side that is spread.

    Examples
    --------
    >>> print(csp(4, segment="90 seconds"))
    segments(4, length=90 seconds, side=right)
    """
    refuse("csp", side_problems(master, "master"))
    return segments(workers, segment, other_side(master), weights=weights)
