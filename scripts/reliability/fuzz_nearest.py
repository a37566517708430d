"""Random queries and objects of `nearest`, in process, against the twin."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.errors import BadRow, InvalidCall
from anabranch.flow.blocks import Block
from anabranch.flow.hashing import mix
from anabranch.neighbours.call import Nearest, plan_nearest
from anabranch.neighbours.job import NearestJob
from anabranch.neighbours.lists.algorithm import FOREVER
from anabranch.neighbours.packing import ObjectPacking
from anabranch.neighbours.queries import fixed_queries
from anabranch.plans.routing import LivePlans
from anabranch.testing import Workers
from scripts.reliability.odd import Odd
from tests.neighbours import runs
from tests.neighbours.twin import distance

__all__ = ["Case", "check", "draw"]

_FAR = 1 << 61
_TESTS: dict[str, tuple[Any, runs.Meets]] = {
    "same": (ab.same("size"), lambda o, q: o["size"] == q["size"]),
    "differs": (ab.differs("size"), lambda o, q: o["size"] != q["size"]),
    "near": (ab.within("size", 2), lambda o, q: abs(o["size"] - q["size"]) <= 2),
    "most": (ab.within("size", high="most"), lambda o, q: o["size"] <= q["most"]),
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Queries, and objects in micro-batches."""

    metric: str
    dim: int
    single: bool
    queries: list[Row]
    batches: list[list[Row]]
    columns: tuple[str, str, str]  # of id, time and vector
    delay: int
    drop: bool
    workers: int
    method: str
    within: float | None = None
    test: str = ""  # what is asked of the sizes of object and query, in `_TESTS`

    @property
    def by(self) -> Any:
        """The measure."""
        return getattr(ab, self.metric)(self.columns[2], dim=self.dim)

    def meets(self, row: Row, query: Row) -> bool:
        """Whether an object may be a hit of a query."""
        if self.test and not _TESTS[self.test][1](row, query):
            return False
        far = self.within
        return far is None or distance(self.metric, query["v"], row["v"]) <= far

    def is_bad(self, row: Row) -> bool:
        """Whether an object must be rejected."""
        t = row["t"]
        wrong = t is None or not 0 < t <= _FAR or row["id"] is None
        return wrong or self._bad_vector(row["v"])

    def is_bad_query(self, query: Row) -> bool:
        """Whether a query must be."""
        window = [query["span"], query["rows"]]
        if query["id"] is None or not 1 <= (query["k"] or 0) <= 10**6 or None not in window:
            return True
        span, rows = window
        if (span is None) == (rows is None):
            return True
        if span is not None and not 0 < span <= 3_650_000 * 86_400 * 10**6:
            return True
        if rows is not None and not 0 < rows <= 10**15:
            return True
        return self._bad_vector(query["v"])

    def _bad_vector(self, v: Any) -> bool:
        if v is None or len(v) != self.dim or any(x is None or not math.isfinite(x) for x in v):
            return True
        if sum(Fraction(x) ** 2 for x in v) > Fraction(1.7e308):
            return True
        return self.metric == "cosine" and not any(v)


def draw(seed: int) -> Case:
    """The case of a seed."""
    odd = Odd(f"nearest {seed}")
    dim, single = odd.pick([1, 2, 3, 8, 9]), odd.chance(0.5)
    unit, number = odd.pick([1, 1000, 1_000_000]), 0
    batches = []
    for _ in range(1 + odd.below(4)):
        rows = []
        for _ in range(odd.pick([0, 1, 4, 12])):
            number += 1
            t = odd.time(40)
            if t is not None and 0 <= t - runs.START <= 40:
                t += (t - runs.START) * (unit - 1)
            ident = None if odd.chance(0.01) else number
            thing = {"t": t, "id": ident, "v": odd.vector(dim, single, 0.98)}
            rows.append({**thing, "size": odd.below(6)})
        batches.append(rows)
    queries = [_query(odd, n, dim, unit) for n in range(1 + odd.below(4))]
    metric = odd.pick(["euclidean", "manhattan", "cosine"])
    names = odd.names(3)
    case = Case(metric, dim, single, queries, batches, (names[0], names[1], names[2]),
                odd.below(40) * unit, odd.chance(0.8), 1 + odd.below(3),
                odd.pick(["exact"] * 4 + ["relaxed"]))  # fmt: skip
    test = odd.pick(list(_TESTS)) if odd.chance(0.3) else ""
    within = odd.pick([0.0, 0.5, 1.0, 3.0, 1e30]) if odd.chance(0.25) else None
    return replace(case, within=within, test=test)


