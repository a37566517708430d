"""`top`: the current top-k of every query, out of what `nearest` has written."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from anabranch.errors import InvalidCall, renamed
from anabranch.neighbours.call import QUERY_ID
from anabranch.spark.frames import by_name, column_types, refuse_others
from anabranch.spark.opening import opened

__all__ = ["top"]


@renamed()
def top(frame: DataFrame, id: Any = QUERY_ID) -> DataFrame:
    """The current top-k of every query, out of rows of ``nearest(..., output="top")``.

    Of each query, the rows with the greatest `ts`. `frame` is a batch DataFrame: what the stream
    has written, or the two of them in ``foreachBatch``, the table so far and the new rows. `id` is
    the column of the queries' id: a name, also inside a struct (``"query.id"``), or a Column.

    Examples
    --------
    >>> import anabranch as ab
    >>> rows = spark.sql('''SELECT * FROM VALUES ('q', timestamp_seconds(10), 1, 7),
    ...     ('q', timestamp_seconds(20), 1, 8), ('q', timestamp_seconds(20), 2, 7)
    ...     AS t(query_id, ts, rank, object_id)''')
    >>> [(row.rank, row.object_id) for row in ab.top(rows).orderBy("rank").collect()]
    [(1, 8), (2, 7)]
    """
    refuse_others("top", {"frame": frame})
    columns = frame.columns
    (frame,), (id,) = opened((frame,), (id,))
    if not isinstance(id, str) or not id:
        raise InvalidCall("top", [f"id must be a column name or a Column, got {id!r}"])
    types = column_types(frame)
    missing = [name for name in (id, "ts", "rank") if not types.named(name)]
    if missing:
        raise InvalidCall(
            "top",
            [
                f"frame has no column {missing[0]!r}, it has {', '.join(columns)}: give it "
                "rows of ab.nearest(..., output='top'), and name the column of queries with id="
            ],
        )
    if frame.isStreaming:
        raise InvalidCall(
            "top",
            [
                "frame is streaming: write nearest(..., output='top') to a table and read that, or "
                "call ab.top inside foreachBatch"
            ],
        )
    latest = F.max("ts").over(Window.partitionBy(by_name(id)))
    rows = frame.withColumn("_latest", latest).filter("ts = _latest AND rank > 0")
    return rows.select(*map(by_name, columns))
