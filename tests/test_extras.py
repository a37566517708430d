"""What executors and a bare installation do without, and what a missing package says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Executors have numpy, numba, pyarrow, pandas and Spark with what it needs itself.
DRIVER_ONLY = ["scipy", "ot", "rapidfuzz", "typer", "rich", "threadpoolctl", "matplotlib"]
DRIVER_ONLY += ["prometheus_client", "opentelemetry"]
BLOCKED = """
import importlib.machinery, sys
find = importlib.machinery.PathFinder.find_spec
def absent(name, path=None, target=None):
    return None if name.partition(".")[0] in {names} else find(name, path, target)
importlib.machinery.PathFinder.find_spec = absent
"""
# All that functions sent to executors are unpickled from, and a step of what they do.
EXECUTOR = """
import pyarrow as pa
import anabranch.spark.operator, anabranch.spark.demand_pairs, anabranch.spark.service_stats
import anabranch.neighbours.job, anabranch.neighbours.selective.jobs, anabranch.assembly.job
import anabranch as ab
from anabranch.flow.process import single_threaded
from anabranch.testing import InProcess
rows = pa.table({"id": [1, 2], "ts": pa.array([10**15, 10**15 + 1], pa.timestamp("us", "UTC")),
                 "v": pa.array([[1.0, 0.0], [0.0, 1.0]], pa.list_(pa.float32()))})
with single_threaded():
    run = InProcess(rows.schema, rows.schema, where=ab.cosine("v") >= 0.9, window="1 second")
    run.step(rows, rows)
print(len(run.pairs))
"""


def run(code: str, without: list[str]) -> subprocess.CompletedProcess[str]:
    text = BLOCKED.format(names=set(without)) + code
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=ROOT)


def test_an_executor_needs_nothing_of_the_drivers() -> None:
    made = run(EXECUTOR, DRIVER_ONLY)
    assert made.returncode == 0, made.stderr
    assert made.stdout.split() == ["2"]


MISSING = {
    "ot": ("import anabranch as ab; ab.emd('h', ground=[[0, 0], [0, 1], [1, 0]])", "emd"),
    "rapidfuzz": ("import anabranch as ab; ab.edit('name')", "text"),
    "typer": ("from anabranch.cli.entry import run; run()", "cli"),
    "rich": ("import anabranch as ab; ab.watch", "cli"),
    "torch": (
        "from anabranch.flow.gpu.choice import Choice; Choice('correlate', 'gpu').open()",
        "gpu",
    ),
    "av": ("from anabranch.video.decoding import probe; probe('film.ts')", "video"),
    "msgpack": ("import anabranch as ab; ab.view", "edge"),
    "nats": (
        "import asyncio, anabranch.edge.address as b; asyncio.run(b.Broker('').connect())",
        "edge",
    ),
    "matplotlib": ("from anabranch.flow.pictures import pyplot; pyplot()", "plots"),
}


@pytest.mark.parametrize("package", MISSING)
def test_a_missing_package_is_named_with_its_extra(package: str) -> None:
    code, extra = MISSING[package]
    made = run(code, [package])
    assert made.returncode == 1
    assert f"pip install 'anabranch[{extra}]'" in made.stderr.splitlines()[-1]


def test_lines_and_circles_need_no_solver() -> None:
    code = "import anabranch as ab; print(ab.emd('h') <= 1, ab.emd('h', ground='circle') <= 1)"
    assert run(code, ["ot"]).returncode == 0


@pytest.mark.parametrize(
    ("benchmark", "missing", "extra"),
    [
        ("video", ["scenedetect"], "bench"),
        ("video", ["av", "scenedetect"], "bench"),
        ("video_recall", ["onnx", "onnxruntime"], "video-concepts"),
        ("video_recall", ["av", "onnx"], "bench"),
        ("news", ["av"], "video"),
    ],
)
def test_a_benchmark_names_what_it_lacks_before_it_measures(
    benchmark: str, missing: list[str], extra: str
) -> None:
    """A result with rows left out would take the place of one that has them."""
    made = run(
        f"import runpy; runpy.run_module('benchmarks.{benchmark}', {{}}, '__main__')", missing
    )
    assert made.returncode == 1 and not made.stdout
    (said,) = made.stderr.splitlines()
    assert said.startswith(f"python -m benchmarks.{benchmark} measures nothing here, for it needs ")
    named = said.partition("needs ")[2].partition(":")[0].split(", ")
    assert set(named) >= set(missing)
    assert said.endswith(f"pip install -e '.[{extra}]'") or set(named) > set(missing)


def test_views_over_tables_are_decided_without_what_devices_have() -> None:
    """Executors have numpy, pyarrow and Spark; msgpack is of the extra edge."""
    code = (
        "import sys; sys.modules['msgpack'] = None\n"
        "import anabranch.predicates.deciding\n"
        "assert 'anabranch.edge' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
