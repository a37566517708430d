"""What every verb asks of the DataFrames that it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from anabranch.errors import InvalidCall

__all__ = ["column_types", "refuse_others"]


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
        if not hasattr(frame, "mapInArrow")  # classic and Connect have classes of their own
    ]
    if problems:
        raise InvalidCall(verb, problems)


def column_types(frame: DataFrame) -> dict[str, str]:
    """The columns and Spark's short names of their types.

    Examples
    --------
    >>> column_types(spark.range(1))
    {'id': 'bigint'}
    """
    return {field.name: field.dataType.simpleString() for field in frame.schema}
