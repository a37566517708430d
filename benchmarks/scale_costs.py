"""What a row, a copy, a comparison, a task and a byte cost here: measured for `benchmarks.scale`.

Kernels and packers run in one process and on one core, as inside a Spark task; what Spark adds is
measured with the real query on the two cores of `local[2]`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.assembly.call import plan_assembly
from anabranch.assembly.job import AssembleJob
from anabranch.assembly.packing import EventPacking
from anabranch.correlation.call import plan_correlation
from anabranch.correlation.grouping import Grouping, GroupsJob
from anabranch.correlation.kernel import CorrelateJob
from anabranch.correlation.packing import SidePacking
from anabranch.correlation.pair_packing import PairPacking
from anabranch.flow.blocks import Block
from anabranch.flow.hashing import mix
from anabranch.flow.kernel import Job
from anabranch.neighbours.call import plan_nearest
from anabranch.neighbours.job import NearestJob
from anabranch.neighbours.packing import ObjectPacking
from anabranch.neighbours.queries import fixed_queries
from anabranch.plans.plan import LEFT, RIGHT, Plan
from anabranch.plans.routing import LivePlans
from anabranch.testing import prepare, simple_types
from anabranch.testing.workers import LivingWorkers
from benchmarks.correlate_spark import CORES, Bench, Feed, median
from benchmarks.nearest_routing import Routed

__all__ = ["BINS", "Cost", "Spark", "of_spark", "of_verbs"]

_SECOND = 1_000_000
_START = 1_700_000_000 * _SECOND
_DIM, BINS = 64, 32
_TIME = pa.timestamp("us", "UTC")
_PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes of one verb.

    `row` is what a router needs for a row, `copy` for each copy of it; `receive` what a worker
    needs for a copy that it receives, `compare` for a comparison; `bytes` is a copy's size.
    """

    row: float
    copy: float
    receive: float
    compare: float
    bytes: float


@dataclass(frozen=True)
class Spark:
    """Seconds that Spark adds.

    A micro-batch costs `base`, and `task` for the own work of a task, which all do at once; for
    each task the driver needs `schedule`, and a task for each block that it fetches `block`; a byte
    that goes from input to state costs `byte`.
    """

    base: float
    task: float
    schedule: float
    block: float
    byte: float


