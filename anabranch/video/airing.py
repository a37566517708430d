"""Puts recorded channels on air: segments that appear while the wall clock runs."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from anabranch.video.channels import SECOND, SEGMENT
from anabranch.video.studio import segment_begin

__all__ = ["Airing"]


class Airing(threading.Thread):
    """Copies segments into the channels' folders, each at the time when it would be complete.

    The first segment of every channel is there at once; the clock starts with `go`, so that a query
    can get warm on something.

    Parameters
    ----------
    segments
        The recorded segments of each channel, in order.
    folder
        Where to: one folder in it for each channel.
    speed
        Seconds of event time per second of the wall clock.
    """

    def __init__(
        self, segments: Mapping[str, Sequence[Path]], folder: Path, speed: float = 1.0
    ) -> None:
        super().__init__(name="airing", daemon=True)
        self._due = sorted(
            (segment_begin(path.name) + SEGMENT, channel, path)
            for channel, paths in segments.items()
            for path in paths
        )
        self.folder, self.speed = folder, speed
        self._first = self._due[0][0]  # up to here all is there when the clock starts
        self.error: Exception | None = None
        self.sent = 0
        self.began: float | None = None  # by the monotonic clock, when the clock started
        self._closed: dict[str, float] = {}  # by channel and name, when each segment was there
        self._go, self._stop_asked = threading.Event(), threading.Event()

    @property
    def total(self) -> int:
        """How many segments there are."""
        return len(self._due)

    @property
    def closed_until(self) -> int:
        """Up to which time all segments are there."""
        return self._due[self.sent - 1][0] if self.sent else self._first - SEGMENT

    def go(self) -> None:
        """Start the clock."""
        self._go.set()

    def stop(self) -> None:
        """Send nothing more, and wait for the thread to end."""
        self._stop_asked.set()
        self._go.set()
        if self.is_alive():
            self.join()

    def since_closed(self, frames: Iterable[str]) -> float | None:
        """Seconds since the last segment of these frames was there, by their ids.

        None if that was before the clock started.
        """
        closed = max(self._closed[frame.rpartition("/")[0]] for frame in frames)
        if self.began is None or closed < self.began:
            return None
        return time.monotonic() - closed

    def since_aired(self, t: int) -> float:
        """Seconds since a frame of this time was on air, before its segment closed."""
        began = time.monotonic() if self.began is None else self.began
        return time.monotonic() - began - (t - self._first) / SECOND / self.speed

    def run(self) -> None:
        try:
            self._send(self._due[0][0])
            self._go.wait()
            began = self.began = time.monotonic()
            while self.sent < self.total and not self._stop_asked.wait(0.05):
                passed = (time.monotonic() - began) * self.speed
                self._send(self._due[0][0] + int(passed * SECOND))
        except Exception as error:
            # A thread cannot raise to anyone: whoever waits for its segments must look here.
            self.error = error

    def _send(self, now: int) -> None:
        while self.sent < self.total and self._due[self.sent][0] <= now:
            _, channel, path = self._due[self.sent]
            place = self.folder / channel
            place.mkdir(parents=True, exist_ok=True)
            hidden = place / f".{path.name}"
            shutil.copyfile(path, hidden)
            self._closed[f"{channel}/{path.name}"] = time.monotonic()
            os.replace(hidden, place / path.name)
            self.sent += 1
