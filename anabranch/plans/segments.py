"""The plan ``segments``: time is cut into segments, and each has a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anabranch.calls import LONGEST, Duration, describe, microseconds
from anabranch.plans.arguments import (
    master_problems,
    refuse,
    share_problems,
    shares,
    worker_problems,
)
from anabranch.plans.hashed import Slotted
from anabranch.plans.plan import RIGHT, SIDES, Routes, Rows, loggable

__all__ = ["Segments", "csp"]

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@loggable
@dataclass(frozen=True)
class Segments(Slotted):
    """Master rows go to the worker of their time segment (ViCo, section 2.2).

    Segments are assigned to workers through a slot table known in advance, so that a slave row also
    reaches the workers of segments that have not begun.
    """

    segment: int
    master: str = "left"
    kind: ClassVar[str] = "csp"

    def route(self, side: int, rows: Rows, window: tuple[int, int]) -> Routes:
        t, slots = rows.t, len(self._table)
        if SIDES[side] == self.master:
            return Routes(np.arange(len(t) + 1), self._table[(t // self.segment) % slots])
        # -W_left <= l - r <= W_right: a right row meets lefts in [r - W_left, r + W_right], a
        # left row meets rights in [l - W_right, l + W_left]. No time lies beyond 64 bits.
        w_left, w_right = window
        back, ahead = (w_left, w_right) if side == RIGHT else (w_right, w_left)
        first = (np.maximum(t, _LEAST + back) - back) // self.segment
        last = (np.minimum(t, _MOST - ahead) + ahead) // self.segment
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

    def __str__(self) -> str:
        return f"segments({self.workers}, length={describe(self.segment)}, master={self.master})"


def segments(
    workers: int,
    segment: Duration = "10 seconds",
    master: str = "left",
    *,
    weights: Sequence[float] | None = None,
) -> Segments:
    """Cut the master side into time segments, one worker each; the other side follows.

    Examples
    --------
    >>> print(segments(4, length="90 seconds"))
    segments(4, length=90 seconds, side=right)
    """
    problems = worker_problems("workers", workers) + master_problems(master)
    problems += share_problems("weights", weights, workers)
    length = 0
    try:
        length = microseconds(segment)
        if not 0 < length <= LONGEST:
            problems.append(
                f"segment must be longer than zero and at most {describe(LONGEST)}, got {segment!r}"
            )
    except ValueError as error:
        problems.append(f"segment: {error}")
    refuse("csp", problems)
    return Segments(
        int(workers), length, master, weights=None if weights is None else shares(weights)
    )
