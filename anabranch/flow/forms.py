"""The form in which Arrow columns are stored, whatever the session that sent them.

Spark sends timestamps with the session's time zone, and strings with offsets of 32 or 64 bits as a
setting says. Rows of two sessions must fit together, so both are brought to one form first. Only
what a step puts together in memory may need the *wide* form: offsets of 32 bits reach 2 GB.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

__all__ = ["in_stored_form", "stored_type", "wide_type"]


def in_stored_form(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with instants in UTC and offsets of 32 bits; itself if it has that form.

    Examples
    --------
    >>> here = pa.array([0], pa.timestamp("us", "Asia/Tokyo"))
    >>> batch = pa.RecordBatch.from_pydict({"a": here, "b": pa.array(["x"], pa.large_string())})
    >>> in_stored_form(batch).schema.types
    [TimestampType(timestamp[us, tz=UTC]), DataType(string)]
    """
    types = [stored_type(field.type) for field in batch.schema]
    if types == list(batch.schema.types):
        return batch
    columns = [
        column if column.type == type_ else column.cast(type_)
        for column, type_ in zip(batch.columns, types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def stored_type(type_: pa.DataType) -> pa.DataType:
    """The type of the same values with instants in UTC and offsets of 32 bits."""
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit, "UTC")
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_field(type_.value_field, stored_type))
    return _inside(type_, stored_type)


def wide_type(type_: pa.DataType) -> pa.DataType:
    """The type of the same values with offsets of 64 bits, which Arrow has for all but maps.

    Examples
    --------
    >>> wide_type(pa.list_(pa.string()))
    LargeListType(large_list<item: large_string>)
    >>> stored_type(wide_type(pa.map_(pa.string(), pa.binary())))
    MapType(map<string, binary>)
    """
    if pa.types.is_string(type_):
        return pa.large_string()
    if pa.types.is_binary(type_):
        return pa.large_binary()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.large_list(_field(type_.value_field, wide_type))
    return _inside(type_, wide_type)


def _inside(type_: pa.DataType, form: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with what is inside it brought to a form."""
    if pa.types.is_struct(type_):
        return pa.struct([_field(field, form) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_field(type_.key_field, form), _field(type_.item_field, form))
    return type_


def _field(field: pa.Field, form: Callable[[pa.DataType], pa.DataType]) -> pa.Field:
    return field.with_type(form(field.type))
