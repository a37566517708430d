"""Every verb once over a few rows, so that all that it compiles is compiled.

numba compiles a function for the types it is first called with, so the rows go the way that real
ones go: through intake, packing, kernels and stored state, in the types that Spark hands over.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.assembly import close
from anabranch.assembly.call import plan_assembly
from anabranch.assembly.job import AssembleJob
from anabranch.assembly.packing import EventPacking
from anabranch.correlation.emd.measure import emd
from anabranch.correlation.filters.balls import ball_search, likely_share
from anabranch.correlation.filters.dots import available
from anabranch.correlation.filters.quantised import byte_candidates, work_of
from anabranch.correlation.filters.tiles import Pair
from anabranch.errors import InvalidCall
from anabranch.flow.blocks import Block
from anabranch.flow.hashing import mix, worker_of
from anabranch.flow.kernel import Task
from anabranch.neighbours.call import METHODS, Nearest, plan_nearest
from anabranch.neighbours.job import NearestJob
from anabranch.neighbours.packing import HomePacking, ObjectPacking
from anabranch.neighbours.queries import fixed_queries
from anabranch.neighbours.selective.jobs import HomeJob, OwnerJob
from anabranch.neighbours.selective.routing import selective
from anabranch.placement.call import place
from anabranch.plans.hashed import broadcast, grid
from anabranch.plans.ranges import ranges
from anabranch.plans.routing import LivePlans
from anabranch.plans.segments import segments
from anabranch.predicates import cosine, dot, euclidean, hamming, manhattan, same, within
from anabranch.predicates.sets import jaccard
from anabranch.predicates.texts import edit, jaro_winkler
from anabranch.testing.correlating import InProcess
from anabranch.testing.workers import Workers
from anabranch.video.cutting import Cutter
from anabranch.video.layout import features, phash
from anabranch.video.planes import area, from_rgb
from anabranch.video.signature import distance, signature

__all__ = ["rehearse"]

_START = 1_700_000_000_000_000
_SECOND = 1_000_000
_TIME = pa.timestamp("us", "UTC")
_BINS = 6


def rehearse() -> Iterator[str]:
    """Run all verbs; says after each what it was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, part in _PARTS.items():
            part()
            yield name


def _table(step: int, real: pa.DataType, side: int = 0, rows: int = 24) -> pa.Table:
    """Rows of a second, with a column for every measure."""
    random = np.random.default_rng([step, side])
    ids = np.arange(rows) + 1000 * step
    counts = random.integers(1, 9, (rows, _BINS)).astype(float)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "ts": pa.array(
                _START + step * _SECOND + np.sort(random.integers(0, 10**6, rows)), _TIME
            ),
            "v": pa.array(random.normal(size=(rows, 8)).tolist(), pa.list_(real)),
            "h": pa.array(counts.tolist(), pa.list_(real)),
            "x": pa.array(random.integers(0, 40, rows), pa.int64()),
            "y": pa.array(random.normal(size=rows), pa.float64()),
            "room": pa.array([f"r{n % 3}" for n in ids]),
            "words": pa.array([[f"w{n % 5}", f"w{n % 7}"] for n in ids]),
            "codes": pa.array([[n % 5, n % 7] for n in ids.tolist()], pa.list_(pa.int64())),
        }
    )


