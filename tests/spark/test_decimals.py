"""Decimals on Spark: a cent is a cent, in tables, in streams and across a restart."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab

MONEY = """SELECT id, timestamp_seconds(1700000000) AS ts, cast(id % 40 AS int) AS whole,
           cast(100 + id * 0.01 AS decimal(10, 2)) AS amount,
           cast(cast(100 + id * 0.005 AS decimal(19, 4)) + if(id % 4 < 2, 0BD, 1e-18BD)
                AS decimal(38, 18)) AS total FROM range(60)"""


def money(spark: Any) -> list[tuple[int, Decimal, Decimal]]:
    return [(r.id, r.amount, r.total) for r in spark.sql(MONEY).collect()]


@pytest.mark.slow
def test_payments_within_a_cent_of_an_invoice(spark: Any, tmp_path: Path) -> None:
    rows = money(spark)
    want = {
        (i, j): float(abs(a - b))
        for i, a, _ in rows
        for j, _, b in rows
        if abs(a - b) <= Decimal("0.01")
    }
    close = sum(abs(a - b) <= Decimal("0.0101") for _, a, _ in rows for *_, b in rows)
    assert 100 < len(want) < close - 10  # the digits that 64 bits do not hold decide of these
    table = spark.sql(MONEY)
    where = ab.within("amount", "total", "0.01")

    def answer(found: Any) -> dict[tuple[int, int], float]:
        return {(r.left_id, r.right_id): round(r.score, 9) for r in found.collect()}

    for plan in (None, ab.grid(2, 1)):
        found = ab.correlate(table, table, where=where, window="1 minute", plan=plan)
        assert answer(found) == {key: round(score, 9) for key, score in want.items()}
    for part in (table.id < 30, table.id >= 30):
        table.where(part).write.mode("append").parquet(str(tmp_path / "money"))
        stream = spark.readStream.schema(table.schema).parquet(str(tmp_path / "money"))
        live = ab.correlate(stream, stream, where=where, window="1 minute", watermark="1 minute")
        query = (
            live.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "pairs"))
        )
        assert query.awaitTermination(300)
    found = spark.read.parquet(str(tmp_path / "pairs"))
    assert found.count() == len(want) and set(answer(found)) == set(want)
    mixed = ab.correlate(table, table, where=ab.within("whole", "total", 1), window="1 minute")
    assert mixed.count() == 0  # a whole number beside decimals: no total is below 100
