"""Kept columns on their way through the operator, and back in their own type.

Python state knows a few plain types without loss. Other types travel in one of these and are cast
back by Spark itself, so that a kept value comes out exactly as it went in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

__all__ = ["Carried", "carry"]


@dataclass(frozen=True)
class Carried:
    """A kept column: how it travels, as which type, and how it returns."""

    name: str
    type: str
    outward: Column
    inward: Callable[[Column], Column]


def carry(frame: DataFrame, names: Sequence[str]) -> list[Carried]:
    """How the columns of these names travel."""
    return [_carried(name, frame.schema[name].dataType) for name in names]


def _carried(name: str, data_type: DataType) -> Carried:
    kind = data_type.simpleString()
    column = F.col("`" + name.replace("`", "``") + "`")
    if kind == "timestamp":
        return Carried(name, "bigint", F.unix_micros(column), F.timestamp_micros)
    if kind == "date":
        return Carried(name, "int", F.unix_date(column), F.date_from_unix_date)
    plain = kind in {
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "string",
        "binary",
    }
    if plain or kind.startswith(("array<", "struct<", "map<")):
        return Carried(name, kind, column, lambda value: value)
    return Carried(name, "string", column.cast("string"), lambda value: value.cast(data_type))
