"""Compared columns in the form in which Spark sends them to Python."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from anabranch.calls import INTEGRAL
from anabranch.flow.sides import Slot
from anabranch.spark.frames import by_name

__all__ = ["key_text", "slot_value"]


def slot_value(slot: Slot) -> Column:
    """The column of a slot."""
    column = by_name(slot.column)
    if slot.kind in ("int", "code"):
        if slot.type == "timestamp":
            return F.unix_micros(column)
        if slot.type == "date":
            return F.unix_date(column).cast("bigint")
        # timestamp_ntz travels as it is: Arrow holds its microseconds.
        return column if slot.type == "timestamp_ntz" else column.cast("bigint")
    if slot.kind == "float":
        return column.cast("double")
    if slot.kind == "decimal" and slot.type in INTEGRAL:
        return column.cast("bigint")
    if slot.kind == "text":
        return F.hex(column) if slot.type == "binary" else column.cast("string")
    if slot.kind in ("string", "set"):
        return column.cast(slot.stored_type)
    return column


def key_text(slots: Sequence[Slot]) -> Column:
    """The columns of some slots as one text, which is the same only if all are; null if one is."""
    texts = [slot_value(slot).cast("string") for slot in slots]
    if len(texts) == 1:
        return texts[0]
    # With its length before it, no text can run on into the next.
    return F.concat(*(part for text in texts for part in (F.length(text), F.lit(":"), text)))
