"""What a channel shows again: idents and studios, which are furniture, and adverts.

A repetition is a pair of key frames of one channel that are alike. A key frame with many of them
is furniture. Key frames that come again one after the other, each as long after as the others, are
an advert: nobody cuts the same shots to the same lengths twice, so it was played twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["REPEATS", "RUN", "Repetition", "Repetitions"]

REPEATS = 3
"""A key frame like more others of its own channel than this is furniture."""
RUN = 4
"""An advert has at least so many shots."""


class Repetition(NamedTuple):
    """Two key frames of a channel that are alike, and their times; the earlier one comes first."""

    channel: str
    first: Any
    again: Any
    before: int
    t: int

    @property
    def distance(self) -> int:
        """How long after the first one the other came."""
        return self.t - self.before


@dataclass
class Repetitions:
    """The repetitions that count at a time; they are taken in by their times.

    `lasting` is how long one counts, `equal` how far equal distances may differ, and `span` how
    long an advert may be; all in microseconds.

    Examples
    --------
    >>> seen = Repetitions(lasting=1000, equal=1, span=60)
    >>> for n in range(4):
    ...     _ = seen.take_in(f"a{n}", f"b{n}", "north", 5 * n, 100 + 5 * n)
    >>> seen.kind("a0"), seen.kind("b3"), seen.kind("c")
    ('advert', 'advert', '')
    """

    lasting: int
    equal: int = 0
    span: int = 0
    _all: list[Repetition] = field(default_factory=list)  # by time, as are their times
    _times: list[int] = field(default_factory=list)
    _of: dict[Any, list[Repetition]] = field(default_factory=dict)

    def take_in(self, left: Any, right: Any, channel: str, left_t: int, right_t: int) -> set[Any]:
        """Take in the next one; which key frames are furniture or adverts by it."""
        ends = sorted(((left_t, left), (right_t, right)), key=lambda end: end[0])
        (before, first), (t, again) = ends
        one = Repetition(channel, first, again, before, t)
        self.forget(t)
        self._add(one)
        touched = [one, *self._beside(one)]
        rows = {row for repetition in touched for row in (repetition.first, repetition.again)}
        return {row for row in rows if self.kind(row)}

    def forget(self, t: int) -> None:
        """Leave out what no longer counts at a time."""
        gone = bisect_left(self._times, t - self.lasting)
        for one in self._all[:gone]:
            for row in {one.first, one.again}:
                self._of[row].remove(one)
                if not self._of[row]:
                    del self._of[row]
        del self._all[:gone], self._times[:gone]

    def kind(self, row: Any) -> str:
        """Whether a key frame is ``furniture``, part of an ``advert``, or neither."""
        own = self._of.get(row, ())
        if len(own) > REPEATS:
            return "furniture"
        return "advert" if any(self._in_run(one) for one in own) else ""

    def form(self) -> list[list[Any]]:
        """All of them in the types of JSON, for `take_up`."""
        return [list(one) for one in self._all]

    def take_up(self, form: Iterable[Iterable[Any]]) -> None:
        """Continue with the repetitions of `form`."""
        for given in form:
            self._add(Repetition(*given))

    def _add(self, one: Repetition) -> None:
        self._all.append(one)
        self._times.append(one.t)
        for row in {one.first, one.again}:
            self._of.setdefault(row, []).append(one)

    def _in_run(self, one: Repetition) -> bool:
        run = [one, *self._beside(one)]
        return min(len({r.first for r in run}), len({r.again for r in run})) >= RUN

    def _beside(self, one: Repetition) -> list[Repetition]:
        """Those that may be of the same run, which ends before it comes again."""
        reach = min(self.span, one.distance - 1)
        near = slice(
            bisect_left(self._times, one.t - reach), bisect_right(self._times, one.t + reach)
        )
        return [
            other
            for other in self._all[near]
            if other is not one
            and other.channel == one.channel
            and abs(other.distance - one.distance) <= self.equal
        ]
