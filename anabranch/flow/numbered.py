"""Numbered entries in a folder: one JSON file each, written whole and never changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from anabranch.errors import StateMismatch
from anabranch.flow.folders import Folder

__all__ = ["UNREADABLE", "Numbered", "described", "entry_name"]

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a form may raise that somebody else wrote."""


class _Entry(Protocol):
    @property
    def number(self) -> int: ...


T = TypeVar("T", bound=_Entry)


class Numbered(Generic[T]):
    """The entries of a log, each read once; a missing or damaged one is an error.

    Parameters
    ----------
    folder
        Where they are.
    read
        Makes an entry of its JSON form.
    what
        The log, as errors name it.
    remedy
        What to do if it is not whole.

    Examples
    --------
    >>> import tempfile
    >>> from types import SimpleNamespace
    >>> entries = Numbered(Folder(tempfile.mkdtemp()), lambda form: SimpleNamespace(**form), "log",
    ...                    "restore it")
    >>> entries.create(0, {"number": 0}), entries.create(0, {"number": 0})
    (True, False)
    >>> entries.create(2, {"number": 2})
    True
    >>> entries.read()
    Traceback (most recent call last):
        ...
    anabranch.errors.StateMismatch: entry 00000001.json of the log in ... is missing, though later \
ones are there: restore it
    """

    def __init__(self, folder: Folder, read: Callable[[Any], T], what: str, remedy: str) -> None:
        self._folder, self._read, self._what, self._remedy = folder, read, what, remedy
        self._known: list[T] = []
        self._whole = False  # whether no entry is known to be missing

    def read(self, *, again: bool = False) -> list[T]:
        """Every entry so far, oldest first; `again` looks for gaps, which is done once else."""
        self._whole = self._whole and not again
        while True:
            name = entry_name(len(self._known))
            content = self._folder.read(name)
            if content is not None:
                self._known.append(self._entry(name, content))
            elif self._whole or not self._later(name):
                self._whole = True
                return list(self._known)

    def write(self, number: int, form: Any) -> None:
        """Write an entry of which there is but one writer."""
        self._folder.write(entry_name(number), _written(form))

    def create(self, number: int, form: Any) -> bool:
        """Write an entry durably; False if somebody has written that number."""
        return self._folder.create(entry_name(number), _written(form))

    def _later(self, name: str) -> bool:
        """Whether an entry is there by now that was not; raises if only later ones are."""
        later = [other for other in self._folder.names("", ".json") if other[:8].isdigit()]
        if name not in later and later and max(later) > name:
            raise StateMismatch(
                f"entry {name} of the {self._what} in {self._folder.path} is missing, though later "
                f"ones are there: {self._remedy}"
            )
        return name in later

    def _entry(self, name: str, content: bytes) -> T:
        try:
            entry = self._read(json.loads(content))
            if entry_name(entry.number) != name:
                raise ValueError(f"it says that it is entry {entry.number}")
            return entry
        except UNREADABLE as error:
            raise StateMismatch(
                f"entry {name} of the {self._what} in {self._folder.path} cannot be read "
                f"({described(error)}): {self._remedy}"
            ) from error


def entry_name(number: int) -> str:
    """The file of an entry."""
    return f"{number:08d}.json"


def described(error: Exception) -> str:
    """An error with its kind, within a sentence."""
    return f"{type(error).__name__}: {error}"


def _written(form: Any) -> bytes:
    return json.dumps(form, indent=1).encode()
