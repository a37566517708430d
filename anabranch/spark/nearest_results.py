"""What `nearest` gives: the columns of its kernels' results, and those that the user sees."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from anabranch.flow.sides import keep_column
from anabranch.neighbours.call import Nearest
from anabranch.spark.carriage import carry

__all__ = ["fields_of", "shown"]


def fields_of(call: Nearest, objects: DataFrame) -> StructType:
    """The columns of a kernel's results, as Spark knows them."""
    fields = StructType().add("query_id", StringType() if call.query_id_is_text else LongType())
    fields.add("object_id", StringType() if call.objects.id_is_text else LongType())
    fields.add("object_t", LongType())
    fields.add("entered_t" if call.output == "hits" else "as_of", LongType())
    fields.add("distance", DoubleType()).add("rank", IntegerType())
    for number, column in enumerate(carry(objects, call.objects.keep)):
        fields.add(f"object_{keep_column(number)}", column.type)
    return fields


def shown(call: Nearest, found: DataFrame, frames: tuple[DataFrame, DataFrame]) -> DataFrame:
    """The result that the user sees."""
    return found.select(*_columns(call, *frames))


def _columns(call: Nearest, objects: DataFrame, queries: DataFrame) -> list[Column]:
    query_type: DataType = queries.schema[call.query_id].dataType
    object_type: DataType = objects.schema[call.objects.id].dataType
    query = F.col("query_id").cast(query_type).alias(call.query_id)
    thing = F.col("object_id").cast(object_type).alias("object_id")
    seen = F.timestamp_micros("object_t").alias("object_ts")
    kept = [
        column.inward(F.col(f"object_{keep_column(n)}")).alias(f"object_{column.name}")
        for n, column in enumerate(carry(objects, call.objects.keep))
    ]
    if call.output == "top":
        ts = F.timestamp_micros("as_of").alias("ts")
        return [query, ts, F.col("rank"), thing, seen, F.col("distance"), *kept]
    entered = F.timestamp_micros("entered_t").alias("entered_ts")
    return [query, thing, seen, entered, F.col("distance"), F.col("rank"), *kept]
