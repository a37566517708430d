"""A folder that drivers and workers share: a local path, or any address that pyarrow opens.

Files appear whole or not at all, so that readers never see half of one.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import Any

from pyarrow import fs

__all__ = ["Folder", "absolute", "copy_folder", "path_problems"]


def path_problems(name: str, path: Any) -> list[str]:
    """What is wrong with the argument `name` as the path of a folder."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if isinstance(text, str) and text.strip():
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


def copy_folder(path: str | os.PathLike[str], to: str | os.PathLike[str]) -> None:
    """Copy a folder and all that is in it; both are local paths or addresses.

    Examples
    --------
    >>> import tempfile
    >>> one, other = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> Folder(one).write("notes/a.txt", b"one")
    >>> copy_folder(one, other)
    >>> Folder(other).read("notes/a.txt")
    b'one'
    """
    fs.copy_files(absolute(path), absolute(to))


class Folder:
    """Whole files by name.

    Examples
    --------
    >>> import tempfile
    >>> folder = Folder(tempfile.mkdtemp())
    >>> folder.write("notes/a.txt", b"one")
    >>> folder.names("notes", ".txt"), folder.read("notes/a.txt"), folder.read("b.txt")
    (['a.txt'], b'one', None)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = absolute(path)
        if "://" in self.path:
            self._files, root = fs.FileSystem.from_uri(self.path)
        else:
            self._files, root = fs.LocalFileSystem(), self.path
        self._root = root.rstrip("/")

    def names(self, folder: str, ending: str) -> list[str]:
        """The names in a folder below, or here (""), that end in a certain way, sorted."""
        selector = fs.FileSelector(f"{self._root}/{folder}".rstrip("/"), allow_not_found=True)
        names = [info.base_name for info in self._files.get_file_info(selector)]
        return sorted(name for name in names if name.endswith(ending))

    def read(self, name: str) -> bytes | None:
        """What a file holds; None if there is none."""
        try:
            with self._files.open_input_stream(f"{self._root}/{name}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole, in the place of any that was there."""
        target = f"{self._root}/{name}"
        folder = target.rsplit("/", 1)[0]
        self._files.create_dir(folder, recursive=True)
        draft = f"{folder}/_{uuid.uuid4().hex}.draft"  # Spark reads no files of such names
        with self._files.open_output_stream(draft) as stream:
            stream.write(content)
        self._files.move(draft, target)

    def delete(self, name: str) -> None:
        """Remove a file, unless somebody else just has."""
        with contextlib.suppress(FileNotFoundError):
            self._files.delete_file(f"{self._root}/{name}")
