"""Durations as people, Spark and Polars write them, in whole microseconds."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

__all__ = ["Duration", "describe", "microseconds"]

Duration = str | timedelta

_UNITS: dict[str, int | Decimal] = {
    "ns": Decimal("0.001"),
    "nanosecond": Decimal("0.001"),
    "us": 1,
    "µs": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hr": 3_600_000_000,
    "hour": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
    "w": 604_800_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zµ]+)\s*", re.IGNORECASE)
_INTERVAL = re.compile(r"interval\s+(.*)", re.IGNORECASE)
# SQL's literals, '10' SECONDS, '1' DAY '2' HOURS and -'1 02:03' DAY TO MINUTE.
_QUOTED = re.compile(r"([+-]?)\s*'([^']*)'\s*((?:[a-z]+(?:\s+to\s+[a-z]+)?)?)", re.IGNORECASE)
_CLOCK = re.compile(r"([+-]?)((?:\d+ )?\d+(?::\d+)*(?:\.\d+)?)")
_FIELDS = ("day", "hour", "minute", "second")


def microseconds(duration: Duration) -> int:
    """Whole microseconds of `duration`.

    Examples
    --------
    >>> microseconds("60 seconds"), microseconds("2d"), microseconds("1h30m")
    (60000000, 172800000000, 5400000000)
    >>> microseconds("1 minute 30 seconds")
    90000000
    >>> microseconds("INTERVAL 10 SECONDS"), microseconds("INTERVAL '1 00:00:01' DAY TO SECOND")
    (10000000, 86401000000)
    >>> microseconds(timedelta(milliseconds=5))
    5000
    >>> microseconds("soon")
    Traceback (most recent call last):
        ...
    ValueError: 'soon' is not a duration; write for example '60 seconds', '1h30m' or a \
datetime.timedelta; units are w, d, h, m, s, ms, us, ns and their names (weeks, days, hours, \
minutes, seconds, ...)
    """
    if isinstance(duration, timedelta):
        if getattr(duration, "nanoseconds", 0):  # of pandas; less than one microsecond
            raise ValueError(_refusal(duration))
        return (duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds
    if not isinstance(duration, str):
        raise ValueError(_refusal(duration))
    text = _plain(duration)
    total, end = Decimal(0), 0
    while end < len(text):
        part = _PART.match(text, end)
        factor = None if part is None else _factor(part.group(2).lower())
        if part is None or factor is None:
            raise ValueError(_refusal(duration))
        total += Decimal(part.group(1)) * factor
        end = part.end()
    if not end:
        raise ValueError(_refusal(duration))
    if total != total.to_integral_value():
        raise ValueError(f"{duration!r} is not a duration of whole microseconds: at least 1us")
    return int(total)


def _plain(duration: str) -> str:
    """What SQL says of an interval, without its words and quotes."""
    found = _INTERVAL.fullmatch(duration.strip())
    return _QUOTED.sub(_unquoted, found[1]) if found else duration


def _unquoted(literal: re.Match[str]) -> str:
    """A literal as numbers and their units; as it is if it cannot be said so."""
    sign, inside, unit = literal[1], literal[2].strip(), " ".join(literal[3].lower().split())
    clock = _CLOCK.fullmatch(inside)
    if clock is None:
        return literal[0] if sign else f"{inside} {unit} "
    first, _, last = unit.partition(" to ")
    parts, units = re.split("[ :]", clock[2]), [unit]
    if first in _FIELDS and last in _FIELDS:
        units = list(_FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1])
    if len(parts) != len(units):
        return literal[0]
    # The sign is that of all the literal, and two of them cancel each other.
    minus = "-" if (sign == "-") != (clock[1] == "-") else ""
    return " ".join(f"{minus}{n} {name}" for n, name in zip(parts, units, strict=True)) + " "


def _factor(unit: str) -> int | Decimal | None:
    """Microseconds of a unit; names, not letters, have a plural."""
    found = _UNITS.get(unit)
    if found is None and len(unit) > 2 and unit != "mss":
        found = _UNITS.get(unit.removesuffix("s"))
    return found


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
        count, rest = divmod(us, int(_UNITS[name]))
        if rest == 0:
            return f"{count} {name}" + ("" if abs(count) == 1 else "s")
    raise AssertionError("every integer is a whole number of microseconds")


def _refusal(got: object) -> str:
    also = ""
    if isinstance(got, str) and re.search(r"\d\s*(mo|months?|q|y|years?)\b", got, re.IGNORECASE):
        also = "; months and years are not always as long: say days"
    if isinstance(got, (int, float)) and not isinstance(got, bool) and abs(got) < 1e9:
        also = f"; a number has no unit: if it counts seconds, write '{got:g} seconds'"
    return (
        f"{got!r} is not a duration; write for example '60 seconds', '1h30m' or a "
        "datetime.timedelta; units are w, d, h, m, s, ms, us, ns and their names (weeks, days, "
        f"hours, minutes, seconds, ...){also}"
    )
