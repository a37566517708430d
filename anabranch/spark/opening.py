"""The columns that a call names, inside structs or as Columns of Spark, of one frame or each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.calls import FLOATING, INTEGRAL
from anabranch.errors import InvalidCall
from anabranch.predicates import Predicate, VectorMeasure
from anabranch.predicates.columns import Expression, Named
from anabranch.predicates.naming import with_names
from anabranch.spark.frames import by_name, column_types, quietly
from anabranch.spark.points import unit_vector

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["OfEach", "lists_of_each", "of_each", "opened"]

# Functions whose values, and the seeds in their names, are others after a restart.
_DRAWN = re.compile(r"\b(rand|randn|randstr|uniform|uuid|shuffle)\(")
# How long a window of Spark is, and how long after it the next one begins.
_WINDOW = re.compile(r"\bwindow\(.*?, '([^']+)', '([^']+)', '[^']*'\)")


@dataclass(frozen=True)
class OfEach:
    """An argument that is a value for each frame, where others are the same of all."""

    values: tuple[Any, ...]


def of_each(value: Any) -> Any:
    """A pair of columns, the first of which is of the first frame; anything else is of both.

    Examples
    --------
    >>> of_each(("at", "ts")), of_each("ts")
    (OfEach(values=('at', 'ts')), 'ts')
    """
    is_pair = isinstance(value, (tuple, list)) and len(value) == 2
    return OfEach(tuple(value)) if is_pair else value


def lists_of_each(value: Any) -> Any:
    """A pair of lists of columns, likewise; a pair of columns is one list, which is of both.

    Examples
    --------
    >>> lists_of_each((["x"], ["y"])), lists_of_each(("x", "y"))
    (OfEach(values=(['x'], ['y'])), ('x', 'y'))
    """
    are = isinstance(value, tuple) and all(isinstance(part, (tuple, list)) for part in value)
    return of_each(value) if are else value


def opened(
    frames: Sequence[DataFrame], given: Sequence[Any], *compared: Any, points: bool = True
) -> tuple[list[DataFrame], list[Any]]:
    """Frames in which every column that arguments name is one of their own, and the arguments.

    A column may be named inside a struct, ``"payload.v"``, or be a Column of Spark; it then becomes
    a column of that name, and the argument its name. What is no column is left for the verb's own
    checks; what is `OfEach` becomes a tuple. `compared`, predicates or measures of two frames, come
    last with such names; a verb without `points` rejects them as they are written.

    Examples
    --------
    >>> from pyspark.sql import functions as F
    >>> rows = spark.sql("SELECT 1 AS id, named_struct('v', 2) AS payload")
    >>> (found,), names = opened([rows], ["payload.v", F.col("id"), (F.col("id") + 1).alias("n")])
    >>> found.columns, names
    (['id', 'payload', 'payload.v', 'n'], ['payload.v', 'id', 'n'])
    """
    from pyspark.sql import Column

    sides = [_Opening(frame) for frame in frames]
    last = len(sides) - 1  # one frame stands for both sides

    def renamed(value: Any, frames: Sequence[DataFrame]) -> Any:
        if isinstance(value, OfEach):
            return tuple(map(renamed, value.values, ([frame] for frame in frames)))
        if isinstance(value, (list, tuple)):
            return type(value)(renamed(part, frames) for part in value)
        if not isinstance(value, Column):
            return value
        names = [name for frame in frames if (name := _name_of(frame, value)) is not None]
        # A Column of no frame is named as Spark prints it, so that the verb finds it missing.
        return names[0] if names else Expression.of(value).text

    for number, side in enumerate(sides):
        for value in _flat(v.values[number] if isinstance(v, OfEach) else v for v in given):
            side.add(value)
    found = [renamed(value, frames) for value in given]
    for one in compared:
        if isinstance(one, (Predicate, VectorMeasure)):
            one = with_names(
                one,
                lambda side, column: sides[min(side, last)].compared(column),
                (lambda side, lat, lon: sides[min(side, last)].point(lat, lon)) if points else None,
            )
        found.append(one)
    return [side.frame for side in sides], found


def _flat(values: Any) -> Iterable[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


class _Opening:
    """A frame that gets a column more for each that is named inside a struct or is a Column."""

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame
        self._added: dict[str, Column] = {}

    def add(self, value: Any) -> None:
        """Make it a column, under its own name, if it is none yet."""
        from pyspark.sql import Column

        if isinstance(value, str):
            self._nested(value)
        elif isinstance(value, Column):
            name = _name_of(self.frame, value)
            if name is not None and not self._put(name, value):
                problem = (
                    f"{value!r} would take the place of column {name!r}: give it another alias"
                )
                raise InvalidCall("a column", [problem])

    def compared(self, column: Named) -> str:
        """Make it a column, under a name that is free, and return that."""
        if isinstance(column, str):
            self._nested(column)
            return column
        name = _name_of(self.frame, column.column)
        if name is None:
            return column.text  # so that the verb finds it missing
        # A cast is named as what it casts, and the field of a struct without the struct: the text
        # tells them apart, but not one function of Python from another.
        for free in (name, *[column.text] * ("Origin(" not in column.text)):
            if self._put(free, column.column):
                return free
        raise InvalidCall(
            "a column",
            [
                f"{column} has the name of another column of the call, and which is which would "
                "be unknown after a restart: give it a name with .alias('name')"
            ],
        )

    def point(self, lat: str, lon: str) -> str:
        """Make latitude and longitude a vector of length 1, and return its name.

        It is null, and so its row bad, where one of them is null or no angle.
        """
        name = f"haversine({lat}, {lon})"
        known = column_types(self.frame)
        for column in (lat, lon):
            if not known.named(column):
                have = ", ".join(self.frame.columns)
                raise InvalidCall("haversine", [f"there is no column {column!r}; there is {have}"])
            kind = dict(self.frame.dtypes)[column] if column in self.frame.columns else "double"
            if kind not in (*INTEGRAL, *FLOATING) and not kind.startswith("decimal"):
                problem = (
                    f"column {column!r} is {kind}; latitude and longitude are degrees: cast it"
                )
                raise InvalidCall("haversine", [problem])
        if known.named(name):
            return name
        degrees = (by_name(column).cast("double") for column in (lat, lon))
        self.frame = self.frame.withColumn(name, unit_vector(*degrees))
        return name

    def _nested(self, name: str) -> None:
        from pyspark.sql import functions as F

        head = name.partition(".")[0]
        known = column_types(self.frame)
        if head == name or name in self.frame.columns or not known.named(head):
            return
        if _name_of(self.frame, F.col(name)) is not None:
            self.frame = self.frame.withColumn(name, F.col(name))

    def _put(self, name: str, column: Column) -> bool:
        """Whether the frame now has this column by this name."""
        if _DRAWN.search(name):
            raise InvalidCall(
                "a column",
                [
                    f"{name} is drawn anew, and so named anew, whenever the query is started: make "
                    "it a column where the rows come from, or give it a name with .alias('name')"
                ],
            )
        if column_types(self.frame).named(name):
            return self._is(name, column)
        self._demand_one_row(column)
        self.frame = self.frame.withColumn(name, column)
        self._added[name] = column
        return True

    def _is(self, name: str, column: Column) -> bool:
        from pyspark.sql import functions as F

        known = self._added.get(name)
        if known is None:
            known = by_name(name)
            if repr(column) == repr(F.col(name)):
                return True
        # By its text alone one lambda is not told from another, and a column of a view or of a
        # frame with an alias has that in its text.
        from pyspark.errors import PySparkException

        try:
            with quietly():
                both = [self.frame.select(one) for one in (column, known)]
        except PySparkException:  # several columns have the name
            return False
        return both[0].sameSemantics(both[1])

    def _demand_one_row(self, column: Column) -> None:
        """Raise for a Column such as an explode, by which a row would come several times."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F

        # Windows that overlap Spark takes everywhere, and makes rows of them.
        size = _WINDOW.search(str(column))
        several = size is not None and size[1] != size[2]
        try:
            with quietly():
                _ = self.frame.select("*", F.struct(column)).schema
        except PySparkException:
            several = True
        if several:
            problem = (
                f"{column!r} makes several rows of one: explode before the call, and give each "
                "row an id of its own"
            )
            raise InvalidCall("a column", [problem])


def _name_of(frame: DataFrame, column: Column) -> str | None:
    """The name that a Column has in a frame; None if it cannot be had of it."""
    from pyspark.errors import PySparkException

    try:
        with quietly():
            # Beside the others, which no sum over rows can be.
            found: str = frame.select("*", column).columns[len(frame.columns)]
    except PySparkException:
        return None
    return found
