"""How many rows a second a stream has, and when that is worth a report.

A change is reported as soon as chance does not explain it: of a busy stream within seconds, of one
with a row now and then after a few rows. What stays as it is costs a report a minute.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from anabranch.edge.own_stream import OwnStream

__all__ = ["Meter", "due_rates"]

_SECOND = 1_000_000
_FIRST = 5 * _SECOND  # until the first report, and between looks after a change
_WINDOW = 10 * _SECOND  # that a rate is taken over
_EVERY = 60 * _SECOND  # between reports at most: they say, too, that the device is there
_CHANGED = 0.2
_CHANCE = 2.0  # standard deviations of a count


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
    [(5, 1.0), (52, 2.2), (56, 3.8), (61, 5.0)]
    """

    begun: int | None = None
    told: float | None = None
    at: int = 0  # when it was told
    until: int = 0  # so long a change may still be under way
    recent: deque[tuple[int, int]] = field(default_factory=deque)

    def count(self, now: int, rows: int) -> None:
        """Rows that came up to now."""
        if self.begun is None or now < self.begun or (self.recent and now < self.recent[-1][0]):
            self.begun = now  # or the clock was set back
            self.recent.clear()
        elif rows:
            self.recent.append((now, rows))

    def due(self, now: int) -> float | None:
        """Rows per second, if that is to be reported now."""
        if self.begun is None or now - self.begun < _FIRST:
            return None
        while self.recent and self.recent[0][0] <= now - _WINDOW:
            self.recent.popleft()
        span = min(now - self.begun, _WINDOW) / _SECOND
        rows = sum(count for _, count in self.recent)
        rate = round(rows / span, 3)
        if self.told is None:
            return self._report(now, rate, now + 2 * _WINDOW)
        expected = self.told * span
        if abs(rows - expected) > _CHANGED * expected + _CHANCE * math.sqrt(expected) + 1:
            return self._report(now, rate, now + 2 * _WINDOW)
        apart = abs(rate - self.told) > _CHANGED * max(rate, self.told)
        changing = apart and now < self.until and now - self.at >= _FIRST
        if changing or abs(now - self.at) >= _EVERY:
            return self._report(now, rate, self.until)
        return None

    def _report(self, now: int, rate: float, until: int) -> float:
        self.told, self.at, self.until = rate, now, until
        return rate


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
