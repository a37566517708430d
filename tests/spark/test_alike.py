"""One company in two registers: texts, sets, ``|`` and nulls on Spark, across a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from tests.correlation import alike_twin as alike
from tests.correlation import twin
from tests.spark.feeds import SECOND, Feed, agree, at, found

COMPANY = pa.schema(
    {
        "id": pa.int64(),
        "ts": pa.timestamp("us", "UTC"),
        "vat": pa.string(),
        "name": pa.string(),
        "words": pa.list_(pa.string()),
        "codes": pa.list_(pa.int32()),
    }
)
NAMES = ["Müller GmbH", "Mueller GmbH", "Muller GmbH", "Acme Ltd", "ACME Limited", "東京電力"]
SPANS = (3 * SECOND, 3 * SECOND)
CALL = {"window": "3 seconds", "watermark": "3 seconds"}


def companies(batches: int) -> list[twin.Batch]:
    draw = np.random.default_rng(16)

    def company(ident: int, second: int) -> dict[str, Any]:
        name = str(draw.choice(NAMES)) + "s" * int(draw.integers(2))
        return {
            "id": ident,
            "t": at(second + float(draw.uniform(0, 1))),
            "vat": None if draw.random() < 0.5 else f"DE{draw.integers(20)}",
            "name": None if draw.random() < 0.2 else name,
            "words": name.lower().split(),
            "codes": draw.integers(0, 4, 3).tolist(),
        }

    return [
        ([company(b * 100 + n, b) for n in range(9)], [company(b * 100 + n, b) for n in range(9)])
        for b in range(batches)
    ]


@pytest.mark.slow
def test_one_company_in_two_registers(spark: Any, tmp_path: Path) -> None:
    where = ab.same("vat") | ((ab.edit("name") <= 2) & (ab.jaccard("words") >= 0.5))

    def score(a: twin.Row, b: twin.Row) -> float | None:
        named = a["name"] is not None and b["name"] is not None
        edits = alike.edit(a["name"], b["name"]) if named else 99
        same = a["vat"] is not None and a["vat"] == b["vat"]
        if same or (edits <= 2 and 2 * alike.jaccard(a["words"], b["words"]) >= 1):
            return float(edits) if edits <= 2 else -1.0
        return None

    batches = companies(3)
    feed = Feed(tmp_path, (COMPANY, COMPANY))
    for part in (batches[:2], batches[2:]):
        feed.add(part)
        feed.run(ab.correlate(*feed.streams(spark), where=where, **CALL, plan=ab.grid(1, 2)))
    want = twin.pairs_in_time(batches, SPANS, score, 3 * SECOND)
    assert len({value for value in want.values()}) >= 3
    agree(found(feed.output(spark).fillna(-1.0)), want)


def test_one_register_against_itself_in_batch(spark: Any, tmp_path: Path) -> None:
    batches = companies(3)
    left, _ = Feed(tmp_path, (COMPANY, COMPANY)).add(batches).tables(spark)
    where = (ab.jaro_winkler("name") >= 0.9) & ~(ab.jaccard("codes") >= 0.5)
    pairs = ab.correlate(left, where=where, window="3 seconds", bad_rows="drop")
    rows = sorted((row for batch in batches for row in batch[0]), key=lambda row: row["t"])
    named = [row for row in rows if row["name"] is not None]
    want = {
        (a["id"], b["id"]): alike.jaro_winkler(a["name"], b["name"])
        for n, b in enumerate(named)
        for a in named[:n]
        if b["t"] - a["t"] <= SPANS[0]
        and alike.jaro_winkler(a["name"], b["name"]) >= 0.9
        and 2 * alike.jaccard(a["codes"], b["codes"]) < 1
    }
    assert want
    agree(found(pairs), want)
