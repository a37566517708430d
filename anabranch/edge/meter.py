"""How many rows a second a stream has, and when that is worth a report.

Rows are counted since the last change that chance does not explain, so a rate is neither that of
before nor a mean of the two, and becomes more exact the longer it stays. A change of a busy stream
is reported within seconds, of one with a row now and then after a few rows. What stays as it is
costs a report a minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from anabranch.edge.own_stream import OwnStream

__all__ = ["Meter", "due_rates"]

_SECOND = 1_000_000
_FIRST = 5 * _SECOND  # until the first report
_WINDOW = 300 * _SECOND  # that a rate is taken over at most
_EVERY = 60 * _SECOND  # between reports at most: they say, too, that the device is there
_CHANGED = 0.2
_SETTLED = 20 * _SECOND  # after which a further change is another one
_SURE = 8.0  # how much likelier a change must be than none, as a logarithm
_EVEN = 0.25  # the least that counts vary, as a part of what those of chance do
_PRIOR = 5.0  # counts that vary as those of chance do, before any came


@dataclass
class Meter:
    """The rate of one stream. Times are microseconds of the device's clock.

    Examples
    --------
    >>> meter, seconds = Meter(), 1_000_000
    >>> told = []
    >>> for second in range(100):
    ...     meter.count(second * seconds, 1 if second < 50 else 5)
    ...     if (rate := meter.due(second * seconds)) is not None:
    ...         told.append((second, rate))
    >>> told   # one a second, then five
    [(5, 1.0), (50, 5.0)]
    """

    begun: int | None = None  # from when on rows are counted
    told: float | None = None
    at: int = 0  # when it was told
    lasted: int = 0  # the time that it was taken over
    counts: deque[tuple[int, int]] = field(default_factory=deque)  # until when, rows
    changes: deque[int] = field(default_factory=deque)  # when there were any, lately

    def count(self, now: int, rows: int) -> None:
        """Rows that came since the last count."""
        newest = self.counts[-1][0] if self.counts else self.begun
        if self.begun is None or newest is None or now < newest or now == self.begun:
            self.begun, self.told = now, None  # or the clock was set back
            self.counts.clear()
            self.changes.clear()
            return
        before = self.counts[-2][0] if len(self.counts) > 1 else self.begun
        if self.counts and (now == newest or now - before < _SECOND):  # a flush may be short
            rows += self.counts.pop()[1]
        self.counts.append((now, rows))

    def due(self, now: int) -> float | None:
        """Rows per second, if that is to be reported now."""
        if self.begun is None:
            return None
        while self.counts and self.counts[0][0] <= now - _WINDOW:
            self.begun = self.counts.popleft()[0]
        while self.changes and self.changes[0] <= now - _WINDOW:
            self.changes.popleft()
        changed = self.told is not None and self._forget_former(now)
        lasted = now - self.begun
        if not lasted or (self.told is None and lasted < _FIRST):
            return None
        rate = round(sum(rows for _, rows in self.counts) * _SECOND / lasted, 3)
        told, better = self.told, changed or lasted >= 2 * self.lasted
        if (
            told is not None
            and not (better and abs(rate - told) > _CHANGED * max(rate, told))
            and abs(now - self.at) < _EVERY
        ):
            return None
        self.told, self.at, self.lasted = rate, now, lasted
        return rate

    def _forget_former(self, now: int) -> bool:
        """Forget the counts of before a change, if there was one that chance does not explain."""
        if self.begun is None or len(self.counts) < 2:
            return False
        until, rows = np.array(self.counts, np.int64).T
        lasted = np.diff(until, prepend=self.begun) / _SECOND
        n, d = np.cumsum(rows), np.cumsum(lasted)
        later = n[-1] - n[:-1], d[-1] - d[:-1]
        gain = _likelihood(n[:-1], d[:-1]) + _likelihood(*later) - _likelihood(n[-1:], d[-1:])
        at = int(np.argmax(gain))
        before, after = n[at] / d[at], later[0][at] / later[1][at]
        if abs(after - before) <= _CHANGED * max(after, before):
            return False
        # Rows that come in bursts vary by more than chance, those of a clock by less. Who changes
        # often must change by more, so that bursts have time to be known as such.
        varied = _varied(rows, lasted * np.where(np.arange(len(rows)) <= at, before, after))
        former = sum(change <= now - _SETTLED for change in self.changes)
        if gain[at] < _SURE * max(varied, _EVEN) * (1 + former):
            return False
        at += 1
        self.changes.append(now)
        self.begun = int(until[at - 1])
        self.counts = deque(list(self.counts)[at:])
        return True


def _varied(rows: np.ndarray, expected: np.ndarray) -> float:
    """How much counts vary, as a part of what those of chance do."""
    some = expected > 0
    squares = (rows - expected)[some] ** 2 / expected[some]
    return float((squares.sum() + _PRIOR) / (len(squares) + _PRIOR))


def _likelihood(rows: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Of counts at their own rate, as a logarithm, without what all rates have in common."""
    found: np.ndarray = rows * np.log(np.maximum(rows, 1) / seconds)
    return found


def due_rates(streams: Iterable[OwnStream], meters: dict[str, Meter], now: int) -> dict[int, float]:
    """Rows per second of a device's streams, sent or not, where that is to be reported now."""
    found = {}
    for own in streams:
        if own.declared is not None:
            meter = meters.setdefault(own.name, Meter())
            meter.count(now, own.counted)
            own.counted = 0
            rate = meter.due(now)
            if rate is not None:
                found[own.number] = rate
    return found
