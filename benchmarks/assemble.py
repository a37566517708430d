"""`assemble` on Spark, two cores, against one Spark key per instance and against no work at all.

Run it on a machine that does nothing else::

    python -m benchmarks.assemble [--quick] [--seconds 4 | 12] [--out FOLDER]

The events are those of the DSSIS trace, faster: every micro-batch takes one file of 12 s (or 4 s)
of event time. All variants are run in turns, once to warm up and then three times; a ratio is the
median over rounds of the ratio within a round. Rates are events per second of trigger time, of the
micro-batches in which windows open and close at the same rate (of the slow rival: the first of
these). The rivals do less than `assemble`: the keyed one emits no items and no revisions, the
session window no sequence, reason or learning.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import anabranch as ab
from benchmarks.measuring import Row, Screen, machine
from papers.dssis.tracing.generator import generate_trace

RESULTS = Path(__file__).parent / "results"
KEY = ["kind", "instance_ts", "client"]
SIZE, TIMEOUT_MS = 13, 22_000
ROUNDS = 3
SCHEMA = (
    "event_ts timestamp, service string, kind string, instance_ts long, client string, "
    "response_ms double"
)


class WindowPerKey(StatefulProcessor):
    """What one writes by the book: a list, a count and a timer for every instance."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._rows = handle.getListState("rows", "t timestamp, service string, ms double")
        self._window = handle.getValueState("window", "deadline long, count int")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Any:
        frame = pd.concat(list(rows)).sort_values("event_ts")
        stored = self._window.get()
        if stored is None:
            opened = int(frame["event_ts"].iloc[0].timestamp() * 1000)
            deadline, count = opened + TIMEOUT_MS, 0
            self._handle.registerTimer(deadline)
        else:
            deadline, count = stored
        values = zip(frame["event_ts"], frame["service"], frame["response_ms"], strict=True)
        self._rows.appendList([tuple(row) for row in values])
        count += len(frame)
        if count >= SIZE:
            self._handle.deleteTimer(deadline)
            yield self._close(key, "full")
        else:
            self._window.update((deadline, count))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        yield self._close(key, "timeout")

    def close(self) -> None:
        pass

    def _close(self, key: Any, reason: str) -> pd.DataFrame:
        rows = list(self._rows.get())
        self._rows.clear()
        self._window.clear()
        times = [row[0] for row in rows]
        return pd.DataFrame(
            {
                "kind": [key[0]],
                "reason": [reason],
                "count": [len(rows)],
                "seconds": [(max(times) - min(times)).total_seconds()],
            }
        )


def write_feed(folder: Path, batches: int, rate: int, seconds: int) -> int:
    """Files of so many seconds of event time each; `rate` events a second. How many rows."""
    instances = int(rate * seconds * batches / 12.4)
    trace = generate_trace(
        seed=1, instances=instances, kinds=instances // 4, popularity=0.5, clients=5000,
        spacing_ms=12_400 / rate,
    )  # fmt: skip
    table = trace.table()
    number = (trace.event_ts - trace.event_ts[0]) // (seconds * 1_000_000)
    folder.mkdir()
    names = [field.split()[0] for field in SCHEMA.split(", ")]
    for batch in range(batches):
        part = table.filter(pa.array(number == batch)).select(names)
        time = part.column("event_ts").cast(pa.timestamp("us", "UTC"))
        path = folder / f"{batch:05d}.parquet"
        pq.write_table(part.set_column(0, "event_ts", time), path)
        os.utime(path, (1_700_000_000 + batch,) * 2)
    return len(trace)


