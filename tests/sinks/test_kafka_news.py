"""examples/kafka_news.py with a real broker and Spark's own connector: every pair once in both."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sinks.stories import installed, needed
from tests.sinks.test_kills import committed
from tests.spark.processes import ROOT

pytestmark = [pytest.mark.services, pytest.mark.spark]
MINUTE = 60


def rows(servers: str, topic: str) -> list[dict[str, Any]]:
    return [json.loads(value) for value in committed(servers, topic)]


def brute_force(servers: str) -> Counter[tuple[int, int]]:
    """The pairs of the headlines that the example has sent, by comparing all with all."""
    sides = [rows(servers, topic) for topic in ("news-a", "news-b")]
    assert [len(side) for side in sides] == [200, 200]
    times = [np.array([datetime.fromisoformat(r["ts"]).timestamp() for r in s]) for s in sides]
    vectors = [np.array([row["v"] for row in side]) for side in sides]
    left, right = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in vectors)
    near = np.abs(times[0][:, None] - times[1][None, :]) <= MINUTE
    found = zip(*np.nonzero(near & (left @ right.T >= 0.95)), strict=True)
    return Counter((sides[0][a]["id"], sides[1][b]["id"]) for a, b in found)


@pytest.mark.parametrize("version", ["4.2", "4.3"])
def test_topic_and_table_hold_every_pair_once(tmp_path: Path, version: str) -> None:
    """Twice: the second run finds everything done, and adds nothing.

    On the Spark that the connector is made for, and on the newest one.
    """
    from scripts.services.jars import fetched, python_with
    from scripts.services.kafka import broker

    installed("confluent_kafka", "deltalake")
    from deltalake import DeltaTable

    given = ["--jars", ",".join(map(str, needed(lambda: fetched("spark-kafka"))))]
    python = needed(lambda: python_with(version))
    where = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": python}
    command = [python, "examples/kafka_news.py", *given, "--folder", str(tmp_path)]
    running = broker()
    servers = needed(running.__enter__)
    try:
        for more in (["--feed"], []):
            run = subprocess.run(
                [*command, "--servers", servers, *more],
                cwd=ROOT,
                env={**where, "PYSPARK_DRIVER_PYTHON": python},
                capture_output=True,
                text=True,
                timeout=600,
            )
            assert run.returncode == 0, run.stderr[-3000:]
            want = brute_force(servers)
            assert len(want) > 500
            assert f"{len(want)} pairs, for example" in run.stdout
            table = DeltaTable(str(tmp_path / "pairs")).to_pyarrow_table().to_pylist()
            for got in (table, rows(servers, "news-pairs")):
                assert Counter((pair["left_id"], pair["right_id"]) for pair in got) == want
    finally:
        running.__exit__(None, None, None)
