"""What packers read of the rows of `nearest`: columns of objects and of queries, by fixed names."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from anabranch.flow.sides import keep_column
from anabranch.neighbours.call import Nearest
from anabranch.plans.plan import LEFT, RIGHT
from anabranch.spark.carriage import carry
from anabranch.spark.frames import by_name
from anabranch.spark.rejects import Rejection, columns_of
from anabranch.spark.slots import key_text, slot_value

__all__ = ["object_rows", "query_rows"]


def object_rows(call: Nearest, objects: DataFrame, rejection: Rejection | None) -> DataFrame:
    """What the packer reads of objects."""
    side = call.objects
    ident = by_name(side.id).cast("string" if side.id_is_text else "bigint")
    kept = enumerate(carry(objects, side.keep))
    return objects.select(
        F.unix_micros(by_name(side.time)).alias("t"),
        ident.alias("id"),
        by_name(side.slots[0].column).alias("v"),
        F.xxhash64(ident).alias("h"),
        F.lit(0).cast("bigint").alias("key"),
        *_compared(call, "objects"),
        *(column.outward.alias(keep_column(number)) for number, column in kept),
        *columns_of(rejection, RIGHT),
    )


def query_rows(call: Nearest, queries: DataFrame, rejection: Rejection | None) -> DataFrame:
    """What `read_queries` reads."""
    ident = by_name(call.query_id).cast("string" if call.query_id_is_text else "bigint")
    columns: list[Column] = [ident.alias("id"), by_name(call.query_point).alias("v")]
    known = call.query_columns
    when = known.get("ts") if call.has_ops else ("since" if "since" in known else None)
    columns.append(
        (F.unix_micros(by_name(when)) if when else F.lit(None).cast("bigint")).alias("t")
    )
    for name in ("k", "rows"):
        if name in known:
            columns.append(by_name(name).cast("bigint").alias(name))
    if known.get("window") == "string":
        columns.append(by_name("window").alias("text"))
    elif "window" in known:
        # As it is: added to a time, it would be as long as those days are in the session's zone.
        columns.append(by_name("window").alias("span"))
    if call.has_ops:
        columns.append(by_name("op").alias("op"))
        columns.append(F.xxhash64(ident).alias("h"))
    columns += _compared(call, "queries")
    return queries.select(*columns, *columns_of(rejection, LEFT))


def _compared(call: Nearest, side: str) -> list[Column]:
    """What the condition compares of objects or queries."""
    found = []
    for test in call.where:
        slots = getattr(test, side)
        for slot in test.travelling(slots):
            value = key_text(slots) if test.has_codes else slot_value(slot)
            found.append(value.alias(slot.name))
    return found