def of_verbs(quick: bool) -> dict[str, Cost]:
    """The costs of every verb, on one core."""
    rows = 2000 if quick else 6000
    one, other = _joined(rows, "correlate"), _joined(rows // 4, "emd")
    routed = Routed(400, 9, 8000 if quick else 40_000, 16, 8)
    routed.run(2)
    routed.forget()
    routed.run(1)
    look = routed.seconds["homes"] / max(1, routed.total("looks"))
    nearest = _nearest(rows)
    return {
        "correlate": one,
        "emd": other,
        "nearest": nearest,
        "homes": Cost(nearest.row, nearest.copy, 0.0, look, nearest.bytes),
        "assemble": _assemble(rows),
        "groups": _groups(rows),
    }


# ---------------------------------------------------------------- in one process


def _stepped(job: Job, cells: Sequence[Sequence[bytes]], span: int) -> tuple[float, list[Any]]:
    """Seconds of the later half of a worker's steps, and what it reported of them."""
    workers = LivingWorkers(job)
    half, spent = len(cells) // 2, 0.0
    for number, some in enumerate(cells):
        now = _START + (number - 1) * span
        began = time.process_time()
        workers.step(0, [Block.decode(cell) for cell in some], now)
        spent += time.process_time() - began if number >= half else 0.0
    return spent, workers.loads[half:]


def _routing(
    pack: Callable[[Any], Mapping[int, bytes]], rows: int, plan: Callable[[int], Plan]
) -> tuple[float, float, float]:
    """Seconds for a row, for each of its copies, and a copy's bytes, from 1 and from 64 of them."""
    found = {}
    for copies in (1, 64):
        live, seconds = plan(copies), []
        for _ in range(5):
            began = time.process_time()
            pack(LivePlans({0: live}))
            seconds.append(time.process_time() - began)
        found[copies] = statistics.median(seconds) / rows
    # A cell has a head, which few rows share if there are many cells; so of few cells.
    size = sum(map(len, pack(LivePlans({0: plan(1)})).values())) / rows
    each = max(0.0, (found[64] - found[1]) / 63)
    return max(0.0, found[1] - each), each, size


def _joined(rows: int, verb: str) -> Cost:
    """`correlate` by 64-dimensional cosines, or by the distance of histograms."""
    schema = pa.schema({"id": pa.int64(), "ts": _TIME, "v": pa.list_(pa.float32())})
    where = ab.cosine("v") >= 0.6 if verb == "correlate" else ab.emd("v", dim=BINS) <= 0.3
    types, spent, compared = simple_types(schema), {}, 0
    tables = [[_vectors(schema, n, rows, verb) for n in range(10)] for _ in (LEFT, RIGHT)]
    # In so short a window next to nothing is compared: what is left is what copies cost.
    for window in ("1 us", "3 s"):
        call, problems = plan_correlation(types, types, where=where, window=window, watermark="0 s")
        assert call is not None, problems
        packings = [SidePacking(call, side, True) for side in (LEFT, RIGHT)]
        batches = [[prepare(call.sides[side], t) for t in tables[side]] for side in (LEFT, RIGHT)]
        alone = LivePlans({0: ab.grid(1, 1)})
        cells = [
            [packings[side].pack(batches[side][n], alone).cells[0] for side in (LEFT, RIGHT)]
            for n in range(10)
        ]
        spent[window], loads = _stepped(CorrelateJob(call), cells, _SECOND)
        compared = sum(load.comparisons for load in loads)
    row, copy, size = _routing(
        lambda live: packings[LEFT].pack(batches[LEFT][0], live).cells,
        rows,
        lambda n: ab.grid(1, n),
    )
    receive = spent["1 us"] / (5 * 2 * rows)
    return Cost(row, copy, receive, (spent["3 s"] - spent["1 us"]) / compared, size)


def _vectors(schema: pa.Schema, number: int, rows: int, verb: str) -> pa.Table:
    random = np.random.default_rng([number, rows])
    if verb == "correlate":
        values = random.standard_normal((rows, _DIM), dtype=np.float32)
    else:
        centre = random.normal(BINS / 2, BINS / 6, rows)[:, None]
        bins = np.exp(-0.5 * ((np.arange(BINS) - centre) / random.uniform(1, 3, (rows, 1))) ** 2)
        values = (bins / bins.sum(axis=1, keepdims=True)).astype(np.float32)
    t = _START + number * _SECOND + np.sort(random.integers(0, _SECOND, rows))
    ids = np.arange(rows) + number * rows
    return pa.table([ids, pa.array(t, _TIME), pa.array(values.tolist())], schema=schema)


def _nearest(rows: int) -> Cost:
    """Objects against queries; a comparison is of one object with one query."""
    kinds = {"query_id": "bigint", "v": "array<double>", "k": "bigint"}
    call, problems = plan_nearest(
        {"id": "bigint", "ts": "timestamp", "v": "array<float>"},
        {**kinds, "window": "interval day to second"},
        by="v",
        watermark="0 seconds",
        streaming=True,
    )
    assert call is not None, problems
    random = np.random.default_rng(3)
    packing, spent = ObjectPacking(call), {}
    batches = [_objects(n, rows // 4) for n in range(8)]
    for count in (250, 1000):
        points = random.standard_normal((count, _DIM)).tolist()
        nothing = pa.nulls(count, pa.int64())
        asked = {"id": range(count), "v": points, "t": nothing, "k": [10] * count}
        asked |= {
            "span": [3 * _SECOND] * count,
            "rows": nothing,
            "op": pa.nulls(count, pa.string()),
        }
        fixed = fixed_queries(call, pa.table(asked))[0]
        job = NearestJob(call, fixed.encode(**fixed.meta))
        alone = LivePlans({0: ab.broadcast(1)})
        cells = [[packing.pack(batch, alone).cells[0]] for batch in batches]
        spent[count] = _stepped(job, cells, _SECOND)[0] / (4 * (rows // 4))
    each = max(1e-12, (spent[1000] - spent[250]) / 750)
    row, copy, size = _routing(
        lambda live: packing.pack(batches[0], live).cells, rows // 4, ab.broadcast
    )
    return Cost(row, copy, max(0.0, spent[250] - 250 * each), each, size)


def _objects(number: int, rows: int) -> pa.RecordBatch:
    random = np.random.default_rng(number)
    ids = np.arange(rows) + number * rows
    t = _START + number * _SECOND + np.sort(random.integers(0, _SECOND, rows))
    points = random.standard_normal((rows, _DIM), dtype=np.float32).tolist()
    columns = {"t": t, "id": ids, "v": pa.array(points, pa.list_(pa.float32())), "h": mix(ids)}
    columns["key"] = np.zeros(rows, np.int64)
    return pa.table(columns).combine_chunks().to_batches()[0]


def _assemble(rows: int) -> Cost:
    """Events of traces of ten, which close when they are full."""
    schema = {"page": "bigint", "client": "bigint", "ts": "timestamp", "ms": "double"}
    call, problems = plan_assembly(
        [schema],
        key=["page", "client"],
        close=ab.close.count(10, "5 seconds"),
        keep=["ms"],
        watermark="500 ms",
    )
    assert call is not None, problems
    packing = EventPacking(call, 0, 1, True)
    seconds, cells = 0.0, []
    for number in range(10):
        random = np.random.default_rng(number)
        t = _START + number * _SECOND + random.integers(0, _SECOND, rows)
        page, client = random.integers(0, 20, rows), random.integers(0, rows // 100, rows)
        key = page * rows + client
        columns: dict[str, Any] = {"t": t, "end": pa.nulls(rows, pa.int64()), "h1": mix(key)}
        columns |= {"h2": key, "kind": mix(page), "tie": np.arange(rows) + number * rows}
        columns |= {"k0": page, "k1": client, "c0": random.random(rows)}
        batch = pa.table(columns).combine_chunks().to_batches()[0]
        began = time.process_time()
        cells.append([packing.pack(batch).cells[0]])
        seconds += time.process_time() - began
    spent, _ = _stepped(AssembleJob(call, 1, True), cells, _SECOND)
    size = len(cells[0][0]) / rows
    return Cost(seconds / (10 * rows), 0.0, spent / (5 * rows), 0.0, size)


def _groups(rows: int) -> Cost:
    """Pairs that connect rows in small groups, all at one worker."""
    packing, seconds, cells = PairPacking(), 0.0, []
    for number in range(10):
        random = np.random.default_rng(number)
        t = _START + number * _SECOND + np.sort(random.integers(0, _SECOND, rows))
        left = random.integers(0, rows, rows) + number * rows
        batch = pa.table({"t": t, "left": left, "right": left + 1}).to_batches()[0]
        began = time.process_time()
        cells.append([packing.pack(batch, None).cells[0]])
        seconds += time.process_time() - began
    spent, _ = _stepped(GroupsJob(Grouping(_SECOND // 2, True)), cells, _SECOND)
    return Cost(seconds / (10 * rows), 0.0, spent / (5 * rows), 0.0, len(cells[0][0]) / rows)


# ---------------------------------------------------------------- on Spark


def of_spark(bench: Bench, cost: Cost) -> tuple[Spark, dict[str, float]]:
    """What Spark adds, and how well the sum foretells a batch that none of it was measured on."""
    files = 8 if bench.quick else 12
    size = 4000 if bench.quick else 12_000
    drops = Feed.write(bench.room("drops"), files, 10)
    many = Feed.write(bench.room("many"), 6, size)
    queries = {
        CORES: bench.correlated(drops, 6),
        8: bench.correlated(drops, 6),
        # So short a window that next to nothing is compared.
        "moved": bench.correlated(many, 0.001),
        "full": bench.correlated(many, 3),
    }
    found: dict[Any, list[Any]] = {name: [] for name in queries}
    for _ in range(1 if bench.quick else 2):  # in turns, for a slow spell hits all alike
        for name, frame in queries.items():
            bench.spark.conf.set(_PARTITIONS, str(name if isinstance(name, int) else CORES))
            found[name] += bench.drain(frame)[4:]
    bench.spark.conf.set(_PARTITIONS, str(CORES))
    # What others do on the machine only makes batches longer, so the shortest is nearest the truth.
    least = {name: min(batch.trigger for batch in batches) for name, batches in found.items()}
    schedule, block = _jobs(bench.spark)
    # Eight partitions on two cores are four turns of tasks, two partitions are one.
    more = least[8] - least[CORES] - (8 - CORES) * 2 * schedule
    task = max(0.0, more / (8 / CORES - 1))
    base = max(0.0, least[CORES] - task - 2 * CORES * schedule)
    # On two workers one side is split and the other is sent to both: three copies of two rows.
    work = size * 2 / CORES * cost.row + 3 * size / CORES * (cost.copy + cost.receive)
    byte = max(0.0, least["moved"] - least[CORES] - work) / (3 * size / CORES * cost.bytes)
    pairs = median(batch.comparisons for batch in found["full"])
    foretold = least["moved"] + pairs / CORES * cost.compare
    check = {"foretold": foretold, "measured": least["full"], "pairs": pairs}
    return Spark(base, task, schedule, block, byte), check


def _jobs(spark: Any, tasks: int = 200) -> tuple[float, float]:
    """Seconds to schedule and run a task that does nothing, and to fetch a block of a few rows."""

    def seconds(frame: Any) -> float:
        found = []
        for _ in range(4):
            began = time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            found.append(time.perf_counter() - began)
        return min(found)

    few = spark.range(0, tasks, 1, 1)
    empty = spark.range(0, tasks, 1, tasks)
    schedule = max(0.0, seconds(empty) - seconds(few)) / (tasks - 1)
    wide = seconds(spark.range(0, tasks * tasks, 1, tasks).repartition(tasks, "id"))
    # Tasks share the cores here: a block takes its task so many times as long.
    return schedule, CORES * max(0.0, wide - 2 * tasks * schedule) / tasks**2
