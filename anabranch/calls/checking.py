"""What is wrong with a call: numbers, columns and their types, all problems at once.

All event times and windows are integers, because a float cannot tell apart the two sides of a
window's closed end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

from anabranch.calls.durations import describe, microseconds
from anabranch.errors import InvalidCall

__all__ = [
    "COLLATED",
    "COUNTS",
    "DAY_TIME",
    "DECIMAL",
    "EXACT",
    "FLOATING",
    "IDS",
    "INTEGRAL",
    "LONGEST",
    "MISSING",
    "ML_VECTOR",
    "TEXT",
    "TIMES",
    "TIMESTAMP",
    "UNHASHABLE",
    "VECTORS",
    "Check",
    "Columns",
    "Schema",
    "count",
    "is_names",
    "is_number",
    "is_whole",
    "unwrapped",
]

EXACT = (Real, Decimal)
"""Numbers that thresholds and limits may be."""

LONGEST = 3_650_000 * 86_400_000_000
"""Of windows and lateness, in microseconds: as far as dates go, and twice it still is a number."""

# Types by the names that Spark prints: the language of a schema.
INTEGRAL = frozenset({"tinyint", "smallint", "int", "bigint"})
FLOATING = frozenset({"float", "double"})
TIMESTAMP = frozenset({"timestamp"})
TIMES = TIMESTAMP | {"date", "timestamp_ntz"}
IDS = frozenset({"bigint", "int", "string"})
VECTORS = frozenset({"array<float>", "array<double>"})
COUNTS = frozenset(f"array<{kind}>" for kind in INTEGRAL)  # histograms as they are counted
COLLATED = " collate "
"""In the name of a type of text: it takes some different texts for the same."""
TEXT = re.compile(r"string|binary|boolean|decimal\(.*\)|varchar\(.*\)|char\(.*\)")
DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
DAY_TIME = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")
UNHASHABLE = ("map<", "variant", "void", "float", "double")
_REMEDIES = {
    TIMESTAMP: "cast it, for example with to_timestamp",
    IDS: "cast it to long or string",
    VECTORS: "cast it to array<float>",
    INTEGRAL: "cast it to int",
}


class _Missing:
    """The default of an argument that has none, so that a call without it can be explained."""

    def __repr__(self) -> str:
        return "required"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()


class Columns(Mapping[str, str]):
    """The columns of an input and their types, found by name as Spark finds them.

    Spark does not tell upper from lower case unless ``spark.sql.caseSensitive`` is set, and takes
    no name that several columns have.

    Examples
    --------
    >>> columns = Columns([("id", "bigint"), ("V", "array<float>"), ("x", "int"), ("X", "date")])
    >>> columns["v"], columns.named("v"), columns.named("x")
    ('array<float>', ['V'], ['x', 'X'])
    >>> Columns({"x": "int", "X": "date"}, case_sensitive=True).named("x")
    ['x']
    """

    def __init__(
        self, fields: Mapping[str, str] | Iterable[tuple[str, str]], case_sensitive: bool = False
    ) -> None:
        self.fields: list[tuple[str, str]] = list(
            fields.items() if isinstance(fields, Mapping) else fields
        )
        self.case_sensitive = case_sensitive

    def named(self, name: Any) -> list[str]:
        """The columns that a name may stand for, as they are spelt."""
        if self.case_sensitive or not isinstance(name, str):
            return [own for own, _ in self.fields if own == name]
        return [own for own, _ in self.fields if own.lower() == name.lower()]

    def __getitem__(self, name: str) -> str:
        for own in self.named(name):
            return dict(self.fields)[own]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __repr__(self) -> str:
        return repr(dict(self.fields))


Schema = Mapping[str, str]
"""`Columns`, or a plain mapping from names to types."""


class Check:
    """Collects what is wrong with one call, so that all of it can be said at once.

    Examples
    --------
    >>> check = Check(left={"id": "bigint", "at": "date"})
    >>> check.column("left", "ID", "id", IDS), check.duration("window", "1 s")
    ('id', 1000000)
    >>> _ = check.column("left", "at", "time", TIMESTAMP), check.whole("k", 0)
    >>> check.refuse("nearest")
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: nearest cannot start, 2 problems:
      1. time: left column 'at' is date, not timestamp; cast it, for example with to_timestamp
      2. k must be a whole number of at least 1, got 0
    """

    def __init__(self, **inputs: Schema) -> None:
        self.inputs = {
            label: schema if isinstance(schema, Columns) else Columns(schema)
            for label, schema in inputs.items()
        }
        self.problems: list[str] = []

    def say(self, problem: str) -> None:
        """Note a problem, once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def refuse(self, verb: str) -> None:
        """Raise if there is any problem."""
        if self.problems:
            raise InvalidCall(verb, self.problems)

    def given(self, name: str, value: Any, example: str) -> bool:
        """Whether an argument that must be given is."""
        if value is MISSING:
            self.say(f"{name}= is missing: add for example {example}")
        return value is not MISSING

    def duration(
        self, name: str, value: Any, least: int = 0, most: int = LONGEST, hint: str = ""
    ) -> int:
        """Microseconds of a duration; `least` is 0 or 1. `hint` follows what is no duration."""
        try:
            found = microseconds(value)
        except ValueError as error:
            self.say(f"{name}: {error}{hint}")
            return least
        if found < least:
            needed = "be longer than 0 seconds" if least else "not be negative"
            also = "" if least else "; 0 seconds is allowed"
            self.say(f"{name} must {needed}, got {value!r}{also}")
        elif found > most:
            self.say(f"{name} must be at most {describe(most)}, got {value!r}")
        return found

    def whole(self, name: str, value: Any, least: int = 1, most: int | None = None) -> int:
        """A whole number."""
        if not is_whole(value, least):
            self.say(f"{name} must be a whole number of at least {least}, got {value!r}")
            return least
        if most is not None and value > most:
            self.say(f"{name} must be at most {most:,}, got {value!r}")
        return int(value)

    def choice(self, name: str, value: Any, allowed: Sequence[str]) -> str:
        """One of the words that there are; the first of them if it is none."""
        if isinstance(value, str) and value in allowed:
            return value
        self.say(f"{name} must be {' or '.join(map(repr, allowed))}, got {value!r}")
        return allowed[0]

    def flag(self, name: str, value: Any) -> bool:
        """True or False."""
        if isinstance(value, bool):
            return value
        self.say(f"{name} must be True or False, got {value!r}")
        return False

    def pair(self, name: str, value: Any, what: str = "a column name") -> tuple[Any, Any] | None:
        """One value for both inputs, or one for each."""
        both = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
        named = what != "a column name" or all(isinstance(one, str) and one for one in both)
        if len(both) == 2 and named:
            return (both[0], both[1])
        self.say(f"{name} must be {what} or a pair of them, got {value!r}")
        return None

    def name(self, name: str, value: Any) -> str:
        """The name of a column."""
        if isinstance(value, str) and value:
            return value
        self.say(f"{name} must be a column name, got {value!r}")
        return ""

    def names(self, name: str, value: Any) -> tuple[str, ...]:
        """Names of columns; a single one may stand alone."""
        found = (value,) if isinstance(value, str) else value
        if is_names(found):
            return tuple(found)
        self.say(f"{name} must be a column name or a list of them, got {value!r}")
        return ()

    def column(self, label: str, name: str, use: str, allowed: Collection[str] = ()) -> str:
        """The column of an input as it is spelt there; "" if it is not there."""
        if not name:
            return ""
        columns = self.inputs[label]
        has, it = ("have", "they have") if label.endswith("s") else ("has", "it has")
        found = columns.named(name)
        if not found:
            # Fields that are named elsewhere in the call were made columns beside their struct.
            known = ", ".join(c for c in columns if not columns.named(c.rpartition(".")[0]))
            struct = name.rpartition(".")[0]
            also = f"; {struct} is {columns[struct]}" if columns.named(struct) else ""
            self.say(f"{label} {has} no column {name!r} (needed by {use}); {it} {known}{also}")
            return ""
        if len(found) > 1:
            self.say(
                f"{label} {has} {len(found)} columns that {name!r} (needed by {use}) may stand "
                f"for, {', '.join(found)}: rename or drop all but one"
            )
            return ""
        kind = columns[found[0]]
        if allowed and kind not in allowed:
            wanted, remedy = " or ".join(sorted(allowed)), _REMEDIES.get(frozenset(allowed))
            remedy = unwrapped(name) if kind == ML_VECTOR else remedy or "cast it"
            self.say(f"{use}: {label} column {name!r} is {kind}, not {wanted}; {remedy}")
        return found[0]


