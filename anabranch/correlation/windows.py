"""Windows as a call writes them: durations, or numbers of rows."""

from __future__ import annotations

from typing import Any

from anabranch.calls import Check, describe, is_number

__all__ = ["ANY_TIME", "describe_window", "read_window"]

ANY_TIME = 1 << 62
"""Microseconds between any two times that a query may hold."""

_MOST_ROWS = 1 << 40


def read_window(check: Check, window: Any, one: bool) -> tuple[tuple[int, int], bool]:
    """The window of the left and of the right side, and whether it counts rows.

    Durations are in microseconds.

    Examples
    --------
    >>> read_window(Check(), "1 second", one=False), read_window(Check(), (50, 10), one=False)
    (((1000000, 1000000), False), ((50, 10), True))
    >>> read_window(Check(), 50, one=True)
    ((50, 0), True)
    >>> check = Check()
    >>> _ = read_window(check, (50, "1 second"), one=False), read_window(check, 0, one=True)
    >>> check.problems
    ["window must be two durations or two numbers of rows, got (50, '1 second')", \
'window must be a whole number of rows of at least 1, got 0']
    """
    nothing = (0, 0), False
    if not check.given("window", window, "window='1 minute', how far apart two times may be"):
        return nothing
    both = check.pair("window", window, "a duration or a number of rows")
    if both is None:
        return nothing
    if one and isinstance(window, (tuple, list)) and both[0] != both[1]:
        check.say(
            f"window: one stream has one window, a duration such as '1 minute' or a number of rows "
            f"such as 1000, got {window!r}"
        )
    counted = [is_number(part) for part in both]
    if not any(counted):
        left, right = (check.duration("window", part) for part in both)
        # Of one stream the left row is the earlier one, so it alone waits.
        return (left, 0 if one else right), False
    if not all(counted):
        check.say(f"window must be two durations or two numbers of rows, got {window!r}")
        return nothing
    # Of a pair one may be 0: then rows of that side meet only later ones of the other.
    least = 0 if max(both) > 0 else 1
    left, right = (_rows(check, part, least) for part in both)
    return (left, 0 if one else right), True


def _rows(check: Check, value: Any, least: int) -> int:
    if value != int(value):
        check.say(f"window must be a whole number of rows, or a duration, got {value!r}")
    elif value < least:
        check.say(f"window must be a whole number of rows of at least {least}, got {value!r}")
    elif value > _MOST_ROWS:
        check.say(f"window must be at most {_MOST_ROWS:,} rows, got {value!r}")
    return int(value)


def describe_window(window: tuple[int, int], by_rows: bool, one: bool) -> str:
    """A window as people write it.

    Examples
    --------
    >>> describe_window((1000, 50), True, False), describe_window((60_000_000, 0), False, True)
    ('1000 rows, 50 rows', '1 minute')
    """
    parts = [f"{part} rows" if by_rows else describe(part) for part in window]
    return parts[0] if one or parts[0] == parts[1] else ", ".join(parts)
