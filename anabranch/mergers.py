"""Mergers as owners of queries publish them: small files in the control directory.

Homes of objects in micro-batch N read the newest of each owner that was published before N. Those
batches are committed, so a repeated or replayed batch reads the very same files and sends the same
copies. An owner keeps a few of its newest and removes the others.
"""

from __future__ import annotations

from anabranch.errors import StateMismatch
from anabranch.folders import Folder
from anabranch.knn.horizons import Merger
from anabranch.planlog import PlanLog

__all__ = ["Mergers"]

_KEPT = 8
_FOLDER = "mergers"


class Mergers:
    """Published mergers of one streaming query; the control directory becomes that query's own.

    Parameters
    ----------
    path
        The control directory.
    query
        The id of the streaming query, which stays the same when it is restarted.
    operator
        What tells this `nearest` from others in the query.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> mergers = Mergers(tempfile.mkdtemp(), query="one", operator="a")
    >>> for batch in (3, 5):
    ...     mergers.publish(0, batch, Merger(batch, np.array([9]), np.array([[0.5]]), np.zeros(1)))
    >>> [mergers.before(batch).keys() for batch in (3, 4)]
    [dict_keys([]), dict_keys([0])]
    >>> mergers.before(9)[0].reached
    5
    """

    def __init__(self, path: str, query: str, operator: str) -> None:
        self._folder = Folder(path)
        self._known: dict[int, tuple[str, Merger]] = {}
        log = PlanLog(path)
        if log.current() is not None:
            raise StateMismatch(
                f"the control directory {path} holds a plan log, and ab.interest keeps none: give "
                "this nearest a directory of its own"
            )
        log.claim(query, operator)
        log.check_owner(query, operator)  # of two that claim at once, one finds the other's name

    def publish(self, owner: int, batch: int, merger: Merger) -> None:
        """Write what an owner can promise after a micro-batch; the same again if it is repeated."""
        self._folder.write(f"{_FOLDER}/{_name(batch, owner)}", merger.encode())
        for name in self._names(owner)[:-_KEPT]:
            self._folder.delete(f"{_FOLDER}/{name}")

    def before(self, batch: int) -> dict[int, Merger]:
        """The newest merger of each owner that was published before a micro-batch."""
        newest = {}
        for name in self._names():
            made, owner = (int(part) for part in name.removesuffix(".bin").split("-"))
            if made < batch:
                newest[owner] = name
        found = {}
        for owner, name in newest.items():
            known, merger = self._known.get(owner, ("", None))
            if merger is None or known != name:
                content = self._folder.read(f"{_FOLDER}/{name}")
                if content is None:
                    raise StateMismatch(
                        f"{name} was removed from {self._folder.path}/{_FOLDER} while it was read: "
                        "two queries use this directory, or its files are cleared by hand"
                    )
                merger = Merger.decode(content)
                self._known[owner] = (name, merger)
            found[owner] = merger
        return found

    def _names(self, owner: int | None = None) -> list[str]:
        ending = ".bin" if owner is None else f"-{owner:05d}.bin"
        return self._folder.names(_FOLDER, ending)


def _name(batch: int, owner: int) -> str:
    return f"{batch:012d}-{owner:05d}.bin"
