"""Errors of the moment, as opposed to files that are bad.

Without a free file handle, with a share that is away or without memory, a film that is whole cannot
be read. To count it as bad would lose it for good, since offsets pass it. So such an error fails
the task, which Spark repeats.
"""

from __future__ import annotations

import errno
import mmap
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

__all__ = ["Source", "momentary"]

# What a file is, whoever asks and whenever: a broken link, a folder, one that nobody may read.
_OF_THE_FILE = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}
    | {errno.EACCES, errno.EPERM, errno.ENXIO, errno.EINVAL}
)
# FFmpeg also says EIO and ENOMEM of what a damaged file claims, so these two prove nothing.
_OF_THE_SYSTEM = frozenset({errno.EMFILE, errno.ENFILE, errno.ESTALE})
_ROOM = 1 << 28


def momentary(error: BaseException) -> bool:
    """Whether the same file may be read at another time.

    Examples
    --------
    >>> momentary(OSError(errno.EMFILE, "too many open files")), momentary(MemoryError())
    (True, True)
    >>> momentary(FileNotFoundError(errno.ENOENT, "none")), momentary(ValueError("no film"))
    (False, False)
    """
    if _is_ffmpegs(error):
        if isinstance(error, MemoryError):
            return not _has_room()
        return getattr(error, "errno", None) in _OF_THE_SYSTEM
    if isinstance(error, OSError):
        return error.errno not in _OF_THE_FILE
    return isinstance(error, MemoryError)


def _is_ffmpegs(error: BaseException) -> bool:
    of = getattr(sys.modules.get("av.error"), "FFmpegError", None)
    return of is not None and isinstance(error, of)


def _has_room() -> bool:
    """Whether this process can get memory: then it was the file that asked for too much."""
    with suppress(OSError, ValueError):
        mmap.mmap(-1, _ROOM).close()
        return True
    return False


class Source:
    """A file as FFmpeg reads it, which remembers what the system said.

    FFmpeg reads through Python, since demuxers take an error of reading for the end of the file.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file, self.name = file, name
        self.error: OSError | MemoryError | None = None

    def read(self, count: int) -> bytes:
        """The next bytes."""
        found: bytes = self._asked(self.file.read, count)
        return found

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place that a container names, which may be none."""
        found: int = self._asked(self.file.seek, offset, whence)
        return found

    def tell(self) -> int:
        """Where the next bytes are."""
        return self.file.tell()

    def check(self) -> None:
        """Raise what the system said, if it is of the moment."""
        if self.error is not None and momentary(self.error):
            raise self.error

    def _asked(self, what: Callable[..., Any], *given: Any) -> Any:
        try:
            return what(*given)
        except (OSError, MemoryError) as error:
            if isinstance(error, OSError):
                error.filename = self.name
            if self.error is None or not momentary(self.error):  # what counts is not forgotten
                self.error = error
            raise
