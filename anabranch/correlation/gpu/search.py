"""Pairs of blocks through a device: rows resident by block, many pairs a launch, one launch ahead.

What is kept of a block on the device lives as long as the block does, and that is decided by the
cache of slices: an expired slice frees both. Within a budget of the device's memory the least
recently used goes first, and is uploaded again if it is asked for.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.correlation.filters.exact import directed
from anabranch.correlation.filters.products import Scale, goal_of, make_operand, unit_scale
from anabranch.correlation.filters.tiles import Candidates, Pair
from anabranch.correlation.gpu.device import UNIT, Device, Rows, Work
from anabranch.flow.blocks import Block
from anabranch.plans.routing import OTHER

__all__ = ["GpuSearch"]

# What one launch looks at: enough to take far longer than the launch itself, few enough blocks
# that those of two launches are held at a time.
_PAIRS = 32
_COMPARISONS = 20_000_000_000
# Below this a core is done before a launch and its answer are.
WORTHWHILE = 2_000_000
# How many candidates are decided at a time.
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class _Resident:
    """A block's rows on the device, and what bounds need to know of them."""

    scale: Scale
    rows: Rows

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return self.rows.nbytes


@dataclass(frozen=True)
class GpuSearch:
    """Proposes pairs for one comparison of vectors by products on a device."""

    device: Device
    slot: str
    kind: str
    upward: bool
    threshold: float

    def over(
        self, pairs: Iterable[Pair], suits: Callable[[Pair], bool]
    ) -> Iterator[tuple[Pair, Candidates | None]]:
        """Candidates of the pairs that `suits` says are for the device; None for all others."""
        group: list[Pair] = []
        work, started = 0, None
        for pair in pairs:
            if not suits(pair):
                yield pair, None
                continue
            group.append(pair)
            work += len(pair.left) * len(pair.right)
            if work >= _COMPARISONS or len(group) == _PAIRS:
                # The next launch is under way while candidates of this one are decided.
                before, started = started, self._start(group)
                group, work = [], 0
                if before is not None:
                    yield from self._finish(*before)
        last = self._start(group) if group and work >= WORTHWHILE else None
        if started is not None:
            yield from self._finish(*started)
        if last is not None:
            yield from self._finish(*last)
        else:
            yield from ((pair, None) for pair in group)

    def inherit(self, block: Block, start: int, part: Block) -> None:
        """Keep what the device has of ``block[start:]`` for a part that begins there."""
        found = self.device.memory.get(self._token(block))
        if found is not None and part is not block:
            rows = self.device.part(found.rows, start, start + len(part))
            self._keep(part, _Resident(found.scale, rows))

    def _start(self, group: Sequence[Pair]) -> tuple[Sequence[Pair], Any]:
        return group, self.device.start([self._work(pair) for pair in group], self._norms)

    def _finish(self, group: Sequence[Pair], started: Any) -> Iterator[tuple[Pair, Any]]:
        hits = self.device.finish(started)
        if hits is None:
            yield from ((pair, None) for pair in group)
            return
        ends = np.searchsorted(hits.pair, np.arange(len(group) + 1))
        for pair, first, last in zip(group, ends[:-1], ends[1:], strict=True):
            for begin in range(first, last, _AT_ONCE):
                some = slice(begin, min(begin + _AT_ONCE, last))
                yield pair, Candidates(hits.left[some], hits.right[some])

    @property
    def _norms(self) -> bool:
        return self.kind == "euclidean"

    def _work(self, pair: Pair) -> Work:
        left, right = self._resident(pair.left), self._resident(pair.right)
        goal = goal_of(self.kind, left.scale, right.scale, self.upward, self.threshold, UNIT)
        return Work(left.rows, right.rows, goal, pair.window, self._spans(pair))

    def _spans(self, pair: Pair) -> np.ndarray:
        """Which right rows each run of left rows may meet."""
        tops = np.arange(0, len(pair.left), self.device.run)
        spans = np.empty((len(tops), 2), np.int64)
        if pair.whole:
            spans[:] = 0, len(pair.right)
            return spans
        last = np.minimum(tops + self.device.run, len(pair.left)) - 1
        t, times = pair.left.t, pair.right.t
        spans[:, 0] = np.searchsorted(times, pair.meets(t[tops])[0], "left")
        spans[:, 1] = np.searchsorted(times, pair.meets(t[last])[1], "right")
        return spans

    def _resident(self, block: Block) -> _Resident:
        found: _Resident | None = self.device.memory.get(self._token(block))
        if found is None:
            norms = None
            if self.kind == "cosine":
                matrix, norms = directed(block, self.slot)
                scale = unit_scale(1, matrix.shape[1])
            else:
                matrix, scale = make_operand(block, self.slot, self.kind)
            other = block.columns.get(OTHER, block.mask)
            stamps = np.stack([block.t, block.epoch, block.mask, other])
            rows = self.device.upload(matrix, stamps, norms)
            # The device has the norms; of one row of norm 1 a goal has their shares.
            scale = scale._replace(norms=np.ones(1), error=rows.error)
            found = self._keep(block, _Resident(scale, rows))
        return found

    def _keep(self, block: Block, resident: _Resident) -> _Resident:
        memory, token = self.device.memory, self._token(block)
        memory.put(token, resident, owner="")
        weakref.finalize(block, memory.forget, token).atexit = False
        return resident

    def _token(self, block: Block) -> str:
        key = ("device", id(self.device.memory), self.slot, self.kind == "cosine")
        return block.derive(key, lambda _: secrets.token_hex(8))
