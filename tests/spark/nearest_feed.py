"""Streams of objects and queries for `nearest`, and what must come out of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.neighbours.runs import expected
from tests.spark.feeds import SECOND, START, Feed

OBJECT = pa.schema({"id": pa.int64(), "ts": pa.timestamp("us", "UTC"), "v": pa.list_(pa.float32())})
OP = pa.schema(
    {
        "query_id": pa.string(),
        "ts": pa.timestamp("us", "UTC"),
        "v": pa.list_(pa.float64()),
        "k": pa.int32(),
        "window": pa.string(),
        "op": pa.string(),
    }
)
LATE = 3 * SECOND
HOUR = 3600 * SECOND


def objects_in_batches(
    batches: int, rows: int = 30, seed: int = 1, width: int = 8
) -> list[list[dict[str, Any]]]:
    """Micro-batches of a second each, whose objects come up to 1.5 s early or late.

    Points lie on a lattice of so many lines a side; queries are among the first eight.
    """
    random = np.random.default_rng(seed)
    script = []
    for number in range(batches):
        made = []
        for n in range(rows):
            t = START + int((number + random.uniform(-1.5, 1.5)) * SECOND)
            t -= t % SECOND if random.random() < 0.3 else 0
            point = (random.integers(0, width, 2) * 0.5).tolist()
            made.append({"id": number * 1000 + n, "t": t, "v": point})
        script.append(made)
    return script


def closing() -> dict[str, Any]:
    """An object so late that everything before it is dealt with; it never is itself."""
    return {"id": 10**9, "t": START + HOUR, "v": [99.0, 99.0]}


def fixed_queries(count: int = 6, seed: int = 2) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    return [
        {
            "id": f"q{n}",
            "v": (random.integers(0, 8, 2) * 0.5).tolist(),
            "k": int(random.integers(1, 5)),
            "span": int(random.integers(1, 5)) * SECOND,
        }
        for n in range(count)
    ]


def query_frame(spark: Any, queries: list[dict[str, Any]]) -> Any:
    """Fixed queries as a table."""
    rows = [(q["id"], q["v"], q["k"], f"{q['span'] // SECOND} seconds") for q in queries]
    return spark.createDataFrame(rows, "query_id string, v array<double>, k int, window string")


def feed_of(
    folder: Path, objects: list[list[dict[str, Any]]], ops: list[list[dict[str, Any]]] | None = None
) -> Feed:
    """A feed whose left side are queries and whose right side are objects."""
    feed = Feed(folder, (OP, OBJECT), idle=True)
    asked = ops or [[] for _ in objects]
    return feed.add(list(zip(asked, objects, strict=True)))


def want(objects: list[list[dict[str, Any]]], queries: list[dict[str, Any]]) -> list[tuple]:
    """All hits up to the closing object less the lateness."""
    flat = [(o["t"], o["id"], o["v"]) for batch in objects for o in batch]
    return [hit for hit in expected(flat, queries) if hit[3] <= START + HOUR - LATE]


def got(frame: Any) -> list[tuple]:
    """The hits of a result, in order; a hit that came twice is there twice."""
    from pyspark.sql import functions as F

    rows = frame.select(
        "query_id",
        "object_id",
        F.unix_micros("object_ts"),
        F.unix_micros("entered_ts"),
        "distance",
        "rank",
    ).collect()
    return sorted(tuple(row) for row in rows)


def lasting_queries(count: int = 8) -> list[dict[str, Any]]:
    """Queries with windows of many micro-batches, for plans that look ahead."""
    return [
        {**query, "span": (6 + n % 3 * 2) * SECOND}
        for n, query in enumerate(fixed_queries(count, seed=5))
    ]


def run(
    folder: Path,
    spark: Any,
    routed: bool = False,
    hold: str | None = None,
    rejects: str | None = None,
) -> None:
    """What a driver process of its own does: answer fixed queries until all files are read."""
    import anabranch as ab

    feed = Feed(folder, (OP, OBJECT), idle=True, hold=hold)
    asked = query_frame(spark, lasting_queries() if routed else fixed_queries())
    call: dict[str, Any] = {"plan": ab.broadcast(2)}
    if routed:
        call = {"plan": ab.selective(2), "control": str(folder / "control")}
    if rejects is not None:
        call |= {"rejects": rejects, "bad_rows": "drop"}
    by = "v" if rejects is None else ab.euclidean("v", dim=2)
    hits = ab.nearest(feed.streams(spark)[1], asked, by=by, watermark="3 seconds", **call)
    query = feed.run(hits)
    print(json.dumps(ab.metrics(query)))
    spark.stop()
