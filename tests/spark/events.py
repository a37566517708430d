"""Scripted events on two streams, and what the twin makes of them, bucket by bucket."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.assembly.closing import Closing
from tests.assembly.twin import Twin
from tests.correlation.twin import Batch, Row
from tests.spark.feeds import SECOND, START

CALL = pa.schema(
    {
        "ts": pa.timestamp("us", "UTC"),
        "page": pa.string(),
        "client": pa.int64(),
        "service": pa.string(),
        "ms": pa.float64(),
    }
)
FIELDS = ("key", "seq", "revision", "opened", "closed", "reason", "count", "usual_count", "first",
          "last", "end", "streams", "items")  # fmt: skip


def events(
    batches: int, rows: int = 30, pages: int = 6, clients: int = 8, disorder: float = 1.5,
    seed: int = 1,
) -> list[Batch]:  # fmt: skip
    """Micro-batches of a second each; rows come up to `disorder` seconds early or late."""
    random = np.random.default_rng(seed)
    made: list[Batch] = []
    number = 0
    for batch in range(batches):
        sides: tuple[list[Row], list[Row]] = ([], [])
        for side in (0, 1):
            for _ in range(rows):
                shift = random.uniform(-disorder, disorder) if disorder else random.uniform(0, 1)
                t = START + int((batch + shift) * SECOND)
                number += 1
                sides[side].append(
                    {
                        "t": t // 100 * 100 + number % 100,  # no two alike by chance
                        "page": f"/{random.integers(pages)}",
                        "client": int(random.integers(clients)),
                        "service": f"s{number}",
                        "ms": float(random.integers(1, 900)),
                    }
                )
        made.append(sides)
    return made


def expected(
    spark: Any,
    batches: list[Batch],
    closing: Closing,
    late: int,
    buckets: int = 2,
    max_open: int | None = None,
    flush: bool = False,
    idle: bool = True,
) -> list[dict[str, Any]]:
    """The rows that a query must give, by one twin per bucket and Spark's own hashes.

    `idle` queries end with a micro-batch without rows.
    """
    hashes = _hashes(spark, batches, getattr(closing, "spread", 1))
    twins = [Twin(closing, max_open) for _ in range(buckets)]
    newest = 0
    clock = 0
    if flush:
        everything = [(side, r) for b in batches for side in (0, 1) for r in b[side]]
        last = max(r["t"] for _, r in everything)
        plan = [(everything, -(1 << 62), False), ([], last, True)]
    else:
        plan = []
        for batch in batches:
            plan.append(([(side, r) for side in (0, 1) for r in batch[side]], clock, False))
            newest = max([newest, *(r["t"] for side in batch for r in side)])
            clock = max(clock, (newest // 1000 - -(-late // 1000)) * 1000)
        plan += [([], clock, False)] if idle else []
    found = []
    for rows, at, end in plan:
        shares = defaultdict(list)
        for side, r in rows:
            h1, h2, kind = hashes[r["page"], r["client"]]
            home = (kind if closing.learns else h1) % (1 << 64)
            shares[(home >> 33) % buckets].append(
                {
                    "key": (h1, h2),
                    "kind": kind,
                    "t": r["t"],
                    "end": r["t"] + round(r["ms"] * 1000),
                    "stream": side,
                    "ends": r["service"].endswith("3"),
                    "tie": r["service"],
                    "row": r,
                }
            )
        for number, twin in enumerate(twins):
            found += twin.step(shares[number], at, end)
    for row in found:
        first = row["items"][0]["row"]
        row["key"] = (first["page"], first["client"])
        row["items"] = [(i["row"]["service"], i["row"]["ms"]) for i in row["items"]]
    return [{name: row[name] for name in FIELDS} for row in found]


def collected(frame: Any) -> list[dict[str, Any]]:
    """The same of a result of ``key=["page", "client"], keep=["service", "ms"]``."""
    found = []
    for row in frame.collect():
        first = micros(row["first_ts"])
        found.append(
            {
                "key": (row["page"], row["client"]),
                "seq": row["seq"],
                "revision": row["revision"],
                "opened": micros(row["opened"]),
                "closed": micros(row["closed"]),
                "reason": row["reason"],
                "count": row["count"],
                "usual_count": row["usual_count"],
                "first": first,
                "last": micros(row["last_ts"]),
                "end": first + round(row["duration"] * 1e6),
                "streams": row["streams"],
                "items": [(item["service"], item["ms"]) for item in row["items"]],
            }
        )
        share = None if row["usual_count"] is None else min(1.0, row["count"] / row["usual_count"])
        assert row["count_ratio"] == share
    return found


def alike(got: list[dict[str, Any]], want: list[dict[str, Any]]) -> None:
    """Fail, with an example, unless both hold the same rows."""
    assert want, "a test in which nothing closes shows nothing"
    ours, theirs = sorted(map(repr, got)), sorted(map(repr, want))
    if ours != theirs:
        extra = [r for r in ours if r not in set(theirs)]
        lost = [r for r in theirs if r not in set(ours)]
        raise AssertionError(
            f"{len(ours)} rows, {len(theirs)} wanted; not wanted {extra[:2]}, missing {lost[:2]}"
        )


def micros(moment: Any) -> int:
    """A naive UTC datetime in microseconds."""
    import calendar

    return calendar.timegm(moment.timetuple()) * SECOND + moment.microsecond


def _hashes(
    spark: Any, batches: list[Batch], spread: int
) -> dict[tuple[str, int], tuple[int, int, int]]:
    from pyspark.sql import functions as F

    keys = {(r["page"], r["client"]) for batch in batches for side in batch for r in side}
    frame = spark.createDataFrame(sorted(keys), "page string, client long")
    h1 = F.xxhash64("page", "client")
    kind = [F.col("page")] + ([F.pmod(h1, F.lit(spread))] if spread > 1 else [])
    found = frame.select(
        "page", "client", h1, F.xxhash64(F.lit(7), "page", "client"), F.xxhash64(*kind)
    )
    return {(p, c): (a, b, h) for p, c, a, b, h in found.collect()}
