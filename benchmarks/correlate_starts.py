"""How long a query takes from a new process to its first micro-batch, and what shortens that.

Each measurement is a process of its own::

    python -m benchmarks.correlate_starts FEED "counting rows"|correlate SETTING

Compiled code and the classes of Java are on disk, as they are after ``anabranch warm --java``;
Spark's own process is up, but has compiled nothing. Spark has settings of its own that shorten
this, and each is tried alone, with the same trivial query beside ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from anabranch.spark.class_archive import archive, make_archive
from anabranch.spark.versions import local_checkpoints
from benchmarks.correlate_small import FEW, counted
from benchmarks.correlate_spark import Bench, Feed, batches_of, median
from benchmarks.measuring import Row, Screen

__all__ = ["first"]

_QUERIES = ("counting rows", "correlate")
_JAVA = "spark.driver.extraJavaOptions"
_EARLY = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=192m"
_FORK = "-Djdk.lang.Process.launchMechanism=VFORK"
_PLAIN = {"spark.sql.codegen.wholeStage": "false"}
_UNKEPT = "without the archive of classes"
_LOCAL = "checkpoints by the file system"
_ALL = "all of these"
SETTINGS: dict[str, dict[str, str]] = {
    "as configured": {},
    _UNKEPT: {},
    _LOCAL: {},
    "processes started by vfork": {_JAVA: _FORK},
    "a compiler that stops early": {_JAVA: _EARLY},
    "no code made for whole stages": _PLAIN,
    _ALL: {_JAVA: f"{_EARLY} {_FORK}", **_PLAIN},
}
_LATER = 20  # micro-batches after the first, of which the last ten count


def first(screen: Screen, bench: Bench) -> dict[str, Any]:
    """The first micro-batch of new processes, by setting."""
    rounds = 1 if bench.quick else 3
    feed = Feed.write(bench.room("first"), 1 + _LATER, FEW)
    screen.step(f"first: {rounds} new processes for each query and setting")
    if archive() is None:
        make_archive()
    names = list(SETTINGS)[:1] if bench.quick else list(SETTINGS)
    took: dict[str, dict[str, list[list[float]]]] = {
        name: {query: [] for query in _QUERIES} for name in names
    }
    _process(feed, "correlate", names[0])  # compiles what is not on disk yet
    for _ in range(rounds):
        for name in names:
            for query in _QUERIES:
                took[name][query].append(_process(feed, query, name))
    for name, of in took.items():
        begun = {query: median(one for one, _ in of[query]) for query in _QUERIES}
        later = {query: median(one for _, one in of[query]) for query in _QUERIES}
        what = "seconds to the end of the first micro-batch of a new process"
        note = (
            f"{begun['counting rows']:.1f} s to count rows in a state value; micro-batches "
            f"11 to 20 take {later['correlate']:.2f} and {later['counting rows']:.2f} s"
        )
        target = None
        if name == names[0]:
            target = 4.0
        else:
            what = f"the same, {name}"
        screen.add(Row("first", what, begun["correlate"], "s", target, at_most=True, note=note))
    return {"seconds, first and later": took}


def _process(feed: Feed, query: str, setting: str) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.correlate_starts", str(feed.folder)]
    # Whoever says something of shared classes gets no archive of ours.
    given = os.environ | ({"SPARK_SUBMIT_OPTS": "-Xshare:auto"} if setting == _UNKEPT else {})
    done = subprocess.run(
        [*command, query, setting], capture_output=True, text=True, check=False, env=given
    )
    if done.returncode:
        raise RuntimeError(f"a new process failed:\n{done.stderr[-2000:]}")
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _time_first(folder: str, name: str, setting: str) -> list[float]:
    """What `first` starts: seconds to the end of the first micro-batch, and of a later one."""
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as room:
        bench = Bench(Path(room), True, lambda text: None, SETTINGS[setting])
        feed = Feed(Path(folder), 1 + _LATER, FEW)
        spark = bench.spark
        if setting in (_LOCAL, _ALL):
            for key, value in local_checkpoints(spark).items():
                spark.conf.set(key, value)
        began = time.perf_counter()
        frame = counted(bench, feed) if name == "counting rows" else bench.correlated(feed, 6, 0.6)
        writer = frame.writeStream.option("checkpointLocation", str(bench.room("checkpoint")))
        query = writer.format("noop").start()
        while query.lastProgress is None and query.isActive:
            time.sleep(0.01)
        took = time.perf_counter() - began
        assert query.lastProgress is not None, query.exception()
        query.processAllAvailable()
        later = median(batch.trigger for batch in batches_of(query)[-10:])
        query.stop()
        bench.stop()
    return [took, later]


if __name__ == "__main__":
    print(json.dumps(_time_first(*sys.argv[1:])))
