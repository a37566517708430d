"""What the operators of this driver's queries do, by the names of their metrics.

A progress report has figures and the names under which they were observed. What a call said, in
words and in numbers, is known to the driver alone, when the call is made; here it is remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Announced", "announce", "announced"]

_MOST = 256  # calls that are remembered


@dataclass(frozen=True)
class Announced:
    """One call of a verb. Durations are in microseconds; what a verb does not have is None."""

    words: str
    plan: Any = None
    window: tuple[int, int] | None = None
    delay: int | None = None
    control: str | None = None
    one_stream: bool = False


_CALLS: OrderedDict[str, Announced] = OrderedDict()


def announce(name: str, call: Announced) -> None:
    """Remember what is behind the metrics of a name; the oldest calls are forgotten."""
    _CALLS[name] = call
    while len(_CALLS) > _MOST:
        _CALLS.popitem(last=False)


def announced(names: Iterable[str]) -> Announced | None:
    """The call behind the first of these names that is known."""
    return next((_CALLS[name] for name in names if name in _CALLS), None)
