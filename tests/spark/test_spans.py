"""Spans out of OTLP on real queries: decoded by executors, assembled into traces."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.errors import InvalidCall

pytest.importorskip("opentelemetry.proto")
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def message(trace: int, *spans: tuple[int, float]) -> bytes:
    """Spans of a trace, by number and by the second of their end; number 0 is the root."""
    made = [
        {
            "trace_id": trace.to_bytes(16, "big"),
            "span_id": (number + 1).to_bytes(8, "big"),
            "parent_span_id": b"\x00" * 7 + b"\x01" if number else b"",
            "name": f"step {number}" if number else "GET /cart",
            "start_time_unix_nano": START + trace * SECOND,
            "end_time_unix_nano": START + int(end * SECOND),
        }
        for number, end in spans
    ]
    service = [{"key": "service.name", "value": {"string_value": "shop"}}]
    resource = {"resource": {"attributes": service}, "scope_spans": [{"spans": made}]}
    return TracesData(resource_spans=[resource]).SerializeToString()


#  second     1 ... 2 .... 3 .... 4 .... 5         20
#  trace 1    o     o R                                  the root ends it, at 2.5 + 1
#  trace 2          o             R o                    what comes within a second belongs to it
#  trace 3                 o                             no root: the other policy, at 3 + 5
BATCHES = [
    [message(1, (1, 1.5), (0, 2.5)), message(2, (1, 2.2)), b"no message"],
    [message(1, (2, 2.1)), message(3, (1, 3.0)), message(2, (0, 4.0), (2, 4.9))],
    [message(9, (0, 20.0))],
]


def put(folder: Path) -> None:
    """The batches as files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, values in enumerate(BATCHES):
        table = pa.table({"value": pa.array(values, pa.binary())})
        path = folder / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (number, number))  # which Spark reads them by


def messages(spark: Any, folder: Path) -> Any:
    stream = spark.readStream.schema("value binary").option("maxFilesPerTrigger", 1)
    return stream.parquet(str(folder))


def traces(stream: Any) -> Any:
    return ab.assemble(
        ab.spans_of(stream, bad_rows="drop"),
        key="trace_id",
        time="end",
        close=ab.close.until("is_root", "1 second", otherwise=ab.close.after("5 seconds")),
        keep=["name", "service"],
        watermark="3 seconds",
    )


def ended(frame: Any) -> dict[int, tuple[str, int, str]]:
    """How each trace ended, how many spans it has, and of which service."""
    return {
        int(row["trace_id"], 16): (row["reason"], row["count"], row["items"][0]["service"])
        for row in frame.collect()
    }


ENDED = {1: ("end", 3, "shop"), 2: ("end", 3, "shop"), 3: ("timeout", 1, "shop")}


@pytest.mark.slow
def test_a_stream_of_messages_becomes_traces(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "in")
    query = (
        traces(messages(spark, tmp_path / "in"))
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert ended(spark.read.parquet(str(tmp_path / "out"))) == ENDED
    figures = ab.metrics(query)
    assert figures["verb"] == "assemble"
    assert [(one["verb"], one["total"]) for one in figures["also"]] == [
        ("spans_of", {"rejected_rows": 1})
    ]


def test_malformed_messages_of_a_table_fail_or_are_kept(spark: Any) -> None:
    table = spark.createDataFrame([(BATCHES[0][0],), (b"no message",)], "value binary")
    kept = ab.spans_of(table, bad_rows="keep").select("name", "rejected").collect()
    assert sorted(row["name"] or "" for row in kept) == ["", "GET /cart", "step 1"]
    (reason,) = [row["rejected"] for row in kept if row["rejected"]]
    assert reason.startswith("a message of 10 bytes (6e6f206d657373616765) is no OTLP: ")
    with pytest.raises(Exception, match=r"BadRow: a message of 10 bytes .* pass bad_rows='drop'"):
        ab.spans_of(table).collect()


def test_wrong_calls(spark: Any) -> None:
    with pytest.raises(InvalidCall, match="frame has no column 'value'"):
        ab.spans_of(spark.range(1))
    with pytest.raises(InvalidCall, match="'id' is bigint, not binary or string"):
        ab.spans_of(spark.range(1), "id")
    with pytest.raises(InvalidCall, match="bad_rows must be 'fail' or 'drop' or 'keep'"):
        ab.spans_of(spark.createDataFrame([("{}",)], ["value"]), bad_rows="ignore")
