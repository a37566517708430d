"""How any call is checked: durations, whole numbers, and numbers as people read them.

All event times and windows are integers, because a float cannot tell apart the two sides of a
window's closed end.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

__all__ = ["LONGEST", "Duration", "count", "describe", "is_number", "is_whole", "microseconds"]

LONGEST = 3_650_000 * 86_400_000_000
"""Of windows and lateness, in microseconds: as far as dates go, and twice it still is a number."""

Duration = str | timedelta

_UNITS = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def microseconds(duration: Duration) -> int:
    """Whole microseconds of `duration`.

    Examples
    --------
    >>> microseconds("60 seconds")
    60000000
    >>> microseconds("1 minute 30 seconds")
    90000000
    >>> microseconds(timedelta(milliseconds=5))
    5000
    >>> microseconds("soon")
    Traceback (most recent call last):
        ...
    ValueError: 'soon' is not a duration; write for example '60 seconds', '1 minute 30 seconds' or \
a datetime.timedelta
    """
    if isinstance(duration, timedelta):
        return (duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds
    if not isinstance(duration, str):
        raise ValueError(_refusal(duration))
    total, end = Decimal(0), 0
    while end < len(duration):
        part = _PART.match(duration, end)
        if part is None:
            raise ValueError(_refusal(duration))
        unit = part.group(2).lower()
        factor = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
        if factor is None:
            raise ValueError(_refusal(duration))
        total += Decimal(part.group(1)) * factor
        end = part.end()
    if not end or total != total.to_integral_value():
        raise ValueError(_refusal(duration))
    return int(total)


def describe(us: int) -> str:
    """`us` microseconds in the largest unit that holds them whole.

    Examples
    --------
    >>> describe(90_000_000), describe(60_000_000), describe(0)
    ('90 seconds', '1 minute', '0 seconds')
    """
    if us == 0:
        return "0 seconds"
    names = ("week", "day", "hour", "minute", "second", "millisecond", "microsecond")
    for name in names:
        count, rest = divmod(us, _UNITS[name])
        if rest == 0:
            return f"{count} {name}" + ("" if abs(count) == 1 else "s")
    raise AssertionError("every integer is a whole number of microseconds")


def _refusal(got: object) -> str:
    return (
        f"{got!r} is not a duration; write for example '60 seconds', '1 minute 30 seconds' or "
        "a datetime.timedelta"
    )


def is_whole(value: Any, least: int = 1) -> bool:
    """Whether `value` is a whole number of at least `least`.

    Keep ``int(value)`` of it: plans are written as JSON and calls are told apart by their text.

    Examples
    --------
    >>> import numpy as np
    >>> is_whole(3), is_whole(np.int64(3)), is_whole(0), is_whole(3.0), is_whole(True)
    (True, True, False, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def is_number(value: Any) -> bool:
    """Whether `value` is a finite real number; truth values are none.

    Examples
    --------
    >>> is_number(3), is_number(0.5), is_number(float("nan")), is_number("3"), is_number(True)
    (True, True, False, False, False)
    """
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def count(number: float) -> str:
    """A count as people read it.

    Examples
    --------
    >>> [count(n) for n in (0, 7, 999, 1234, 56_789, 1_234_567, 3.4e8, 2.5e12)]
    ['0', '7', '999', '1.2k', '57k', '1.2M', '340M', '2.5T']
    """
    units = iter(("", "k", "M", "G"))
    unit = next(units)
    while abs(number) >= 999.5:
        number /= 1000
        unit = next(units, "T")
    if unit and abs(number) < 9.95:
        return f"{number:.1f}{unit}"
    return f"{number:.0f}{unit}"
