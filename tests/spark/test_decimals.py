"""Decimals on Spark: a cent is a cent, in tables and in streams."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import anabranch as ab

MONEY = """SELECT id, timestamp_seconds(1700000000) AS ts, cast(id % 40 AS int) AS whole,
           cast(100 + id * 0.01 AS decimal(10, 2)) AS amount,
           cast(100 + id * 0.005 AS decimal(20, 4)) AS total FROM range(60)"""


def money(spark: Any) -> list[tuple[int, Decimal, Decimal]]:
    return [(r.id, r.amount, r.total) for r in spark.sql(MONEY).collect()]


def test_payments_within_a_cent_of_an_invoice(spark: Any, tmp_path: Path) -> None:
    rows = money(spark)
    want = {
        (i, j): float(abs(a - b))
        for i, a, _ in rows
        for j, _, b in rows
        if abs(a - b) <= Decimal("0.01")
    }
    assert len(want) > 100
    table = spark.sql(MONEY)
    table.write.parquet(str(tmp_path / "money"))
    where = ab.within("amount", "total", "0.01")

    def answer(found: Any) -> dict[tuple[int, int], float]:
        return {(r.left_id, r.right_id): round(r.score, 9) for r in found.collect()}

    for plan in (None, ab.grid(2, 1)):
        found = ab.correlate(table, table, where=where, window="1 minute", plan=plan)
        assert answer(found) == {key: round(score, 9) for key, score in want.items()}
    stream = spark.readStream.schema(table.schema).parquet(str(tmp_path / "money"))
    live = ab.correlate(stream, stream, where=where, window="1 minute", watermark="1 minute")
    query = (
        live.writeStream.format("memory")
        .queryName("cents")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    assert set(answer(spark.table("cents"))) == set(want)
    mixed = ab.correlate(table, table, where=ab.within("whole", "total", 1), window="1 minute")
    assert mixed.count() == 0  # a whole number beside decimals: no total is below 100
