"""What `benchmarks.before` times, in a process of its own and with whichever package it is given.

::

    PYTHONPATH=CHECKOUT python benchmarks/before_tasks.py FOLDER

It needs nothing but the public names of the package, old or new, for the same file runs both. The
last line that it prints are the seconds of each task's micro-batches, or of its jobs.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anabranch as ab

_WARM = 8  # micro-batches until windows are full and Java has compiled
_JOBS = 3
_EVENT = "ts timestamp, kind string, client long, service string"


def _watermark(verb: Any, text: str) -> dict[str, Any]:
    """The parameter by either of its names."""
    names = verb.__wrapped__.__code__ if hasattr(verb, "__wrapped__") else verb.__code__
    return {"watermark" if "watermark" in names.co_varnames else "late": text}


class Tasks:
    """One session, and the feeds that the parent has written."""

    def __init__(self, feeds: Path, folder: Path) -> None:
        from pyspark.sql import SparkSession

        self._feeds, self._folder, self._runs = feeds, folder, 0
        builder: Any = SparkSession.builder.master("local[2]")
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.memory": "3g",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        self.spark = ab.configure(spark, workers=2)

    def full(self) -> list[float]:
        """Correlation of two streams with full windows."""
        return self._streamed(self._pairs(*self._both("full"), 6, 0.55))

    def small(self) -> list[float]:
        """The same with 400 rows a side."""
        return self._streamed(self._pairs(*self._both("small"), 6, 0.55))

    def tables(self) -> list[float]:
        """Correlation of two tables: mostly the kernel."""
        left, right = (
            self.spark.read.parquet(str(self._feeds / "tables" / side))
            for side in ("left", "right")
        )
        pairs = ab.correlate(left, right, where=ab.cosine("v") >= 0.65, window="1 hour")
        return self._jobs(lambda: pairs.write.format("noop").mode("overwrite").save())

    def nearest(self) -> list[float]:
        """Standing queries over a stream."""
        queries = self.spark.read.parquet(str(self._feeds / "queries"))
        objects = self._stream("objects", "id long, ts timestamp, v array<double>")
        late = _watermark(ab.nearest, "1 second")
        return self._streamed(ab.nearest(objects, queries, by="v", **late))

    def assemble(self) -> list[float]:
        """Instances of a stream of events."""
        count: Any = ab.close.count if hasattr(ab, "close") else vars(ab)["count_or_timeout"]
        late = _watermark(ab.assemble, "1 second")
        events = self._stream("events", _EVENT)
        return self._streamed(
            ab.assemble(events, key=["kind", "client"], close=count(12, "5 seconds"), **late)
        )

    def _both(self, name: str) -> tuple[Any, Any]:
        schema = "id long, ts timestamp, v array<float>"
        return self._stream(f"{name}/left", schema), self._stream(f"{name}/right", schema)

    def _pairs(self, left: Any, right: Any, seconds: int, least: float) -> Any:
        late = _watermark(ab.correlate, "1 second")
        where = ab.cosine("v") >= least
        return ab.correlate(left, right, where=where, window=f"{seconds} seconds", **late)

    def _stream(self, name: str, schema: str) -> Any:
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self._feeds / name))

    def _streamed(self, frame: Any) -> list[float]:
        self._runs += 1
        state = self._folder / f"checkpoint{self._runs}"
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(state))
        query = writer.start()
        query.processAllAvailable()
        done = [one for one in query.recentProgress if one.numInputRows]
        query.stop()
        return [one.durationMs["triggerExecution"] / 1e3 for one in done[_WARM:]]

    def _jobs(self, job: Callable[[], None]) -> list[float]:
        took = []
        for _ in range(1 + _JOBS):
            began = time.perf_counter()
            job()
            took.append(time.perf_counter() - began)
        return took[1:]


def main() -> None:
    """Run all tasks."""
    with tempfile.TemporaryDirectory(prefix="anabranch-before-") as folder:
        tasks = Tasks(Path(sys.argv[1]), Path(folder))
        found = {name: getattr(tasks, name)() for name in sys.argv[2:]}
        tasks.spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
