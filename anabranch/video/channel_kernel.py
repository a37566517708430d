"""What workers have in common that keep something of each channel, in the order in which it came.

The rows of a channel come in the order of their times, so there is no wait for a watermark.
"""

from __future__ import annotations

import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from anabranch.errors import BadRow
from anabranch.flow.blocks import Block, concat
from anabranch.flow.intake import Faults, time_faults
from anabranch.flow.load import Load
from anabranch.flow.slices import Notes, Slices

__all__ = ["ChannelJob", "ChannelKernel", "by_channel", "refuse_bad"]


def refuse_bad(rows: pa.RecordBatch, label: str, time: str = "t") -> None:
    """Raise `BadRow` if rows have no channel or no time of use; up to three of them are named.

    Examples
    --------
    >>> rows = pa.RecordBatch.from_pydict({"t": [1, None], "channel": ["a", "b"], "id": [7, 8]})
    >>> refuse_bad(rows, "frame")
    Traceback (most recent call last):
        ...
    anabranch.errors.BadRow: frame 8: its time is null; repair the input, or filter such rows out
    """
    name = "id" if "id" in rows.schema.names else "channel"
    faults = Faults(label, rows.column(name), drop=True)
    faults.where(rows.column("channel").is_null(), "its channel is null")
    faults.where(rows.column(time).is_null(), "its time is null")
    for bad, reason in time_faults(rows.column(time), streaming=False):
        faults.where(bad, reason)
    if faults.count:
        raise BadRow(f"{'; '.join(faults.problems)}; repair the input, or filter such rows out")


def by_channel(rows: Block, workers: int) -> dict[int, bytes]:
    """The cells of rows: all of a channel go to one of the workers."""
    channels = rows.columns["channel"].dictionary_encode()
    of = [zlib.crc32(name.encode()) % workers for name in channels.dictionary.to_pylist()]
    worker = np.array(of)[channels.indices.to_numpy()]
    return {
        int(number): rows.take(np.flatnonzero(worker == number)).encode()
        for number in np.unique(worker)
    }


@dataclass(frozen=True)
class ChannelJob:
    """A call whose workers keep all that they hold in their snapshots."""

    small: ClassVar[bool] = False
    notes: ClassVar[type[Notes]] = Notes
    stays: ClassVar[tuple[int, ...]] = (0,)  # nothing is stored in slices


class ChannelKernel(ABC):
    """One worker, of some of the channels."""

    late_until: int | None = None

    def __init__(self, slices: Slices[Notes], worker: int = 0) -> None:
        self.slices, self.load = slices, Load(worker)
        self._changed = False

    def step(
        self, arrivals: Sequence[Block], now: int, last: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Take in rows, and yield what they decide."""
        began = time.perf_counter()
        self.load.watermark = now
        results = []
        if arrivals:
            whole = concat(arrivals)
            self.load.rows_left += len(whole)
            self._changed = True
            results = self._take_in(whole)
        if last:
            results += self._finish()
        self.load.pairs += sum(batch.num_rows for batch in results)
        self.load.state_rows, self.load.state_bytes = self._rows(), self.nbytes
        self.load.busy_seconds += time.perf_counter() - began
        yield from results

    def due(self) -> int | None:
        """Nothing happens without rows."""
        return None

    def snapshot(self) -> bytes | None:
        """What is held of the channels, if rows have come."""
        if not self._changed:
            return None
        self._changed = False
        return self._packed()

    def renew(self, fresh: Any) -> None:
        """Take slices and load of a fresh kernel."""
        self.slices, self.load = fresh.slices, fresh.load

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of what is held."""

    @abstractmethod
    def restore(self, data: Any) -> None:
        """Take up the channels of a snapshot."""

    @abstractmethod
    def _take_in(self, rows: Block) -> list[pa.RecordBatch]:
        """What rows decide that came."""

    def _finish(self) -> list[pa.RecordBatch]:
        """What is decided once nothing more comes."""
        return []

    @abstractmethod
    def _rows(self) -> int:
        """How many rows are held."""

    @abstractmethod
    def _packed(self) -> bytes:
        """What is held, as `restore` takes it up."""
