"""One process of `benchmarks.state`: fills a query's state, or starts it again.

::

    python -m benchmarks.state_restart FOLDER fill|again "as stored"|"as encoded" MEGABYTES

The last line that it prints are the seconds of its micro-batches; `again` also kills the Python
workers in the end, and prints those of the micro-batches after that, too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.spark.settings import DAEMON
from benchmarks.correlate_spark import CORES, Bench, Feed, batches_of

_LARGE, _FEW, _LATER = 50_000, 100, 6
_PER_ROW = 1.5 * 280  # bytes in each of two workers for a row of either side


def main() -> int:
    """Fill or start again."""
    folder, part, form, megabytes = sys.argv[1:]
    daemon = DAEMON if form == "as stored" else "benchmarks.state_plain"
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--conf spark.python.daemon.module={daemon} pyspark-shell"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Either Python worker may get either key: the state of both, decoded, is to fit.
    os.environ.setdefault("ANABRANCH_CACHE_MB", str(max(1024, 4 * int(megabytes))))
    place = Path(folder)
    files = max(1, round((int(megabytes) << 20) / _PER_ROW / _LARGE))
    # A task whose worker was killed is tried again.
    bench = Bench(place / part, False, lambda text: None, master=f"local[{CORES},8]")
    bench.folder.mkdir()
    try:
        if part == "fill":
            feed = Feed.write(place / "feed", files, _LARGE)
            print(json.dumps(_seconds(bench, place, feed)))
        else:
            feed = Feed(place / "feed", files, _LARGE).extend(_LATER, _FEW)
            print(json.dumps(_seconds(bench, place, feed, _LATER)))
    finally:
        bench.stop()
    return 0


def _seconds(bench: Bench, place: Path, feed: Feed, after: int = 0) -> list[list[float]]:
    """Of all micro-batches, and of so many after the workers were killed."""
    left, right = feed.streams(bench.spark)
    pairs: Any = ab.correlate(
        left,
        right,
        where=ab.within("id", 0.5),
        window="1 hour",
        keep=["v"],
        watermark="1 second",
        plan=ab.broadcast(2),
    )
    writer = pairs.writeStream.format("noop")
    query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
    query.processAllAvailable()
    found = [batch.trigger for batch in batches_of(query)]
    if after:
        assert _kill_workers(), "there was no Python worker to kill"
        feed.extend(after, _FEW)
        query.processAllAvailable()
    every = [batch.trigger for batch in batches_of(query)]
    query.stop()
    return [found, every[len(found) :]]


def _kill_workers() -> int:
    """Kill the Python workers of this process's Spark; how many there were."""
    table = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True)
    rows = [line.split(None, 2) for line in table.stdout.splitlines()[1:]]
    parents = {int(pid): int(parent) for pid, parent, _ in rows}

    def mine(pid: int) -> bool:
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    daemons = {
        int(pid) for pid, _, args in rows if DAEMON in args or "benchmarks.state_plain" in args
    }
    # The daemon's children are workers; it starts others in their place.
    workers = [pid for pid, parent in parents.items() if parent in daemons and mine(pid)]
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    return len(workers)


if __name__ == "__main__":
    sys.exit(main())