class Bench:
    """One session, and a feed that every variant reads."""

    def __init__(self, folder: Path) -> None:
        from pyspark.sql import SparkSession

        self.folder = folder
        builder = SparkSession.builder.master("local[2]").appName("anabranch benchmarks")
        for name, value in {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.memory": "3g",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        }.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        self.spark = ab.configure(session, workers=2)
        self._runs = 0

    def stream(self, feed: Path) -> Any:
        """One file per micro-batch."""
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(feed))

    def run(self, result: Any, steady: int) -> dict[str, Any]:
        """Rate and seconds of the micro-batches with rows after the first `steady`."""
        self._runs += 1
        query = (
            result.writeStream.format("noop")
            .option("checkpointLocation", str(self.folder / f"check{self._runs}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = [p for p in query.recentProgress if p.numInputRows > 0]
        measured = [
            (p.numInputRows, p.durationMs["triggerExecution"] / 1000) for p in batches[steady:]
        ]
        return {
            "rate": sum(rows for rows, _ in measured) / sum(seconds for _, seconds in measured),
            "seconds": [seconds for _, seconds in measured],
            "rows": [rows for rows, _ in measured],
            "figures": ab.metrics(query),
        }


def cut(feed: Path, folder: Path, files: int) -> Path:
    """The first files of a feed as a feed of its own."""
    folder.mkdir()
    for path in sorted(feed.glob("*.parquet"))[:files]:
        os.link(path, folder / path.name)
    return folder


def variants(bench: Bench, feed: Path, short: Path) -> dict[str, Any]:
    """The queries, by name; the slow one gets the short feed."""

    def assembled(close: Any) -> Any:
        return ab.assemble(
            bench.stream(feed), key=KEY, time="event_ts", keep=["service", "response_ms"],
            response="response_ms", close=close, watermark="1 second",
        )  # fmt: skip

    marked = bench.stream(feed).withWatermark("event_ts", "1 second")
    slow = bench.stream(short).withWatermark("event_ts", "1 second")
    per_key = slow.groupBy(*KEY).transformWithStateInPandas(
        WindowPerKey(),
        outputStructType="kind string, reason string, count long, seconds double",
        outputMode="Append",
        timeMode="EventTime",
    )
    session = marked.groupBy(*KEY, F.session_window("event_ts", "8 seconds")).agg(
        F.count(F.lit(1)), F.collect_list(F.struct("service", "response_ms"))
    )
    return {
        "assemble": assembled(ab.close.count(SIZE, "22 seconds")),
        "assemble learned": assembled(ab.close.learned("22 seconds")),
        "assemble gap": assembled(ab.close.gap("8 seconds")),
        "key per instance": per_key,
        "session_window": session,
        "pass-through": bench.stream(feed),
    }


def main() -> None:
    """Run everything and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small batches; shows that it works")
    parser.add_argument("--seconds", type=int, default=12, help="event time per micro-batch")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    seconds = options.seconds
    steady = -(-TIMEOUT_MS // 1000 // seconds)
    batches, rate = (steady + 2, 500) if options.quick else (steady + 5, 8_000)
    screen, about = Screen(), machine()
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = write_feed(folder / "feed", batches, rate, seconds)
        screen.step(f"{rows} events in {batches} micro-batches")
        bench = Bench(folder)
        short = cut(folder / "feed", folder / "short", steady + 1)
        queries = variants(bench, folder / "feed", short)
        # Any worker process may get any task, and all must have loaded the compiled loops; the JVM
        # is warm for all variants alike.
        warm = cut(short, folder / "warm", 4)
        slight = cut(short, folder / "slight", 1)
        screen.step("warming up")
        for query in variants(bench, warm, slight).values():
            bench.run(query, 0)
        for turn in range(ROUNDS):
            for label, query in queries.items():
                screen.step(f"{label}, round {turn + 1}")
                found.setdefault(label, []).append(bench.run(query, steady))
        bench.spark.stop()

    def against(one: str, other: str) -> float:
        pairs = zip(found[one], found[other], strict=True)
        return float(statistics.median(a["rate"] / b["rate"] for a, b in pairs))

    for label, runs in found.items():
        typical = statistics.median(run["rate"] for run in runs)
        screen.add(Row("Spark", label, typical, "events/s"))
    for label in ("assemble", "assemble learned", "assemble gap"):
        target = 10.0 if label == "assemble" else None
        ratio = against(label, "key per instance")
        screen.add(Row("ratio", f"{label} to a key per instance", ratio, "x", target))
    ratio = against("assemble gap", "session_window")
    screen.add(Row("ratio", "gap: to Spark's session_window", ratio, "x", 1.0))
    ratio = against("assemble", "pass-through")
    screen.add(Row("ratio", "of a bare pass-through", ratio))
    last = found["assemble"][-1]
    screen.add(Row("state", "open windows at the end", last["figures"]["open_windows"]))
    screen.add(Row("state", "bytes at the end", last["figures"]["state_bytes"], "B"))
    typical = statistics.median(last["seconds"])
    screen.add(Row("Spark", "median batch of assemble", typical, "s"))
    screen.table("assemble")
    if not options.quick:
        options.out.mkdir(parents=True, exist_ok=True)
        form = {
            "machine": about,
            "events": rows,
            "event seconds per batch": seconds,
            "rows": [row.to_dict() for row in screen.rows],
            "runs": {
                label: [{n: v for n, v in run.items() if n != "figures"} for run in runs]
                for label, runs in found.items()
            },
        }
        (options.out / f"assemble-{seconds}s.json").write_text(json.dumps(form, indent=1) + "\n")


if __name__ == "__main__":
    main()
