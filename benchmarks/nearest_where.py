"""What a condition, a largest distance and queries that move cost `nearest`."""

from __future__ import annotations

import functools
import time
from dataclasses import replace
from typing import Any

import numpy as np

from anabranch.flow.blocks import Block
from anabranch.neighbours.call import plan_nearest
from anabranch.neighbours.job import NearestJob
from anabranch.neighbours.methods import ListWithRepair, Queries
from anabranch.plans.plan import LEFT, RIGHT
from anabranch.testing.workers import LivingWorkers
from benchmarks.measuring import Row, Screen, in_turns, rate, ratio

WINDOW, BATCH, DIM, K = 40_000, 10_000, 4, 9
SECOND = 1_000_000
START = 1_700_000_000 * SECOND
PLANS = {"0": [1, None]}


class Conditioned:
    """400 queries over a uniform stream, of whose objects a share passes for each query."""

    def __init__(self, kind: str, share: float) -> None:
        random = np.random.default_rng(7)
        size, queries = 5 * WINDOW, Queries.of(random.random((400, DIM)), K, WINDOW, counted=True)
        self.points = random.random((size, DIM))
        self.marks = np.empty((size, 0), np.int64)
        if kind == "same":
            parts = round(1 / share)
            self.marks = random.integers(0, parts, (size, 1))
            low = high = random.integers(0, parts, (400, 1))
        elif kind == "within":
            self.marks = random.integers(0, 1_000_000, (size, 1))
            low = random.integers(0, round(1_000_000 * (1 - share)), (400, 1))
            high = low + round(1_000_000 * share)
        if kind:
            no = np.array([False])
            tests: dict[str, Any] = {"low": low, "high": high, "inverted": no, "further": no}
            queries = replace(queries, **tests, parted=kind == "same")
        self.lists = ListWithRepair(queries)
        self.at = 0

    def feed(self, objects: int) -> None:
        """Take in so many objects, batch by batch."""
        for _ in range(0, objects, BATCH):
            begin = self.at % (len(self.points) - BATCH)
            seq, part = np.arange(self.at, self.at + BATCH), slice(begin, begin + BATCH)
            self.lists.advance(seq, seq, self.points[part], int(seq[-1]), self.marks[part])
            self.at += BATCH


def where(screen: Screen) -> dict[str, Any]:
    """400 queries, k = 9, with a condition that a tenth or a hundredth of the objects passes."""
    kinds = [("", 1.0), *((kind, share) for kind in ("same", "within") for share in (0.1, 0.01))]
    screen.step("where")
    runs = {f"{kind} {share}": Conditioned(kind, share) for kind, share in kinds}
    for run in runs.values():
        run.feed(2 * WINDOW)
    objects = 100_000
    variants = {name: functools.partial(run.feed, objects) for name, run in runs.items()}
    seconds = in_turns(variants, rounds=5)
    alone = seconds[" 1.0"]
    screen.add(Row("where", "without a condition", rate(objects, alone), "objects/s"))
    for kind, share in kinds[1:]:
        mine = seconds[f"{kind} {share}"]
        note = f"{rate(objects, mine):.3g} objects/s"
        what = f"{kind}, {share:.0%} of the objects pass: cost over none"
        screen.add(Row("where", what, ratio(mine, alone), "times", note=note))
    return {"seconds": seconds, "objects": objects}


