"""Arrow tables as every library takes them: instants in UTC, whatever the session's zone is."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["in_utc"]


def in_utc(table: pa.Table) -> pa.Table:
    """The same instants, with the zone UTC written beside them.

    Examples
    --------
    >>> zoned = pa.table({"t": pa.array([0], pa.timestamp("us", "Asia/Tokyo"))})
    >>> in_utc(zoned).schema.field("t").type
    TimestampType(timestamp[us, tz=UTC])
    """
    wanted = pa.schema(
        [field.with_type(_utc(field.type)) for field in table.schema],
    )
    return table if wanted.equals(table.schema) else table.cast(wanted)


def _utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_utc(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_utc(kind.key_type), kind.item_field.with_type(_utc(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_utc(kind.value_type)))
    return kind
