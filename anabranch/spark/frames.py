"""What every verb asks of the DataFrames that it is given.

Importing this module does not import Spark: `place` asks here about tables of every kind.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anabranch.calls import FLOATING, INTEGRAL, Columns
from anabranch.calls.conditions import harmless
from anabranch.errors import InvalidCall

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
    "is_case_sensitive",
    "is_frame",
    "kind_of",
    "quietly",
    "refuse_others",
]

Condition = Any
"""What is true of some rows: a Column, SQL text, a function of the DataFrame, True or False."""

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


@contextmanager
def quietly() -> Iterator[None]:
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
        with quietly():
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
    fields = [(field.name, field.dataType.simpleString()) for field in frame.schema]
    return Columns(fields, is_case_sensitive(frame))


def is_case_sensitive(frame: DataFrame) -> bool:
    """Whether Spark tells upper from lower case in the names of columns."""
    said: str = frame.sparkSession.conf.get("spark.sql.caseSensitive", "false") or "false"
    return said.lower() == "true"


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
