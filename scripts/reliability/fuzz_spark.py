"""The same random calls on Spark, over tables: names, types and values as Spark has them."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from itertools import islice
from typing import Any

import pyarrow as pa

import anabranch as ab
from scripts.reliability import fuzz_correlate, fuzz_nearest
from scripts.reliability.odd import Odd
from tests.assembly.twin import Twin
from tests.neighbours import runs

__all__ = ["check"]

WORKERS = 4
_NAMED = ("BadRow", "InvalidCall", "StateMismatch")


def check(spark: Any, seed: int) -> str:
    """Run a case; what became of it."""
    verb = ("correlate", "correlate", "nearest", "assemble")[seed % 4]
    try:
        return _VERBS[verb](spark, seed)
    except AssertionError:
        raise
    except Exception as error:
        # On Spark an error of a worker comes as text.
        assert any(name in f"{type(error).__name__} {error}" for name in _NAMED), error
        return f"{verb}: refused, with a reason"


def _correlate(spark: Any, seed: int) -> str:
    case = fuzz_correlate.draw(seed, spark=True)
    sides = [[row for batch in case.batches for row in batch[side]] for side in (0, 1)]
    tables = [spark.createDataFrame(case.table(rows)) for rows in sides]
    call = case.call
    if case.plans[0].workers > WORKERS:
        call["plan"] = None
    try:
        if case.how == "dedupe":
            del call["how"], call["keep"]
            found = ab.dedupe(tables[0], **call).toArrow()
            got = Counter((None, one) for one in found[case.id].to_pylist())
        else:
            found = ab.correlate(*tables[: 1 if case.one else 2], **call).toArrow()
            left = found.column(0).to_pylist()
            right = [None] * len(left) if case.how == "anti" else found.column(1).to_pylist()
            got = Counter(zip(left, right, strict=True))
    except Exception as error:
        bad = any(case.is_bad(row) for rows in sides for row in rows)
        assert not case.drop and bad and "BadRow" in str(error), error
        return "correlate: bad row, named"
    fuzz_correlate.compare(case, got, None)
    return "correlate: exact"


def _nearest(spark: Any, seed: int) -> str:
    case = fuzz_nearest.draw(seed)
    ident, time, vector = case.columns
    objects = [row for batch in case.batches for row in batch]
    element = pa.float32() if case.single else pa.float64()
    things = pa.table({
        ident: pa.array([row["id"] for row in objects], pa.int64()),
        time: pa.array([row["t"] for row in objects], pa.timestamp("us", "UTC")),
        vector: pa.array([row["v"] for row in objects], pa.list_(element)),
    })  # fmt: skip
    asked = runs.query_table(case.queries).select(["id", "v", "k", "span", "rows"])
    asked = asked.rename_columns(["query_id", vector, "k", "window", "rows"])
    asked = asked.set_column(3, "window", asked["window"].cast(pa.duration("us")))
    good = [query for query in case.queries if not case.is_bad_query(query)]
    bad = [row for row in objects if _bad_in_a_table(case, row)]
    try:
        hits = ab.nearest(
            spark.createDataFrame(things), spark.createDataFrame(asked), by=case.by, id=ident,
            time=time, bad_rows="drop" if case.drop else "fail", method=case.method,
        ).toArrow()  # fmt: skip
    except Exception as error:
        wrong_queries = len(good) < len(case.queries) and (not case.drop or not good)
        text = f"{type(error).__name__} {error}"
        assert (wrong_queries and "InvalidCall" in text) or (
            not case.drop and bad and "BadRow" in text
        ), error
        return "nearest: refused, with a reason"
    for place in (2, 3):
        hits = hits.set_column(place, hits.schema.field(place).name, hits[place].cast(pa.int64()))
    got = sorted(zip(*(hits.column(n).to_pylist() for n in range(6)), strict=True))
    fine = [(row["t"], row["id"], row["v"]) for row in objects if row not in bad]
    want = runs.expected(fine, good, case.metric)
    assert got == want, f"{len(got)} hits, {len(want)} wanted"
    return "nearest: exact"


def _bad_in_a_table(case: fuzz_nearest.Case, row: dict[str, Any]) -> bool:
    """Times before 1970 are no fault there."""
    moved = row["t"] is not None and -(1 << 61) <= row["t"] <= 0
    return case.is_bad({**row, "t": 1} if moved else row)


_KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["", "a", "A", "🦦", "null", "a\x00"]),
    (pa.binary(), [b"", b"\x00", b"\xff", b"a"]),
    (pa.int8(), [-128, 0, 127]),
    (pa.date32(), [dt.date.min, dt.date(1970, 1, 1), dt.date.max]),
    (pa.bool_(), [True, False]),
    (pa.decimal128(20, 3), [Decimal("0.000"), Decimal("-1.500"), Decimal("9999999999999.999")]),
    (pa.list_(pa.string()), [[], [None], ["a", None], [None, "a"], ["a"], ["null"]]),
    (pa.struct({"a": pa.int32(), "b c": pa.string()}),
     [{"a": a, "b c": b} for a in (None, 1) for b in (None, "1")]),
]  # fmt: skip


def _assemble(spark: Any, seed: int) -> str:
    odd = Odd(f"spark assemble {seed}")
    kind, values = odd.pick(_KEYS)
    key, time, kept = odd.names(3)
    closing = odd.pick([ab.close.gap("5 us"), ab.close.count(3, "9 us"), ab.close.after("7 us")])
    rows: list[dict[str, Any]] = [
        {"t": odd.time(60, far=0.02), "key": None if odd.chance(0.03) else odd.below(len(values))}
        for _ in range(odd.pick([0, 1, 10, 60]))
    ]
    table = pa.table({
        key: pa.array([None if r["key"] is None else values[r["key"]] for r in rows], kind),
        time: pa.array([r["t"] for r in rows], pa.timestamp("us", "UTC")),
        kept: pa.array(range(len(rows)), pa.int64()),
    })  # fmt: skip
    result = ab.assemble(spark.createDataFrame(table), key=key, time=time, keep=kept, close=closing)
    found = _instances(result.toArrow(), kept)
    good = [
        {"key": (row["key"],), "kind": 0, "t": row["t"], "end": row["t"], "stream": 0, "tie": n}
        for n, row in enumerate(rows)
        if row["t"] is not None and row["key"] is not None and abs(row["t"]) <= 1 << 61
    ]
    twin = Twin(closing)
    want = twin.step(good, -(1 << 62))
    want += twin.step([], max((event["t"] for event in good), default=0), flush=True)
    # Events of one time have an order of their own on Spark: which comes first is not compared.
    got = Counter((row["reason"], row["count"]) for row in found)
    assert got == Counter((row["reason"], row["count"]) for row in want), f"{got}"
    items = sorted(item for row in found for item in row["items"])
    assert items == sorted(event["tie"] for event in good), "every event comes out once"
    for row in found:
        assert len({rows[item]["key"] for item in row["items"]}) == 1, "keys were mixed"
    return "assemble: exact"


def _instances(found: pa.Table, kept: str) -> list[dict[str, Any]]:
    """Reason, count and kept values of each, without its times, which no datetime may hold."""
    items = found["items"].combine_chunks()
    values = iter(items.flatten().field(kept).to_pylist())
    sizes = items.value_lengths().to_pylist()
    plain = zip(found["reason"].to_pylist(), found["count"].to_pylist(), sizes, strict=True)
    return [{"reason": r, "count": c, "items": list(islice(values, n))} for r, c, n in plain]


_VERBS: dict[str, Callable[[Any, int], str]] = {
    "correlate": _correlate,
    "nearest": _nearest,
    "assemble": _assemble,
}
