"""How far a clock is off, by what another one showed meanwhile."""

from __future__ import annotations

__all__ = ["offset_of"]


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
