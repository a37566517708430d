"""The workers of a job in one process, without Spark and without a clock."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from anabranch.flow.blocks import Block
from anabranch.flow.kernel import Job, Kernel, Task, check_settings
from anabranch.flow.slices import Slice, Slices
from anabranch.flow.stored import restored, stored

__all__ = ["LivingWorkers", "Workers"]

_SNAPSHOT = -1


class Workers:
    """The workers of a job in one process, their state kept as bytes from step to step.

    It does what the operator does on Spark, without Spark: opens a kernel from what is stored,
    runs a step, stores what the step added, and remembers when the worker is next due.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.heads: dict[int, bytes] = {}
        self.pieces: dict[tuple[int, int], bytes] = {}
        self.timers: dict[int, int | None] = {}
        self.loads: list[Any] = []

    def kernel(self, worker: int, task: Task | None = None) -> Kernel:
        """The kernel of a worker, as stored."""
        kernel = self.job.kernel(self._slices(worker), task or Task(worker))
        if (worker, _SNAPSHOT) in self.pieces:
            kernel.restore(self.pieces[worker, _SNAPSHOT])
        return kernel

    def _slices(self, worker: int) -> Slices[Any]:
        head = self.heads.get(worker)
        fetch = partial(self._fetch, worker)
        slices = Slices.open(self.job.stays, self.job.notes, head, fetch)
        settings = dict(self.job.settings)
        if head is None:
            slices.notes.settings = settings
        check_settings(slices.notes.settings, settings)
        return slices

    def _fetch(self, worker: int, entry: Slice) -> Block:
        return Block.decode(restored(self.pieces[worker, entry.number]))

    def step(
        self, worker: int, arrivals: Sequence[Block], now: int, task: Task | None = None
    ) -> list[pa.RecordBatch]:
        """One step of one worker; what it yields."""
        kernel = self.kernel(worker, task)
        found = list(kernel.step(arrivals, now))
        self.store(worker, kernel)
        return found

    def store(self, worker: int, kernel: Kernel) -> None:
        """Keep what a step has left."""
        slices = kernel.slices
        for entry in slices.dropped:
            del self.pieces[worker, entry.number]
        for entry, block in slices.added.values():
            self.pieces[worker, entry.number] = stored(block.encode(small=self.job.small))
        snapshot = kernel.snapshot()
        if snapshot is not None:
            self.pieces[worker, _SNAPSHOT] = snapshot
        self.timers[worker] = kernel.due()
        self.heads[worker] = slices.head()
        self.loads.append(kernel.load)

    def is_due(self, worker: int, now: int) -> bool:
        """Whether a timer of the worker fires at a watermark or clock."""
        due = self.timers.get(worker)
        return due is not None and due <= now

    def copy(self) -> Workers:
        """The same state, to go on from twice."""
        twin = Workers(self.job)
        twin.heads, twin.pieces = dict(self.heads), dict(self.pieces)
        twin.timers, twin.loads = dict(self.timers), list(self.loads)
        return twin

    @property
    def state_rows(self) -> int:
        """Rows stored in all workers after the last step."""
        return sum({load.worker: load.state_rows for load in self.loads}.values())


class LivingWorkers(Workers):
    """Workers in a process that remembers: kernels with a snapshot live on, as do stored blocks.

    So it is on Spark as long as a worker's steps run in the same Python process.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._kernels: dict[int, Kernel] = {}
        self._blocks: dict[str, Block] = {}

    def kernel(self, worker: int, task: Task | None = None) -> Kernel:
        """The kernel that wrote what is stored, if it is still there; it is then taken away."""
        living = self._kernels.pop(worker, None)
        if living is None:
            return super().kernel(worker, task)
        living.renew(self.job.kernel(self._slices(worker), task or Task(worker)))
        return living

    def store(self, worker: int, kernel: Kernel) -> None:
        """Keep what a step has left, in memory too."""
        for entry, block in kernel.slices.added.values():
            self._blocks[entry.token] = block
        super().store(worker, kernel)
        if (worker, _SNAPSHOT) in self.pieces:
            self._kernels[worker] = kernel

    def forget(self) -> None:
        """Go on as a new process would."""
        self._kernels.clear()
        self._blocks.clear()

    def _fetch(self, worker: int, entry: Slice) -> Block:
        if entry.token not in self._blocks:
            self._blocks[entry.token] = super()._fetch(worker, entry)
        return self._blocks[entry.token]
