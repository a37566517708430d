"""Event times of a sample, of any type, in microseconds."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import InvalidCall
from anabranch.flow.intake import FAR

__all__ = ["micros"]

_FURTHEST = {"s": FAR // 10**6, "ms": FAR // 10**3, "us": FAR, "ns": 2**63 - 1}


def micros(column: Any, name: str) -> Any:
    """Times in microseconds; null where there is none, or one that no query may hold.

    Examples
    --------
    >>> micros(pa.chunked_array([[0.5, float("nan"), 1e300]]), "ts").to_pylist()
    [500000, None, None]
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        count, most = pc.cast(column, pa.int64()), _FURTHEST[kind.unit]
        near = pc.and_(pc.less_equal(count, most), pc.greater_equal(count, -most))
        known = pc.if_else(near, column, pa.scalar(None, kind))
        return pc.cast(pc.cast(known, pa.timestamp("us", kind.tz), safe=False), pa.int64())
    if pa.types.is_integer(kind):
        if kind == pa.uint64():  # what int64 does not hold is too far
            near = pc.less_equal(column, pa.scalar(FAR, kind))
            column = pc.if_else(near, column, pa.scalar(None, kind))
        whole = pc.cast(column, pa.int64())
        near = pc.and_(pc.less_equal(whole, FAR), pc.greater_equal(whole, -FAR))
        return pc.if_else(near, whole, pa.scalar(None, pa.int64()))
    if pa.types.is_floating(kind):
        known = pc.multiply(pc.cast(column, pa.float64()), 1e6)
        near = pc.less_equal(pc.abs(known), float(FAR))  # which NaN is not
        return pc.cast(pc.round(pc.if_else(near, known, pa.scalar(None, pa.float64()))), pa.int64())
    raise InvalidCall(
        "fit_windows",
        [
            f"column {name!r} is {kind}; the event time must be a timestamp, integer microseconds "
            "or seconds as float"
        ],
    )
