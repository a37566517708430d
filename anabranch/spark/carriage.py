"""Carried columns: their way through the operator, and back in their own type.

Almost every type travels as Arrow has it. A few that Arrow or Spark's way to it do not know travel
as text, and are turned back afterwards, so that a value comes out exactly as it went in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    NullType,
    StringType,
    StructType,
    VariantType,
)

from anabranch.spark.frames import by_name
from anabranch.spark.layouts import LAYOUT, NAMES
from anabranch.spark.versions import arrow_type

__all__ = ["Carried", "carry", "carry_problems", "inside", "names_of", "names_of_each"]

_AS_TEXT = re.compile(r"interval .*|(var)?char\(.*\)")


@dataclass(frozen=True)
class Carried:
    """A carried column: how it travels, as which type, and how it returns."""

    name: str
    type: DataType
    outward: Column
    inward: Callable[[Column], Column]


def names_of(keep: Any) -> Sequence[str]:
    """The columns that `keep` names, of a call that may be wrong."""
    if isinstance(keep, str):
        return [keep]
    return keep if isinstance(keep, (list, tuple)) else ()


def names_of_each(keep: Any) -> tuple[Sequence[str], Sequence[str]]:
    """The columns of either side that `keep` names, likewise."""
    names = names_of(keep)
    if len(names) == 2 and all(isinstance(part, (list, tuple)) for part in names):
        return names[0], names[1]
    return names, names


def carry(frame: DataFrame, names: Sequence[str]) -> list[Carried]:
    """How the columns of these names travel, with what they say of their numbers."""
    return [_told(_carried(name, frame.schema[name].dataType), frame) for name in names]


def _told(column: Carried, frame: DataFrame) -> Carried:
    """The same column, which comes back with the metadata of ours that say what numbers mean."""
    of = frame.schema[column.name].metadata
    kept = {name: of[name] for name in (LAYOUT, NAMES) if name in of}
    if not kept:
        return column
    inward = column.inward
    return replace(column, inward=lambda value: inward(value).alias(column.name, metadata=kept))


def carry_problems(label: str, frame: DataFrame, names: Sequence[str]) -> list[str]:
    """Columns whose type has no way to travel."""
    return [
        f"{label} {field.name!r} is {field.dataType.simpleString()}, which cannot be carried; cast "
        "it, for example to string"
        for field in frame.schema
        if field.name in names and not _can_travel(field.dataType)
    ]


def _carried(name: str, data_type: DataType) -> Carried:
    column = by_name(name)
    if _AS_TEXT.fullmatch(data_type.simpleString()):
        text = column.cast("string")
        return Carried(name, StringType(), text, lambda value: value.cast(data_type))
    return Carried(name, data_type, column, lambda value: value)


def inside(data_type: DataType) -> Iterator[DataType]:
    """A type and all that it is made of."""
    yield data_type
    parts: list[DataType] = []
    if isinstance(data_type, StructType):
        parts = [field.dataType for field in data_type]
    elif isinstance(data_type, ArrayType):
        parts = [data_type.elementType]
    elif isinstance(data_type, MapType):
        parts = [data_type.keyType, data_type.valueType]
    for part in parts:
        yield from inside(part)


def _can_travel(data_type: DataType) -> bool:
    if _AS_TEXT.fullmatch(data_type.simpleString()):
        return True
    if any(isinstance(inner, (NullType, VariantType)) for inner in inside(data_type)):
        return False
    try:
        arrow_type(data_type)
    except Exception:
        return False
    return True
