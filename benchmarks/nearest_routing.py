"""What `selective` shuffles: homes and owners in one process, micro-batch by micro-batch."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.flow.blocks import Block
from anabranch.flow.hashing import mix
from anabranch.flow.load import Load
from anabranch.flow.slices import Slices
from anabranch.neighbours.call import plan_nearest
from anabranch.neighbours.notes import NearestNotes
from anabranch.neighbours.selective.homes import HomeKernel, HomeNotes, Owners
from anabranch.neighbours.selective.horizons import Merger
from anabranch.neighbours.selective.owners import OwnerKernel
from anabranch.plans.plan import RIGHT
from benchmarks.measuring import Row, Screen

SECOND = 1_000_000
START = 1_700_000_000 * SECOND


class Routed:
    """A uniform stream under `selective`; a window lasts a second.

    Parameters
    ----------
    queries, k, objects
        How many queries, their k, and how many objects a window holds.
    workers
        How many homes and owners.
    batches
        Micro-batches in a window.
    """

    def __init__(
        self, queries: int, k: int, objects: int, workers: int, batches: int, dim: int = 4
    ) -> None:
        self.random = np.random.default_rng(11)
        self.objects, self.batches, self.dim = objects, batches, dim
        call, problems = plan_nearest(
            {"id": "bigint", "ts": "timestamp", "v": "array<double>"},
            {"query_id": "bigint", "v": "array<double>"},
            by="v",
            k=k,
            window="1 second",
            watermark="0 seconds",
        )
        assert call is not None, problems
        columns: dict[str, Any] = {
            "id": np.arange(queries),
            "v": self.random.random((queries, dim)),
            "k": np.full(queries, k),
            "window": np.full(queries, SECOND),
            "counted": np.zeros(queries, bool),
        }
        table = Block.of(np.full(queries, -(2**62)), columns)
        owners = Owners.of(table, workers, "euclidean")
        stays = (SECOND,)
        self.mergers: dict[int, Merger] = {}
        self.homes = [
            HomeKernel(owners, Slices(stays, HomeNotes()), home, self._believed)
            for home in range(workers)
        ]
        self.owners = [
            OwnerKernel(call, table, Slices(stays, NearestNotes()), owner, publish=self._publish)
            for owner in range(workers)
        ]
        self.loads: list[Load] = []
        self.held: list[int] = []
        self.seconds = {"homes": 0.0, "owners": 0.0}
        self.hits = self.batch = 0

    def run(self, windows: float) -> None:
        """Let so many windows pass."""
        for _ in range(round(windows * self.batches)):
            self._step()

    def forget(self) -> None:
        """Begin to count anew."""
        self.loads, self.held, self.hits = [], [], 0
        self.seconds = {"homes": 0.0, "owners": 0.0}

    def total(self, name: str) -> int:
        """A figure of all homes' steps, added up."""
        return sum(getattr(load, name) for load in self.loads)

    def _step(self) -> None:
        size = self.objects // self.batches
        ids = np.arange(self.batch * size, (self.batch + 1) * size)
        t = START + ids * SECOND // self.objects
        watermark = int(t[0]) - 1  # of the batch before, as Spark has it
        block = Block.of(t, {"id": ids, "v": self.random.random((size, self.dim))})
        at = mix(ids) % len(self.homes)
        cells: dict[int, list[Block]] = {}
        began = time.process_time()
        for home, kernel in enumerate(self.homes):
            mine = block.take(np.flatnonzero(at == home))
            for owner, copies, notes in kernel.copies([mine], watermark):
                notes = {**notes, "side": RIGHT}
                copies = Block(copies.t, copies.epoch, copies.mask, copies.columns, notes)
                cells.setdefault(owner, []).append(copies)
            self.loads.append(kernel.load)
        middle = time.process_time()
        for owner, worker in enumerate(self.owners):
            self.hits += sum(b.num_rows for b in worker.step(cells.get(owner, []), watermark))
            self.held.append(worker.load.state_rows)
        self.seconds["homes"] += middle - began
        self.seconds["owners"] += time.process_time() - middle
        self.batch += 1

    def _believed(self, believes: Callable[[Merger], bool]) -> dict[int, Merger]:
        return {owner: merger for owner, merger in self.mergers.items() if believes(merger)}

    def _publish(self, owner: int, merger: Merger, kept: Sequence[str]) -> list[str]:
        self.mergers[owner] = merger  # owners step after the homes: read from the next batch on
        return []


