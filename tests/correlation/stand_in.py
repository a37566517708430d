"""A device made of numpy, in lines too plain to be wrong: what a GPU must answer, and no less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from anabranch.correlation.forwarding import ForwardingJob
from anabranch.correlation.kernel import CorrelateJob
from anabranch.flow.cache import Cache
from anabranch.flow.gpu.device import Device, Hits, How, Rows, Work
from anabranch.flow.kernel import Task
from anabranch.flow.owning import owned


def rounded(matrix: np.ndarray) -> np.ndarray:
    """To the eight leading bits that bfloat16 has, ties to even."""
    bits = matrix.astype(np.float32).view(np.uint32)
    return (bits + 0x7FFF + ((bits >> 16) & 1) & 0xFFFF0000).view(np.float32)


def _areas(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = np.zeros((len(a), len(b)), np.float32)
    for x, y in zip(a.T, b.T, strict=True):
        total += np.abs(x[:, None] - y[None])
    return total


@dataclass
class StandInRows:
    matrix: np.ndarray
    stamps: np.ndarray
    error: float
    sums: np.ndarray | None = None
    norms: np.ndarray | None = None

    @property
    def squares(self) -> np.ndarray:
        return np.square(self.matrix).sum(axis=1) if self.norms is None else self.norms

    @property
    def nbytes(self) -> int:
        return self.matrix.nbytes // 2


@dataclass
class StandIn:
    """Counts what it is asked for."""

    memory: Cache = field(default_factory=lambda: Cache(1 << 30))
    run: int = 4
    most: int = 10**9
    uploads: list[int] = field(default_factory=list)
    launches: list[int] = field(default_factory=list)
    summed: int = 0
    failed: str = ""
    released: int = 0

    def release(self) -> None:
        self.released += 1

    def upload(
        self, matrix: np.ndarray, stamps: np.ndarray, norms: np.ndarray | None
    ) -> StandInRows:
        self.uploads.append(len(matrix))
        if norms is not None:
            matrix = matrix / np.sqrt(norms)[:, None]
        short = rounded(matrix)
        lost = np.square(matrix.astype(float) - short).sum(axis=1).max()
        return StandInRows(short, stamps, float(np.sqrt(lost)) * (1 + 2.0**-30))

    def upload_columns(
        self, whole: np.ndarray, sums: np.ndarray | None, stamps: np.ndarray
    ) -> StandInRows:
        assert whole.dtype == np.float32 and (sums is None or sums.dtype == np.float32)
        self.uploads.append(len(whole))
        if sums is not None:
            self.summed += 1
        return StandInRows(whole, stamps, 0.0, sums)

    def bounded(self, rows: Rows, share: float, own: np.ndarray) -> Rows:
        assert isinstance(rows, StandInRows) and own.dtype == np.float64
        return replace(rows, norms=(share * rows.squares.astype(float) + own).astype(np.float32))

    def part(self, rows: Rows, start: int, stop: int) -> StandInRows:
        assert isinstance(rows, StandInRows)
        sums = None if rows.sums is None else rows.sums[start:stop]
        return StandInRows(rows.matrix[start:stop], rows.stamps[:, start:stop], rows.error, sums)

    def start(self, work: Sequence[Work], how: How) -> list[tuple[int, int, int]]:
        self.launches.append(len(work))
        return [hit for number, one in enumerate(work) for hit in self._hits(number, one, how)]

    def finish(self, started: list[tuple[int, int, int]]) -> Hits | None:
        if len(started) > self.most:
            return None
        return Hits(*np.array(started, np.int32).reshape(-1, 3).T)

    def _hits(self, number: int, work: Work, how: How) -> list[tuple[int, int, int]]:
        left, right, goal = work.left, work.right, work.goal
        assert isinstance(left, StandInRows) and isinstance(right, StandInRows)
        a, b = left.matrix, right.matrix
        if how == "area":
            value = np.float32(goal.factor) * _areas(a, b)
            if left.sums is not None and right.sums is not None:
                value[np.float32(goal.factor) * _areas(left.sums, right.sums) < goal.low] = np.nan
        else:
            value = np.float32(goal.factor) * (a @ b.T)
        if how == "distance":
            assert goal.row is not None and goal.col is not None
            value = value + goal.row * left.squares[:, None]
            value = value + goal.col * right.squares[None]
        ahead, back = work.window
        found = []
        for i, j in np.argwhere(value >= goal.low).tolist():
            t, epoch, mask, _ = map(int, left.stamps[:, i])
            u, other_epoch, _, other_mask = map(int, right.stamps[:, j])
            start, stop = work.spans[i // self.run]
            if t - back <= u <= t + ahead:
                if how == "area" and not start <= j < stop:
                    continue  # within what float32 may get wrong, and not near by their ranks
                assert start <= j < stop, "a span leaves out what the window admits"
                if owned(*map(np.array, (epoch, mask, other_epoch, other_mask))):
                    found.append((number, i, j))
        return found


class StandInJob(CorrelateJob):
    """A call whose tasks have a stand-in for a GPU, unless it asks for the CPU."""

    opened: ClassVar[StandIn | None] = None

    def device(self, task: Task) -> Device | None:
        if self.correlation.device == "cpu":
            return None
        if StandInJob.opened is None:
            StandInJob.opened = StandIn()
        return StandInJob.opened


class StandInForwardingJob(StandInJob, ForwardingJob):
    """The same for rows that have homes."""
