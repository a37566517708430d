"""One validated call of `assemble`: what is needed of the inputs' schema, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.assembly.closing import Closing, Learned
from anabranch.calls import (
    COLLATED,
    FLOATING,
    INTEGRAL,
    MISSING,
    TIMESTAMP,
    UNHASHABLE,
    Check,
    Columns,
    Schema,
)

__all__ = ["FIGURES", "Assembly", "plan_assembly"]

# The columns of the result between the key and the items.
FIGURES = (
    "seq",
    "revision",
    "opened",
    "closed",
    "reason",
    "count",
    "usual_count",
    "count_ratio",
    "first_ts",
    "last_ts",
    "duration",
    "streams",
)
_MOST_STREAMS = 62


@dataclass(frozen=True)
class Assembly:
    """A call that can run. Durations in microseconds; `delay` is None for tables and watermarks."""

    key: tuple[str, ...]
    time: str
    closing: Closing
    keep: tuple[str, ...]
    response: str | None
    kind: str
    streams: int
    delay: int | None
    max_open: int | None
    by_arrival: bool
    key_types: tuple[str, ...] = ()
    keep_types: tuple[str, ...] = ()
    drop_bad_rows: bool = True

    @property
    def words(self) -> str:
        """What it does, for people."""
        return f"One row for all events of the same {', '.join(self.key)}, closed by {self.closing}"

    @property
    def settings(self) -> dict[str, str]:
        """What must stay the same for open windows to keep their meaning, as text by name.

        How windows close may change, but not what brings the rows of an instance together: a key of
        another type has other hashes, and under a learned policy kinds decide where a key lives.

        Examples
        --------
        >>> from anabranch.assembly import close
        >>> types = {"page": "string", "user": "int", "ts": "timestamp"}
        >>> call, _ = plan_assembly([types], key=["page", "user"], close=close.learned(spread=2))
        >>> call.settings
        {'key': 'page string, user int', 'keep': 'nothing', 'time': 'ts', 'clock': 'event', \
'learned by': 'page in 2 parts'}
        """
        learned = isinstance(self.closing, Learned)
        parts = self.closing.spread if isinstance(self.closing, Learned) else 1
        return {
            "key": _typed(self.key, self.key_types),
            "keep": _typed(self.keep, self.keep_types) or "nothing",
            "time": self.time,
            "clock": "processing" if self.by_arrival else "event",
            "learned by": f"{self.kind} in {parts} parts" if learned else "nothing",
        }

    def open_per_bucket(self, buckets: int) -> int | None:
        """The share of `max_open` that each bucket gets.

        Examples
        --------
        >>> from anabranch.assembly import close
        >>> call = Assembly(("k",), "ts", close.gap("1 s"), (), None, "k", 1, None, 100, False)
        >>> call.open_per_bucket(8)
        13
        """
        return None if self.max_open is None else max(1, -(-self.max_open // buckets))


@dataclass(frozen=True)
class _Given:
    """What a call of `assemble` gives by name, as it was written."""

    key: Any = MISSING
    time: Any = "ts"
    close: Any = MISSING
    keep: Any = ()
    response: Any = None
    watermark: Any = None
    max_open: Any = None
    clock: Any = "event"
    bad_rows: Any = "drop"


def plan_assembly(schemas: Sequence[Schema], **options: Any) -> tuple[Assembly | None, list[str]]:
    """The call and the problems that stand in its way; one of them is empty.

    Examples
    --------
    >>> from anabranch.assembly import close
    >>> schema = {"page": "string", "ts": "timestamp"}
    >>> found, problems = plan_assembly([schema], key="page", close=close.gap("8 seconds"))
    >>> found.key, problems
    (('page',), [])
    >>> plan_assembly([schema], key=["pag"], close="8 seconds")[1]
    ["input has no column 'pag' (needed by key); it has page, ts", "close must be a policy such as \
ab.close.count(13, '22 seconds'), ab.close.gap('8 seconds'), ab.close.after('30 seconds'), \
ab.close.learned() or ab.close.until('is_last'), got '8 seconds'"]
    """
    given = _Given(**options)
    if not schemas:
        return None, ["there is no input: give one DataFrame or a list of them"]
    check = Check(input=schemas[0])
    for number, other in enumerate(schemas[1:], 1):
        _compare(check, other, number)
    if len(schemas) > _MOST_STREAMS:
        check.say(f"{len(schemas)} inputs are more than {_MOST_STREAMS}: union some of them first")
    keys = _key(check, given.key)
    kept = _columns(check, "keep", check.names("keep", given.keep))
    if isinstance(given.time, (list, tuple)):
        check.say(
            f"time must be one column name, got {given.time!r}: inputs are united, so they share "
            "the name of their time; rename it where it differs"
        )
        instant = ""
    else:
        instant = check.column("input", check.name("time", given.time), "time", TIMESTAMP)
    took = None if given.response is None else _response(check, given.response)
    close = getattr(given.close, "closing", given.close)  # of what ab.fit_windows found
    kind = _kind(check, keys, close)
    delay = None if given.watermark is None else check.duration("watermark", given.watermark)
    most = None if given.max_open is None else check.whole("max_open", given.max_open)
    drops = check.choice("bad_rows", given.bad_rows, ("drop", "fail")) == "drop"
    arriving = check.choice("clock", given.clock, ("event", "processing")) == "processing"
    if arriving and given.watermark is not None:
        check.say("watermark= is about event time: leave it out with clock='processing'")
    if check.problems:
        return None, check.problems
    types = check.inputs["input"]
    call = Assembly(
        key=keys,
        time=instant,
        closing=close,
        keep=kept,
        response=took,
        kind=kind,
        streams=len(schemas),
        delay=delay,
        max_open=most,
        by_arrival=arriving,
        key_types=tuple(types[name] for name in keys),
        keep_types=tuple(types[name] for name in kept),
        drop_bad_rows=drops,
    )
    return call, []


def _typed(names: Sequence[str], types: Sequence[str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True))


def _columns(check: Check, use: str, names: Sequence[str]) -> tuple[str, ...]:
    """The columns as they are spelt, each once."""
    found = [own for own in (check.column("input", name, use) for name in names) if own]
    for name in dict.fromkeys(name for name in found if found.count(name) > 1):
        check.say(f"{use} names {name!r} twice")
    return tuple(found)


def _key(check: Check, key: Any) -> tuple[str, ...]:
    if not check.given("key", key, "key='trace_id', which names an instance"):
        return ()
    if isinstance(key, (list, tuple)) and not key:
        check.say(f"key must name at least one column, got {key!r}")
    keys = _columns(check, "key", check.names("key", key))
    for name in keys:
        kind = check.inputs["input"][name]
        if name.lower() in (*FIGURES, "items"):
            check.say(f"key column {name!r} is also a column of the result: rename it")
        if kind.startswith(UNHASHABLE):
            check.say(f"key column {name!r} is {kind}, which is no key; cast it")
        if COLLATED in kind:
            check.say(
                f"key column {name!r} is {kind}, and keys are the same only if all their letters "
                "are: cast it to string, and make them alike before, as with lower()"
            )
    return keys


def _response(check: Check, response: Any) -> str:
    found = check.column("input", check.name("response", response), "response")
    kind = check.inputs["input"][found] if found else "double"
    if kind not in INTEGRAL | FLOATING and not kind.startswith("decimal"):
        check.say(f"response column {found!r} is {kind}; it must be a number of milliseconds")
    return found


def _kind(check: Check, keys: Sequence[str], close: Any) -> str:
    """The column that is learned about."""
    if not check.given("close", close, "close=ab.close.gap('8 seconds')"):
        return ""
    if not isinstance(close, Closing):
        check.say(
            "close must be a policy such as ab.close.count(13, '22 seconds'), "
            "ab.close.gap('8 seconds'), ab.close.after('30 seconds'), ab.close.learned() "
            f"or ab.close.until('is_last'), got {close!r}"
        )
        return ""
    if not isinstance(close, Learned) or close.kind is None:
        return keys[0] if keys else ""
    found = check.column("input", str(close.kind), "kind")
    if found and found not in keys:
        check.say(
            f"kind={str(close.kind)!r} is not one of the key columns "
            f"{', '.join(map(repr, keys))}: an instance must belong to one kind; add it to key="
        )
    return found


def _compare(check: Check, schema: Schema, number: int) -> None:
    """Inputs must have the same columns, since their rows come out together."""
    first, other = check.inputs["input"], schema
    other = other if isinstance(other, Columns) else Columns(other)
    for name in first:
        if name not in other:
            check.say(f"input {number} lacks column {name!r} of input 0")
        elif first[name] != other[name]:
            check.say(
                f"column {name!r} is {other[name]} in input {number} but {first[name]} in input 0; "
                "cast it"
            )
    for name in other:
        if name not in first:
            check.say(f"input {number} has column {name!r}, which input 0 lacks")