def routing(screen: Screen) -> dict[str, Any]:
    """Rows shuffled per object under `broadcast` (all objects to all workers) and `selective`."""
    details: dict[str, Any] = {}
    for k in (1, 9, 81):
        for workers in (4, 8, 16):
            screen.step(f"routing, k = {k}, {workers} workers")
            run = Routed(400, k, 40_000, workers, batches=20)
            run.run(2)  # until what was sent before there were mergers has left
            run.forget()
            run.run(3)
            objects = run.total("rows_right")
            once, later = run.total("sent_at_once"), run.total("sent_later")
            rows = 1 + (once + later) / objects
            screen.add(
                Row(
                    "routing",
                    f"selective, k = {k}, {workers} workers",
                    rows,
                    "rows per object",
                    workers,
                    at_most=True,
                    note=f"broadcast: {workers}; hits: {run.hits / objects:.3g} per object",
                )
            )
            details[f"{k}/{workers}"] = {
                "rows_per_object": rows,
                "sent_at_once_per_object": once / objects,
                "sent_later_per_object": later / objects,
                "hits_per_object": run.hits / objects,
                "looks_per_object_and_owner": run.total("looks") / objects / workers,
                "objects_held_by_an_owner": sum(run.held) / len(run.held),
                "home_seconds_per_object": run.seconds["homes"] / objects,
                "owner_seconds_per_object": run.seconds["owners"] / objects,
            }
    return details


def second_operator(screen: Screen, files: int = 14, rows: int = 2_000) -> dict[str, Any]:
    """What a small micro-batch costs on Spark with one stateful operator and with two."""
    import tempfile
    from pathlib import Path

    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession

    import anabranch as ab

    random = np.random.default_rng(8)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    ab.configure(spark, workers=2)
    seconds: dict[str, list[float]] = {"broadcast": [], "selective": []}
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        place = Path(folder)
        (place / "in").mkdir()
        for number in range(files):
            ids = np.arange(number * rows, (number + 1) * rows)
            flat = random.random(rows * 4).astype(np.float32)
            times = pa.array(START + ids * SECOND // rows, pa.timestamp("us", "UTC"))
            points = pa.ListArray.from_arrays(np.arange(0, rows * 4 + 1, 4), flat)
            path = place / "in" / f"{number:05d}.parquet"
            pq.write_table(pa.table({"id": ids, "ts": times, "v": points}), path)
            os.utime(path, (1_700_000_000 + number,) * 2)
        asked = [(n, random.random(4).tolist()) for n in range(400)]
        queries = spark.createDataFrame(asked, "query_id long, v array<double>")
        objects = (
            spark.readStream.schema("id long, ts timestamp, v array<float>")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(place / "in"))
        )
        for turn in range(2):  # the first one warms up
            for name, plan in (("broadcast", ab.broadcast(2)), ("selective", ab.selective(2))):
                screen.step(f"operators, {name}")
                control = str(place / f"control-{name}-{turn}") if name == "selective" else None
                call: dict[str, Any] = {"by": "v", "k": 9, "window": "8 seconds", "plan": plan}
                hits = ab.nearest(objects, queries, watermark="0 seconds", control=control, **call)
                query = (
                    hits.writeStream.format("noop")
                    .option("checkpointLocation", str(place / f"checkpoint-{name}-{turn}"))
                    .trigger(availableNow=True)
                    .start()
                )
                query.awaitTermination()
                taken = [p for p in query.recentProgress if p.numInputRows and p.batchId >= 3]
                seconds[name] = [dict(p.durationMs)["triggerExecution"] / 1000 for p in taken]
    spark.stop()
    ratio = statistics.median(seconds["selective"]) / statistics.median(seconds["broadcast"])
    note = f"{rows:,} objects a micro-batch, two workers"
    what = "a micro-batch under selective over broadcast"
    screen.add(Row("operators", what, ratio, "times", note=note))
    return {"seconds": seconds}
