"""One validated call of `assemble`: what is needed of the inputs' schema, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.assembly.closing import Closing, Learned
from anabranch.calls import is_whole, microseconds

__all__ = ["FIGURES", "Assembly", "plan_assembly"]

Schema = Mapping[str, str]  # column name -> Spark's simple type name

# The columns of the result between the key and the items.
FIGURES = (
    "seq",
    "revision",
    "opened",
    "closed",
    "reason",
    "count",
    "expected",
    "completeness",
    "first_ts",
    "last_ts",
    "duration",
    "streams",
)
_MOST_STREAMS = 62
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
_UNHASHABLE = ("map<", "variant", "void", "float", "double")


@dataclass(frozen=True)
class Assembly:
    """A call that can run. Durations in microseconds; `late` is None for tables and watermarks."""

    key: tuple[str, ...]
    time: str
    closing: Closing
    collect: tuple[str, ...]
    response: str | None
    head: str
    streams: int
    late: int | None
    max_open: int | None
    by_arrival: bool

    @property
    def settings(self) -> dict[str, str]:
        """What must stay the same for open windows to keep their meaning, by name."""
        return {
            "key": ", ".join(self.key),
            "collect": ", ".join(self.collect),
            "time": self.time,
            "clock": "processing" if self.by_arrival else "event",
        }

    def open_per_bucket(self, buckets: int) -> int | None:
        """The share of `max_open` that each bucket gets.

        Examples
        --------
        >>> from anabranch.assembly.closing import session
        >>> call = Assembly(("k",), "ts", session("1 s"), (), None, "k", 1, None, 100, False)
        >>> call.open_per_bucket(8)
        13
        """
        return None if self.max_open is None else max(1, -(-self.max_open // buckets))


def plan_assembly(
    schemas: Sequence[Schema],
    *,
    key: Any,
    time: Any,
    close: Any,
    collect: Any = (),
    response: Any = None,
    late: Any = None,
    max_open: Any = None,
    clock: Any = "event",
) -> tuple[Assembly | None, list[str]]:
    """The call, or every problem that it has.

    Examples
    --------
    >>> from anabranch.assembly.closing import session
    >>> schema = {"page": "string", "ts": "timestamp"}
    >>> found, problems = plan_assembly([schema], key="page", time="ts", close=session("8 seconds"))
    >>> found.key, problems
    (('page',), [])
    >>> plan_assembly([schema], key=["pag"], time="ts", close="8 seconds")[1]
    ["there is no column 'pag' for key; the inputs have page, ts", \
"close must be a policy such as ab.count_or_timeout(13, '22 seconds'), ab.session('8 seconds'), \
ab.wait('30 seconds') or ab.learned(), got '8 seconds'"]
    """
    problems: list[str] = []
    if not schemas:
        return None, ["there is no input: give one DataFrame or a list of them"]
    schema = schemas[0]
    for number, other in enumerate(schemas[1:], 1):
        problems += _differences(schema, other, number)
    if len(schemas) > _MOST_STREAMS:
        problems.append(
            f"{len(schemas)} inputs are more than {_MOST_STREAMS}: union some of them first"
        )
    keys = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, (list, tuple)) else ()
    kept = (
        (collect,)
        if isinstance(collect, str)
        else tuple(collect)
        if isinstance(collect, (list, tuple))
        else None
    )
    if not keys:
        problems.append(f"key must name at least one column, got {key!r}")
    if kept is None:
        problems.append(f"collect must be a list of columns, got {collect!r}")
        kept = ()
    problems += _unnamed("key", keys) + _unnamed("collect", kept)
    keys, kept = (tuple(n for n in names if isinstance(n, str)) for names in (keys, kept))
    problems += _missing(schema, "key", keys) + _missing(schema, "collect", kept)
    problems += _twice("key", keys) + _twice("collect", kept)
    for name in keys:
        if name in FIGURES or name == "items":
            problems.append(f"key column {name!r} is also a column of the result: rename it")
        if str(schema.get(name, "")).startswith(_UNHASHABLE):
            problems.append(f"key column {name!r} is {schema[name]}, which is no key; cast it")
    if not isinstance(time, str):
        problems += _unnamed("time", (time,))
    elif time not in schema:
        problems += _missing(schema, "time", (time,))
    elif schema[time] != "timestamp":
        problems.append(f"time column {time!r} is {schema[time]}; cast it to timestamp")
    if response is not None and not isinstance(response, str):
        problems += _unnamed("response", (response,))
    elif response is not None:
        problems += _missing(schema, "response", (response,))
        kind = schema.get(response, "double")
        if kind not in _NUMBERS and not kind.startswith("decimal"):
            problems.append(
                f"response column {response!r} is {kind}; it must be a number of milliseconds"
            )
    head, found = _head(schema, keys, close)
    problems += found
    bounds, found = _bounds(late, max_open, clock)
    problems += found
    if problems:
        return None, problems
    call = Assembly(
        key=keys,
        time=time,
        closing=close,
        collect=kept,
        response=response,
        head=head,
        streams=len(schemas),
        late=bounds,
        max_open=None if max_open is None else int(max_open),
        by_arrival=clock == "processing",
    )
    return call, []


def _head(schema: Schema, keys: Sequence[str], close: Any) -> tuple[str, list[str]]:
    """The column that is learned about."""
    if not isinstance(close, Closing):
        return "", [
            "close must be a policy such as ab.count_or_timeout(13, '22 seconds'), "
            "ab.session('8 seconds'), ab.wait('30 seconds') or ab.learned(), got " + repr(close)
        ]
    head = close.head if isinstance(close, Learned) else None
    if head is not None and head not in keys:
        return head, [
            f"head={head!r} is not one of the key columns {', '.join(map(repr, keys))}: an "
            "instance must belong to one head"
        ]
    return head or (keys[0] if keys else ""), []


def _bounds(late: Any, max_open: Any, clock: Any) -> tuple[int | None, list[str]]:
    problems, found = [], None
    if late is not None:
        try:
            found = microseconds(late)
        except ValueError as error:
            problems.append(f"late: {error}")
        if found is not None and found < 0:
            problems.append(f"late must not be negative, got {late!r}")
    if max_open is not None and not is_whole(max_open):
        problems.append(f"max_open must be a whole number of at least 1, or None, got {max_open!r}")
    if clock not in ("event", "processing"):
        problems.append(f"clock must be 'event' or 'processing', got {clock!r}")
    elif clock == "processing" and late is not None:
        problems.append("late= is about event time: leave it out with clock='processing'")
    return found, problems


def _missing(schema: Schema, what: str, names: Sequence[Any]) -> list[str]:
    have = ", ".join(schema)
    return [
        f"there is no column {name!r} for {what}; the inputs have {have}"
        for name in names
        if name not in schema
    ]


def _unnamed(what: str, names: Sequence[Any]) -> list[str]:
    return [
        f"{what} must name columns by their names, strings, got {name!r}"
        for name in names
        if not isinstance(name, str)
    ]


def _twice(what: str, names: Sequence[str]) -> list[str]:
    found = [name for place, name in enumerate(names) if name in names[:place]]
    return [f"{what} names {name!r} twice" for name in found]


def _differences(schema: Schema, other: Schema, number: int) -> list[str]:
    lacks = [name for name in schema if name not in other]
    more = [name for name in other if name not in schema]
    changed = [n for n in schema if n in other and schema[n] != other[n]]
    problems = [f"input {number} lacks column {name!r} of input 0" for name in lacks]
    problems += [f"input {number} has column {name!r}, which input 0 lacks" for name in more]
    return problems + [
        f"column {name!r} is {other[name]} in input {number} but {schema[name]} in input 0; cast it"
        for name in changed
    ]
