"""Streams for long runs: a row is a function of its number, so that the twin can make it again.

Spark's ``rate-micro-batch`` source gives every micro-batch the same count of numbers, whatever the
clock does and however often it is restarted; so does a topic that holds them all, read by as many
at a time. Rows made of them sway in rate, fall silent on each side, come late and come bad. A
micro-batch is ten minutes of event time; in the first hours clocks in New York are set back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.flow.hashing import mix

__all__ = ["ROW", "SECOND", "START", "STEP", "batches", "fill", "reached", "rows_of", "stream"]

SECOND = 1_000_000
START = 1_699_160_000 * SECOND
STEP = 600 * SECOND
NUMBERS = 60
"""So many rows at most in a micro-batch of one side."""

ROW = pa.schema(
    {
        "id": pa.int64(),
        "ts": pa.timestamp("us", "UTC"),
        "v": pa.list_(pa.float32()),
        "page": pa.string(),
        "client": pa.int64(),
        "service": pa.string(),
        "ms": pa.float64(),
    }
)
_CYCLE = 20  # micro-batches
_IDLE = ((13, 17), (15, 20))  # of these, by side
_ANGLES = np.array([[3, 4], [4, 3], [5, 0], [0, 5], [-3, 4], [-4, 3], [-5, 0], [6, 8], [0, -10]])


def rows_of(numbers: np.ndarray, side: int) -> pa.Table:
    """The rows that these numbers of a side stand for; some stand for none."""
    numbers = np.asarray(numbers, np.int64)
    step = numbers // NUMBERS
    numbers = numbers[_share(numbers, side, 1) < _rate(step, side)]
    step, place = numbers // NUMBERS, numbers % NUMBERS
    shift = (_share(numbers, side, 2) - 0.5) * 2 * STEP  # up to a step early or late
    late = np.where(_share(numbers, side, 3) < 0.02, 12 * STEP, 0)
    t = START + step * STEP + place * (STEP // NUMBERS) + shift.astype(np.int64) - late
    t = np.maximum(t, START - STEP) // 1000 * 1000 + (2 * numbers + side) % 1000  # no two alike
    bad = _share(numbers, side, 4)
    vectors = _ANGLES[(_share(numbers, side, 5) * len(_ANGLES)).astype(int)].astype(float)
    vectors[bad < 0.01] = np.nan
    vectors[(bad >= 0.01) & (bad < 0.015)] = 0
    lists: list[Any] = vectors.tolist()
    lists = [None if b > 0.99 else v for v, b in zip(lists, bad, strict=True)]
    pages = (_share(numbers, side, 6) * 6).astype(int)
    return pa.table(
        {
            "id": pa.array(2 * numbers + side, pa.int64()),
            "ts": pa.array(t, ROW.field("ts").type),
            "v": pa.array(lists, ROW.field("v").type),
            "page": [None if b > 0.98 else f"/{p}" for p, b in zip(pages, bad, strict=True)],
            "client": pa.array((_share(numbers, side, 7) * 8).astype(np.int64)),
            "service": [f"s{2 * n + side}" for n in numbers.tolist()],
            "ms": pa.array((1 + _share(numbers, side, 8) * 900).round()),
        },
        schema=ROW,
    )


def _rate(step: np.ndarray, side: int) -> np.ndarray:
    """Which share of the numbers stands for rows: it sways, and each side falls silent at times.

    Of 20 micro-batches the left side has none in 4, the right one in 5, and both in 2 of these. All
    begins anew after 20, so that the blocks of a long run can be compared.
    """
    swaying = 0.5 + 0.4 * np.sin(2 * np.pi * step / (_CYCLE >> side) + side)
    first, last = _IDLE[side]
    return np.where((step % _CYCLE >= first) & (step % _CYCLE < last), 0.0, swaying)


def _share(numbers: np.ndarray, side: int, salt: int) -> np.ndarray:
    """A number from 0 to 1 for each, by chance and yet always the same."""
    mixed = mix((numbers * 2 + side) * 16 + salt).view(np.uint64)
    return (mixed >> np.uint64(11)) / 2.0**53


def stream(spark: Any, side: int, servers: str | None = None) -> Any:
    """One side as a stream; with `servers`, out of a topic that `fill` has filled."""

    def made(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from rows_of(batch.column("value").to_numpy(), side).to_batches()

    from pyspark.sql.pandas.types import from_arrow_schema

    source = _counted(spark) if servers is None else _topic(spark, side, servers)
    return source.mapInArrow(made, from_arrow_schema(ROW))


def _counted(spark: Any) -> Any:
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", NUMBERS)
        .option("numPartitions", 1)
        .option("startTimestamp", START // 1000)
        .option("advanceMillisPerBatch", 1000)
        .load()
        .select("value")
    )


def _topic(spark: Any, side: int, servers: str) -> Any:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.default.api.timeout.ms", 30_000)
        .option("kafka.request.timeout.ms", 10_000)
        .option("subscribe", f"numbers-{side}")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", NUMBERS)
        .load()
        .selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS value")
    )


def fill(servers: str, steps: int) -> None:
    """The numbers of so many micro-batches into two topics of one partition."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    topics = [f"numbers-{side}" for side in (0, 1)]
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 10_000_000})
    for topic in topics:
        for number in range(steps * NUMBERS):
            producer.produce(topic, str(number))
    assert producer.flush(120) == 0, "not all numbers could be written"


def reached(offset: Any) -> int:
    """How many numbers of a side have been read, by an offset in a checkpoint."""
    if "offset" in offset:
        return int(offset["offset"])
    (parts,) = offset.values()
    return int(parts["0"])


def batches(count: int) -> list[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """The rows of the first so many micro-batches, as the twins take them."""
    found = []
    for step in range(count):
        numbers = np.arange(step * NUMBERS, (step + 1) * NUMBERS)
        found.append((_plain(rows_of(numbers, 0)), _plain(rows_of(numbers, 1))))
    return found


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    times = table["ts"].cast(pa.int64()).to_pylist()
    return [{**row, "t": t} for row, t in zip(table.to_pylist(), times, strict=True)]
