"""What every verb asks of the DataFrames that it is given.

Importing this module does not import Spark: `place` asks here about tables of every kind.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anabranch.calls import FLOATING, INTEGRAL, Columns
from anabranch.calls.conditions import harmless
from anabranch.errors import InvalidCall
from anabranch.predicates import Predicate, VectorMeasure
from anabranch.predicates.columns import Expression, Named
from anabranch.predicates.naming import with_names
from anabranch.spark.points import unit_vector

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "ASSEMBLY_KEY",
    "ASSEMBLY_SIZE",
    "JSON_FORM",
    "STREAMS",
    "Condition",
    "by_name",
    "column_types",
    "condition",
    "hashable",
    "is_frame",
    "kind_of",
    "opened",
    "refuse_others",
]

Condition = Any
"""What is true of some rows: a Column, SQL text, a function of the DataFrame, True or False."""

# Functions whose values, and the seeds in their names, are others after a restart.
_DRAWN = re.compile(r"\b(rand|randn|randstr|uniform|uuid|shuffle)\(")

STREAMS = "anabranch.streams"
"""Metadata of the left id in the result of `correlate`: of how many streams the ids are."""

ASSEMBLY_KEY = "anabranch.key"
"""Metadata of `seq` in the result of `assemble`: the names of the key's columns."""

ASSEMBLY_SIZE = "anabranch.size"
"""Metadata of `seq` there: the size of an instance that was declared, 0 if none was."""


def is_frame(value: Any) -> bool:
    """Whether this is a Spark DataFrame, classic or of Spark Connect.

    Examples
    --------
    >>> is_frame(spark.range(1)), is_frame([1, 2])
    (True, False)
    """
    spark = sys.modules.get("pyspark.sql")  # who holds a DataFrame has imported it
    return spark is not None and isinstance(value, spark.DataFrame)


def kind_of(value: Any) -> str:
    """The name of a value's type, with the library's where several have one of that name.

    Examples
    --------
    >>> import pandas as pd
    >>> kind_of(pd.DataFrame()), kind_of([]), kind_of(None)
    ('pandas.DataFrame', 'list', 'NoneType')
    """
    library = type(value).__module__.partition(".")[0]
    return type(value).__name__ if library == "builtins" else f"{library}.{type(value).__name__}"


def refuse_others(verb: str, given: Mapping[str, Any]) -> None:
    """Raise if one of these, by the names that the user knows them by, is no DataFrame.

    Examples
    --------
    >>> refuse_others("correlate", {"left": [1, 2]})
    Traceback (most recent call last):
        ...
    anabranch.errors.InvalidCall: correlate cannot start: left must be a Spark DataFrame, got list
    """
    problems = [
        f"{name} must be a Spark DataFrame, got {kind_of(frame)}"
        for name, frame in given.items()
        if not is_frame(frame)
    ]
    if problems:
        raise InvalidCall(verb, problems)


def by_name(name: str) -> Column:
    """The column of this very name, dots and backticks included.

    Examples
    --------
    >>> spark.range(1).withColumnRenamed("id", "a.b").select(by_name("a.b")).columns
    ['a.b']
    """
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def opened(
    frames: Sequence[DataFrame], given: Sequence[Any], *compared: Any, points: bool = True
) -> tuple[list[DataFrame], list[Any]]:
    """Frames in which every column that arguments name is one of their own, and the arguments.

    A column may be named inside a struct, ``"payload.v"``, or be a Column of Spark; it then becomes
    a column of that name, and the argument its name. What is no column is left for the verb's own
    checks. `compared`, predicates or measures of two frames, come last with such names; a verb
    without `points` rejects them as they are written.

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

    def renamed(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(renamed, value))
        if not isinstance(value, Column):
            return value
        names = [name for frame in frames if (name := _name_of(frame, value)) is not None]
        # A Column of no frame is named as Spark prints it, so that the verb finds it missing.
        return names[0] if names else Expression.of(value).text

    for side in sides:
        for value in _flat(given):
            side.add(value)
    found = [renamed(value) for value in given]
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
        known = self.frame.columns
        if head == name or name in known or head not in known:
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
        self.frame = self.frame.withColumn(name, column)
        self._added[name] = column
        return True

    def _is(self, name: str, column: Column) -> bool:
        from pyspark.sql import functions as F

        if name not in self._added:
            return repr(column) == repr(F.col(name))
        # By its text alone one lambda is not told from another.
        both = [self.frame.select(one) for one in (column, self._added[name])]
        return both[0].sameSemantics(both[1])


def _name_of(frame: DataFrame, column: Column) -> str | None:
    """The name that a Column has in a frame; None if it cannot be had of it."""
    from pyspark.errors import PySparkException

    try:
        with _quiet():
            # Beside the others, which no sum over rows can be.
            found: str = frame.select("*", column).columns[len(frame.columns)]
    except PySparkException:
        return None
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Spark from printing a stack trace of an error that is expected, or said in our words."""
    from pyspark.logger import PySparkLogger

    names = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
    loggers = [PySparkLogger.getLogger(name) for name in names]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


