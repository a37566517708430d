"""How fast is `nearest`? The paper's workload on one core, its rivals, many queries, and Spark.

    python -m benchmarks.nearest [--only SECTION] [--out FOLDER]

Sections: kernel, rivals, growth, wide, where and moving on one core without Spark, in seconds of
the processor; routing, what plans shuffle, and misses, what the probabilistic method leaves out, in
one process; operators, within and spark on two cores, in seconds of the clock. Objects are uniform
in four dimensions, and windows hold 40,000 of them; wide says its own. Writes ``nearest.json``, or
with ``--only`` that section of it.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.neighbours.methods import Algorithm, ListWithRepair, Queries, Relaxed
from benchmarks.measuring import Row, Screen, in_turns, machine, rate, ratio
from benchmarks.nearest_misses import misses
from benchmarks.nearest_routing import routing, second_operator
from benchmarks.nearest_where import moving, where, within
from benchmarks.nearest_wide import wide

WINDOW = 40_000
QUERIES = 400
DIM = 4
BATCH = 10_000
TARGETS = {1: 3e6, 9: 3e6, 81: 2.5e6}


class Stream:
    """An endless uniform stream that goes round one array, and an algorithm fed from it."""

    def __init__(self, make: Callable[[Queries], Algorithm], queries: int, k: int) -> None:
        random = np.random.default_rng(7)
        self.points = random.random((WINDOW * 5, DIM))
        self.queries = Queries.of(random.random((queries, DIM)), k, WINDOW, counted=True)
        self.algorithm = make(self.queries)
        self.at = 0
        self.reports = 0

    def feed(self, objects: int, batch: int) -> None:
        """Take in so many objects, batch by batch."""
        for _ in range(0, objects, batch):
            begin = self.at % (len(self.points) - batch)
            seq = np.arange(self.at, self.at + batch)
            points = self.points[begin : begin + batch]
            found = self.algorithm.advance(seq, seq, points, int(seq[-1]))
            self.reports += len(found)
            self.at += batch


def kernel(screen: Screen) -> dict[str, Any]:
    """400 queries: the list with repair, by grid and by scan, and the relaxed skyband."""
    details: dict[str, Any] = {}
    for k, target in TARGETS.items():
        screen.step(f"kernel, k = {k}")
        runs = {
            "grid": Stream(ListWithRepair, QUERIES, k),
            "scan": Stream(lambda queries: ListWithRepair(queries, index="scan"), QUERIES, k),
            "relaxed": Stream(Relaxed, QUERIES, k),
        }
        sizes = {"grid": 200_000, "scan": 50_000, "relaxed": 10_000}
        for name, run in runs.items():
            run.feed(WINDOW, BATCH if name != "relaxed" else 5_000)
        seconds = in_turns(
            {
                name: functools.partial(run.feed, sizes[name], min(BATCH, sizes[name]))
                for name, run in runs.items()
            },
            rounds=5,
        )
        per_object = {name: [s / sizes[name] for s in values] for name, values in seconds.items()}
        best = rate(sizes["grid"], seconds["grid"])
        screen.add(Row("kernel", f"grid, k = {k}", best, "objects/s", target))
        screen.add(
            Row("kernel", f"scan, k = {k}", rate(sizes["scan"], seconds["scan"]), "objects/s")
        )
        screen.add(
            Row(
                "kernel",
                f"grid over the relaxed skyband, k = {k}",
                ratio(per_object["relaxed"], per_object["grid"]),
                "times",
                20,
                note=f"relaxed: {rate(sizes['relaxed'], seconds['relaxed']):.3g} objects/s",
            )
        )
        grid = runs["grid"]
        details[str(k)] = {
            "seconds": seconds,
            "reports_per_object": grid.reports / grid.at,
            "repairs": grid.algorithm.repairs,  # type: ignore[attr-defined]
            "objects": grid.at,
        }
    return details


def rivals(screen: Screen) -> dict[str, Any]:
    """Searching the whole window again for every batch, by a k-d tree or a flat index.

    Such a search sees the top-k only as it is at the end of each batch; `nearest` sees every
    instant. The smaller the batch, the nearer the search comes to the same answer, which only a
    search after each object gives.
    """
    faiss = _faiss()
    details: dict[str, Any] = {}
    for k in TARGETS:
        for batch in (100, 1_000, 10_000):
            screen.step(f"rivals, k = {k}, batches of {batch}")
            run = Stream(ListWithRepair, QUERIES, k)
            run.feed(2 * WINDOW, BATCH)
            batches = max(20, 200_000 // batch)
            window = run.points[:WINDOW]
            centres = run.queries.points
            variants: dict[str, Callable[[], object]] = {
                "nearest": functools.partial(run.feed, batches * batch, batch),
                "k-d tree": functools.partial(_tree, window, centres, k),
            }
            if faiss is not None:
                variants["flat"] = functools.partial(_flat, faiss, window, centres, k)
            seconds = in_turns(variants, rounds=5)
            ours = [s / batches for s in seconds["nearest"]]
            others = [name for name in variants if name != "nearest"]
            for name in others:
                screen.add(
                    Row(
                        "rivals",
                        f"nearest over {name}, k = {k}, batches of {batch:,}",
                        ratio(seconds[name], ours),
                        "times",
                        # Smaller batches come nearer to the same answer.
                        50 if batch <= 1_000 else None,
                        note=f"{name}: {rate(batch, seconds[name]):.3g} objects/s",
                    )
                )
                if batch == BATCH:
                    each = [s / batch for s in ours]
                    what = f"nearest over {name} after each object, k = {k}"
                    screen.add(Row("rivals", what, ratio(seconds[name], each), "times", 50))
            details[f"{k}/{batch}"] = {"batches": batches, "seconds": seconds}
    return details


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        return None
    faiss.omp_set_num_threads(1)
    return faiss


def _tree(window: np.ndarray, centres: np.ndarray, k: int) -> Any:
    from scipy.spatial import cKDTree

    return cKDTree(window).query(centres, k)


def _flat(faiss: Any, window: np.ndarray, centres: np.ndarray, k: int) -> Any:
    index = faiss.IndexFlatL2(DIM)
    index.add(window.astype(np.float32))
    return index.search(centres.astype(np.float32), k)


def growth(screen: Screen) -> dict[str, Any]:
    """More and more queries, k = 9."""
    details = {}
    for queries, objects in ((400, 200_000), (1_000, 200_000), (10_000, 60_000), (100_000, 10_000)):
        screen.step(f"growth, {queries:,} queries")
        run = Stream(ListWithRepair, queries, 9)
        run.feed(WINDOW, BATCH)
        before = run.reports, run.at
        seconds = in_turns({"run": functools.partial(run.feed, objects, min(objects, BATCH))}, 3)
        reported = (run.reports - before[0]) / (run.at - before[1])
        found = rate(objects, seconds["run"])
        note = f"{reported:.3g} reports per object"
        screen.add(Row("growth", f"{queries:,} queries", found, "objects/s", note=note))
        details[str(queries)] = {"seconds": seconds["run"], "reports_per_object": reported}
    return details


def on_spark(screen: Screen, files: int = 9, rows: int = 300_000) -> dict[str, Any]:
    """End to end: Parquet files in, hits out, 400 queries, k = 9, windows of 40,000 objects."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession

    import anabranch as ab

    random = np.random.default_rng(8)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    ab.configure(spark, workers=2)
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        place = Path(folder)
        (place / "in").mkdir()
        for number in range(files):
            ids = np.arange(number * rows, (number + 1) * rows)
            flat = random.random(rows * DIM).astype(np.float32)
            table = pa.table(
                {
                    "id": ids,
                    # 300,000 objects a second: a window of 40,000 is 133.333 ms.
                    "ts": pa.array(
                        1_700_000_000_000_000 + ids * 10 // 3, pa.timestamp("us", "UTC")
                    ),
                    "v": pa.ListArray.from_arrays(np.arange(0, rows * DIM + 1, DIM), flat),
                }
            )
            path = place / "in" / f"{number:05d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + number,) * 2)
        asked = [(n, random.random(DIM).tolist()) for n in range(QUERIES)]
        queries = spark.createDataFrame(asked, "query_id long, v array<double>")
        objects = (
            spark.readStream.schema("id long, ts timestamp, v array<float>")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(place / "in"))
        )
        details: dict[str, Any] = {}
        for workers in (2, 1):
            hits = ab.nearest(
                objects,
                queries,
                by="v",
                k=9,
                window="133333 microseconds",
                watermark="0 seconds",
                plan=ab.broadcast(workers),
            )
            screen.step(f"spark, {workers} workers")
            began = time.perf_counter()
            query = (
                hits.writeStream.format("noop")
                .option("checkpointLocation", str(place / f"checkpoint{workers}"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            whole = time.perf_counter() - began
            seconds = [
                dict(progress.durationMs)["triggerExecution"] / 1000
                for progress in query.recentProgress
                if progress.numInputRows == rows and progress.batchId >= 3
            ]
            figures = ab.metrics(query)
            details[str(workers)] = {
                "seconds": seconds,
                "whole": whole,
                "total": figures["total"],
                "busy": figures["slowest_worker_seconds"],
            }
            screen.add(
                Row(
                    "spark",
                    f"end to end, 400 queries, {workers} workers",
                    rows / statistics.median(seconds),
                    "objects/s",
                    1e5 if workers == 2 else None,
                    note=f"{files} files of {rows:,}; {files * rows / whole:.3g}/s with start-up",
                )
            )
    spark.stop()
    return details


SECTIONS: dict[str, Callable[[Screen], dict[str, Any]]] = {
    "kernel": kernel,
    "rivals": rivals,
    "growth": growth,
    "wide": wide,
    "where": where,
    "moving": moving,
    "routing": routing,
    "misses": misses,
    "operators": second_operator,
    "within": within,
    "spark": on_spark,
}


def main() -> int:
    """Run the sections asked for; 1 if a target is not met."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    parser = argparse.ArgumentParser(description="Benchmark of anabranch.nearest")
    parser.add_argument("--only", choices=SECTIONS)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    call = parser.parse_args()
    screen = Screen()
    described = machine()
    names = [call.only] if call.only else list(SECTIONS)
    path = call.out / "nearest.json"
    result = json.loads(path.read_text()) if path.exists() else {"benchmark": "nearest"}
    call.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        before = len(screen.rows)
        details = SECTIONS[name](screen)
        rows = [row.to_dict() for row in screen.rows[before:]]
        result[name] = {"machine": described, "rows": rows, "details": details}
        path.write_text(json.dumps(result, indent=1) + "\n")
    screen.table("nearest")
    return 0 if all(row.met is not False for row in screen.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
