"""What waits to be appended to mailboxes and buckets, and what each of them has."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.edge.directives import Directive
from anabranch.edge.frames import Down
from anabranch.edge.sections import Results, Section

__all__ = [
    "KEPT",
    "Covered",
    "Mail",
    "Message",
    "Pending",
    "base_of",
    "fresh_results",
    "generation_of",
]

KEPT = 20 * 60.0
"""Seconds that devices and the cloud keep what they sent: ten of the longest sync intervals."""


def base_of(generation: int) -> int:
    """Where positions and mailboxes of a generation of streams begin: after all that were before.

    Examples
    --------
    >>> base_of(0), base_of(1)
    (0, 1099511627776)
    """
    return generation << 40


def generation_of(position: int) -> int:
    """To which generation a position or number belongs."""
    return position >> 40


@dataclass(frozen=True)
class Covered:
    """What the newest message of a subject says: its number, and the position of UP it covers."""

    number: int = -1
    position: int = -1


_NOTHING = Covered()


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

    def found(self, results: Results, origin: str, number: int) -> None:
        """Results wait too, with who found them, and in which frame of its own."""
        self.results.append(results)
        runs = self.extras.setdefault("origins", [])
        if runs and runs[-1][:2] == [origin, number]:
            runs[-1][2] += 1
        else:  # once for many: a name may be longer than a result
            runs.append([origin, number, 1])


def fresh_results(frame: Down, had: dict[str, int]) -> list[tuple[Results, str]]:
    """The results of a frame that a place has not had, each with who found it.

    `had` is by origin the newest frame whose results were taken; it is brought up to date. After
    a recovery of the broker's streams devices send again what they have sent.

    Examples
    --------
    >>> import numpy as np
    >>> one = Results(0, (), (), np.empty(0), np.empty(0), ())
    >>> had = {"ann": 6}
    >>> frame = Down(0, 0, -1, (), (one,) * 3, {"origins": [["ann", 6, 1], ["ann", 7, 2]]})
    >>> [who for _, who in fresh_results(frame, had)], had, fresh_results(frame, had)
    (['ann', 'ann'], {'ann': 7}, [])
    """
    found: list[tuple[Results, str]] = []
    results = iter(frame.results)
    for origin, number, count in frame.extras.get("origins", ()):
        run = list(itertools.islice(results, count))
        if number > had.get(origin, -1):
            had[origin] = number
            found += [(one, origin) for one in run]
    return found


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

    def __init__(self, covered: Mapping[str, Covered] | None = None, generation: int = 0) -> None:
        self.base = base_of(generation)
        self.position = self.base or -1  # of UP: all up to it has been folded
        self.covered = dict(covered or {})
        self.told: dict[str, set[Any]] = {}  # streams and definitions that a subject knows
        self._pending: dict[str, Pending] = {}

    @property
    def waiting(self) -> bool:
        """Whether there is something to flush."""
        return bool(self._pending)

    def newest(self, subject: str) -> Covered:
        """What a subject has."""
        return self.covered.get(subject, _NOTHING)

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
            last = self.newest(subject).number
            number = max(last + 1, self.base)
            if number > last + 1:
                pending.extras["after"] = last
            self.covered[subject] = Covered(number, self.position)
            acked, check = acknowledged(subject)
            steps, results = tuple(pending.steps), tuple(pending.results)
            frame = Down(number, self.position, acked, steps, results, pending.extras, check)
            messages.append(Message(subject, frame))
        self._pending.clear()
        return messages
