"""A condition between object and query on Spark: as a stream, across a restart, and as a batch."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import anabranch as ab
from tests.neighbours.runs import expected
from tests.spark.feeds import SECOND, START, Feed, at
from tests.spark.nearest_feed import HOUR, LATE, OBJECT, OP, closing, got, objects_in_batches

MONEY, FINE = pa.decimal128(9, 2), pa.decimal128(38, 30)
OFFER = pa.schema([*OBJECT, ("kind", pa.string()), ("shop", pa.int32()), ("price", MONEY)])
WISH = pa.schema([*OP, ("wanted", pa.string()), ("own", pa.int64()), ("least", FINE)])
WISH = WISH.append(pa.field("most", FINE))
HAIR = Decimal("1e-30")
WHERE = ab.same("kind", "wanted") & ab.differs("shop", "own")
WHERE &= ab.within("price", low="least", high="most")


def money(random: np.random.Generator, cents: int) -> Decimal:
    return Decimal(int(random.integers(0, cents))) / 100


def offers(batches: int, seed: int) -> list[list[dict[str, Any]]]:
    random = np.random.default_rng(seed)
    made = [*objects_in_batches(batches, seed=seed), [closing()]]
    for offer in (offer for batch in made for offer in batch):
        kind = [None, "car", "car", "bus"][int(random.integers(4))]
        offer |= {"kind": kind, "shop": int(random.integers(3)), "price": money(random, 300)}
    return made


def wish(ident: str, seconds: float, random: np.random.Generator) -> dict[str, Any]:
    """An `add` of a query at a place, or one that moves it there."""
    return {
        "query_id": ident, "t": at(seconds), "op": "add", "k": 2, "window": "3 seconds",
        "v": (random.integers(0, 8, 2) * 0.5).tolist(), "own": int(random.integers(3)),
        "wanted": str(random.choice(["car", "bus"])), "least": money(random, 100) - HAIR,
        "most": None if ident == "q3" else money(random, 300) + HAIR,
    }  # fmt: skip


def meets(offer: dict[str, Any], asked: dict[str, Any]) -> bool:
    if offer["kind"] is None or asked["most"] is None:
        return False
    fits = asked["least"] <= offer["price"] <= asked["most"]
    return bool(offer["kind"] == asked["wanted"] and offer["shop"] != asked["own"] and fits)


def wanted(made: list[list[dict[str, Any]]], asked: list[dict[str, Any]]) -> list[tuple]:
    """All hits; a query holds until the next of the same id."""
    things = [(o["t"], o["id"], o["v"], o) for batch in made for o in batch]
    lives = [
        {
            **query,
            "id": query["query_id"],
            "span": 3 * SECOND,
            "until": min(
                (
                    later["t"]
                    for later in asked
                    if later["query_id"] == query["query_id"] and later["t"] > query["t"]
                ),
                default=START + 2 * HOUR,
            ),
        }
        for query in asked
    ]
    return expected(things, lives, meets=meets)


def test_offers_for_wishes_that_move(spark: Any, tmp_path: Path) -> None:
    made, random = offers(4, seed=11), np.random.default_rng(12)
    asked = [wish(f"q{n}", -1, random) for n in range(6)]
    moved = [wish(f"q{n}", 1.5, random) for n in range(3)]
    asked_in = [asked, [], moved, [], []]
    feed = Feed(tmp_path, (WISH, OFFER), idle=True)
    feed.add(list(zip(asked_in[:3], made[:3], strict=True)))
    call: dict[str, Any] = {"by": "v", "where": WHERE, "plan": ab.broadcast(2)}
    for rest in (list(zip(asked_in[3:], made[3:], strict=True)), []):
        wishes, things = feed.streams(spark)
        feed.run(ab.nearest(things, wishes, watermark="3 seconds", **call))
        feed.add(rest)
    found = wanted(made, asked + moved)
    until = START + HOUR - LATE
    assert len(found) > 30 and {hit[0] for hit in found} == {"q0", "q1", "q2", "q4", "q5"}
    assert got(feed.output(spark)) == [hit for hit in found if hit[3] <= until]
    wishes, things = feed.tables(spark)
    assert got(ab.nearest(things, wishes, **call)) == found


@pytest.mark.slow
def test_selective_routing_with_expressions_across_a_restart(spark: Any, tmp_path: Path) -> None:
    made, random = offers(7, seed=13), np.random.default_rng(14)
    asked = [{**wish(f"q{n}", -1, random), "window": "6 seconds"} for n in range(8)]
    rows = [(q["query_id"], q["v"], 2, q["wanted"].upper(), float(q["least"])) for q in asked]
    queries = spark.createDataFrame(
        rows, "query_id string, v array<double>, k int, KIND string, least double"
    )
    where = ab.same(F.upper("kind"), "KIND") & ab.within(
        F.col("price").cast("double"), low="least", high=F.col("least") + 1
    )
    feed = Feed(tmp_path, (WISH, OFFER), idle=True)
    call: dict[str, Any] = {"by": "v", "where": where, "window": "6 seconds"}
    call |= {"watermark": "3 seconds", "plan": ab.selective(2), "control": str(tmp_path / "c")}
    for part in (made[:4], made[4:]):
        feed.add([([], batch) for batch in part])
        feed.run(ab.nearest(feed.streams(spark)[1], queries, **call))
    things = [(o["t"], o["id"], o["v"], o) for batch in made for o in batch]
    lives = [{**q, "id": q["query_id"], "span": 6 * SECOND, "t": None} for q in asked]

    def fits(offer: dict[str, Any], query: dict[str, Any]) -> bool:
        low = float(query["least"])
        return offer["kind"] == query["wanted"] and low <= float(offer["price"]) <= low + 1

    found = expected(things, lives, meets=fits)
    assert got(feed.output(spark)) == [h for h in found if h[3] <= START + HOUR - LATE] != []


OPEN = {
    "double": ("double('-inf')", "double('inf')"),
    "bigint": ("-9223372036854775808L", "9223372036854775807L"),
    "int": ("-9223372036854775808L", "9223372036854775807L"),
    "decimal(4,2)": ("-99.99", "99.99"),
    "date": ("DATE '0001-01-01'", "DATE '9999-12-31'"),
    "timestamp": ("TIMESTAMP '0001-01-01'", "TIMESTAMP '9999-12-31'"),
}


@pytest.mark.slow
def test_bounds_that_are_open_in_some_queries(spark: Any) -> None:
    """By the values of the page."""
    moment = "timestamp_seconds(1700000000)"
    for kind, ends in OPEN.items():
        text = (
            f"CAST({moment} AS {kind})" if kind in ("date", "timestamp") else f"CAST(7 AS {kind})"
        )
        things = spark.sql(f"SELECT 1 AS id, {moment} AS ts, array(1D) AS v, {text} AS x")
        asked = spark.sql(f"SELECT 1 AS query_id, array(1D) AS v, CAST(NULL AS {kind}) AS x")
        low, high = (F.coalesce("x", F.expr(end)) for end in ends)
        where = ab.within("x", low=low, high=high)
        call = {"by": "v", "k": 1, "window": "1 hour"}
        assert ab.nearest(things, asked, where=where, **call).count() == 1, kind
        assert ab.nearest(things, asked, where=ab.within("x", low="x"), **call).count() == 0
