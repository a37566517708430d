"""The table of spans, whichever form they came in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["KINDS", "LATEST", "SPANS", "STATUSES", "spans_table"]

_TIME = pa.timestamp("us", "UTC")
SPANS = pa.schema(
    {
        "trace_id": pa.string(),
        "span_id": pa.string(),
        "parent_span_id": pa.string(),
        "name": pa.string(),
        "kind": pa.string(),
        "service": pa.string(),
        "start": _TIME,
        "end": _TIME,
        "duration": pa.float64(),
        "status": pa.string(),
        "attributes": pa.map_(pa.string(), pa.string()),
        "is_root": pa.bool_(),
    }
)
"""Columns of a span."""

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
STATUSES = ("unset", "ok", "error")
LATEST = (1 << 63) - 1
"""Nanoseconds, in the year 2262: the last time that is read."""


def spans_table(
    attributes: tuple[Sequence[int] | np.ndarray, Any, Any], **columns: Any
) -> pa.RecordBatch:
    """Spans as Arrow columns: names of kind and status, times in microseconds, duration.

    Parameters
    ----------
    attributes
        How many each span has, and the keys and texts of all.
    columns
        Ids, `name` and `service` as text; `kind` and `status` as numbers, of which unknown ones
        count as 0; `start` and `end` in nanoseconds, 0 where unknown.

    Examples
    --------
    >>> one = spans_table(trace_id=["a"], span_id=["b"], parent_span_id=[None], name=["GET /"],
    ...     service=["shop"], kind=[2], status=[9], start=[1_000_000], end=[3_500_000],
    ...     attributes=([1], ["http.route"], ["/"]))
    >>> row = one.to_pylist()[0]
    >>> row["kind"], row["status"], row["duration"], row["attributes"], row["is_root"]
    ('server', 'unset', 0.0025, [('http.route', '/')], True)
    """
    counts, keys, texts = attributes
    start, end = (np.asarray(columns[name], np.int64) for name in ("start", "end"))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    unknown = (start == 0) | (end == 0)
    made = {
        **{name: pa.array(columns[name], pa.large_string()) for name in ("trace_id", "span_id")},
        "parent_span_id": pa.array(columns["parent_span_id"], pa.large_string()),
        "name": pa.array(columns["name"], pa.large_string()),
        "kind": _named(columns["kind"], KINDS),
        "service": pa.array(columns["service"], pa.large_string()),
        "start": pa.array(start // 1000, mask=start == 0),
        "end": pa.array(end // 1000, mask=end == 0),
        "duration": pa.array((end - start) / 1e9, mask=unknown),
        "status": _named(columns["status"], STATUSES),
        "attributes": pa.MapArray.from_arrays(
            pa.array(offsets),
            pa.array(keys, pa.large_string()).cast(pa.string()),
            pa.array(texts, pa.large_string()).cast(pa.string()),
        ),
    }
    made["is_root"] = pc.is_null(made["parent_span_id"])
    arrays = [made[field.name].cast(field.type) for field in SPANS]
    return pa.RecordBatch.from_arrays(arrays, schema=SPANS)


def _named(numbers: Any, names: Sequence[str]) -> pa.Array:
    found = np.asarray(numbers, np.int64)
    return pa.array(names).take(pa.array(np.where((found > 0) & (found < len(names)), found, 0)))
