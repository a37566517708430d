"""Which segments come next, channel by channel: offsets in, planned segments and offsets out.

An offset names the last closed segment of each channel, and where the channel's time line stands
there. It is small, it is JSON, and it is all that a restart needs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.video.clock import Place, Probe, Said, follow
from anabranch.video.decoding import probe
from anabranch.video.rows import Planned
from anabranch.video.segments import Segment, channels, closed, list_starts, named_time, names

__all__ = ["Folder", "Limit", "Offset", "Planner"]

Offset = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Folder:
    """Where segments are and how they are read; `start` in microseconds, by channel or "" for all.

    `keep` is how many microseconds a segment that was processed stays; None keeps all.
    """

    path: str
    start: Mapping[str, int] = field(default_factory=dict)
    timestamps: str = "auto"
    closed: str = "auto"
    keep: int | None = None


@dataclass(frozen=True)
class Limit:
    """The most segments, or bytes, of a channel in one micro-batch; one segment is always read."""

    files: int | None = None
    bytes: int | None = None

    def cut(self, place: Path, found: list[str]) -> list[str]:
        """As many of these names as may be read at once."""
        if self.files is not None:
            found = found[: max(1, self.files)]
        if self.bytes is None or not found:
            return found
        sizes = [_path(place, name).stat().st_size for name in found]
        within = [sum(sizes[: n + 1]) <= self.bytes for n in range(len(sizes))]
        return found[: max(1, sum(within))]


def _path(place: Path, name: str) -> Path:
    return place if place.is_file() else place / name


class Planner:
    """Plans the segments of all channels; it lives as long as its query runs."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._probes: dict[Segment, Probe] = {}
        self._known: dict[str, set[str]] = {}
        self._late = 0

    def newest(self) -> dict[str, str]:
        """The last closed segment of each channel."""
        found = {
            channel: closed(place, self.folder.closed)
            for channel, place in self._channels().items()
        }
        return {channel: those[-1] for channel, those in found.items() if those}

    def latest(
        self, start: Offset, limit: Limit | None = None, goal: Mapping[str, str] | None = None
    ) -> Offset:
        """The offset after the next segments: all that are closed, up to the limit and the goal."""
        end = dict(start)
        for channel, place in self._channels().items():
            reached = start[channel]["segment"] if channel in start else ""
            ready = closed(place, self.folder.closed)
            self._count_late(channel, reached, names(place))
            new = [name for name in ready if name > reached]
            if goal is not None:
                new = [name for name in new if name <= goal.get(channel, "")]
            new = (limit or Limit()).cut(place, new)
            self._known.setdefault(channel, set()).update(new)
            walked = self._walked(channel, place, start, new)
            if walked:
                end[channel] = walked[-1][1].to_offset()
        return dict(sorted(end.items()))

    def between(self, start: Offset, end: Offset) -> list[Planned]:
        """The segments behind one offset, up to another."""
        found = []
        places = self._channels()
        for channel, stored in end.items():
            reached = start[channel]["segment"] if channel in start else ""
            last = stored["segment"]
            if last == reached:
                continue
            place = places.get(channel)
            here = [] if place is None else [n for n in names(place) if reached < n <= last]
            if place is None or not here or here[-1] != last:
                raise AnabranchError(
                    f"segment {channel}/{last} is in the query's offsets and no longer in the "
                    "folder: put it back, or begin a new checkpoint"
                )
            for segment, at in self._walked(channel, place, start, here):
                found.append(Planned(segment, at.base, at.run, at.jump))
        if found and self._late:
            first = found[0]
            found[0] = Planned(first.segment, first.base, first.run, first.jump, self._late)
            self._late = 0
        return found

    def forget(self, end: Offset) -> None:
        """Remove segments that were processed, once they are older than `keep`."""
        if self.folder.keep is None:
            return
        oldest = time.time_ns() - 1000 * self.folder.keep
        for channel, place in self._channels().items():
            done = end[channel]["segment"] if channel in end else ""
            for name in names(place) if place.is_dir() else []:
                path = place / name
                # The last one stays: the query may be restarted and plan it again.
                if name < done and path.stat().st_mtime_ns < oldest:
                    path.unlink()

    def _channels(self) -> dict[str, Path]:
        return channels(self.folder.path)

    def _walked(
        self, channel: str, place: Path, start: Offset, new: list[str]
    ) -> list[tuple[Segment, Place]]:
        """Segments one after the other on the time line of their channel."""
        at = Place.from_offset(start.get(channel))
        listed = list_starts(place) if new else {}
        begins = self.folder.start.get(channel, self.folder.start.get(""))
        found = []
        for name in new:
            segment = Segment.of(channel, _path(place, name))
            said = named_time(name)
            if said is None and begins is not None and name in listed:
                said = begins + listed[name]
            at = follow(at, name, self._probe(segment), Said(begins, said), self.folder.timestamps)
            found.append((segment, at))
        return found

    def _probe(self, segment: Segment) -> Probe:
        """Offsets and partitions are planned one after the other: a file is opened once."""
        if segment not in self._probes:
            if len(self._probes) > 10_000:
                self._probes.clear()
            self._probes[segment] = probe(segment.path)
        return self._probes[segment]

    def _count_late(self, channel: str, reached: str, here: list[str]) -> None:
        """Count names that have appeared at or before the offset; at first all are old."""
        behind = {name for name in here if name <= reached}
        known = self._known.get(channel)
        if known is not None:
            self._late += len(behind - known)
        self._known[channel] = behind
