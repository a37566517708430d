"""`nearest` without Spark: workers fed micro-batch by micro-batch, their state kept as bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.calls import DECIMAL
from anabranch.errors import InvalidCall
from anabranch.flow.blocks import Block
from anabranch.flow.conversion import compared_form
from anabranch.flow.hashing import mix
from anabranch.flow.instants import FOREVER
from anabranch.flow.load import Load
from anabranch.neighbours.call import Nearest, plan_nearest
from anabranch.neighbours.job import NearestJob
from anabranch.neighbours.lists.scoring import CHUNK, fill, root
from anabranch.neighbours.queries import fixed_queries, read_queries
from anabranch.plans.plan import LEFT, RIGHT
from anabranch.testing import Workers
from tests.neighbours import twin as knn_twin

COMPARED = {"kind": "string", "owner": "bigint", "price": "double", "size": "bigint"}
COMPARED |= {"cost": "decimal(38,18)"}
OBJECTS = {"id": "bigint", "ts": "timestamp", "v": "array<double>", **COMPARED}
QUERIES = {"query_id": "bigint", "v": "array<double>", "k": "bigint", "rows": "bigint", **COMPARED}
QUERIES |= {"least": "double", "most": "double", "floor": "decimal(38,30)", "roof": "bigint"}
START = 1_700_000_000_000_000
ROOM = 5  # workers of the largest plan that any test has

Thing = tuple[Any, ...]
"""An object: time, id, point and perhaps what a condition compares, by name."""


def call_of(ops: bool = False, **more: Any) -> Nearest:
    """A checked call with the columns of `OBJECTS` and `QUERIES`."""
    columns = {**QUERIES, "window": "interval day to second"}
    columns |= {"op": "string", "ts": "timestamp"} if ops else {"since": "timestamp"}
    found, problems = plan_nearest(OBJECTS, columns, **{"by": "v", **more})
    if found is None:
        raise InvalidCall("nearest", problems)
    return found


def compared(call: Nearest, side: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a condition compares of rows, as Spark sends it."""
    found = {}
    for test in call.where:
        slots = getattr(test, side)
        for slot in test.travelling(slots):
            values = [row.get(slot.column) for row in rows]
            if test.has_codes:
                keys = [[row.get(part.column) for part in slots] for row in rows]
                values = [None if None in key else repr(key) for key in keys]
            kinds = {"text": pa.string(), "float": pa.float64(), "int": pa.int64()}
            if slot.kind == "decimal":
                digits = DECIMAL.fullmatch(slot.type)
                kinds["decimal"] = (
                    pa.decimal128(*map(int, digits.groups())) if digits else pa.int64()
                )
            found[slot.name] = pa.array(values, kinds[slot.kind])
    return found


def object_block(call: Nearest, objects: Sequence[Thing]) -> Block:
    """Objects as they are sent to workers."""
    t, ids, points = zip(*(thing[:3] for thing in objects), strict=True)
    columns = {"id": np.array(ids, np.int64), "v": np.array(points, np.float64)}
    slots = {slot.name: slot for slot in call.objects.slots}
    asked = compared(call, "objects", [dict(*thing[3:]) for thing in objects])
    columns |= {name: compared_form(slots[name], column) for name, column in asked.items()}
    return Block.of(t, columns)


def query_table(queries: Sequence[dict[str, Any]], call: Nearest | None = None) -> pa.Table:
    """Queries, or things that happen to them, as `read_queries` takes them."""
    names = {"id": pa.int64(), "v": pa.list_(pa.float64()), "t": pa.int64(), "k": pa.int64()}
    names |= {"span": pa.int64(), "rows": pa.int64(), "op": pa.string()}
    columns = {name: pa.array([q.get(name) for q in queries], kind) for name, kind in names.items()}
    return pa.table(columns | (compared(call, "queries", queries) if call else {}))


