"""Spark's side of ``foreachBatch`` without Spark: a log of batches, killed and played again.

``python replay.py FOLDER SINK CALL [--kill STEP@BATCH]`` gives batches 0, 1, 2, ... to a sink,
notes each in FOLDER/commits when the sink has returned, and begins after the newest note: as Spark.
Rows are Arrow tables, so this shows the way through the driver, and takes a second.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

import anabranch as ab
from tests.sinks.driver import Killer

BATCHES, ROWS = 6, 50
INSTANT = pa.timestamp("us", "Asia/Tokyo")
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "ts": INSTANT,
        "score": pa.float64(),
        "price": pa.decimal128(9, 2),
        "day": pa.date32(),
        "tags": pa.list_(pa.string()),
        "v": pa.list_(pa.float32()),
        "name": pa.string(),
        "s": pa.struct({"seen": INSTANT, "x": pa.int64()}),
        "items": pa.list_(pa.struct({"service": pa.string(), "ms": pa.float64()})),
    }
)


def rows(batch: int) -> list[dict[str, Any]]:
    """What a batch holds: every kind of column that a verb's result may have."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        {
            "id": ident,
            "ts": begin + timedelta(microseconds=1_000_001 * ident),
            "score": ident / 7,
            "price": (Decimal(ident) / 4).quantize(Decimal("0.01")),
            "day": date(2026, 1, 1) + timedelta(days=batch),
            "tags": ["a", None, f"tag {ident}"],
            "v": [0.5, float(ident)],
            "name": None if ident % 5 == 0 else f'name\t"{ident}" \\N é',
            "s": {"seen": begin, "x": ident},
            "items": [{"service": "db", "ms": 0.25}] * (ident % 3),
        }
        for ident in range(batch * ROWS, (batch + 1) * ROWS)
    ]


class Played:
    """A micro-batch of which the driver takes an Arrow table."""

    sparkSession = None  # noqa: N815

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.schema = from_arrow_schema(table.schema)
        self.columns = table.column_names

    def toArrow(self) -> pa.Table:
        return self.table


def shaped(sink: str, frame: Played) -> Played:
    """What `Target.shaped` asks Spark for: JSON of what the target has no columns for."""

    def text(value: Any) -> str:
        return json.dumps(value, default=lambda x: float(x) if isinstance(x, Decimal) else str(x))

    given = frame.table.to_pylist()
    if sink == "kafka":
        keys = pa.array([str(row["id"]).encode() for row in given])
        return Played(pa.table({"key": keys, "value": [text(row).encode() for row in given]}))
    table = frame.table
    for name in ("s", "items") if sink == "postgres" else ():
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array([text(row[name]) for row in given]))
    return Played(table)


def main() -> None:
    """Play what is not yet noted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("sink")
    parser.add_argument("call", type=json.loads)
    parser.add_argument("--kill")
    options = parser.parse_args()
    log = logging.getLogger("anabranch.sinks")
    log.setLevel(logging.DEBUG)
    log.addHandler(logging.StreamHandler())
    if options.kill:
        log.addHandler(Killer(options.kill))
    sink = getattr(ab.sinks, options.sink)(**options.call, via="driver")
    sink.target.shaped = lambda frame: shaped(options.sink, frame)
    commits = options.folder / "commits"
    begin = int(commits.read_text()) + 1 if commits.exists() else 0
    for number in range(begin, BATCHES):
        sink(Played(pa.Table.from_pylist(rows(number), schema=SCHEMA)), number)
        commits.write_text(str(number))


if __name__ == "__main__":
    sys.exit(main())
