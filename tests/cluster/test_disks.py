"""Executors with disks of their own: what they write there is missed, and no batch counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from scripts.services.cluster import cluster
from tests.sinks.stories import SCRIPT, same
from tests.spark.feeds import PATIENCE, Feed, scripted
from tests.spark.processes import driver

pytestmark = [pytest.mark.services, pytest.mark.spark]
OWN = "/proc/self/cwd/table"  # another place in every process, as a local disk in every machine


def started(master: str, folder: Path, path: str) -> Any:
    call = json.dumps({"path": path, "app": "rows", "via": "spark"})
    settings = json.dumps({"spark.master": master})
    given = ("--sink", "parquet", "--result", "distinct", "--conf", settings, "--batch")
    return driver(folder, call, *given, script=SCRIPT)


def test_a_folder_that_executors_do_not_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Feed(tmp_path).add(scripted(2, rows=(8, 8), seed=21))
    table = tmp_path / "table"
    with cluster() as running:
        monkeypatch.setenv("SPARK_LOCAL_IP", running.host)
        with started(running.address, tmp_path, OWN) as run:
            assert run.process.wait(PATIENCE) != 0
            assert "batch 0 has 8 rows, and the driver finds 0 of what the executors" in run.tail()
        assert list(running.folder.rglob("part-*.parquet"))
        assert list(table.rglob("_SUCCESS"))
        assert list(table.rglob("*.json")) == list(table.rglob("*.parquet")) == []
        with started(running.address, tmp_path, str(table)) as run:
            run.finish()
    want = pq.read_table(tmp_path / "batch").to_pylist()
    same(pq.read_table(table).to_pylist(), want)
    assert len(want) == 16