def distances(metric: int, queries: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The distance of every query to every object as kernels have it, a row for each query."""
    out, lanes = np.empty((len(queries), len(points))), np.empty((8, CHUNK))
    columns = np.ascontiguousarray(points.T)
    for query, row in zip(queries, out, strict=True):
        fill(metric, query, points, columns, 0, len(points), row, lanes)
        row[:] = [root(metric, score) for score in row]
    return out


class ShortStays(NearestJob):
    """Objects in many small slices."""

    stays = (50,)


class Run:
    """One query set on some workers; every step goes through stored bytes."""

    def __init__(
        self, call: Nearest, fixed: Sequence[dict[str, Any]] | None, late: int, workers: int
    ) -> None:
        self.fixed = None if fixed is None else fixed_queries(call, query_table(fixed, call))[0]
        self.late = late
        self.plans = {"0": [workers, None]}
        self.rows: list[dict[str, Any]] = []
        self.newest = 0
        self.workers = Workers(ShortStays(call, None))
        self.restart(call)

    def restart(self, call: Nearest) -> None:
        """Go on from what is stored under another call."""
        # So far may objects lag; without it, time would go by the inputs' own watermarks.
        call = self.call = replace(call, delay=self.late)
        table = None if self.fixed is None else self.fixed.encode(**self.fixed.meta)
        self.workers.job = ShortStays(call, table)

    @property
    def loads(self) -> list[Load]:
        """The reports of all steps."""
        return self.workers.loads

    @property
    def watermark(self) -> int:
        """What Spark's would be."""
        if not self.newest:
            return 0
        return max(0, (self.newest // 1000 - -(-self.late // 1000)) * 1000)

    def step(
        self,
        objects: Sequence[Thing],
        ops: Sequence[dict[str, Any]] = (),
    ) -> None:
        """One micro-batch of objects (t, id, point) and of things that happen to queries."""
        watermark = self.watermark
        inbox: dict[int, list[Block]] = {}
        workers = max(plan[0] for plan in self.plans.values())
        if objects:
            block = object_block(self.call, objects)
            about = {"side": RIGHT, "nearest": self.plans, "newest": int(block.t.max())}
            for worker in range(ROOM):
                part = block if worker < workers else block.slice(0, 0)
                inbox.setdefault(worker, []).append(Block.decode(part.encode(**about)))
            self.newest = max(self.newest, int(block.t.max()))
        if ops:
            block = read_queries(self.call, query_table(ops, self.call))[0]
            homes = mix(block.columns["id"]) % workers
            for worker in np.unique(homes):
                part = block.take(np.flatnonzero(homes == worker))
                coded = part.encode(side=LEFT, nearest=self.plans)
                inbox.setdefault(int(worker), []).append(Block.decode(coded))
        for worker in sorted({*self.workers.heads, *inbox}):
            self._work(worker, inbox.get(worker, []), watermark)

    def finish(self) -> None:
        """Let time pass until nothing is left to say."""
        self.newest = max(self.newest, START) + 10**9
        self.step([])

    def _work(self, worker: int, arrivals: list[Block], watermark: int) -> None:
        kernel = self._kernel(worker)
        for batch in kernel.step(arrivals, watermark):
            self.rows += batch.to_pylist()
        self._after(kernel, worker)
        self.workers.store(worker, kernel)

    def _kernel(self, worker: int) -> Any:
        return self.workers.kernel(worker)

    def _after(self, kernel: Any, worker: int) -> None:
        """What a test adds to a step."""

    def hits(self) -> list[tuple[int, int, int, int, float, int]]:
        """What came out, in order: query, object, its time, the instant, distance, rank."""
        names = ("query_id", "object_id", "object_t", "entered_t", "distance", "rank")
        return sorted(tuple(row[name] for name in names) for row in self.rows)

    @property
    def state_rows(self) -> int:
        """Objects stored in all workers after the last step."""
        return self.workers.state_rows


class Timed(Run):
    """Workers that are called as Spark calls them: for rows, or when what is due has come."""

    def _work(self, worker: int, arrivals: list[Block], watermark: int) -> None:
        if arrivals or self.workers.is_due(worker, watermark):
            super()._work(worker, arrivals, watermark)


Meets = Callable[[dict[str, Any], dict[str, Any]], bool]
"""Whether an object, by what it has to compare, may be a neighbour of a query."""


def expected(
    objects: Sequence[Thing],
    queries: Sequence[dict[str, Any]],
    metric: str = "euclidean",
    meets: Meets | None = None,
) -> list[tuple[int, int, int, int, float, int]]:
    """What must come out, by brute force; a query may have `until`."""
    things = sorted(objects, key=lambda thing: (*thing[:2], list(thing[2])))
    stream = [(thing[0], n, list(thing[2])) for n, thing in enumerate(things)]
    found = []
    for query in queries:
        counted = bool(query.get("rows"))
        asked = {
            "point": query["v"],
            "k": query["k"],
            "window": query["rows"] if counted else query["span"],
            "since": -FOREVER if query.get("t") is None else query["t"],
            "until": query.get("until", FOREVER),
        }
        if meets is not None:
            asked["among"] = {n for n, thing in enumerate(things) if meets(thing[3], query)}
        for _, n, entered, distance, rank in knn_twin.reports(stream, [asked], counted, metric):
            t, ident = things[n][:2]
            found.append((query["id"], ident, t, entered, distance, rank))
    return sorted(found)


def top_of(
    objects: Sequence[Thing], query: dict[str, Any], now: int, meets: Meets | None = None
) -> list[int]:
    """The ids of a query's top-k at a time, best first, by brute force."""
    seen = sorted((o for o in objects if o[0] <= now), key=lambda o: o[:3])
    if query.get("rows"):
        seen = seen[-query["rows"] :]
    else:
        seen = [o for o in seen if now < o[0] + query["span"]]
    seen = [o for o in seen if o[0] > query.get("t", -FOREVER)]
    seen = [o for o in seen if meets is None or meets(o[3], query)]
    far = lambda o: (knn_twin.distance("euclidean", o[2], query["v"]), o[0], o[1])  # noqa: E731
    return [o[1] for o in sorted(seen, key=far)[: query["k"]]]


def table(rows: list[Any], ident: int) -> list[int]:
    """What `ab.top` makes of the rows so far."""
    mine = [row for row in rows if row["query_id"] == ident]
    latest = max((row["as_of"] for row in mine), default=0)
    now = [row for row in mine if row["as_of"] == latest]
    # One rank 0 and nothing else, or ranks from 1 on.
    ranks = [row["rank"] for row in now]
    assert sorted(ranks) in ([], [0], list(range(1, len(ranks) + 1)))
    return [row["object_id"] for row in sorted(now, key=lambda row: row["rank"]) if row["rank"]]
