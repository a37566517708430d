"""Puts a broadcast on air: parquet files that appear while the wall clock runs."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.spark.demo.broadcast import BEGIN, SECOND, Broadcast

__all__ = ["LiveWriter", "write_rows"]


class LiveWriter(threading.Thread):
    """Writes the rows of both channels as parquet files while the wall clock runs.

    A first pair of files is written at once; the clock starts with `go`, so that a query can get
    warm on something. Files appear under their final name only when they are complete.

    Parameters
    ----------
    broadcast
        What to send.
    folders
        Where to, one folder for each channel.
    speed
        Seconds of event time per second of the wall clock.
    tick
        Seconds between two files.
    """

    def __init__(
        self,
        broadcast: Broadcast,
        folders: tuple[Path, Path],
        speed: float = 8.0,
        tick: float = 0.25,
    ) -> None:
        super().__init__(name="newsroom", daemon=True)
        self.broadcast = broadcast
        self.folders = folders
        self.speed = speed
        self.tick = tick
        self.error: Exception | None = None
        self._sent = [0, 0]
        self._go = threading.Event()
        self._stop_asked = threading.Event()

    @property
    def rows(self) -> int:
        """Rows sent so far, on both channels."""
        return sum(self._sent)

    @property
    def finished(self) -> bool:
        """Whether every row has been sent."""
        return self.rows == self.broadcast.rows

    def go(self) -> None:
        """Start the clock."""
        self._go.set()

    def stop(self) -> None:
        """Send nothing more, and wait for the thread to end."""
        self._stop_asked.set()
        self._go.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        try:
            first = min(int(frames.arrival[0]) for frames in self.broadcast.channels)
            self._send(max(first, BEGIN + int(self.tick * self.speed * SECOND)), 0)
            self._go.wait()
            began, number = time.monotonic(), 1
            while not self._stop_asked.wait(self.tick) and not self.finished:
                elapsed = (time.monotonic() - began + self.tick) * self.speed
                self._send(BEGIN + int(elapsed * SECOND), number)
                number += 1
        except Exception as error:
            # A thread cannot raise to anyone: whoever waits for its rows must look here.
            self.error = error

    def _send(self, until: int, number: int) -> None:
        for side, frames in enumerate(self.broadcast.channels):
            done = self._sent[side]
            upto = int(np.searchsorted(frames.arrival, until, side="right"))
            if upto > done:
                write_rows(frames.table(slice(done, upto)), self.folders[side], number)
                self._sent[side] = upto


def write_rows(table: pa.Table, folder: Path, number: int) -> Path:
    """Write one parquet file so that no reader ever sees half of it."""
    # Spark's file source, like most, passes over names that begin with a dot.
    hidden = folder / f".{number:06d}.parquet.part"
    final = folder / f"{number:06d}.parquet"
    pq.write_table(table, hidden)
    os.replace(hidden, final)
    return final
