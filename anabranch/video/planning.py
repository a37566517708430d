"""Which segments come next, channel by channel: offsets in, planned segments and offsets out.

An offset names the last closed segment of each channel, where the channel's time line stands there,
and the files that were planned with it. It is small, it is JSON, and it is all that a restart
needs: a range that is planned again has the same files at the same times, whatever has come since.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.video.clock import Place, Said, follow
from anabranch.video.decoding import probe
from anabranch.video.rows import Planned
from anabranch.video.segments import (
    Segment,
    channels,
    closed,
    list_starts,
    named_time,
    names,
    path_of,
)

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
        sizes = [max(0, Segment.of("", path_of(place, name)).size) for name in found]
        within = [sum(sizes[: n + 1]) <= self.bytes for n in range(len(sizes))]
        return found[: max(1, sum(within))]


class Planner:
    """Plans the segments of all channels; it lives as long as its query runs."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._known: dict[str, set[str]] = {}
        self._late = 0

    def newest(self) -> dict[str, str]:
        """The last closed segment of each channel."""
        found = {
            channel: closed(place, self.folder.closed)
            for channel, place in self._channels().items()
        }
        return {channel: those[-1] for channel, those in found.items() if those}

    def left(self, reached: Offset) -> Offset:
        """The last closed segment of each channel, and how many are after those reached."""
        found: Offset = {}
        for channel, place in self._channels().items():
            ready = closed(place, self.folder.closed)
            done = reached[channel]["segment"] if channel in reached else ""
            if ready:
                found[channel] = {"segment": ready[-1], "left": sum(name > done for name in ready)}
        return found

    def latest(
        self, start: Offset, limit: Limit | None = None, goal: Mapping[str, str] | None = None
    ) -> Offset:
        """The offset after the next segments: all that are closed, up to the limit and the goal."""
        moved: Offset = {}
        for channel, place in self._channels().items():
            reached = start[channel]["segment"] if channel in start else ""
            ready = closed(place, self.folder.closed)
            new = [name for name in ready if name > reached]
            if goal is not None:
                new = [name for name in new if name <= goal.get(channel, "")]
            new = (limit or Limit()).cut(place, new)
            self._count_late(channel, place, reached, new)
            walked = self._walked(channel, place, start, new)
            if walked:
                last, _ = walked[-1]
                moved[channel] = {**last.to_offset(), "files": [file for _, file in walked]}
        if not moved:
            return start
        # What others have planned before is done: an offset names the files of one range.
        rest = {channel: {**stored, "files": []} for channel, stored in start.items()}
        return dict(sorted({**rest, **moved}.items()))

    def between(self, start: Offset, end: Offset) -> list[Planned]:
        """The segments that were planned behind one offset, up to another.

        They are those that the offset names. A file that has appeared among them since is late,
        when they are read first and when they are read again.
        """
        found = []
        places = self._channels()
        for channel, stored in end.items():
            reached = start[channel]["segment"] if channel in start else ""
            files = [file for file in stored["files"] if file[0] > reached]
            if stored["segment"] == reached:
                continue
            place = places.get(channel)
            here = set() if place is None else set(names(place))
            for name, *said in files:
                if place is None or name not in here:
                    raise AnabranchError(
                        f"segment {channel}/{name} is in the query's offsets and no longer in the "
                        "folder: put it back, or begin a new checkpoint"
                    )
                found.append(_planned(Segment.of(channel, path_of(place, name)), said))
            if place is not None:
                self._count_late(channel, place, reached, [file[0] for file in files])
        if found and self._late:
            found[0] = replace(found[0], late=self._late)
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
                path = path_of(place, name)
                # The last one stays: the query may be restarted and plan it again.
                if name < done and Segment.of(channel, path).changed < oldest:
                    path.unlink(missing_ok=True)  # a recorder cleans up too

    def _channels(self) -> dict[str, Path]:
        return channels(self.folder.path)

    def _walked(
        self, channel: str, place: Path, start: Offset, new: list[str]
    ) -> list[tuple[Place, list[Any]]]:
        """Segments one after the other on the time line of their channel, and as offsets say it."""
        at = Place.from_offset(start.get(channel))
        listed = list_starts(place) if new else {}
        begins = self.folder.start.get(channel, self.folder.start.get(""))
        found = []
        for name in new:
            said = named_time(name)
            if said is None and begins is not None and name in listed:
                said = begins + listed[name]
            segment = Segment.of(channel, path_of(place, name))
            seen = probe(segment.path)
            at = follow(at, name, seen, Said(begins, said), self.folder.timestamps)
            state = [segment.size, segment.changed, seen.doubtful]
            found.append((at, [name, at.base, at.run, at.jump, *state]))
        return found

    def _count_late(self, channel: str, place: Path, reached: str, planned: list[str]) -> None:
        """Count names that have appeared among what is planned or before it, each once.

        At first all that were reached are old.
        """
        here, last = set(names(place)), planned[-1] if planned else reached
        known = self._known.setdefault(channel, {name for name in here if name <= reached})
        late = {name for name in here if name <= last} - known - set(planned)
        self._late += len(late)
        self._known[channel] = (known & here) | late | set(planned)


def _planned(now: Segment, said: list[Any]) -> Planned:
    """A segment as an offset says that it was when it was planned."""
    base, run, jump, *state = said
    if not state:  # an offset of 0.2.0 or before
        return Planned(now, base, run, jump)
    size, changed, doubtful = state
    return Planned(replace(now, size=size, changed=changed), base, run, jump, doubtful=doubtful)
