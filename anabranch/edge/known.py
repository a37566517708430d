"""What the relay knows of one device: which outbox is its own, and which frame comes next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from anabranch.edge.frames import Up
from anabranch.edge.ownership import EARLIEST

__all__ = ["LATE_ROWS", "KnownDevice"]

LATE_ROWS = "late rows of "
"""How the relay's count of late rows begins; then comes the name of their stream."""

_INCARNATIONS = 1 << 31
_SPARE = 1000  # incarnations that a relay may have given which a recovery knows nothing of


@dataclass
class KnownDevice:
    """A device; `generation` is that of the streams in which its frames were last numbered."""

    incarnation: int = -1
    next: int = 0  # number of the frame that is expected
    newest: int = EARLIEST  # time of the newest row of earlier incarnations
    latest: int = EARLIEST  # time of the newest row
    asked: int = -1  # the frame for which a rewind was asked
    unacked: int = 0
    left: bool = False  # whether it said that it leaves, and not that it is back
    said: bool = False  # likewise, by its newest frame that is here
    check: int = 0  # checksum of the newest frame
    given: int = 0  # the largest incarnation that was given to it
    token: int = -1  # to whom
    generation: int = 0
    former: int = -1  # the incarnation before
    introduced: int = -1  # the last generation whose mailbox says that its incarnation is known
    until: int = 0  # frames before this one are sent again, or may be
    losses: dict[int, list[int]] = field(default_factory=dict)  # what it said of each stream

    def begin(self, incarnation: int) -> None:
        """Another outbox than before, whose rows are newer."""
        self.former, self.incarnation = self.incarnation, incarnation
        self.next, self.asked, self.check, self.introduced = 0, -1, 0, -1
        self.left, self.said, self.until = False, False, 0
        self.losses = {}  # which a new outbox counts from 0
        self.newest = self.latest

    def give(self, token: Any, generation: int) -> dict[int, int]:
        """The incarnation of a new outbox: larger than any before, whatever its clock says."""
        if type(token) is not int:
            return {}
        if token != self.token:  # else it is the same outbox, or a copy made before it had one
            before = max(self.given, self.incarnation, generation * _SPARE)
            self.given = min(before + 1, _INCARNATIONS - 1)
            self.token = token
        return {token: self.given}

    def forget(self) -> None:
        """The streams are lost: what it has sent it must send again."""
        self.asked, self.unacked = -1, 0
        self.losses = {}  # the counts of the relay begin anew, too
        self.given = max(self.given, self.incarnation, 0) + _SPARE

    def resumes(self, up: Up, generation: int) -> bool:
        """Whether its frames are numbered as in this generation, also by what a hello says."""
        said = up.extras.get("again") if up.number < 0 else None
        if self.generation < generation and isinstance(said, (list, tuple)) and len(said) == 3:
            good = all(type(one) is int for one in said) and said[1] >= 0
            if good and said[0] == generation:
                self.generation, self.next, self.check = said
                self.asked = -1
                following = up.extras.get("hello")
                self.until = following if type(following) is int else 0
        return self.generation == generation

    def hears(self, bye: Any) -> None:
        """What a frame says of leaving; one that is sent again may have been taken back since."""
        self.said = bye if type(bye) is bool else self.said
        if self.next >= self.until:
            self.left = self.said

    def is_caught_up(self, generation: int) -> bool:
        """Whether all is here that it had to say when it began in this generation."""
        return self.generation == generation and self.next >= self.until
