"""A query that fails, is restarted or dies at once, and what the page says of it, for real."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from tests.dashboard.reports import SECOND, START
from tests.dashboard.test_board import ask

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PATIENCE = 90  # seconds until what is not said counts as not known
SCHEMA = "id long, ts timestamp, v array<float>"


def put(folder: Path, number: int, *vectors: list[float] | None) -> None:
    """A file of rows for the next micro-batch, there as a whole or not at all."""
    rows = {
        "id": pa.array(range(10 * number, 10 * number + len(vectors)), pa.int64()),
        "ts": pa.array([(START + number) * SECOND] * len(vectors), pa.timestamp("us", tz="UTC")),
        "v": pa.array(vectors, pa.list_(pa.float32())),
    }
    folder.mkdir(exist_ok=True)
    made = folder.parent / f"{folder.name}{number}.parquet"
    pq.write_table(pa.table(rows), made)
    made.rename(folder / made.name)


def begin(spark: Any, folder: Path, name: str, bad_rows: str = "fail") -> Any:
    rows = spark.readStream.schema(SCHEMA).parquet(str(folder))
    rules = {"window": "10 seconds", "watermark": "1 second", "bad_rows": bad_rows}
    pairs = ab.correlate(rows, where=ab.cosine("v", dim=2) >= 0.9, **rules)
    writer = pairs.writeStream.format("noop").queryName(name)
    return writer.option("checkpointLocation", f"{folder}-checkpoint").start()


def until(board: Any, name: str, holds: Callable[[Any], bool]) -> Any:
    """The subject of a query once it is so."""
    by = time.monotonic() + PATIENCE
    while True:
        subjects = json.loads(ask(board, "/api/state.json")[2])["subjects"]
        mine = [one for one in subjects if one["name"] == name]
        if mine and holds(mine[0]):
            return mine[0]
        assert time.monotonic() < by, [(one["runs"], one["health"]) for one in mine]
        time.sleep(0.2)


def light(subject: Any) -> str:
    return str(subject["health"][0]["light"])


def test_a_failure_a_restart_and_a_death_at_once_are_seen(spark: Any, tmp_path: Path) -> None:
    with ab.dashboard(spark) as board:
        put(tmp_path / "lives", 0, [1.0, 0.0], [0.9, 0.1])
        query = begin(spark, tmp_path / "lives", "lives")
        waited = until(board, "lives", lambda _: True)
        assert waited["health"][0]["sentence"].startswith("Waiting for the first micro-batch of li")
        until(board, "lives", lambda it: it["verb"] == "correlate" and it["active"])
        put(tmp_path / "lives", 1, None)
        with pytest.raises(Exception, match=r"STREAM_FAILED|null"):
            query.awaitTermination(PATIENCE)
        dead = until(board, "lives", lambda it: not it["active"])
        assert light(dead) == "bad" and "has stopped: " in dead["health"][0]["sentence"]

        query = begin(spark, tmp_path / "lives", "lives", bad_rows="drop")
        try:
            until(board, "lives", lambda it: it["active"] and it["runs"] == 2)
            query.processAllAvailable()
            put(tmp_path / "lives", 2, [1.0, 0.0])
            query.processAllAvailable()
            back = until(board, "lives", lambda it: it["count"] > dead["count"])
            time.sleep(6)  # after another look at its handle
            back = until(board, "lives", lambda it: True)
            assert back["active"] and light(back) != "bad"
        finally:
            query.stop()

        put(tmp_path / "dies", 0, [1.0, 0.0], None)
        with pytest.raises(Exception, match=r"STREAM_FAILED|null"):
            begin(spark, tmp_path / "dies", "dies").awaitTermination(PATIENCE)
        died = until(board, "dies", lambda it: not it["active"])
        assert (died["verb"], light(died)) == ("", "bad")
        assert "BadRow" in died["health"][0]["sentence"] or "null" in str(died["health"])
