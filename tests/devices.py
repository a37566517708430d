"""Devices for tests: one made of numpy, too plain to be wrong, and interpreted kernels."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from anabranch.flow.cache import Cache
from anabranch.flow.gpu.choice import Choice, visible
from anabranch.flow.gpu.device import Device, Hits, How, Rows, Work
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
            start, stop = work.stretches[i // self.run]
            if t - back <= u <= t + ahead:
                if how == "area" and not start <= j < stop:
                    continue  # within what float32 may get wrong, and not near by their ranks
                assert start <= j < stop, "a span leaves out what the window admits"
                if owned(*map(np.array, (epoch, mask, other_epoch, other_mask))):
                    found.append((number, i, j))
        return found


class Failing(StandIn):
    """Raises in some of its calls, by name and number."""

    def __init__(self, failing: dict[str, set[int]], text: str, **given: Any) -> None:
        super().__init__(**given)
        self._failing, self._text = failing, text
        self.calls: dict[str, int] = {}

    def _called(self, name: str) -> None:
        number = self.calls[name] = self.calls.get(name, 0) + 1
        if number in self._failing.get(name, ()):
            raise RuntimeError(self._text)

    def upload(self, *rows: Any) -> Any:
        self._called("upload")
        return super().upload(*rows)

    def part(self, *rows: Any) -> Any:
        self._called("part")
        return super().part(*rows)

    def start(self, *work: Any) -> Any:
        self._called("start")
        return super().start(*work)

    def finish(self, started: Any) -> Any:
        self._called("finish")
        return super().finish(started)


@dataclass(frozen=True)
class Lent(Choice):
    """A choice whose device is at hand, if it wants one; it counts how often it was asked."""

    device: Any = field(default=None, compare=False)
    asked: list[int] = field(default_factory=list, compare=False)

    def open(self) -> Device | None:
        self.asked.append(1)
        return None if self.wanted == "cpu" else self.device


def kernels(request: pytest.FixtureRequest) -> Any:
    """A GPU, or the kernels in Triton's interpreter with tiles that small blocks fill.

    What this gives makes a device for vectors of a length.
    """
    missing = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)}: the GPU's kernels are not tested")
    number = 0 if visible() else None
    if number is None:
        set_up = pytest.MonkeyPatch()
        request.addfinalizer(set_up.undo)
        set_up.setenv("TRITON_INTERPRET", "1")  # read when the kernels are defined
        from triton.runtime import interpreter

        # It makes loops of arrays of one number, which numpy 2.4 takes for numbers no more.
        set_up.setattr(interpreter, "range", _range, raising=False)
    from anabranch.flow.gpu.tilings import Tiling
    from anabranch.flow.gpu.torch_device import TorchDevice

    def make(d: int, **options: Any) -> Any:
        width = 16 if d <= 16 else 32 if d <= 32 else 64
        small = Tiling(4, 4, 2, width if d <= 64 else 64, 1, 1) if number is None else None
        return TorchDevice(number, Cache(1 << 30), small, **options)

    return make


def _range(*ends: Any) -> range:
    return range(*(int(end.handle.data.item()) if hasattr(end, "handle") else end for end in ends))