ML_VECTOR = "vector"
"""What Spark calls the type of its machine learning library's vectors."""


def unwrapped(name: str) -> str:
    """How to make an array of a column of such vectors; no cast does."""
    return f"pyspark.ml.functions.vector_to_array({name!r}) makes an array of it"


def is_names(value: Any) -> bool:
    """Whether `value` is a list of names, be it empty."""
    return isinstance(value, (list, tuple)) and all(isinstance(n, str) and n for n in value)


def is_whole(value: Any, least: int = 1) -> bool:
    """Whether `value` is a whole number of at least `least`.

    Keep ``int(value)`` of it: plans are written as JSON and calls are told apart by their text.

    Examples
    --------
    >>> import numpy as np
    >>> is_whole(3), is_whole(np.int64(3)), is_whole(0), is_whole(3.0), is_whole(True)
    (True, True, False, False, False)
    """
    return is_number(value, Integral) and int(value) >= least


def is_number(value: Any, kinds: Any = Real) -> bool:
    """Whether a value is a number of these kinds that a float can stand for.

    Examples
    --------
    >>> [is_number(value) for value in (1, 0.1, True, float("nan"), 10**400, "1")]
    [True, True, False, False, False, False]
    >>> is_number(Decimal("0.1")), is_number(Decimal("0.1"), EXACT)
    (False, True)
    """
    if not isinstance(value, kinds) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except (OverflowError, TypeError, ValueError):
        return False  # beyond all floats; numpy's timedelta, which calls itself whole; Decimal sNaN


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
