"""Folders of segments as a recorder leaves them: which files there are, and which are closed.

A segment is closed once the recorder's list names it; without a list, once a later name exists, or
once it has a name that does not begin with a dot, where names that do show that files are renamed
when they are complete. Age alone never closes one.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path

from anabranch.errors import AnabranchError
from anabranch.video.momentary import momentary

__all__ = ["CLOSED", "Segment", "channels", "closed", "legible", "list_starts", "named_time"]

CLOSED = ("auto", "list", "later", "all")
"""How a closed segment is told from one that is being written."""

_FILMS = frozenset(
    f".{kind}"
    for kind in (
        *("ts", "m2ts", "mts", "mp4", "m4v", "mov", "mkv", "webm", "avi", "mpg", "mpeg"),
        *("vob", "flv", "wmv", "mxf", "ogv", "h264"),
    )
)
_STAMP = re.compile(r"(\d{8}T\d{6})(?:\.(\d{1,6}))?")


@dataclass(frozen=True)
class Segment:
    """A file, as it was when it was planned."""

    channel: str
    name: str
    path: str
    size: int
    changed: int  # in nanoseconds

    @classmethod
    def of(cls, channel: str, path: Path) -> Segment:
        """The file as it is now; one that is not there, as behind a broken link, has no size."""
        try:
            state = path.stat()
        except OSError as error:
            if momentary(error):
                raise
            return cls(channel, legible(path.name), str(path), -1, -1)
        return cls(channel, legible(path.name), str(path), state.st_size, state.st_mtime_ns)

    def is_as_planned(self) -> bool:
        """Whether the file still is what was planned."""
        return Segment.of(self.channel, Path(self.path)) == self


def legible(name: str) -> str:
    r"""A name of the file system as text: bytes that are no UTF-8 are escaped.

    Examples
    --------
    >>> print(legible("one"), legible(os.fsdecode(b"caf\xe9.ts")))
    one caf\xe9.ts
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def channels(path: str) -> dict[str, Path]:
    """The folders of channels, or the one file, below a path; the channel is the folder's name.

    A folder that holds films is a channel, and so is each of its folders.
    """
    top = Path(path.removeprefix("file://") if path.startswith("file:///") else path)
    if top.is_file():
        return {legible(top.stem): top}
    if not top.is_dir():
        return {}
    folders = [e.name for e in _entries(top) if e.name[0] != "." and _asked(e.is_dir)]
    found = dict(zip(_apart(top, folders), (top / name for name in folders), strict=True))
    if names(top):
        found[legible(top.resolve().name)] = top
    return dict(sorted(found.items()))


def path_of(place: Path, name: str) -> Path:
    """The file of a segment in a channel's folder, or the one file that is the channel."""
    if place.is_file():
        return place
    if "\\x" in name:
        for entry in _entries(place):
            if legible(entry.name) == name:
                return place / entry.name
    return place / name


def _entries(place: Path) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing, once somebody has removed it."""
    try:
        with os.scandir(place) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_film(name: str) -> bool:
    return Path(name).suffix.lower() in _FILMS


def names(place: Path) -> list[str]:
    """The films of a channel's folder in the order of their names; dot-names are none.

    A link to nothing is one, which cannot be opened; a folder or a pipe is none.
    """
    if place.is_file():
        return [legible(place.name)]
    found = (e for e in _entries(place) if e.name[0] != "." and _is_film(e.name))
    films = [e.name for e in found if _asked(e.is_file) or not os.path.exists(e.path)]
    return sorted(_apart(place, films))


def _asked(what: Callable[[], bool]) -> bool:
    """What an entry says; no, where a link leads round or to where nobody may look."""
    try:
        return what()
    except OSError as error:
        if momentary(error):
            raise
        return False


def _apart(place: Path, found: Sequence[str]) -> list[str]:
    """Names as text; raises if two are then the same."""
    texts = [legible(name) for name in found]
    twice = sorted(name for name, count in Counter(texts).items() if count > 1)
    if twice:
        raise AnabranchError(
            f"{legible(str(place))} has two entries whose names are both written {twice[0]!r}, for "
            "bytes that are no UTF-8 are escaped: rename one"
        )
    return texts


def closed(place: Path, how: str = "auto") -> list[str]:
    r"""The names of the closed segments of a channel, in order.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("a.ts", "b.ts", "c.ts"):
    ...     _ = (folder / name).write_bytes(b"")
    >>> closed(folder), closed(folder, "all")
    (['a.ts', 'b.ts'], ['a.ts', 'b.ts', 'c.ts'])
    >>> _ = (folder / "live.csv").write_text("a.ts,0.0,2.0\n")
    >>> closed(folder)
    ['a.ts']
    """
    found = names(place)
    if how == "all" or place.is_file():
        return found
    listed = list_starts(place)
    if how == "list" or (how == "auto" and listed):
        # A recorder that is started again begins a new list: what sorts before it is closed too.
        return [name for name in found if name <= max(listed, default="")]
    if how == "auto" and any(_is_renamed_later(entry.name) for entry in _entries(place)):
        return found
    return found[:-1]


def _is_renamed_later(name: str) -> bool:
    return name[0] == "." and name[1:2] not in (".", "_") and _is_film(name)


def list_starts(place: Path) -> Mapping[str, int]:
    """What the lists of a folder say: names, and when they begin in the recording's microseconds.

    They are those of ``-segment_list_type csv``: name, start, end. A last line that is still being
    written is not there yet. Only lines of films count that are there, or were among them.
    """
    found: dict[str, int] = {}
    here = names(place)
    known, last = set(here), max(here, default="")
    for path in sorted(place.glob("*.csv")) if place.is_dir() else []:
        try:
            text = path.read_text(errors="surrogateescape")
        except OSError as error:
            if momentary(error):
                raise
            continue  # a link to nothing, or one that this process may not read
        for line in text[: text.rfind("\n") + 1].splitlines():
            try:
                row = next(csv.reader([line]))
                name = legible(Path(row[0]).name)
                begins = int(Decimal(row[1]) * 1_000_000)
            except (
                IndexError,
                InvalidOperation,
                ValueError,
                OverflowError,
                csv.Error,
                StopIteration,
            ):
                continue  # a list of something else
            if name in known or (_is_film(name) and name < last):
                found[name] = begins
    return found


def named_time(name: str) -> int | None:
    """The time in a name, ``20240501T120000`` or with a fraction, UTC, in microseconds.

    Examples
    --------
    >>> named_time("19700101T000002.ts"), named_time("19700101T000002.25.ts"), named_time("a.ts")
    (2000000, 2250000, None)
    """
    found = _STAMP.search(name)
    if found is None:
        return None
    try:
        moment = datetime.strptime(found[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1_000_000 + int((found[2] or "0").ljust(6, "0"))
