"""Kept columns on their way through the operator, and back in their own type.

A stateful Python operator hands its rows to Spark by way of pandas, which knows a few plain types
without loss. Other types travel in one of these and are turned back afterwards, so that a kept
value comes out exactly as it went in. A batch query has no such detour.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from anabranch.spark.frames import by_name

__all__ = ["Carried", "carry", "carry_problems", "pack_values"]

_PLAIN = re.compile("boolean|tinyint|smallint|int|bigint|float|double|string|binary")
_AS_TEXT = re.compile(r"decimal\(.*\)|timestamp_ntz|interval .*|(var)?char\(.*\)")


@dataclass(frozen=True)
class Carried:
    """A kept column: how it travels, as which type, and how it returns."""

    name: str
    type: DataType
    outward: Column
    inward: Callable[[Column], Column]


def carry(frame: DataFrame, names: Sequence[str]) -> list[Carried]:
    """How the columns of these names travel."""
    return [_carried(name, frame.schema[name].dataType, frame.isStreaming) for name in names]


def carry_problems(label: str, frame: DataFrame, names: Sequence[str]) -> list[str]:
    """Kept columns whose type has no way to travel."""
    return [
        f"keep: {label} column {field.name!r} is {field.dataType.simpleString()}, which cannot be "
        "carried; cast it, for example to string"
        for field in frame.schema
        if field.name in names and not _can_travel(field.dataType)
    ]


def pack_values(array: pa.Array) -> pa.Array:
    """Nested values as bytes, one by one."""
    return pa.array(
        [None if value is None else pickle.dumps(value) for value in array.to_pylist()], pa.binary()
    )


def _carried(name: str, data_type: DataType, streaming: bool) -> Carried:
    kind = data_type.simpleString()
    column = by_name(name)
    if isinstance(data_type, TimestampType):
        return Carried(name, LongType(), F.unix_micros(column), F.timestamp_micros)
    if isinstance(data_type, DateType):
        return Carried(name, IntegerType(), F.unix_date(column), F.date_from_unix_date)
    if _AS_TEXT.fullmatch(kind):
        text = column.cast("string")
        return Carried(name, StringType(), text, lambda value: value.cast(data_type))
    if streaming and not _PLAIN.fullmatch(kind):
        # It is packed where it leaves the operator; until then it stays in Arrow.
        return Carried(name, BinaryType(), column, _unpacker(data_type))
    return Carried(name, data_type, column, lambda value: value)


def _unpacker(data_type: DataType) -> Callable[[Column], Column]:
    arrow = to_arrow_type(data_type, timezone="UTC")

    def unpack(cells: pa.Array) -> pa.Array:
        values = [None if cell is None else pickle.loads(cell) for cell in cells.to_pylist()]
        return pa.array(values, arrow)

    # Spark reads the annotations to tell what kind of function it is; they must be objects.
    unpack.__annotations__ = {"cells": pa.Array, "return": pa.Array}
    unpacked: Callable[[Column], Column] = arrow_udf(unpack, returnType=data_type)  # type: ignore[call-overload]
    return unpacked


def _can_travel(data_type: DataType) -> bool:
    if isinstance(data_type, ArrayType):
        return _can_travel(data_type.elementType)
    if isinstance(data_type, MapType):
        return _can_travel(data_type.keyType) and _can_travel(data_type.valueType)
    if isinstance(data_type, StructType):
        return all(_can_travel(field.dataType) for field in data_type)
    kind = data_type.simpleString()
    timely = isinstance(data_type, (TimestampType, DateType))
    return timely or bool(_PLAIN.fullmatch(kind) or _AS_TEXT.fullmatch(kind))
