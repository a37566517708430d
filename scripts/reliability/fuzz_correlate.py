"""Random calls of `correlate` and `dedupe` on random rows, in process, against the twin."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.correlation.suited import has_key, locality_of
from anabranch.errors import BadRow
from anabranch.plans.routing import LivePlans
from anabranch.testing import InProcess
from scripts.reliability.conditions import Clause, Truth, cell, draw_clause
from scripts.reliability.odd import Odd
from tests.correlation import twin

__all__ = ["Case", "compare", "draw", "run_in_process"]

_FAR = 1 << 61
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One call and its micro-batches; a batch query has them too, and nothing is late in it."""

    clause: Clause
    schema: pa.Schema
    batches: tuple[tuple[list[Row], list[Row]], ...]
    window: tuple[int, int]
    how: str
    streaming: bool
    drop: bool
    delay: int
    one: bool
    plans: tuple[Any, ...]
    time: str
    id: str
    keep: tuple[str, ...]
    counted: bool = False

    @property
    def call(self) -> dict[str, Any]:
        """The arguments of the verb."""
        spans = tuple(n if self.counted else f"{n} us" for n in self.window)
        found = {
            "where": self.clause.predicate,
            "window": spans[0] if self.one else spans,
            "time": self.time,
            "id": self.id,
            "keep": list(self.keep),
            "how": self.how,
            "bad_rows": "drop" if self.drop else "fail",
            "plan": self.plans[0],
        }
        return found | ({"watermark": f"{self.delay} us"} if self.streaming else {})

    def is_bad(self, row: Row) -> bool:
        """Whether a row must be rejected."""
        t = row["t"]
        if t is None or row["id"] is None or not -_FAR <= t <= _FAR or (self.streaming and t <= 0):
            return True
        return self.clause.is_bad(row)

    def table(self, rows: list[Row]) -> pa.Table:
        """Rows as the verb reads them."""
        names = {self.time: "t", self.id: "id"}
        columns = {
            field.name: pa.array(
                [row[names.get(field.name, cell(field.name))] for row in rows], field.type
            )
            for field in self.schema
        }
        return pa.table(columns, schema=self.schema)


def draw(seed: int, spark: bool = False) -> Case:
    """The case of a seed; on Spark without what only one process can do."""
    odd = Odd(f"correlate {seed}")
    one = odd.chance(0.25)
    names = odd.names(6)
    clause = draw_clause(odd, names[: odd.pick([1, 1, 1, 2, 2, 3])])
    text_ids = odd.chance(0.3)
    id_type = pa.string() if text_ids else odd.pick([pa.int64(), pa.int32()])
    fields = [(names[3], id_type), (names[4], pa.timestamp("us", "UTC"))]
    fields += [(leaf.column, leaf.type) for leaf in clause.leaves]
    fields += [(names[5], odd.pick([pa.string(), pa.float64(), pa.int64()]))]
    schema = pa.schema(fields)
    unit = odd.pick([1, 1000, 1_000_000])
    streaming = not spark and odd.chance(0.6)
    batches = tuple(_batches(odd, clause, schema.field(names[5]), unit, text_ids, one))
    window = (odd.below(30) * unit, odd.below(30) * unit)
    counted = odd.chance(0.1)
    if counted:
        window = (1 + odd.below(6), 1 + odd.below(6))
    how = odd.pick(["inner"] * 3 + (["dedupe"] if one else ["left", "right", "full", "anti"]))
    case = Case(
        clause, schema, batches, window, "inner" if counted else how, streaming,
        odd.chance(0.7), odd.below(40) * unit, one, _plans(odd, one, counted, clause), names[4],
        names[3], (names[5],) if odd.chance(0.5) else (), counted,
    )  # fmt: skip
    if one:
        window = (window[0], window[0])
    return replace(case, window=window)


def _batches(
    odd: Odd, clause: Clause, kept: pa.Field, unit: int, text_ids: bool, one: bool
) -> list[tuple[list[Row], list[Row]]]:
    number, found = 0, []
    for _ in range(1 + odd.below(4)):
        sides: tuple[list[Row], list[Row]] = ([], [])
        for side in sides[: 1 if one else 2]:
            for _ in range(odd.pick([0, 1, 3, 6, 10])):
                number += 1
                t = odd.time(40)
                if t is not None and 0 <= t - 1_700_000_000_000_000 <= 40:
                    t += (t - 1_700_000_000_000_000) * (unit - 1)
                ident: Any = f"{odd.text()}{number}" if text_ids else number * odd.pick([1, -1])
                row = {"t": t, "id": None if odd.chance(0.01) else ident}
                row |= {cell(leaf.column): leaf.value(odd) for leaf in clause.leaves}
                value: Any = {"string": odd.text, "double": odd.real, "int64": odd.whole}[
                    str(kept.type)
                ]()
                row[cell(kept.name)] = None if odd.chance(0.1) else value
                side.append(row)
        found.append(sides)
    return found


