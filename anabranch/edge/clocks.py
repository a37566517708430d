"""How far a clock is off, by what another one showed meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from anabranch.calls import is_whole
from anabranch.errors import InvalidCall

__all__ = ["microseconds_of", "offset_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def offset_of(said: int, at: int, now: int) -> float:
    """Seconds that a clock is surely ahead of another, which showed `at` between two readings.

    An answer may come late, as from a hub with much to do. So this is no mean of the two.

    Examples
    --------
    >>> second = 1_000_000
    >>> offset_of(90 * second, 20 * second, 95 * second), offset_of(0, 5 * second, 9 * second)
    (70.0, 0.0)
    >>> offset_of(0, 70 * second, 5 * second)
    -65.0
    """
    least, most = (said - at) / 1e6, (now - at) / 1e6
    return min(max(0.0, least), most) if least <= most else least


def microseconds_of(time: datetime | int) -> int:
    """The time of a row, as an application gives it, in microseconds since 1970.

    Examples
    --------
    >>> microseconds_of(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)), microseconds_of(7)
    (2000000, 7)
    """
    if not isinstance(time, datetime):
        if not is_whole(time, 0):
            problem = "time must be a datetime or whole microseconds since 1970"
            raise InvalidCall("put", [f"{problem}, got {time!r}"])
        return int(time)
    if time.tzinfo is None:
        raise InvalidCall("put", [f"time must have a time zone, got {time!r}"])
    return (time - _EPOCH) // timedelta(microseconds=1)