def _query(odd: Odd, number: int, dim: int, unit: int) -> Row:
    counted = odd.chance(0.3)
    k, span, rows = 1 + odd.below(5), unit * (1 + odd.below(60)), 1 + odd.below(20)
    if odd.chance(0.1):
        k = odd.pick([0, -3, None, 10**7, 2**62, k, k])
        span = odd.pick([0, -5, 2**62, span, span])
        rows = odd.pick([0, -1, 2**60, rows, rows])
    return {
        "id": None if odd.chance(0.02) else number,
        "v": odd.vector(dim, False, 0.99),
        "k": k,
        "span": None if counted else span,
        "rows": rows if counted or odd.chance(0.02) else None,
        "size": odd.below(6),
        "most": odd.below(6),
    }


def check(seed: int) -> str:
    """Run a case; what became of it."""
    case = draw(seed)
    good = [query for query in case.queries if not case.is_bad_query(query)]
    try:
        hits, rejected = _run(case)
    except InvalidCall as error:
        wrong = len(good) < len(case.queries) and (not case.drop or not good)
        assert wrong, f"queries are good, yet: {error}"
        return "refused, with a reason"
    except BadRow as error:
        bad = any(case.is_bad(row) for batch in case.batches for row in batch)
        assert not case.drop and bad, f"no row is bad, yet: {error}"
        return "bad row, named"
    bad = sum(case.is_bad(row) for batch in case.batches for row in batch)
    bad += len(case.queries) - len(good) if any(case.batches) else 0
    assert rejected == bad, f"{rejected} rows rejected, {bad} are bad"
    objects, newest = [], 0
    for batch in case.batches:
        mark = max(0, (newest // 1000 - -(-case.delay // 1000)) * 1000) if newest else 0
        rows = [row for row in batch if not case.is_bad(row)]
        objects += [(row["t"], row["id"], row["v"], row) for row in rows if row["t"] > mark]
        newest = max([newest, *(row["t"] for row in rows)])
    want = runs.expected(objects, good, case.metric, case.meets)
    assert hits == want, f"{len(hits)} hits, {len(want)} wanted: {_differences(hits, want)}"
    return "exact"


def _differences(got: list[Any], want: list[Any]) -> str:
    lost, extra = [w for w in want if w not in got], [g for g in got if g not in want]
    return f"missing {lost[:2]}, not wanted {extra[:2]}"


def _run(case: Case) -> tuple[list[Any], int]:
    ident, time, vector = case.columns
    kind = "array<float>" if case.single else "array<double>"
    things = {ident: "bigint", time: "timestamp", vector: kind}
    asked = {"query_id": "bigint", vector: "array<double>", "k": "bigint", "rows": "bigint"}
    asked["window"] = "interval day to second"
    more: dict[str, Any] = {} if case.within is None else {"within": case.within}
    if case.test:
        things["size"] = asked["size"] = asked["most"] = "bigint"
        more["where"] = _TESTS[case.test][0]
    call, problems = plan_nearest(
        things, asked, by=case.by, id=ident, time=time, watermark=f"{case.delay} us",
        streaming=True, bad_rows="drop" if case.drop else "fail", method=case.method,
        **more,
    )  # fmt: skip
    if call is None:
        raise InvalidCall("nearest", problems)
    fixed = fixed_queries(call, runs.query_table(case.queries, call))[0]
    workers = Workers(NearestJob(call, fixed.encode(**fixed.meta)))
    packing, live = ObjectPacking(call), LivePlans({0: ab.broadcast(case.workers)})
    found: list[Row] = []
    newest = 0
    for batch in [*case.batches, None, None]:
        now = max(0, (newest // 1000 - -(-case.delay // 1000)) * 1000) if newest else 0
        cells: dict[int, bytes] = {}
        if batch:
            packed = packing.pack(_batch(case, batch, call), live)
            cells, newest = packed.cells, max(newest, packed.newest)
        for worker in sorted({*cells, *workers.heads}):
            arrivals = [Block.decode(cells[worker])] if worker in cells else []
            for rows in workers.step(worker, arrivals, FOREVER // 2 if batch is None else now):
                found += rows.to_pylist()
    names = ("query_id", "object_id", "object_t", "entered_t", "distance", "rank")
    return sorted(tuple(row[name] for name in names) for row in found), sum(
        load.rejected for load in workers.loads
    )


def _batch(case: Case, rows: list[Row], call: Nearest) -> pa.RecordBatch:
    ids = pa.array([row["id"] for row in rows], pa.int64())
    element = pa.float32() if case.single else pa.float64()
    columns = {
        "t": pa.array([row["t"] for row in rows], pa.timestamp("us", "UTC")),
        "id": ids,
        "v": pa.array([row["v"] for row in rows], pa.list_(element)),
        "h": mix(ids.fill_null(0).to_numpy()),
        "key": pa.array([0] * len(rows), pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns | runs.compared(call, "objects", rows))
