"""What waits to be appended to mailboxes and buckets, and what each of them has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.edge.directives import Directive
from anabranch.edge.frames import Down
from anabranch.edge.sections import Results, Section

__all__ = ["Covered", "Mail", "Message", "Pending", "places_of"]


@dataclass(frozen=True)
class Covered:
    """What the newest message of a subject says: its number, and the position of UP it covers."""

    number: int = -1
    position: int = -1


@dataclass(frozen=True)
class Message:
    """To append to a subject, compare-and-set: `frame.number` follows the subject's last."""

    subject: str  # m.<device> or in.<bucket>
    frame: Down


@dataclass
class Pending:
    """What waits for one subject."""

    steps: list[Section | Directive] = field(default_factory=list)
    results: list[Results] = field(default_factory=list)
    extras: dict[str, Any] = field(default_factory=dict)

    def found(self, results: Results, place: str | None = None) -> None:
        """Results wait too; a bucket also learns where they were found."""
        self.results.append(results)
        if place is not None:
            runs = self.extras.setdefault("places", [])
            if runs and runs[-1][0] == place:
                runs[-1][1] += 1
            else:  # once for many: a name may be longer than a result
                runs.append([place, 1])


def places_of(frame: Down) -> list[str]:
    """Where each of a bucket's results was found.

    Examples
    --------
    >>> places_of(Down(0, 0, -1, extras={"places": [["ann", 2], ["bob", 1]]}))
    ['ann', 'ann', 'bob']
    """
    return [place for place, count in frame.extras.get("places", ()) for _ in range(count)]


class Mail:
    """All subjects; `covered` says what each has at the start.

    Examples
    --------
    >>> mail = Mail({"m.ann": Covered(6, 40)})
    >>> mail.position = 40
    >>> mail.pend("m.ann") is None   # it has all up to there
    True
    >>> mail.position = 41
    >>> mail.extra("ann", rewind=3)
    >>> [message] = mail.flush(lambda subject: (2, 0))
    >>> message.frame.number, message.frame.acked, message.frame.extras, mail.waiting
    (7, 2, {'rewind': 3}, False)
    """

    def __init__(self, covered: Mapping[str, Covered] | None = None) -> None:
        self.position = -1  # of UP: all up to it has been folded
        self.covered = dict(covered or {})
        self.told: dict[str, set[Any]] = {}  # streams and definitions that a subject knows
        self._pending: dict[str, Pending] = {}

    @property
    def waiting(self) -> bool:
        """Whether there is something to flush."""
        return bool(self._pending)

    def newest(self, subject: str) -> Covered:
        """What a subject has."""
        return self.covered.get(subject, Covered())

    def pend(self, subject: str) -> Pending | None:
        """What waits for a subject; None if it has all up to the present position."""
        if self.position <= self.newest(subject).position:
            return None
        return self._pending.setdefault(subject, Pending())

    def extra(self, device: str, **extras: Any) -> None:
        """Tell a device something besides."""
        if pending := self.pend(f"m.{device}"):
            pending.extras.update(extras)

    def tell(self, subject: str, directive: Directive) -> None:
        """Pass a directive on, without the streams and definitions that the subject knows."""
        told = self.told.setdefault(subject, set())
        streams = [one for one in directive.streams if one[0] not in told]
        definitions = [one for one in directive.definitions if one.name not in told]
        told.update(number for number, _ in streams)
        told.update(definition.name for definition in definitions)
        if pending := self.pend(subject):
            pending.steps.append(
                replace(directive, streams=tuple(streams), definitions=tuple(definitions))
            )

    def flush(self, acknowledged: Callable[[str], tuple[int, int]]) -> list[Message]:
        """All that waits, one frame per subject, each with what is acknowledged there."""
        messages = []
        for subject, pending in self._pending.items():
            number = self.newest(subject).number + 1
            self.covered[subject] = Covered(number, self.position)
            acked, check = acknowledged(subject)
            steps, results = tuple(pending.steps), tuple(pending.results)
            frame = Down(number, self.position, acked, steps, results, pending.extras, check)
            messages.append(Message(subject, frame))
        self._pending.clear()
        return messages
