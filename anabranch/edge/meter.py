"""How many rows a second a stream has, and when that is worth a report.

Rows are counted since the last change that chance does not explain, so a rate is neither that of
before nor a mean of the two, and becomes more exact the longer it stays. A change of a busy stream
is reported within seconds, of one with a row now and then after a few rows. What stays as it is
costs a report a minute.
"""

from __future__ import annotations

from bisect import bisect_right
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
_LOOK = _SECOND // 4  # between looks for a change: each is at 300 counts
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
    until: list[int] = field(default_factory=list)  # of each count, of a second or more
    rows: list[int] = field(default_factory=list)
    total: int = 0  # of all counts
    looked: int = 0  # when a change was looked for last
    changes: deque[int] = field(default_factory=deque)  # when there were any, lately

    def count(self, now: int, rows: int) -> None:
        """Rows that came since the last count."""
        newest = self.until[-1] if self.until else self.begun
        if self.begun is None or newest is None or now < newest or now == self.begun:
            self.begun, self.told = now, None  # or the clock was set back
            self._forget(len(self.until))
            self.changes.clear()
            return
        self.total += rows
        before = self.until[-2] if len(self.until) > 1 else self.begun
        if self.until and (now == newest or now - before < _SECOND):  # a flush may be short
            self.until[-1] = now
            self.rows[-1] += rows
        else:
            self.until.append(now)
            self.rows.append(rows)

    def _forget(self, count: int) -> None:
        """Forget the oldest counts."""
        self.total -= sum(self.rows[:count])
        del self.until[:count], self.rows[:count]

    def due(self, now: int) -> float | None:
        """Rows per second, if that is to be reported now."""
        if self.begun is None:
            return None
        if old := bisect_right(self.until, now - _WINDOW):
            self.begun = self.until[old - 1]
            self._forget(old)
        while self.changes and self.changes[0] <= now - _WINDOW:
            self.changes.popleft()
        changed = self.told is not None and self._forget_former(now)
        lasted = now - self.begun
        if not lasted or (self.told is None and lasted < _FIRST):
            return None
        rate = round(self.total * _SECOND / lasted, 3)
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
        if self.begun is None or len(self.until) < 2 or abs(now - self.looked) < _LOOK:
            return False
        self.looked = now
        rows = np.array(self.rows)
        n, d = np.cumsum(rows), (np.array(self.until) - self.begun) / _SECOND
        later = n[-1] - n[:-1], d[-1] - d[:-1]
        gain = _likelihood(n[:-1], d[:-1]) + _likelihood(*later) - _likelihood(n[-1:], d[-1:])
        at = int(np.argmax(gain))
        before, after = n[at] / d[at], later[0][at] / later[1][at]
        if abs(after - before) <= _CHANGED * max(after, before):
            return False
        # Rows that come in bursts vary by more than chance, those of a clock by less. Who changes
        # often must change by more, so that bursts have time to be known as such.
        former = 1 + sum(change <= now - _SETTLED for change in self.changes)
        if gain[at] < _SURE * _EVEN * former:
            return False
        expected = np.diff(d, prepend=0.0) * np.where(np.arange(len(rows)) <= at, before, after)
        if gain[at] < _SURE * max(_varied(rows, expected), _EVEN) * former:
            return False
        self.changes.append(now)
        self.begun = self.until[at]
        self._forget(at + 1)
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