def condition(frame: DataFrame, given: Condition, name: str = "complete") -> Column:
    """A condition on the rows of a frame, in whichever form it is given; null is false.

    Raises
    ------
    ValueError
        If it is none, or cannot be asked of this frame.

    Examples
    --------
    >>> rows = spark.range(5)
    >>> forms = ("id > 2", rows.id > 2, lambda frame: frame["id"] > 2)
    >>> [rows.filter(condition(rows, form)).count() for form in forms]
    [2, 2, 2]
    >>> condition(rows, "size > 2")
    Traceback (most recent call last):
        ...
    ValueError: complete: 'size > 2' is no condition on these columns: id
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import Column
    from pyspark.sql import functions as F

    text = "'count >= 3'" if "count" in frame.columns else "\"status = 'done'\""
    forms = f"a condition: SQL text such as {text}, a Column, or a function of the DataFrame"
    try:
        found = given(frame) if callable(given) and not isinstance(given, Column) else given
        if isinstance(found, bool):
            found = F.lit(found)
        if isinstance(found, str):
            # A name that SQL would have to quote is meant as a name.
            named = found in frame.columns
            found = by_name(found) if named else F.expr(harmless(found, name))
        if not isinstance(found, Column):
            raise ValueError(f"{name} must be {forms}; got {found!r}")
        with _quiet():
            kind = frame.select(found.alias("c")).schema["c"].dataType.simpleString()
            # Of a row: no sum over rows, which alone Spark takes, and no more rows than there are.
            _ = frame.select("*", F.coalesce(found.cast("string"), F.lit(""))).schema
    except PySparkException:
        what = repr(given) if isinstance(given, str) else "this"
        have = ", ".join(frame.columns)
        raise ValueError(f"{name}: {what} is no condition on these columns: {have}") from None
    if kind not in ("boolean", "void", *INTEGRAL, *FLOATING):
        raise ValueError(f"{name} must be true or false of a row, got values of type {kind}")
    if kind in FLOATING:  # of pandas and of CSV files; what is no number says nothing
        found = ~F.isnan(found) & (found != 0)
    return F.coalesce(found.cast("boolean"), F.lit(False))


def column_types(frame: DataFrame) -> Columns:
    """The columns and Spark's short names of their types.

    Examples
    --------
    >>> column_types(spark.range(1))
    {'id': 'bigint'}
    """
    sensitive = frame.sparkSession.conf.get("spark.sql.caseSensitive", "false") == "true"
    fields = [(field.name, field.dataType.simpleString()) for field in frame.schema]
    return Columns(fields, sensitive)


JSON_FORM = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How values become JSON: with their nulls, and with times to the microsecond."""


def hashable(column: Column, kind: str) -> Column:
    """The column in a form whose hash tells different values apart.

    Spark's hash leaves nulls inside arrays and structs out, and has none of maps; their text as
    JSON shows everything.

    Examples
    --------
    >>> from pyspark.sql import functions as F
    >>> rows = spark.sql("SELECT array('x', null) AS a UNION ALL SELECT array(null, 'x')")
    >>> rows.select(F.xxhash64("a")).distinct().count()
    1
    >>> rows.select(F.xxhash64(hashable(F.col("a"), "array<string>"))).distinct().count()
    2
    """
    from pyspark.sql import functions as F

    if any(part in kind for part in ("array<", "struct<", "map<", "variant")):
        return F.to_json(F.struct(column.alias("c")), JSON_FORM)
    return column
