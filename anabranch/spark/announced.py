"""What the operators of this driver's queries do, by the names of their metrics.

A progress report has figures and the names under which they were observed. What a call said, in
words and in numbers, is known to the driver alone, when the call is made; here it is remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from anabranch.assembly.call import Assembly
from anabranch.calls import describe
from anabranch.correlation.call import Correlation
from anabranch.correlation.grouping import Grouping
from anabranch.correlation.windows import describe_window
from anabranch.neighbours.call import Nearest

__all__ = [
    "Announced",
    "announce",
    "announced",
    "assembly_words",
    "group_words",
    "nearest_words",
    "pair_words",
]

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


def pair_words(call: Correlation) -> str:
    """What a call of `correlate` does.

    Examples
    --------
    >>> from anabranch.correlation.call import plan_correlation
    >>> from anabranch.predicates import cosine
    >>> types = {"id": "bigint", "ts": "timestamp", "v": "array<float>"}
    >>> call, _ = plan_correlation(types, types, where=cosine("v") >= 0.9, window="1 minute")
    >>> pair_words(call)
    "Pairs of left and right rows with cosine('v') >= 0.9, at most 1 minute apart"
    """
    left, right = call.window
    if call.by_rows:
        apart = f"among the newest {describe_window(call.window, True, call.one_stream)}"
    elif left == right or call.one_stream:
        apart = f"at most {describe(left)} apart"
    else:
        apart = f"left rows wait {describe(left)}, right rows {describe(right)}"
    both = "rows of one stream" if call.one_stream else "left and right rows"
    if call.how == "dedupe":
        return f"Rows without their near-duplicates: {call.where}, {apart}"
    if call.how == "anti":
        return f"Left rows that found no partner with {call.where}, {apart}"
    text = f"Pairs of {both} with {call.where}, {apart}"
    alone = " and ".join(("left", "right")[side] for side in call.unmatched)
    return f"{text}; {alone} rows without a partner too" if alone else text


def group_words(call: Grouping, what: str = "Groups of rows") -> str:
    """What a call of `groups` does, or of what stands on it.

    Examples
    --------
    >>> group_words(Grouping(300_000_000, True))
    'Groups of rows that pairs connect; one closes after 5 minutes without a pair'
    """
    return f"{what} that pairs connect; one closes after {describe(call.gap)} without a pair"


def nearest_words(call: Nearest) -> str:
    """What a call of `nearest` does."""
    most = f"The {call.k} nearest objects" if call.k else "The nearest objects"
    span = f", over {describe(call.window)}" if call.window else ""
    span = f", over the newest {call.rows:,} objects" if call.rows else span
    column = call.objects.slots[0].column
    return f"{most} of each saved search by {call.measure}({column!r}){span}"


def assembly_words(call: Assembly) -> str:
    """What a call of `assemble` does."""
    return f"One row for all events of the same {', '.join(call.key)}, closed by {call.closing}"
