"""Mailboxes that are over their bound continue in files of the hub, one for each device.

The broker's stream of mailboxes is bounded for all together. A device that is away for long would
fill it, and everybody would wait. What does not fit is kept here instead, in order and with its
numbers, until the device has it: nothing is lost, and nobody else notices.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import zlib
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from anabranch.edge.naming import device_name, is_device_name
from anabranch.errors import AnabranchError

__all__ = ["Overflow", "sync_folder"]

_HEAD = struct.Struct("<qqII")  # number, position of UP, bytes and checksum of the content


class Overflow:
    """The files of a folder, for one relay at a time.

    Examples
    --------
    >>> import tempfile
    >>> beside = Overflow(tempfile.mkdtemp())
    >>> beside.append("ann", 7, 40, b"seven"), beside.append("ann", 8, 41, b"eight")
    (0, 29)
    >>> beside.read("ann", 29), beside.newest("ann"), beside.newest("bob")
    (b'eight', (8, 41), None)
    >>> [number for number, _ in beside.stored("ann")]
    [7, 8]
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._newest: dict[str, tuple[int, int]] = {}
        self._unsynced: set[str] = set()
        for path in self._folder.glob("*.frames"):
            if is_device_name(path.stem):
                self._open(path.stem)

    def devices(self) -> list[str]:
        """Of which there is something."""
        return list(self._newest)

    def newest(self, device: str) -> tuple[int, int] | None:
        """Number and position of the newest frame of a device."""
        return self._newest.get(device)

    def append(self, device: str, number: int, position: int, content: bytes) -> int:
        """Keep a frame; where it is. A killed process loses none, a power cut what is unsynced."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # rows of others are in it
        head = _HEAD.pack(number, position, len(content), zlib.crc32(content))
        # Unbuffered: what a full disk did not take must not be written again on the way out.
        with self._path(device).open("ab", buffering=0) as file:
            at = file.tell()
            try:
                _write(file, head + content)
            except OSError as error:
                os.ftruncate(file.fileno(), at)
                raise AnabranchError(
                    f"a frame for {device} cannot be kept in {self._folder} ({error}): make room "
                    "on its disk, and start `anabranch edge serve` again"
                ) from error
        self._newest[device] = number, position
        self._unsynced.add(device)
        return at

    def read(self, device: str, at: int) -> bytes:
        """The frame that is there."""
        with self._path(device).open("rb") as file:
            file.seek(at)
            *_, size, _ = _HEAD.unpack(file.read(_HEAD.size))
            return file.read(size)

    def stored(self, device: str) -> Iterator[tuple[int, int]]:
        """The numbers of the frames of a device, and where they are."""
        for number, _, at in self._frames(device):
            yield number, at

    def sync(self) -> None:
        """Have all that was appended survive a power cut."""
        for device in self._unsynced:
            with self._path(device).open("rb+") as file:
                os.fsync(file.fileno())
        if self._unsynced:
            sync_folder(self._folder)
        self._unsynced.clear()

    def drop(self, device: str) -> None:
        """Remove the file of a device that has had all of it."""
        self._path(device).unlink(missing_ok=True)
        self._newest.pop(device, None)
        self._unsynced.discard(device)

    def size(self, device: str) -> int:
        """Bytes of the file of a device."""
        return self._path(device).stat().st_size

    def trim(self, device: str, at: int) -> bool:
        """Leave out all before a frame; False if that cannot be, and then all is as it was."""
        draft = self._path(device).with_suffix(".new")
        try:
            with self._path(device).open("rb") as file, draft.open("wb") as kept:
                file.seek(at)
                shutil.copyfileobj(file, kept)
                kept.flush()
                os.fsync(kept.fileno())
            draft.replace(self._path(device))
        except OSError:  # the disk is full: what is there can be read
            with contextlib.suppress(OSError):
                draft.unlink()
            return False
        self._unsynced.discard(device)
        return True

    def _path(self, device: str) -> Path:
        # A name with a way out of the folder would be a file anywhere.
        return self._folder / f"{device_name(device)}.frames"

    def _open(self, device: str) -> None:
        """Find the newest frame; half a frame, of a relay that was killed, is cut off."""
        end = 0
        for number, position, at in self._frames(device):
            self._newest[device] = number, position
            end = at
        if device in self._newest:
            end += _HEAD.size + len(self.read(device, end))
        with self._path(device).open("rb+") as file:
            file.truncate(end)

    def _frames(self, device: str) -> Iterator[tuple[int, int, int]]:
        """Number, position and place of all that is whole."""
        at = 0
        with self._path(device).open("rb") as file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                number, position, size, check = _HEAD.unpack(head)
                if zlib.crc32(content := file.read(size)) != check or len(content) != size:
                    return
                yield number, position, at
                at = file.tell()


def sync_folder(folder: Path) -> None:
    """Have files that were made or renamed in a folder survive a power cut by their names."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _write(file: FileIO, content: bytes) -> None:
    """All of it: a disk that is nearly full takes a part, and refuses at the next try."""
    rest = memoryview(content)
    while len(rest):
        rest = rest[file.write(rest) :]
