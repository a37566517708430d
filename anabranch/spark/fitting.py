"""A Spark sample for `ab.fit_windows`: grouped in Spark, one small row per instance."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.assembly.fitting.reading import ASSEMBLED, TORN, WINDOW, resolve
from anabranch.errors import InvalidCall

__all__ = ["narrow"]


def narrow(
    frame: DataFrame, key: str | Sequence[str] | None, time: str | None, complete: str | None
) -> pa.Table:
    """The columns that fitting needs, as an Arrow table.

    Invocations come back as one row per instance, in the shape of assembled rows.
    """
    if frame.isStreaming:
        raise InvalidCall(
            "fit_windows",
            [
                "sample must be a batch DataFrame, got a streaming one; read a stretch of what the "
                "stream wrote, spark.read..., and fit that"
            ],
        )
    columns = resolve(frame.columns, key, time, complete)
    if columns.assembled:
        extra: list[str] = [name for name in (*WINDOW, "reason") if name in frame.columns]
        extra += [columns.complete] if columns.complete else []
        return frame.select(*dict.fromkeys([*columns.key, *ASSEMBLED, *extra])).toArrow()
    assert columns.time is not None
    # Those without a key stay apart, by their null, and are counted by the reader.
    found = [
        F.count(columns.time).alias("count"),
        # Invocations without a time are in no instance; the reader adds them to the rejected.
        (F.count(F.lit(1)) - F.count(columns.time)).alias(TORN),
        F.min(columns.time).alias("first_ts"),
        F.max(columns.time).alias("last_ts"),
    ]
    if columns.complete:
        found.append(F.min(columns.complete).alias(columns.complete))
    return frame.groupBy(*columns.key).agg(*found).toArrow()
