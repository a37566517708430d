"""Candidates by a matrix product on a GPU: every object against every query, in bfloat16.

The filter of `scan`, on a device that does hundreds of times as much: queries stay there, objects
are sent as they come, and each query has a bound of its own, the distance to its threshold. What is
proposed is scored again in float64, as after a scan. docs/gpu.md has the proof that nothing is
missed.
"""

from __future__ import annotations

import secrets
import weakref

import numpy as np

from anabranch.flow.goals import Goal, goal_of, operand_of
from anabranch.flow.gpu.attempts import Attempts
from anabranch.flow.gpu.choice import Choice
from anabranch.flow.gpu.device import UNIT, Device, Hits, Work
from anabranch.flow.gpu.resident import Resident, uploaded
from anabranch.neighbours.lists.resting import Resting

__all__ = ["Products"]

WORTHWHILE = 50_000_000
"""Below so many multiplications a core is done before a launch and its answer are."""

_MANHATTAN = 1
_NO_WINDOW = (2**64, 2**64)


class Products:
    """Proposes pairs of queries and new objects for one list with repair.

    The device is opened when there is first enough to do. Where bfloat16 cannot tell objects apart,
    for they lie close together and far from the origin, it proposes too much; then it rests.
    """

    # Without `__dict__`, so that what is on the device does not count as bytes of the algorithm.
    __slots__ = (
        *("__weakref__", "_asked", "_centres", "_device", "_token"),
        *("choice", "resting"),
    )

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self._asked = False
        self._device: Device | None = None
        self._token = secrets.token_hex(8)
        self._centres: np.ndarray | None = None
        self.resting = Resting()

    def near(
        self, measure: int, centres: np.ndarray, units: np.ndarray, reach: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Queries and objects that may be closer than `reach`; None where a CPU is to find them.

        `centres` and `units` are the points that filters compare. Queries with a `reach` of minus
        infinity take no part. Pairs are in the order of queries and then of objects.
        """
        little = len(centres) * units.size < WORTHWHILE
        if measure == _MANHATTAN or little or not (reach > 0).any():
            return None
        if self.resting.now():
            return None
        if not self._asked:  # once, for what cannot be opened may take long to say so
            self._asked, self._device = True, self.choice.open()
        device = self._device
        if device is None:
            return None
        attempts = Attempts(device, self.choice.must)
        hits = attempts.of(lambda: self._hits(device, centres, units, reach))
        return None if hits is None else (hits.left, hits.right)

    def _hits(
        self, device: Device, centres: np.ndarray, units: np.ndarray, reach: np.ndarray
    ) -> Hits | None:
        asked, fresh = self._resident(device, centres), _sent(device, units)
        goal = goal_of("euclidean", asked.scale, fresh.scale, False, reach, UNIT)
        assert goal.row is not None
        own = np.where(reach > 0, -goal.low.astype(np.float64), -np.inf)
        queries = device.bounded(asked.rows, float(goal.row[0]), own)
        one = Goal(goal.factor, np.float32(0), np.ones(1, np.float32), goal.col)
        runs = -(-len(centres) // device.run)
        stretches = np.tile(np.array([0, len(units)]), (runs, 1))
        work = Work(queries, fresh.rows, one, _NO_WINDOW, stretches)
        found = device.finish(device.start([work], "distance"))
        if found is None:  # so many that nobody will judge them
            self.resting.begin()
        return found

    def _resident(self, device: Device, centres: np.ndarray) -> Resident:
        """The queries, which are sent again if they are others, or if there was no room."""
        held: Resident | None = device.memory.get(self._token)
        if held is None or self._centres is not centres:
            held = _sent(device, centres)
            device.memory.put(self._token, held, owner="")
            if self._centres is None:
                weakref.finalize(self, device.memory.forget, self._token).atexit = False
            self._centres = centres
        return held


def _sent(device: Device, points: np.ndarray) -> Resident:
    """Points without times, epoch or owner: all of them meet here."""
    stamps = np.zeros((4, len(points)), np.int64)
    stamps[2:] = 1
    return uploaded(device, operand_of(points), stamps)
