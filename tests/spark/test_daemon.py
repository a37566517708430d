"""Where Spark's Python workers come from, and what a trial of an operator loads."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.assembly.job import AssembleJob
from anabranch.spark.operator import StreamWorker
from anabranch.spark.processor import Processor
from anabranch.spark.settings import DAEMON
from scripts.reliability.gauges import processes

ROOT = Path(__file__).parents[2]
SETTING = "spark.python.daemon.module"

NEEDED = [
    "pyspark.worker",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "anabranch.spark.operator",
    "anabranch.correlation.kernel",
    "anabranch.neighbours.kernel",
    "anabranch.assembly.kernel",
]

LOADED = """
import gc, json, os, sys
from anabranch.spark import daemon
daemon.load()
tasks = "/proc/self/task"
threads = len(os.listdir(tasks)) if os.path.isdir(tasks) else 1
missing = [name for name in sys.argv[1:] if name not in sys.modules]
print(json.dumps([threads, missing, gc.get_freeze_count()]))
"""

TRIED = """
import json, pickle, sys
class Handle:
    asked = []
    def getValueState(self, *names): self.asked.append(names[0])
    def getMapState(self, *names): self.asked.append(names[0])
processor = pickle.loads(bytes.fromhex(sys.argv[1]))
processor.init(Handle())
heavy = [name for name in ("numpy", "pandas", "pyarrow", "numba") if name in sys.modules]
print(json.dumps([Handle.asked, heavy]))
"""


def sent(processor: Processor) -> bytes:
    packed: bytes = cloudpickle.dumps(processor)  # type: ignore[no-untyped-call]
    return packed


def printed(code: str, *arguments: str, **environment: str) -> Any:
    made = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout.splitlines()[-1])


def test_the_daemon_forks_from_one_thread_with_everything_loaded() -> None:
    # Spark sets the variable for its workers: a thread of BLAS is not ours.
    threads, missing, frozen = printed(LOADED, *NEEDED, OMP_NUM_THREADS="1")
    assert (threads, missing) == (1, [])
    assert frozen > 100_000


def test_a_trial_loads_no_kernels() -> None:
    worker = StreamWorker(AssembleJob.__new__(AssembleJob))
    asked, heavy = printed(TRIED, sent(Processor(worker)).hex())
    assert asked == ["head", "pieces"]
    assert heavy == []


def test_a_processor_may_travel_twice() -> None:
    once = pickle.loads(sent(Processor(StreamWorker("the job"))))  # type: ignore[arg-type]
    twice = pickle.loads(sent(once))
    assert pickle.loads(twice._packed).job == "the job"


def test_workers_come_from_the_daemon(spark: Any) -> None:
    assert spark.sparkContext._jsc.sc().conf().get(SETTING) == DAEMON

    def loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        here = [name in sys.modules for name in NEEDED]
        yield from (pa.RecordBatch.from_pydict({"here": [all(here)]}) for _ in batches)

    assert [row.here for row in spark.range(1).mapInArrow(loaded, "here boolean").collect()] == [
        True
    ]
    # Long runs kill and measure what they find so.
    assert {"jvm", "daemon", "worker"} <= set(processes(os.getpid()).values())


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, DAEMON),
        ({SETTING: "mine"}, "mine"),
        ({"spark.master": "spark://cluster:7077"}, None),
        ({"spark.remote": "sc://server"}, None),
        ({"spark.pyspark.python": "/no/such/python"}, None),
    ],
)
def test_configure_names_the_daemon_where_it_is_found(given: dict[str, str], chosen: Any) -> None:
    builder: Any = SparkSession.Builder()
    builder._options = {}  # of the class, and so of all builders, otherwise
    for name, value in given.items():
        builder.config(name, value)
    ab.configure(builder, workers=2)
    assert builder._options.get(SETTING) == chosen


def test_all_that_configure_sets_is_in_the_table_of_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("PYSPARK_PYTHON", "SPARK_SUBMIT_OPTS"):
        monkeypatch.setenv(name, "")  # so that it is as before when this test has ended
        monkeypatch.delenv(name)
    monkeypatch.setattr("anabranch.spark.class_archive.archive", lambda: tmp_path / "classes.jsa")
    before = dict(os.environ)
    builder: Any = SparkSession.Builder()
    builder._options = {}
    ab.configure(builder, workers=2)
    changed = {name for name, value in os.environ.items() if before.get(name) != value}
    assert changed == {"PYSPARK_PYTHON", "SPARK_SUBMIT_OPTS"}
    page = (Path(__file__).parents[2] / "docs/spark.md").read_text()
    table = page.partition("| setting | value | why |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1].split("`")[1] for line in table.splitlines()[2:]]
    found = {*builder._options, *changed}
    assert len(rows) == len(found)
    for row in rows:
        assert [name for name in found if name.endswith(row.removeprefix("..."))], row
