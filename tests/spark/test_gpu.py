"""Tasks of Spark and their devices: a stand-in multiplies, and a GPU that is missing is named."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark import TaskContext
from pyspark.resource import ResourceInformation

import anabranch as ab
from anabranch.correlation import jobs
from anabranch.correlation.gpu import search
from anabranch.correlation.kernel import CorrelateJob
from anabranch.flow.gpu import choice
from anabranch.flow.gpu.device import Device
from anabranch.flow.kernel import Task
from anabranch.neighbours.job import NearestJob
from anabranch.neighbours.lists import products
from anabranch.spark import nearest, tasks
from tests.devices import Lent, StandIn

ROWS = """SELECT id, timestamp_seconds(1700000000 + id % 7) AS ts,
          transform(sequence(1, 5), k -> float(pmod(hash(id, k), 9) - 4.5)) AS v FROM range(60)"""


@dataclass
class WatchedDevice(StandIn):
    note: Path = Path()

    def start(self, work: Any, norms: bool) -> Any:
        self.note.write_text(f"{len(work)} pairs")
        return super().start(work, norms)


@dataclass(frozen=True)
class WatchedJob(CorrelateJob):
    """A job whose tasks have a stand-in, and leave a note of what it multiplied."""

    folder: str = ""

    def device(self, task: Task) -> Device | None:
        search.WORTHWHILE = 0
        return WatchedDevice(note=Path(self.folder, str(task.worker)))


def pairs(table: Any, device: str) -> list[tuple[int, int, float]]:
    where = ab.cosine("v") >= 0.81
    found = ab.correlate(table, table, where=where, window="2 seconds", device=device)
    return sorted((row.left_id, row.right_id, row.score) for row in found.collect())


def test_tasks_find_the_same_pairs_with_a_device(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    table = spark.sql(ROWS)
    rows = [(row.id, row.ts, np.array(row.v) / np.linalg.norm(row.v)) for row in table.collect()]
    expected = sorted(
        (i, j)
        for (i, t, u), (j, other, v) in itertools.product(rows, rows)
        if abs(t - other) <= timedelta(seconds=2) and u @ v >= 0.81
    )
    monkeypatch.setattr(jobs, "CorrelateJob", partial(WatchedJob, folder=str(tmp_path)))
    found = pairs(table, "gpu")
    assert [pair[:2] for pair in found] == expected and len(expected) > 60
    assert [file.read_text() for file in tmp_path.iterdir()] == ["1 pairs"] * 2


@dataclass(frozen=True)
class WatchedNearest(NearestJob):
    """The same for saved searches."""

    folder: str = ""

    def choice(self, task: Task) -> Lent:
        products.WORTHWHILE = 0
        device = WatchedDevice(note=Path(self.folder, str(task.worker)))
        return Lent("nearest", self.nearest.device, device=device)


def test_tasks_find_the_same_hits_with_a_device(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(nearest, "NearestJob", partial(WatchedNearest, folder=str(tmp_path)))
    table = spark.sql(ROWS.replace("range(60)", "range(1200)"))  # the first 512 find no thresholds
    asked = table.filter("id < 8").selectExpr("id AS query_id", "v")

    def hits(device: str) -> list[Any]:
        plan = ab.broadcast(2)
        found = ab.nearest(table, asked, by="v", k=2, rows=90, plan=plan, device=device)
        return sorted(map(tuple, found.collect()))

    expected = hits("cpu")
    assert [*tmp_path.iterdir()] == [] and len(expected) > 60
    assert hits("gpu") == expected
    assert [file.read_text() for file in tmp_path.iterdir()] == ["1 pairs"] * 2


@pytest.mark.slow
@pytest.mark.skipif(choice.visible() > 0, reason="there is a GPU here")
def test_a_task_without_the_gpu_that_it_must_have_says_so(spark: Any):
    with pytest.raises(Exception, match=r"sees no GPU|pip install 'anabranch\[gpu\]'"):
        pairs(spark.sql(ROWS), "gpu")


def test_spark_says_which_gpus_a_task_has(monkeypatch: pytest.MonkeyPatch):
    assert tasks.gpus() == ()
    task = TaskContext()
    task._resources = {"gpu": ResourceInformation("gpu", ["3", "1"])}
    monkeypatch.setattr(TaskContext, "_taskContext", task)
    assert tasks.gpus() == ("3", "1")


ON_A_CLUSTER = """
import sys
from pyspark.sql import SparkSession
from anabranch.neighbours.job import NearestJob
from anabranch.neighbours.lists import products
from anabranch.spark import nearest, tasks

def addresses(batches):
    import pyarrow as pa
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"gpu": list(tasks.gpus())})

builder = SparkSession.builder.master("local-cluster[1,1,1024]")
for name in ("worker", "executor"):
    builder = builder.config(f"spark.{name}.resource.gpu.amount", "2")
    builder = builder.config(f"spark.{name}.resource.gpu.discoveryScript", sys.argv[1])
spark = builder.config("spark.task.resource.gpu.amount", "2").getOrCreate()
print("GPUs", [row.gpu for row in spark.range(1).mapInArrow(addresses, "gpu string").collect()])
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.spark
def test_the_addresses_of_a_cluster_reach_its_python_workers(tmp_path: Path):
    script = tmp_path / "discover.sh"
    script.write_text("""#!/bin/sh\necho '{"name": "gpu", "addresses": ["3", "5"]}'\n""")
    script.chmod(0o755)
    command = [sys.executable, "-c", ON_A_CLUSTER, str(script)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr[-2000:]
    assert "GPUs ['3', '5']" in made.stdout
