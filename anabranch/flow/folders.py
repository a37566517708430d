"""A folder that drivers and workers share: a local path, or any address that pyarrow opens.

Files appear whole or not at all, so that readers never see half of one.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from anabranch.errors import InvalidCall

__all__ = [
    "Folder",
    "absolute",
    "copy_folder",
    "delete_folder",
    "last_name",
    "path_problems",
    "what_is_at",
]

_STAMP = "%Y%m%dT%H%M%S%f"
_STAMPED = re.compile(r"\d{8}T\d{12}-")


def path_problems(name: str, path: Any) -> list[str]:
    """What is wrong with the argument `name` as the path of a folder."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if isinstance(text, str) and text.strip():
        if os.path.isfile(text.removeprefix("file://")):
            return [f"{name} must be the path of a directory, and {text!r} is a file"]
        return []
    return [f"{name} must be the path of a directory, got {path!r}"]


def absolute(path: str | os.PathLike[str]) -> str:
    """The path for processes with other working directories; an address stays as it is.

    Examples
    --------
    >>> absolute("/data/control"), absolute("s3://bucket/control")
    ('/data/control', 's3://bucket/control')
    >>> absolute("control") == os.path.join(os.getcwd(), "control")
    True
    """
    text = os.fspath(path)
    return text if "://" in text else os.path.abspath(text)


def last_name(others: Iterable[str], ending: str) -> str:
    """A file name that sorts after those of `others` that were made so, and that nobody else has.

    It says when it was made. A clock that is set back, or that of another machine, must not put
    what is written now before what was written then.

    Examples
    --------
    >>> first = last_name([], ".json")
    >>> later = last_name(["20991231T235959999999-0a.json", "notes.json"], ".json")
    >>> first < later, later[:22], later[-5:]
    (True, '21000101T000000000000-', '.json')
    """
    stamp = datetime.now(UTC).strftime(_STAMP)
    newest = max((name[:21] for name in others if _STAMPED.match(name)), default="")
    if newest >= stamp:
        stamp = (datetime.strptime(newest, _STAMP) + timedelta(microseconds=1)).strftime(_STAMP)
    return f"{stamp}-{uuid.uuid4().hex[:8]}{ending}"


def copy_folder(path: str | os.PathLike[str], to: str | os.PathLike[str]) -> None:
    """Copy a folder and all that is in it; both are local paths or addresses.

    Examples
    --------
    >>> import tempfile
    >>> one, other = tempfile.mkdtemp(), f"{tempfile.mkdtemp()}/other"
    >>> Folder(one).write("a.txt", b"one")
    >>> copy_folder(one, other)
    >>> Folder(other).read("a.txt")
    b'one'
    """
    from pyarrow import fs

    files, root = fs.FileSystem.from_uri(absolute(to))
    files.create_dir(root)  # the copy makes folders below it, and not itself
    fs.copy_files(absolute(path), absolute(to))


def delete_folder(path: str | os.PathLike[str]) -> None:
    """Remove a folder and all that is in it, if there is one; a local path or an address.

    Examples
    --------
    >>> import tempfile
    >>> made = tempfile.mkdtemp()
    >>> Folder(made).write("notes/a.txt", b"one")
    >>> delete_folder(made)
    >>> delete_folder(made)
    >>> what_is_at(made)
    'nothing'
    """
    from pyarrow import fs

    files, root = fs.FileSystem.from_uri(absolute(path))
    with contextlib.suppress(FileNotFoundError):
        files.delete_dir(root)


def what_is_at(path: str | os.PathLike[str]) -> str:
    """Whether there is ``"nothing"``, ``"a folder"`` or ``"a file"`` at a path or an address.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> what_is_at(folder), what_is_at(f"{folder}/elsewhere")
    ('a folder', 'nothing')
    """
    from pyarrow import fs

    files, root = fs.FileSystem.from_uri(absolute(path))
    kinds = {fs.FileType.NotFound: "nothing", fs.FileType.Directory: "a folder"}
    return kinds.get(files.get_file_info(root.rstrip("/") or "/").type, "a file")


class Folder:
    """Whole files by name.

    Examples
    --------
    >>> import tempfile
    >>> folder = Folder(tempfile.mkdtemp())
    >>> folder.write("notes/a.txt", b"one")
    >>> folder.names("notes", ".txt"), folder.read("notes/a.txt"), folder.read("b.txt")
    (['a.txt'], b'one', None)
    >>> folder.create("notes/a.txt", b"two"), folder.create("notes/b.txt", b"two")
    (False, True)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = absolute(path)
        self._files: _Disk | _Store = (_Store if "://" in self.path else _Disk)(self.path)

    def names(self, folder: str, ending: str) -> list[str]:
        """The names in a folder below, or here (""), that end in a certain way, sorted."""
        return sorted(name for name in self._files.names(folder) if name.endswith(ending))

    def read(self, name: str) -> bytes | None:
        """What a file holds; None if there is none."""
        try:
            return self._files.read(name)
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole, in the place of any that was there."""
        self._files.write(name, _draft(name), content)

    def create(self, name: str, content: bytes) -> bool:
        """Write a file whole and durably; False if there is one of that name. Local paths only."""
        if not isinstance(self._files, _Disk):
            raise InvalidCall("create", [f"a local path is needed, got {self.path}"])
        return self._files.create(name, _draft(name), content)

    def delete(self, name: str) -> None:
        """Remove a file, unless somebody else just has."""
        with contextlib.suppress(FileNotFoundError):
            self._files.delete(name)


def _draft(name: str) -> str:
    """A name beside another, which Spark would not read."""
    folder, slash, _ = name.rpartition("/")
    return f"{folder}{slash}_{uuid.uuid4().hex}.draft"


class _Disk:
    """A local folder, without pyarrow: devices carry none."""

    def __init__(self, path: str) -> None:
        self._root = Path(path)

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(self._root / folder)
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def write(self, name: str, draft: str, content: bytes) -> None:
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (self._root / draft).write_bytes(content)
        (self._root / draft).replace(target)

    def create(self, name: str, draft: str, content: bytes) -> bool:
        target, made = self._root / name, self._root / draft
        target.parent.mkdir(parents=True, exist_ok=True)
        with made.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(made, target)  # which fails if the name exists, whole otherwise
        except FileExistsError:
            return False
        finally:
            made.unlink()
        handle = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(handle)  # the new name
        finally:
            os.close(handle)
        return True

    def delete(self, name: str) -> None:
        (self._root / name).unlink()


class _Store:
    """A folder at an address that pyarrow's filesystems open."""

    def __init__(self, address: str) -> None:
        from pyarrow import fs

        self._files, root = fs.FileSystem.from_uri(address)
        self._select, self._root = fs.FileSelector, root.rstrip("/")

    def names(self, folder: str) -> list[str]:
        selector = self._select(f"{self._root}/{folder}".rstrip("/"), allow_not_found=True)
        return [info.base_name for info in self._files.get_file_info(selector)]

    def read(self, name: str) -> bytes:
        with self._files.open_input_stream(f"{self._root}/{name}") as stream:
            return bytes(stream.read())

    def write(self, name: str, draft: str, content: bytes) -> None:
        target, made = f"{self._root}/{name}", f"{self._root}/{draft}"
        self._files.create_dir(target.rsplit("/", 1)[0], recursive=True)
        with self._files.open_output_stream(made) as stream:
            stream.write(content)
        self._files.move(made, target)

    def delete(self, name: str) -> None:
        self._files.delete_file(f"{self._root}/{name}")
