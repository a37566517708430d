"""What every verb asks of the DataFrames that it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from anabranch.errors import InvalidCall

__all__ = ["ASSEMBLY_KEY", "by_name", "column_types", "is_frame", "refuse_others"]

ASSEMBLY_KEY = "anabranch.key"
"""Metadata of `seq` in the result of `assemble`: the names of the key's columns."""


def is_frame(given: Any) -> bool:
    """Whether this is a DataFrame of Spark; classic and Connect have classes of their own.

    Examples
    --------
    >>> is_frame(spark.range(1)), is_frame([1, 2])
    (True, False)
    """
    return hasattr(given, "mapInArrow")


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
        f"{name} must be a Spark DataFrame, got {type(frame).__name__}"
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
    return F.col("`" + name.replace("`", "``") + "`")


def column_types(frame: DataFrame) -> dict[str, str]:
    """The columns and Spark's short names of their types.

    Examples
    --------
    >>> column_types(spark.range(1))
    {'id': 'bigint'}
    """
    return {field.name: field.dataType.simpleString() for field in frame.schema}
