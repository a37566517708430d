"""Checkpoints and plan logs in an object store: a killed driver continues, and so does a copy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.services.object_store import BUCKET, object_store, s3a_settings
from tests.correlation import twin
from tests.sinks.stories import installed, needed
from tests.spark.driver import LATE, SPANS, score
from tests.spark.feeds import Feed, agree, found, scripted
from tests.spark.processes import driver

pytestmark = [pytest.mark.services, pytest.mark.spark]


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    """What Spark must be told to find a store."""
    installed("moto")
    running = object_store()
    endpoint = needed(running.__enter__)
    yield needed(lambda: s3a_settings(endpoint))
    running.__exit__(None, None, None)


def started(folder: Path, store: dict[str, str], *options: str) -> Any:
    place, script = f"s3a://{BUCKET}/checkpoints", "../cluster/store_driver.py"
    return driver(folder, place, control_of(store), json.dumps(store), *options, script=script)


def control_of(store: dict[str, str]) -> str:
    """The address of a plan log in the store, as pyarrow reads it."""
    host = store["spark.hadoop.fs.s3a.endpoint"].removeprefix("http://")
    return f"s3://{BUCKET}/control?scheme=http&endpoint_override={host}&region=us-east-1"


def test_checkpoint_and_plan_log(
    spark: Any, tmp_path: Path, store: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "anybody")  # any will do
    script = scripted(5, rows=(10, 10), seed=12)
    feed = Feed(tmp_path).add(script[:3])
    with started(tmp_path, store, "--hold", "left_id >= 4000") as run:
        reached = tmp_path / "reached"
        run.wait_until(reached.exists, "the result to hold at")
        run.kill()
        reached.unlink()
    with started(tmp_path, store) as run:
        assert run.finish() == {"entries": 1, "partitions": 2}
    agree(found(feed.output(spark)), twin.pairs_in_time(script[:3], SPANS, score, LATE))
    feed.add(script[3:])
    with started(tmp_path, store, "--rescale", "4") as run:
        assert run.finish() == {"entries": 1, "partitions": 4}
    assert not (tmp_path / "out.checkpoint").exists()
    both = spark.read.parquet(str(tmp_path / "out"), str(tmp_path / "more" / "part-*"))
    agree(found(both), twin.pairs_in_time(script, SPANS, score, LATE))
