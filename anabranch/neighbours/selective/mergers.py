"""Mergers as owners of queries publish them: small files in the control directory.

A home of objects reads the newest of each owner that it believes, that is, made in a micro-batch
that its own state remembers. Those are committed, so a repeated batch reads the very same files and
sends the same copies; and what is left of batches that a restored checkpoint has undone is passed
over. An owner keeps a few of its newest and removes the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from anabranch.errors import StateMismatch
from anabranch.flow.folders import Folder
from anabranch.neighbours.selective.horizons import Merger
from anabranch.plans.log import PlanLog, User

__all__ = ["Mergers"]

_KEPT = 8
_FOLDER = "mergers"


class Mergers:
    """Published mergers of one streaming query; the control directory becomes that query's own.

    Parameters
    ----------
    path
        The control directory.
    user
        Whose they are: this `nearest`, in this run of this query.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> mergers, kept = Mergers(tempfile.mkdtemp(), User("one", "a")), []
    >>> for batch in (3, 5):
    ...     merger = Merger(batch, np.array([9]), np.array([[0.5]]), np.zeros(1))
    ...     kept = mergers.publish(0, batch, merger, kept)
    >>> mergers.newest(lambda merger: True)[0].reached
    5
    >>> mergers.newest(lambda merger: merger.reached < 5)[0].reached
    3
    """

    def __init__(self, path: str, user: User) -> None:
        self._folder = Folder(path)
        self._known: dict[str, Merger] = {}
        log = PlanLog(path)
        if log.current() is not None:
            raise StateMismatch(
                f"the control directory {path} holds a plan log, and ab.selective keeps none: give "
                "this nearest a directory of its own"
            )
        log.claim(user)
        log.check_owner(user)  # of two that claim at once, one finds the other's name
        log.enter(user)

    def publish(self, owner: int, batch: int, merger: Merger, kept: Sequence[str]) -> list[str]:
        """Write what an owner can promise after a micro-batch; the same again if it is repeated.

        `kept` are the owner's files so far, as its state has them; returns those from now on. Other
        files of this owner were left by batches that have been undone. Those of batches to come
        are removed when it is their turn: whoever writes belatedly must not remove newer ones.
        """
        content = merger.encode()
        # A name stands for one content always, though batches may be numbered anew.
        digest = hashlib.sha256(content).hexdigest()[:16]
        name = f"{batch:012d}-{owner:05d}-{digest}.bin"
        self._folder.write(f"{_FOLDER}/{name}", content)
        kept = [*(other for other in kept if other != name), name][-_KEPT:]
        for other in self._names().get(owner, []):
            if other not in kept and _number(other) <= batch:
                self._folder.delete(f"{_FOLDER}/{other}")
        return kept

    def newest(self, believes: Callable[[Merger], bool]) -> dict[int, Merger]:
        """The newest merger of each owner that a home believes."""
        names = self._names()
        listed = {name for mine in names.values() for name in mine}
        self._known = {name: known for name, known in self._known.items() if name in listed}
        found = {}
        for owner, mine in names.items():
            for name in reversed(mine):
                merger = self._read(name)
                if merger is not None and believes(merger):
                    found[owner] = merger
                    break
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of the mergers that are remembered."""
        return sum(merger.nbytes for merger in self._known.values())

    def _read(self, name: str) -> Merger | None:
        """A merger; None if it has just been removed, as those are that nobody can believe."""
        if name not in self._known:
            content = self._folder.read(f"{_FOLDER}/{name}")
            if content is None:
                return None
            self._known[name] = Merger.decode(content)
        return self._known[name]

    def _names(self) -> dict[int, list[str]]:
        """The files of each owner, oldest first."""
        names: dict[int, list[str]] = {}
        for name in self._folder.names(_FOLDER, ".bin"):
            names.setdefault(int(name.removesuffix(".bin").split("-")[1]), []).append(name)
        return names


def _number(name: str) -> int:
    return int(name.split("-")[0])
