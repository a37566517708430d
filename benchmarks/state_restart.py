"""One process of `benchmarks.state`: fills a query's state, or starts it again.

::

    python -m benchmarks.state_restart FOLDER fill|again "as stored"|"as encoded" MEGABYTES

The last line that it prints are the seconds of its micro-batches.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.spark.settings import DAEMON
from benchmarks.correlate_spark import Bench, Feed, batches_of

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
    bench = Bench(place / part, False, lambda text: None)
    bench.folder.mkdir()
    try:
        if part == "fill":
            Feed.write(place / "feed", files, _LARGE)
        else:
            Feed(place / "feed", files, _LARGE).extend(_LATER, _FEW)
        print(json.dumps(_seconds(bench, place)))
    finally:
        bench.stop()
    return 0


def _seconds(bench: Bench, place: Path) -> list[float]:
    feed = Feed(place / "feed", 0, 0)
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
    query.stop()
    return found


if __name__ == "__main__":
    sys.exit(main())
