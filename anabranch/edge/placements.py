"""The log of placements: numbered entries, written whole, created exclusively, never changed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from anabranch.edge.definitions import Definition, Stream, View, listed, read_definition, read_view
from anabranch.errors import StateMismatch
from anabranch.flow.folders import Folder
from anabranch.flow.numbered import Numbered, entry_name

__all__ = ["Entry", "PlacementLog"]


@dataclass(frozen=True)
class Entry:
    """One change; its number is the epoch. The keeper alone writes entries.

    Streams and views are numbered from 0 in the order in which entries add them. `presumed` gives
    watermarks to silent streams: their rows up to it that come later are late.
    """

    number: int
    streams: tuple[Stream, ...] = ()
    definitions: tuple[Definition, ...] = ()
    views: tuple[tuple[View, str], ...] = ()  # added, each with its first place
    removed: tuple[int, ...] = ()  # views
    moves: tuple[tuple[int, str], ...] = ()  # view, new place
    presumed: tuple[tuple[int, int], ...] = ()  # stream, watermark
    cause: Mapping[str, Any] = field(default_factory=dict)
    written: str = ""

    def to_dict(self) -> dict[str, Any]:
        """A JSON form that `from_dict` reads."""
        return {
            "number": self.number,
            "streams": [listed(stream) for stream in self.streams],
            "definitions": [listed(definition) for definition in self.definitions],
            "views": [[listed(view), place] for view, place in self.views],
            "removed": list(self.removed),
            "moves": [list(move) for move in self.moves],
            "presumed": [list(one) for one in self.presumed],
            "cause": dict(self.cause),
            "written": self.written,
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> Entry:
        """The entry that `to_dict` wrote."""
        return cls(
            int(form["number"]),
            tuple(Stream(*stream) for stream in form["streams"]),
            tuple(map(read_definition, form["definitions"])),
            tuple((read_view(view), str(place)) for view, place in form["views"]),
            tuple(map(int, form["removed"])),
            tuple((int(view), str(place)) for view, place in form["moves"]),
            tuple((int(stream), int(watermark)) for stream, watermark in form["presumed"]),
            dict(form["cause"]),
            str(form["written"]),
        )


class PlacementLog:
    """The log in a directory: one JSON file per entry.

    Examples
    --------
    >>> import tempfile
    >>> log = PlacementLog(tempfile.mkdtemp())
    >>> log.write(Entry(0, cause={"rule": "start"})).number, len(log.entries())
    (0, 1)
    >>> log.write(Entry(0))
    Traceback (most recent call last):
        ...
    anabranch.errors.StateMismatch: entry 00000000.json of the placement log is there already: \
another keeper writes it, so this one must stop
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        folder = Folder(path)
        self.path = Path(folder.path)
        self._entries = Numbered(folder, Entry.from_dict, "placement log", _REMEDY)

    def entries(self) -> list[Entry]:
        """Every entry so far, oldest first."""
        return self._entries.read(again=True)

    def write(self, entry: Entry) -> Entry:
        """Add an entry, durably; raises if somebody else has written that number."""
        entry = replace(entry, written=datetime.now(UTC).isoformat(timespec="milliseconds"))
        if not self._entries.create(entry.number, entry.to_dict()):
            raise StateMismatch(
                f"entry {entry_name(entry.number)} of the placement log is there already: another "
                "keeper writes it, so this one must stop"
            )
        return entry


_REMEDY = "bring the directory back as it was"
