"""The log of placements: numbered entries, written whole, created exclusively, never changed."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from anabranch.edge.definitions import Definition, Stream, View, listed, read_definition, read_view
from anabranch.errors import StateMismatch

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
        self.path = Path(path)
        self._known: list[Entry] = []

    def entries(self) -> list[Entry]:
        """Every entry so far, oldest first."""
        while (file := self.path / _name(len(self._known))).exists():
            try:
                entry = Entry.from_dict(json.loads(file.read_bytes()))
                if entry.number != len(self._known):
                    raise ValueError(f"it says that it is entry {entry.number}")
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise StateMismatch(
                    f"entry {file.name} of the placement log in {self.path} cannot be read "
                    f"({type(error).__name__}: {error}): bring the directory back as it was"
                ) from error
            self._known.append(entry)
        later = [other.name for other in self.path.glob("[0-9]*.json") if other.name > file.name]
        if later:
            raise StateMismatch(
                f"entry {file.name} of the placement log in {self.path} is missing, though later "
                "ones are there: bring the directory back as it was"
            )
        return list(self._known)

    def write(self, entry: Entry) -> Entry:
        """Add an entry, durably; raises if somebody else has written that number."""
        self.path.mkdir(parents=True, exist_ok=True)
        entry = replace(entry, written=datetime.now(UTC).isoformat(timespec="milliseconds"))
        target = self.path / _name(entry.number)
        draft = self.path / f"_{uuid.uuid4().hex}.draft"
        with open(draft, "wb") as file:
            file.write(json.dumps(entry.to_dict(), indent=1).encode())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, target)  # which fails if the name exists, whole otherwise
        except FileExistsError as error:
            raise StateMismatch(
                f"entry {target.name} of the placement log is there already: another keeper writes "
                "it, so this one must stop"
            ) from error
        finally:
            draft.unlink()
        _sync(self.path)
        return entry


def _name(number: int) -> str:
    return f"{number:08d}.json"


def _sync(folder: Path) -> None:
    """Make a new name in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
