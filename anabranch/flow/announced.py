"""What the operators of this driver's queries do, by the names of their metrics.

A progress report has figures and the names under which they were observed. What a call said, in
words and in numbers, is known to the driver alone, when the call is made; here it is remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Announced", "announce", "announced", "in_order"]

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


def in_order(operators: Iterable[Sequence[str]]) -> list[Sequence[str]]:
    """Operators, each the names of its metrics, in the order in which their calls were made.

    Examples
    --------
    >>> for name in ("anabranch_correlate_f00d", "anabranch_correlate_0bad"):
    ...     announce(name, Announced("Pairs"))
    >>> in_order([("anabranch_correlate_0bad",), ("anabranch_correlate_f00d",)])
    [('anabranch_correlate_f00d',), ('anabranch_correlate_0bad',)]
    """
    every = list(operators)
    if len(every) < 2:
        return every
    places = {name: place for place, name in enumerate(_CALLS)}
    return sorted(every, key=lambda names: min(places.get(name, _MOST) for name in names))
