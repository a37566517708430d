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
from typing import Any, NamedTuple

import numpy as np

from anabranch.correlation.filters.tiles import Candidates, Pair
from anabranch.correlation.gpu.looks import Look
from anabranch.flow.blocks import Block
from anabranch.flow.gpu.attempts import Attempts
from anabranch.flow.gpu.device import Device, Work
from anabranch.flow.gpu.resident import Resident

__all__ = ["GpuSearch"]

# What one launch looks at: enough to take far longer than the launch itself, few enough blocks
# that those of two launches are held at a time.
_PAIRS = 32
_COMPARISONS = 20_000_000_000
# Below this a core is done before a launch and its answer are.
WORTHWHILE = 2_000_000
# How many candidates are decided at a time.
_AT_ONCE = 1 << 20


class _Started(NamedTuple):
    pairs: Sequence[Pair]
    rows: Sequence[tuple[Resident, Resident]]
    launch: Any


@dataclass(frozen=True)
class GpuSearch:
    """Proposes pairs for one comparison on a device; `looked` is called with what it looks at."""

    device: Device
    look: Look
    looked: Callable[[Pair], None] | None = None
    must: bool = False

    def over(
        self, pairs: Iterable[Pair], suits: Callable[[Pair], bool]
    ) -> Iterator[tuple[Pair, Candidates | None]]:
        """Candidates of the pairs that `suits` says are for the device; None for all others."""
        group: list[Pair] = []
        work, started = 0, None
        for pair in pairs:
            if not suits(pair) or not self._attempts.usable():
                yield pair, None
                continue
            group.append(pair)
            work += len(pair.left) * len(pair.right)
            if work >= _COMPARISONS or len(group) == _PAIRS:
                # The next launch is under way while candidates of this one are decided.
                before, started = started, self._launched(group, work)
                if before is not None:
                    yield from self._finish(before)
                if started is None:
                    yield from ((pair, None) for pair in group)
                group, work = [], 0
        last = self._launched(group, work)
        if started is not None:
            yield from self._finish(started)
        if last is not None:
            yield from self._finish(last)
        else:
            yield from ((pair, None) for pair in group)

    def inherit(self, block: Block, start: int, part: Block) -> None:
        """Keep what the device has of ``block[start:]`` for a part that begins there."""
        found: Resident | None = self.device.memory.get(self._token(block))
        if found is None or found.order is not None or part is block or self.device.failed:
            return
        try:
            rows = self.device.part(found.rows, start, start + len(part))
        except Exception as error:  # it is uploaded when it is asked for
            self._attempts.refused(error)
            return
        self._keep(part, Resident(found.scale, rows))

    def _launched(self, group: Sequence[Pair], work: int) -> _Started | None:
        """A launch that is under way; None where the CPU is to do the work."""
        if not group or work < WORTHWHILE:
            return None
        return self._attempts.of(lambda: self._start(group))

    @property
    def _attempts(self) -> Attempts:
        return Attempts(self.device, self.must)

    def _start(self, group: Sequence[Pair]) -> _Started:
        rows = [(self._resident(pair.left), self._resident(pair.right)) for pair in group]
        work = [self._work(pair, *both) for pair, both in zip(group, rows, strict=True)]
        started = _Started(group, rows, self.device.start(work, self.look.how))
        if self.looked is not None:
            for pair in group:
                self.looked(pair)
        return started

    def _finish(self, started: _Started) -> Iterator[tuple[Pair, Candidates | None]]:
        try:
            hits = self.device.finish(started.launch)
        except Exception as error:
            self._attempts.refused(error)
            hits = None
        if hits is None:
            yield from ((pair, None) for pair in started.pairs)
            return
        ends = np.searchsorted(hits.pair, np.arange(len(started.pairs) + 1))
        for number, (pair, rows) in enumerate(zip(started.pairs, started.rows, strict=True)):
            for begin in range(ends[number], ends[number + 1], _AT_ONCE):
                some = slice(begin, min(begin + _AT_ONCE, ends[number + 1]))
                sides = zip((hits.left[some], hits.right[some]), rows, strict=True)
                yield pair, Candidates(*(i if of.order is None else of.order[i] for i, of in sides))

    def _work(self, pair: Pair, left: Resident, right: Resident) -> Work:
        goal = self.look.goal(left.scale, right.scale)
        stretches = self._stretches(pair, left, right)
        return Work(left.rows, right.rows, goal, pair.window, stretches)

    def _stretches(self, pair: Pair, left: Resident, right: Resident) -> np.ndarray:
        """Which right rows each run of left rows may meet."""
        tops = np.arange(0, len(pair.left), self.device.run)
        stretches = np.empty((len(tops), 2), np.int64)
        last = np.minimum(tops + self.device.run, len(pair.left)) - 1
        if left.ranks is not None and right.ranks is not None:
            apart = self.look.apart(left.scale)
            stretches[:, 0] = np.searchsorted(right.ranks, left.ranks[tops] - apart, "left")
            stretches[:, 1] = np.searchsorted(right.ranks, left.ranks[last] + apart, "right")
            return stretches
        if pair.whole:
            stretches[:] = 0, len(pair.right)
            return stretches
        t, times = pair.left.t, pair.right.t
        stretches[:, 0] = np.searchsorted(times, pair.meets(t[tops])[0], "left")
        stretches[:, 1] = np.searchsorted(times, pair.meets(t[last])[1], "right")
        return stretches

    def _resident(self, block: Block) -> Resident:
        found: Resident | None = self.device.memory.get(self._token(block))
        return self._keep(block, self.look.upload(self.device, block)) if found is None else found

    def _keep(self, block: Block, resident: Resident) -> Resident:
        self.device.memory.put(self._token(block), resident, owner="")
        return resident

    def _token(self, block: Block) -> str:
        """The name of a block in the device's memory, which forgets it when the block goes."""
        memory = self.device.memory

        def name(of: Block) -> str:
            token = secrets.token_hex(8)
            weakref.finalize(of, memory.forget, token).atexit = False
            return token

        return block.derive(("device", id(memory), self.look.key), name)