class Moving:
    """10,000 queries that are added, and then move, or leave to others, in each micro-batch."""

    def __init__(self, kind: str, queries: int = 10_000, changed: int = 1_000) -> None:
        types = {"v": "array<double>", "ts": "timestamp"}
        asked = {"query_id": "bigint", "op": "string", **types}
        options: dict[str, Any] = {"by": "v", "k": K, "window": "1 second", "watermark": "0 s"}
        call, problems = plan_nearest({"id": "bigint", **types}, asked, **options)
        assert call is not None, problems
        self.kind, self.changed = kind, changed
        self.random = np.random.default_rng(7)
        self.workers = LivingWorkers(NearestJob(call, None))
        self.at, self.next, self.batch = 0, queries, WINDOW // 10
        self.oldest = 0
        self._step([self._ops(np.arange(queries), False)])

    def _ops(self, ids: np.ndarray, cancel: bool) -> Block:
        n, t = len(ids), START + self.at * SECOND // WINDOW
        columns = {
            "id": ids,
            "v": self.random.random((n, DIM)),
            "k": np.full(n, K),
            "window": np.full(n, SECOND),
            "counted": np.zeros(n, bool),
            "cancel": np.full(n, cancel),
        }
        cell = Block.of(np.full(n, t), columns).encode(side=LEFT, nearest=PLANS)
        return Block.decode(cell)

    def _step(self, ops: list[Block]) -> None:
        seq = np.arange(self.at, self.at + self.batch)
        t, points = START + seq * SECOND // WINDOW, self.random.random((self.batch, DIM))
        cell = Block.of(t, {"id": seq, "v": points}).encode(side=RIGHT, nearest=PLANS)
        self.at += self.batch
        self.workers.step(0, [Block.decode(cell), *ops], int(t[0]) - 1)

    def feed(self, batches: int) -> None:
        """Go on for so many micro-batches."""
        for _ in range(batches):
            ops = []
            if self.kind == "move":
                first = self.oldest % self.next
                ops = [self._ops(np.arange(first, first + self.changed), False)]
            elif self.kind == "fresh":
                gone, new = np.arange(self.changed) + self.oldest, np.arange(self.changed)
                ops = [self._ops(gone, True), self._ops(new + self.next, False)]
                self.next += self.changed
            self.oldest += self.changed
            self._step(ops)


def moving(screen: Screen) -> dict[str, Any]:
    """10,000 queries, of which 1,000 move in each micro-batch of 4,000 objects."""
    screen.step("moving")
    runs = {kind: Moving(kind) for kind in ("still", "move", "fresh")}
    for run in runs.values():
        run.feed(12)
    batches = 5
    variants = {kind: functools.partial(run.feed, batches) for kind, run in runs.items()}
    seconds = in_turns(variants, rounds=5)
    names = {"still": "none moves", "move": "1,000 move", "fresh": "1,000 end, 1,000 others begin"}
    hits = {}
    for kind, what in names.items():
        loads = runs[kind].workers.loads[-batches:]
        hits[kind] = sum(load.pairs for load in loads) / batches
        each = min(seconds[kind]) / batches
        note = f"{hits[kind]:,.0f} hits a micro-batch, {each / hits[kind] * 1e6:.3g} us a hit"
        if kind != "still":
            note += f"; {min(seconds[kind]) / min(seconds['still']):.3g} times none"
        screen.add(Row("moving", f"of 10,000 {what}: a micro-batch", 1000 * each, "ms", note=note))
    return {"seconds": seconds, "batches": batches, "hits": hits}


def within(screen: Screen, size: int = 20_000, asked: int = 200) -> dict[str, Any]:
    """Tables on Spark, two cores: the nearest alone, and of them those within a distance."""
    from pyspark.sql import functions as F

    import anabranch as ab
    from benchmarks.rivals_tables import session

    screen.step("within")
    spark = session()
    random = np.random.default_rng(8)
    try:
        objects, queries = (
            spark.createDataFrame(list(enumerate(random.random((n, DIM)).tolist())), of).cache()
            for n, of in (
                (size, "id long, v array<double>"),
                (asked, "query_id long, v array<double>"),
            )
        )
        objects = objects.withColumn("ts", F.timestamp_seconds(1_700_000_000 + F.col("id") % 60))
        call: dict[str, Any] = {"by": "v", "k": K, "window": "1 day"}
        every = sorted(row.distance for row in ab.nearest(objects, queries, **call).collect())
        limit, found = every[len(every) // 2], dict[str, int]()

        def run(name: str, **more: Any) -> None:
            found[name] = len(ab.nearest(objects, queries, **call, **more).collect())

        variants = {
            "all": functools.partial(run, "all"),
            "within": functools.partial(run, "within", within=limit),
        }
        seconds = in_turns(variants, rounds=3, clock=time.perf_counter)
    finally:
        spark.stop()
    assert found == {"all": len(every), "within": sum(d <= limit for d in every)}
    note = f"{found['within']:,} of {found['all']:,} hits, {size:,} objects, {asked} queries"
    cost = ratio(seconds["within"], seconds["all"])
    screen.add(Row("within", "within= against k alone: cost", cost, "times", note=note))
    return {"seconds": seconds, **found}
