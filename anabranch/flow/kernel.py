"""What the operator knows of a verb: a job that opens kernels, and what a kernel can do.

A *kernel* is one worker of one verb: it takes what arrived in a micro-batch, goes on to the
watermark, and yields results as Arrow batches. Rows it has to keep are in its `Slices`, which the
operator stores; what else it holds goes into a snapshot. A *job* is a checked call: it travels to
the tasks, and knows nothing of Spark. `anabranch.testing.check_kernel` is the law that all obey.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from anabranch.errors import StateMismatch, changed_settings
from anabranch.flow.blocks import Block
from anabranch.flow.hashing import worker_keys
from anabranch.flow.load import Figures
from anabranch.flow.slices import Notes, Slices

__all__ = [
    "Job",
    "Kernel",
    "Packed",
    "Packing",
    "Task",
    "addressed",
    "check_settings",
    "fingerprint_of",
    "in_loads",
    "operator_of",
    "owner_of",
]

# An Arrow array of bytes holds 2 GB, and every batch is held twice on its way to Spark.
BYTES_AT_ONCE = 64 << 20


@dataclass(frozen=True)
class Task:
    """Where a step runs: as which worker, of which query and micro-batch, in which run of it.

    `gpus` are the addresses of those that are assigned to it.
    """

    worker: int
    query: str = ""
    batch: int = 0
    run: str = ""
    gpus: tuple[str, ...] = ()


class Kernel(Protocol):
    """One worker of one verb.

    Attributes
    ----------
    late_until
        The last step has rejected arrivals up to this time; None if it rejects no late rows.
    """

    late_until: int | None

    @property
    def load(self) -> Figures:
        """What the last step did."""

    @property
    def slices(self) -> Slices[Any]:
        """Its stored rows."""

    def step(
        self, arrivals: Sequence[Block], now: int, last: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Take in what arrived and go on to a time, which is the watermark or the clock.

        With `last` there will be no other step: what waits is finished. `load` reports the step
        once it is exhausted.
        """

    def due(self) -> int | None:
        """The next time at which there is something to do without arrivals."""

    def snapshot(self) -> bytes | None:
        """What it holds beside the slices; None if that is nothing, or as at the last snapshot."""

    def restore(self, data: Any) -> None:
        """Take up a snapshot, with slices as they were then."""

    def renew(self, fresh: Any) -> None:
        """Take slices, task and call of a `fresh` kernel of the same worker, a batch later."""

    @property
    def nbytes(self) -> int:
        """Bytes held beside the slices."""


class Job(Protocol):
    """A checked call of a verb, as tasks run it."""

    verb: ClassVar[str]
    small: ClassVar[bool]  # whether stored slices are compressed

    @property
    def settings(self) -> Mapping[str, str]:
        """What must be the same at a restart, by name."""

    @property
    def stays(self) -> tuple[int, ...]:
        """How long stored rows of each side stay, in microseconds."""

    @property
    def notes(self) -> type[Notes]:
        """The dataclass of what its kernels remember."""

    def kernel(self, slices: Slices[Any], task: Task) -> Kernel:
        """A worker with these slices."""


@dataclass(frozen=True)
class Packed:
    """Rows of one Arrow batch: a cell for each worker that gets some, and their newest time.

    `rejects` is a cell of the bad rows as they came, if they are to be kept.
    """

    cells: Mapping[int, bytes]
    newest: int
    rejects: bytes | None = None


class Packing(Protocol):
    """Checks, routes and packs the rows of one input."""

    def pack(self, batch: pa.RecordBatch, live: Any) -> Packed:
        """The cells of one batch under the live plans."""


def in_loads(cells: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Workers' cells in lists that each fit into one Arrow batch; one list as a rule.

    Examples
    --------
    >>> list(in_loads([(0, b"some"), (1, b"more")]))
    [[(0, b'some'), (1, b'more')]]
    """
    load: list[tuple[int, bytes]] = []
    filled = 0
    for worker, cell in cells:
        if load and filled + len(cell) > BYTES_AT_ONCE:
            yield load
            load, filled = [], 0
        load.append((worker, cell))
        filled += len(cell)
    if load:
        yield load


def addressed(
    cells: Iterable[tuple[int, bytes]], newest: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Cells for workers, as batches of ``worker`` and ``block``, with ``newest`` if it is given."""
    for load in in_loads(cells):
        keys = worker_keys(max(worker for worker, _ in load) + 1)
        columns = {"worker": pa.array([keys[worker] for worker, _ in load], pa.int32())}
        if newest is not None:
            # As a timestamp already: a projection that makes one is compiled for every input.
            columns["newest"] = pa.array([newest] * len(load), pa.timestamp("us", "UTC"))
        columns["block"] = pa.array([cell for _, cell in load], pa.binary())
        yield pa.RecordBatch.from_pydict(columns)


def fingerprint_of(settings: Mapping[str, str]) -> str:
    """Sixteen characters that tell these settings from others.

    Examples
    --------
    >>> len(fingerprint_of({"window": "1 minute"}))
    16
    """
    text = json.dumps(dict(settings), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def operator_of(job: Job) -> str:
    """What tells one operator of a query from others: its verb, and what it is made for."""
    return f"{job.verb} {fingerprint_of(job.settings)}"


def owner_of(job: Job, query: str) -> str:
    """Whose things are that the process keeps for a job: those of an operator of a query."""
    return f"{query} {operator_of(job)}"


def check_settings(stored: Mapping[str, str], present: Mapping[str, str]) -> None:
    """Refuse a checkpoint that was begun by a call with other settings, and say which."""
    changed = changed_settings(stored, present)
    if changed is not None:
        raise StateMismatch(changed)