def _correlate(real: pa.DataType) -> None:
    first = _table(0, real)
    points = [[n % 3, n // 3] for n in range(_BINS)]
    by_range = ranges(2)
    wheres = [
        cosine("v") >= 0.5,
        cosine("v") <= 0.5,
        dot("v") >= 1,
        dot("v") <= 1,
        euclidean("v") <= 3,
        euclidean("v") >= 3,
        manhattan("v") <= 6,
        manhattan("v") >= 6,
        hamming("x") <= 2,
        hamming("v") <= 7,
        hamming("x") >= 2,
        within("x", 3),
        within("y", 0.5),
        within("x", 3) & within("y", 0.5),
        within("x", 3) & same("room"),
        (hamming("x") <= 2) & (cosine("v") >= 0.2),
        (emd("h") <= 0.6) & within("x", 20),
        (emd("h", ground="circle") <= 0.6) & within("x", 20),
        same("x") & (cosine("v") >= 0.2),
        (euclidean("v") <= 4) & within("x", 10),
        emd("h") <= 0.6,
        emd("h", ground="circle") <= 0.6,
        jaccard("words") >= 0.5,
        jaccard("codes") >= 0.5,
        *([edit("room") <= 1, jaro_winkler("room") >= 0.5] if find_spec("rapidfuzz") else []),
    ]
    calls: list[dict[str, Any]] = [{"where": where} for where in wheres]
    calls += [{"where": wheres[0], "plan": plan} for plan in _PLANS]
    calls += [
        {"where": emd("h", dim=_BINS) <= 0.6, "plan": by_range},
        {"where": emd("h", ground="circle", dim=_BINS) <= 0.6, "plan": by_range},
    ]
    calls += [{"where": where <= 0.6} for where in _solved(points)]
    for call in calls:
        run = InProcess(
            first.schema, first.schema, 2, True, window="3 seconds", watermark="1 second", **call
        )
        for step in range(5):
            run.step(_table(step, real), _table(step, real, side=1))
    run = InProcess(first.schema, first.schema, 1, True, **{**_CHANGING, "plan": None})
    for step in range(2):
        run.step(_table(step, real, rows=300), _table(step, real, side=1, rows=300))
    for kind in ("cosine", "euclidean"):
        _by_bytes(real, kind)
    for how in ("inner", "dedupe"):
        one = InProcess(first.schema, None, 3, True, **{**_CHANGING, "plan": None, "how": how})
        for step in range(5):
            one.step(_table(step, real))
    run = InProcess(first.schema, first.schema, 2, True, **_CHANGING)
    both = LivePlans({0: grid(1, 2), 1: broadcast(2)})
    run.step(first, _table(0, real, side=1), (both, both))


def _by_bytes(real: pa.DataType, kind: str) -> None:
    """What many rows are compared by, and those in clusters once they have been compared often."""
    dtype = np.float32 if real == pa.float32() else np.float64
    blocks = [
        Block.of(np.arange(n), {"s": np.random.default_rng(n).normal(size=(n, 8)).astype(dtype)})
        for n in (20, 200)
    ]
    pair = Pair(blocks[0], blocks[1], (5, 5))
    for by in available()[:1]:
        call = (pair, "s", kind, kind == "cosine", 0.5, by)
        if (work := work_of(*call)) is not None:
            list(byte_candidates(pair, work))
        likely_share(*call)
        if (search := ball_search(*call)) is not None:
            search.share()
            list(search.candidates(pair))


_CHANGING: dict[str, Any] = {
    "where": cosine("v") >= 0.5,
    "plan": grid(1, 2),
    "window": "3 seconds",
    "watermark": "1 second",
}
_PLANS = (grid(2, 2), broadcast(2, weights=[1, 3]), segments(2, "2 seconds"))


def _solved(points: list[list[int]]) -> Iterator[Any]:
    """Measures that need POT, where it is installed."""
    for scores in ("exact", "bound"):
        for filters in ("default", "paper", "head-sj"):
            try:
                yield emd("h", ground=points, scores=scores, filters=filters)
            except InvalidCall:
                return


def _nearest(real: pa.DataType) -> None:
    for measure in (euclidean("v"), manhattan("v"), cosine("v")):
        _search(real, {"by": measure})
    for method in METHODS[1:]:
        error = {"error": 0.1} if method == "probabilistic" else {}
        _search(real, {"by": "v", "method": method, **error}, rows=5)
    _search(real, {"by": "v", "output": "top"})
    _search(real, {"by": "v"}, rows=5)
    with tempfile.TemporaryDirectory() as control:
        _search(real, {"by": "v"}, control=control)


def _search(
    real: pa.DataType, options: dict[str, Any], rows: int | None = None, control: str | None = None
) -> None:
    kind = "array<float>" if real == pa.float32() else "array<double>"
    things = {"id": "bigint", "ts": "timestamp", "v": kind}
    asked = {"query_id": "bigint", "v": "array<double>", "k": "bigint"}
    asked |= {"rows": "bigint"} if rows else {"window": "interval day to second"}
    call, problems = plan_nearest(things, asked, watermark="1 second", streaming=True, **options)
    if call is None:
        raise InvalidCall("nearest", problems)
    fixed = fixed_queries(call, _queries(rows))[0]
    table = fixed.encode(**fixed.meta)
    if control is not None:
        return _routed(call, table, real, control)
    workers = Workers(NearestJob(call, table))
    packing, live = ObjectPacking(call), LivePlans({0: broadcast(2)})
    _feed(workers, [packing.pack(_objects(n, real), live).cells for n in range(8)])


def _routed(call: Nearest, table: bytes, real: pa.DataType, control: str) -> None:
    """Homes, then owners."""
    plan = selective(2)
    homes = Workers(HomeJob(call, table, 2, control))
    owners = Workers(OwnerJob(call, table, control))
    packing = HomePacking(call, plan)
    for step in range(8):
        task = partial(Task, query="q", batch=step, run="r")
        now = _START + (step - 1) * _SECOND
        sent: dict[int, list[Block]] = {0: [], 1: []}
        for home, cell in packing.pack(_objects(step, real), None).cells.items():
            for batch in homes.step(home, [Block.decode(cell)], now, task(home)):
                for row in batch.to_pylist():
                    sent[worker_of(row["worker"])].append(Block.decode(row["block"]))
        for owner, blocks in sent.items():
            owners.step(owner, blocks, now, task(owner))


def _queries(rows: int | None, count: int = 5) -> pa.Table:
    random = np.random.default_rng(1)
    nothing = pa.nulls(count, pa.int64())
    windows = pa.array([(2 + n % 3) * _SECOND for n in range(count)], pa.int64())
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "v": pa.array(random.normal(size=(count, 8)).tolist(), pa.list_(pa.float64())),
            "t": nothing,
            "k": pa.array([1 + n % 3 for n in range(count)], pa.int64()),
            "span": nothing if rows else windows,
            "rows": pa.array([rows] * count, pa.int64()) if rows else nothing,
            "op": pa.nulls(count, pa.string()),
        }
    )


