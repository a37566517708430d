"""What a sink adds to every micro-batch, and what Kafka's transactions cost.

::

    python -m benchmarks.sinks [--rows 1000] [--batches 20]

Gives Arrow tables of pairs to each sink, as a micro-batch of a running query would, and times what
happens between the rows being there and the sink's return. Kafka and PostgreSQL are started for
it. Spark's part, to compute the rows and to bring them to the driver, is timed beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

import anabranch as ab
from anabranch.spark.sinks.sink import consumed
from benchmarks.measuring import Row, Screen, beside_earlier, machine

RESULTS = Path(__file__).parent / "results"


class Given:
    """A micro-batch whose rows are on the driver already."""

    sparkSession: Any = None  # noqa: N815

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.schema = from_arrow_schema(table.schema)
        self.columns = table.column_names

    def toArrow(self) -> pa.Table:
        """The rows."""
        return self.table


def pairs(rows: int) -> pa.Table:
    """Pairs as `correlate` emits them."""
    draw = np.random.default_rng(1)
    times = pa.array(draw.integers(0, 2**50, rows), pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "left_id": draw.integers(0, 2**40, rows),
            "right_id": draw.integers(0, 2**40, rows),
            "left_ts": times,
            "right_ts": times,
            "ts": times,
            "score": draw.random(rows),
        }
    )


def records(rows: int) -> pa.Table:
    """The same as records of Kafka."""
    table = pairs(rows)
    values = [json.dumps(row, default=str).encode() for row in table.to_pylist()]
    idents = zip(table["left_id"].to_pylist(), table["right_id"].to_pylist(), strict=True)
    keys = [f"{left}|{right}".encode() for left, right in idents]
    return pa.table({"key": keys, "value": values})


def timed(write: Callable[[int], None], batches: int) -> list[float]:
    """Milliseconds of every batch; the first, which connects and makes tables, is left out."""
    found = []
    for number in range(batches + 1):
        began = time.perf_counter()
        write(number)
        found.append(1000 * (time.perf_counter() - began))
    return found[1:]


def through(sink: Any, table: pa.Table) -> Callable[[int], None]:
    """Give a table to a sink again and again."""
    sink.target.shaped = lambda frame: frame
    return lambda number: sink(Given(table), number)


def plainly(servers: str, table: pa.Table) -> Callable[[int], None]:
    """The same records without transactions: at least once."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 0})

    def write(_: int) -> None:
        for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
            producer.produce("plain", value=value, key=key)
        producer.flush(60)

    return write


def spark_part(rows: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds to compute rows and bring them over, by the way they travel."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.range(rows).selectExpr("id", "id * 2 AS other", "rand(1) AS score")

    def bring(way: str | None) -> Callable[[int], None]:
        def write(_: int) -> None:
            with consumed(frame, way, rows):
                pass

        return write

    ways = {"driver": "driver", "spark": "spark", "by size": None}
    found = {name: timed(bring(way), rounds) for name, way in ways.items()}
    spark.stop()
    return found


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--no-spark", action="store_true", help="the sinks alone")
    options = parser.parse_args()
    from scripts.services.kafka import broker
    from scripts.services.postgres import server

    screen, table, sent = Screen(), pairs(options.rows), records(options.rows)
    about = machine()
    details = {"rows": options.rows, "batches": options.batches}

    def note(section: str, what: str, found: list[float]) -> None:
        screen.add(Row(section, what, statistics.median(found), "ms"))

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        screen.step("starting Kafka and PostgreSQL")
        dsn, servers = stack.enter_context(server()), stack.enter_context(broker())
        lake = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/l"}
        given: dict[str, Any] = {"app": "bench", "via": "driver"}
        sinks = {
            "parquet": (ab.sinks.parquet(f"{folder}/parquet", **given), table),
            "delta (delta-rs)": (ab.sinks.delta(f"{folder}/delta", **given), table),
            "iceberg (pyiceberg, SQLite)": (
                ab.sinks.iceberg("lake.ab.pairs", catalog=lake, **given),
                table,
            ),
            "postgres": (ab.sinks.postgres(dsn, "pairs", **given), table),
            "kafka, transactions": (ab.sinks.kafka(servers, "pairs", **given), sent),
        }
        for name, (sink, rows) in sinks.items():
            note("sink", name, timed(through(sink, rows), options.batches))
        note("sink", "kafka, at least once", timed(plainly(servers, sent), options.batches))
        sinks.clear()  # their producers would look for the broker
    if not options.no_spark:
        screen.step("Spark's part")
        for name, found in spark_part(options.rows, options.batches).items():
            note("spark", f"via {name}", found)
    screen.table(f"milliseconds per micro-batch of {options.rows:,} rows, median")
    path = RESULTS / "sinks.json"
    told = [row.to_dict() for row in screen.rows]
    result = {"machine": about, "rows": told, "details": details}
    path.write_text(json.dumps(beside_earlier(path, result), indent=1) + "\n")


if __name__ == "__main__":
    main()
