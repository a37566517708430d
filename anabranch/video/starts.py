"""When channels begin, as people say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from anabranch.calls import Check

__all__ = ["start_text", "start_times"]

_EXAMPLE = "start='2024-05-01T12:00:00+00:00', a datetime, or a dict of these by channel"


def start_times(check: Check, start: Any) -> dict[str, int]:
    """Microseconds by channel, under "" those of all; without a time zone it is UTC.

    Examples
    --------
    >>> start_times(Check(), "1970-01-01T00:00:02"), start_times(Check(), {"north": "1970-01-02"})
    ({'': 2000000}, {'north': 86400000000})
    """
    if isinstance(start, str) and start.lstrip().startswith("{"):  # an option of Spark
        with suppress(ValueError):
            start = json.loads(start)
    if start is None:
        return {}
    by_channel = start if isinstance(start, Mapping) else {"": start}
    found = {}
    for channel, value in by_channel.items():
        try:
            moment = datetime.fromisoformat(value) if isinstance(value, str) else value
            zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            since = zoned - datetime(1970, 1, 1, tzinfo=UTC)
        except (AttributeError, TypeError, ValueError):
            check.say(f"start must be a time, for example {_EXAMPLE}; got {value!r}")
            continue
        seconds = since.days * 86_400 + since.seconds
        found[str(channel)] = seconds * 1_000_000 + since.microseconds
    return found


def start_text(times: Mapping[str, int]) -> str:
    """Times by channel as an option of Spark.

    Examples
    --------
    >>> start_text({"": 2_000_000})
    '{"": "1970-01-01T00:00:02+00:00"}'
    """
    second = 1_000_000
    texts = {
        channel: datetime.fromtimestamp(us // second, UTC).replace(microsecond=us % second)
        for channel, us in times.items()
    }
    return json.dumps({channel: moment.isoformat() for channel, moment in texts.items()})
