"""What people ask a keeper for: which views are to run, and what bytes cost.

A request lies in the control directory until the keeper has read it. The newest one holds all that
is wanted: a view that it does not name ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.edge.book import Book
from anabranch.edge.definitions import Definition, Stream, View, listed, read_definition, read_view
from anabranch.edge.keeper_state import KeeperState
from anabranch.edge.ownership import NOWHERE
from anabranch.errors import StateMismatch
from anabranch.flow.folders import Folder, last_name
from anabranch.flow.numbered import UNREADABLE, described

__all__ = ["Requests", "Wishes"]


@dataclass(frozen=True)
class Wishes:
    """All that is to run. Inputs of views are counted in `streams`."""

    streams: tuple[Stream, ...] = ()
    definitions: tuple[Definition, ...] = ()
    views: tuple[View, ...] = ()
    upload_cost: Any = 1.0
    download_cost: Any = 0.5
    watermark: int | None = None
    cause: str = "by hand"

    def to_dict(self) -> dict[str, Any]:
        """A JSON form that `from_dict` reads."""
        return {
            "streams": list(map(listed, self.streams)),
            "definitions": list(map(listed, self.definitions)),
            "views": list(map(listed, self.views)),
            "upload_cost": _written(self.upload_cost),
            "download_cost": _written(self.download_cost),
            "watermark": self.watermark,
            "cause": self.cause,
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> Wishes:
        """The wishes that `to_dict` wrote."""
        return cls(
            tuple(Stream(*stream) for stream in form["streams"]),
            tuple(map(read_definition, form["definitions"])),
            tuple(map(read_view, form["views"])),
            _read(form["upload_cost"]),
            _read(form["download_cost"]),
            form["watermark"],
            form["cause"],
        )

    def enact(self, keeper: KeeperState, book: Book, place: Callable[[str], str]) -> None:
        """Have a keeper add what is new, each at its place, and end what is no longer wanted.

        Raises `InvalidCall` if that cannot run; then nothing ends either.
        """
        keeper.add(
            self.streams, self.definitions, [(view, place(view.name)) for view in self.views]
        )
        wanted = {view.name for view in self.views}
        for number, view in enumerate(book.views):
            if view.name not in wanted and book.place(number) != NOWHERE:
                keeper.remove(number)


def _written(cost: Any) -> Any:
    """A cost as JSON has it: no device is called "", which stands for all others."""
    if not isinstance(cost, Mapping):
        return float(cost)
    return {"" if device is None else str(device): float(one) for device, one in cost.items()}


def _read(cost: Any) -> Any:
    if not isinstance(cost, Mapping):
        return cost
    return {device or None: one for device, one in cost.items()}


class Requests:
    """The requests of a control directory.

    Examples
    --------
    >>> import tempfile
    >>> requests = Requests(tempfile.mkdtemp())
    >>> requests.newest() is None
    True
    >>> requests.write(Wishes(cause="first")), requests.write(Wishes(cause="second"))
    (True, True)
    >>> requests.write(Wishes(cause="second"))   # as before
    False
    >>> requests.newest().cause
    'second'
    """

    def __init__(self, control: str | os.PathLike[str]) -> None:
        self._folder = Folder(Path(control) / "requests")
        self._read: tuple[str, Wishes] | None = None  # a request never changes

    def write(self, wishes: Wishes) -> bool:
        """Ask for something; False if that is what was asked for last."""
        if self.newest() == wishes:
            return False
        name = last_name(self._folder.names("", ".json"), ".json")
        self._folder.write(name, json.dumps(wishes.to_dict(), indent=1).encode())
        return True

    def newest(self) -> Wishes | None:
        """What was asked for last; None if nothing ever was."""
        names = self._folder.names("", ".json")
        if names and self._read is not None and self._read[0] == names[-1]:
            return self._read[1]
        content = self._folder.read(names[-1]) if names else None
        if content is None:
            return None
        try:
            self._read = names[-1], Wishes.from_dict(json.loads(content))
            return self._read[1]
        except UNREADABLE as error:
            raise StateMismatch(
                f"the request {self._folder.path}/{names[-1]} cannot be read ({described(error)}): "
                "remove it, and ask again"
            ) from error