def _plans(odd: Odd, one: bool, counted: bool, clause: Clause) -> tuple[Any, ...]:
    """Plans that follow one another; the first may be left to the verb."""
    choices: list[Any] = [
        lambda: ab.grid(1 + odd.below(3), 1 + odd.below(3)),
        lambda: ab.broadcast(1 + odd.below(4), odd.pick(["left", "right"])),
    ]
    if one:
        choices.append(lambda: ab.triangle(1 + odd.below(4)))
    if has_key(clause.predicate):
        choices.append(lambda: ab.keyed(1 + odd.below(4)))
    if not counted and locality_of(clause.predicate, one) is not None:
        choices.append(lambda: ab.ranges(1 + odd.below(4)))
    if not counted:
        choices.append(lambda: ab.segments(1 + odd.below(4), f"{1 + odd.below(99)} ms"))
    return tuple(odd.pick(choices)() for _ in range(1 + odd.below(3)))


def run_in_process(case: Case) -> tuple[Counter[tuple[Any, Any]], int]:
    """The pairs that came out, and how many rows were rejected; `BadRow` where one stops it."""
    schemas = (case.schema, None if case.one else case.schema)
    # Where plans change, workers may not go by the first one.
    fixed = not case.streaming and len(case.plans) == 1
    run = InProcess(*schemas, streaming=case.streaming, fixed=fixed, **case.call)
    live: dict[int, Any] = {0: run.plan}
    for number, (left, right) in enumerate(case.batches):
        if number and number < len(case.plans):
            live[number] = case.plans[number]
        tables = [case.table(rows) if rows else None for rows in (left, right)]
        routers = (LivePlans(dict(live)),) * 2
        run.step(*tables, live=routers)
    if case.streaming:
        run.step(None, None, live=routers, watermark=_FAR)
        run.step(None, None, live=routers, watermark=_FAR)
    else:
        run.finish()
    rejected = sum(load.rejected for load in run.loads)
    return Counter((p.get("left_id"), p.get("right_id")) for p in run.pairs), rejected


def compare(case: Case, got: Counter[tuple[Any, Any]], rejected: int | None) -> None:
    """Raise `AssertionError` unless the answer is the twin's; `rejected` None was not counted."""
    bad = sum(case.is_bad(row) for batch in case.batches for side in batch for row in side)
    assert rejected is None or rejected == bad, f"{rejected} rows rejected, {bad} are bad"
    good = [
        tuple([row for row in side if not case.is_bad(row)] for side in batch)
        for batch in case.batches
    ]
    marks = twin.watermarks(good, case.delay) if case.streaming else [-(1 << 62)] * len(good)
    left, right, _ = twin.in_time(good, _whole_millis(marks, case))
    must, may = _answer(case, left, right)
    lost, extra = must - got, got - may
    assert not lost, f"{sum(lost.values())} of {sum(must.values())} lost, such as {list(lost)[:2]}"
    assert not extra, f"{sum(extra.values())} that should not be, such as {list(extra)[:2]}"


def _whole_millis(marks: Any, case: Case) -> list[int]:
    """Spark's watermark: the delay is rounded up to whole milliseconds."""
    up = -(-case.delay // 1000) * 1000 - case.delay
    return [max(0, mark - up) if case.streaming and mark else mark for mark in marks]


def _answer(case: Case, left: Any, right: Any) -> tuple[Counter[Any], Counter[Any]]:
    """What must come out, and what may."""
    truths = _truths(case, left, right)
    sure = {pair for pair, truth in truths.items() if truth == {True}}
    possible = {pair for pair, truth in truths.items() if True in truth}
    found = []
    for pairs, others in ((sure, possible), (possible, sure)):
        rows: Counter[Any] = Counter(pairs if case.how not in ("anti", "dedupe") else ())
        if case.how in ("left", "full", "anti"):
            joined = {a for a, _ in others}
            rows.update((row["id"], None) for row in left if row["id"] not in joined)
        if case.how in ("right", "full"):
            joined = {b for _, b in others}
            rows.update((None, row["id"]) for row in right if row["id"] not in joined)
        if case.how == "dedupe":
            joined = {b for _, b in others}
            rows.update((None, row["id"]) for row in left if row["id"] not in joined)
        found.append(rows)
    return found[0], found[1]


def _truths(case: Case, left: Any, right: Any) -> dict[tuple[Any, Any], Truth]:
    truth = case.clause.truth
    if case.one:
        order = sorted(left, key=lambda row: (row["t"], _bytes(row["id"])))
        return {
            (a["id"], b["id"]): truth(a, b)
            for n, a in enumerate(order)
            for m, b in enumerate(order[n + 1 :], n + 1)
            if (m - n <= case.window[0] if case.counted else b["t"] - a["t"] <= case.window[0])
        }
    if case.counted:
        keyed = (
            [{**row, "id": (_bytes(row["id"]), row["id"])} for row in s] for s in (left, right)
        )
        found = twin.pairs_by_rows(*keyed, case.window, truth)
        return {(a[1], b[1]): value for (a, b), value in found.items()}
    return twin.pairs(left, right, case.window, truth)


def _bytes(ident: Any) -> Any:
    return ident.encode() if isinstance(ident, str) else ident


def check(seed: int) -> str:
    """Run a case; what became of it."""
    case = draw(seed)
    try:
        got, rejected = run_in_process(case)
    except BadRow as error:
        bad = any(case.is_bad(row) for batch in case.batches for side in batch for row in side)
        assert not case.drop and bad, f"no row is bad, yet: {error}"
        return "bad row, named"
    if not case.drop:
        assert rejected == 0
    compare(case, got, rejected)
    return "exact"