def _objects(step: int, real: pa.DataType) -> pa.RecordBatch:
    table = _table(step, real)
    ids = table["id"].to_numpy()
    columns = {"t": table["ts"].cast(pa.int64()), "id": ids, "v": table["v"], "h": mix(ids)}
    return (
        pa.table({**columns, "key": np.zeros(len(ids), np.int64)}).combine_chunks().to_batches()[0]
    )


def _assemble() -> None:
    schema = {"page": "bigint", "client": "bigint", "ts": "timestamp", "ms": "double"}
    policies = (
        close.count(3, "2 seconds"),
        close.gap("1 second", remember="2 seconds"),
        close.after("2 seconds"),
        close.learned("1 second", risk=0.3, after=2, remember="1 second"),
        close.learned("1 second", after=2, spread=4, max_kinds=2),
    )
    for policy in policies:
        for most in (None, 4):
            call, problems = plan_assembly(
                [schema, schema],
                key=["page", "client"],
                close=policy,
                keep=["ms"],
                response="ms",
                watermark="500 ms",
                max_open=most,
            )
            if call is None:
                raise InvalidCall("assemble", problems)
            packings = [EventPacking(call, stream, 2, True) for stream in (0, 1)]
            cells = [p.pack(_events(n)).cells for n in range(8) for p in packings]
            _feed(Workers(AssembleJob(call, 2, True)), cells)


def _events(step: int, rows: int = 30) -> pa.RecordBatch:
    random = np.random.default_rng(step)
    t = _START + step * _SECOND + random.integers(-(10**6), 10**6, rows)
    page, client = random.integers(0, 3, rows), random.integers(0, 6, rows)
    key = page * 10 + client
    columns = {
        "t": t,
        "end": t + random.integers(0, 10**6, rows),
        "h1": mix(key),
        "h2": key,
        "kind": mix(page),
        "tie": np.arange(rows) + step * rows,
        "k0": page,
        "k1": client,
        "c0": random.random(rows),
    }
    return pa.table(columns).to_batches()[0]


def _feed(workers: Workers, batches: Sequence[Mapping[int, bytes]]) -> None:
    """One step of each worker a batch, then an hour without rows."""
    steps = [*batches, {}]
    for number, cells in enumerate(steps):
        last = number == len(batches)
        now = _START + (3600 if last else number * 8 // len(batches) - 1) * _SECOND
        for worker in sorted({*cells, *workers.heads}):
            workers.step(worker, [Block.decode(cells[worker])] if worker in cells else [], now)


def _place() -> None:
    random = np.random.default_rng(1)
    views = [
        (f"v{n}", f"s{source}", float(random.integers(1, 9)))
        for n in range(30)
        for source in random.choice(12, 2, replace=False)
    ]
    views += [("top", "v0", 1.0), ("top", "v1", 2.0)]
    sources = {f"s{n}": f"d{n % 5}" for n in range(12)}
    for down in (1.0, 0.05):
        place(views, sources, 1.0, down)
        place(views[:-2], {name: name for name in sources}, 1.0, down)
        place(
            views[:-2],
            sources,
            1.0,
            down,
            capacity=dict.fromkeys(("d0", "d1", "d2", "d3", "d4"), 4.0),
        )


def _video() -> None:
    """Features and shots of made-up pictures: no decoder is needed."""
    for bits, kind in ((8, np.uint8), (10, np.uint16)):
        area(np.zeros((36, 64), kind), 8, 8, bits)
    frames = [from_rgb(np.full((72, 128, 3), n % 200, np.uint8)) for n in range(0, 1200, 40)]
    features(frames[0])
    phash(frames[0])
    sigs = [signature(frame) for frame in frames]
    distance(sigs[0], sigs[1])
    matrix = np.frombuffer(b"".join(sigs), np.uint8).reshape(len(sigs), -1)
    cutter = Cutter(_SECOND)
    for begin in (0, 15):
        part = slice(begin, begin + 15)
        times = _START + 40_000 * np.arange(30)[part]
        cutter.take(matrix[part], times, np.zeros(15, np.int64), np.ones(15, bool))


_PARTS: dict[str, Any] = {
    "correlate, float": partial(_correlate, pa.float32()),
    "correlate, double": partial(_correlate, pa.float64()),
    "nearest, float": partial(_nearest, pa.float32()),
    "nearest, double": partial(_nearest, pa.float64()),
    "assemble": _assemble,
    "place": _place,
    "video": _video,
}
