"""A query on local Spark leaves the terminal to the user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.feeds import Feed, scripted
from tests.spark.processes import ROOT

QUERY = """
import sys
from pyspark.sql import SparkSession
import anabranch as ab
from tests.spark.feeds import Feed

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
if sys.argv[2] == "builder":
    spark = ab.configure(builder, workers=2).getOrCreate()
else:
    spark = ab.configure(builder.getOrCreate(), workers=2)
spark.conf.set("spark.anabranch.quiet", sys.argv[3])
feed = Feed(__import__("pathlib").Path(sys.argv[1]))
feed.written = 3
query = feed.run(ab.correlate(*feed.streams(spark), where=ab.cosine("v") >= 0.6,
                              window="2 seconds", watermark="3 seconds"))
print("micro-batches:", len(query.recentProgress))
"""
CHATTER = ("TransformWithStateInPySparkStateServer", "Received UDF", "execution of UDF", "[Stage")
pytestmark = [pytest.mark.slow, pytest.mark.spark]


def standard_error(folder: Path, how: str, quiet: str = "true") -> list[str]:
    Feed(folder).add(scripted(3, rows=(10, 10), seed=2))
    run = subprocess.run(
        [sys.executable, "-c", QUERY, str(folder), how, quiet],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert "micro-batches: 3" in run.stdout
    return [line for line in run.stderr.splitlines() if line.strip()]


@pytest.mark.parametrize("how", ["builder", "session"])
def test_standard_error_stays_short(tmp_path: Path, how: str) -> None:
    lines = standard_error(tmp_path, how)
    found = [line for line in lines if any(word in line for word in CHATTER[:3])]
    assert found == []
    bars = [line for line in lines if "[Stage" in line]  # of a session they are on already
    assert how == "session" or bars == []
    assert len(lines) - len(bars) <= 12, lines


def test_without_it_spark_chatters(tmp_path: Path) -> None:
    lines = standard_error(tmp_path, "session", "false")
    assert any(CHATTER[0] in line for line in lines)
