"""Rejected rows on real Spark: whole, once, with what decided; through restarts and kills."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import functions as F

import anabranch as ab
from tests.correlation import twin
from tests.spark import driver as drivers
from tests.spark import modes, nearest_feed
from tests.spark.events import CALL as EVENT
from tests.spark.events import events
from tests.spark.feeds import SECOND, Feed, agree, found, heard, scripted, stragglers
from tests.spark.processes import driver, newest

CALL: dict[str, Any] = {
    "where": ab.cosine("v", dim=2) >= 0.6,
    "window": "2 seconds",
    "plan": ab.broadcast(2, "left"),
    "bad_rows": "drop",
}
ODD = (None, [1.0, 2.0, 3.0], [float("nan"), 1.0])


def reason_of(v: Any) -> str | None:
    """Why a vector cannot be compared with others of two elements."""
    if v is None:
        return "'v' is null"
    if len(v) != 2:
        return f"'v' has {len(v)} elements where 2 are expected"
    return None if np.isfinite(v).all() else "'v' holds null, NaN or infinity"


def spoilt(batches: Sequence[twin.Batch]) -> list[twin.Batch]:
    """The batches, with a bad row of every kind at the end of either side that has rows."""

    def more(rows: Sequence[twin.Row], number: int) -> list[twin.Row]:
        first = 10**6 + 10 * number
        return [{**rows[0], "id": first + n, "v": v} for n, v in enumerate(ODD) if rows]

    return [
        ([*left, *more(left, n)], [*right, *more(right, n)])
        for n, (left, right) in enumerate(batches)
    ]


def twin_rejects(
    batches: Sequence[twin.Batch],
    late: int,
    sides: tuple[str, str] = ("left", "right"),
    reason_of: Callable[[Any], str | None] = reason_of,
) -> Counter[tuple[Any, ...]]:
    """Side, id, reason, micro-batch and watermark of every row that is bad or late."""
    good = [tuple([r for r in rows if not reason_of(r["v"])] for rows in b) for b in batches]
    found: Counter[tuple[Any, ...]] = Counter()
    for number, (batch, mark) in enumerate(zip(batches, twin.watermarks(good, late), strict=True)):
        for side, rows in zip(sides, batch, strict=True):
            for row in rows:
                reason = reason_of(row["v"]) or ("late" if row["t"] <= mark else None)
                if reason:
                    found[side, row["id"], reason, number, mark] += 1
    return found


def rejected(spark: Any, path: Path) -> Counter[tuple[Any, ...]]:
    rows = ab.rejects(spark, path).collect()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return Counter(
        (
            row.side,
            json.loads(row.row)["id"],
            row.reason,
            row.batch,
            round((row.watermark.astimezone(UTC) - epoch).total_seconds() * SECOND),
        )
        for row in rows
    )


@pytest.mark.parametrize("window", ["2 seconds", pytest.param(20, marks=pytest.mark.slow)])
def test_a_stream_keeps_what_it_rejects(spark: Any, tmp_path: Path, window: Any) -> None:
    batches = spoilt(stragglers()[:4])
    feed, path = Feed(tmp_path), tmp_path / "rejects"

    def result() -> Any:
        streams = feed.streams(spark)
        call = {**CALL, "window": window}
        return ab.correlate(*streams, **call, watermark="1 second", rejects=str(path))

    feed.add(batches[:2])
    first = result()
    assert not path.exists()  # nothing is written before a query runs
    assert ab.rejects(spark, path).count() == 0
    feed.run(first)
    feed.add(batches[2:])
    query = feed.run(result())
    heard(spark)
    want = twin_rejects(batches, SECOND)
    late = sum(reason == "late" for _, _, reason, _, _ in want)
    assert late > 5 and want.total() - late == 24
    assert rejected(spark, path) == want
    # Rows are whole: read back by their schema they are what they were.
    left = ab.rejects(spark, path).filter("side = 'left'")
    row = F.from_json("row", feed.streams(spark)[0].schema).alias("row")
    by_id = {row["id"]: row for side, _ in batches for row in side}
    for back, ident in left.select(row, "query").collect():
        was = by_id[back.id]
        assert ident == str(query.id)
        assert (back.x, back.bits, back.name) == tuple(was[n] for n in ("x", "bits", "name"))
        assert repr(back.v) == repr(was["v"])
        assert round(back.ts.timestamp() * SECOND) == was["t"]
    # The same rows are in files that Spark reads without us.
    assert spark.read.parquet(str(path)).count() == want.total()


def test_tables_keep_what_they_reject(spark: Any, tmp_path: Path) -> None:
    feed, path = Feed(tmp_path).add(spoilt(scripted(1, rows=(4, 4)))), tmp_path / "rejects"
    left, right = feed.tables(spark)
    pairs = ab.correlate(left, right, **CALL, rejects=str(path))
    assert not path.exists()
    assert pairs.count() == pairs.count()  # computed twice, kept once
    kept = ab.rejects(spark, path)
    assert Counter(r.reason for r in kept.collect()) == dict.fromkeys(map(reason_of, ODD), 2)
    assert {r.batch for r in kept.collect()} == {None}


@pytest.mark.slow
def test_every_verb_keeps_what_it_rejects_of_tables(spark: Any, tmp_path: Path) -> None:
    feed, path = Feed(tmp_path).add(spoilt(scripted(1, rows=(4, 4)))), tmp_path / "rejects"
    left, _ = feed.tables(spark)
    queries = spark.createDataFrame(
        [(1, [1.0, 0.0], 1), (2, None, 1)], "query_id long, v array<double>, k int"
    )
    with pytest.warns(UserWarning, match="leaves out 1"):
        hits = ab.nearest(
            left,
            queries,
            by=ab.euclidean("v", dim=2),
            window="1 second",
            bad_rows="drop",
            rejects=str(path),
        )
    hits.collect()
    alike = ab.cosine("v", dim=2) >= 0.9
    ab.dedupe(left, where=alike, window="1 second", bad_rows="drop", rejects=str(path)).collect()
    with pytest.warns(UserWarning, match="rows have no"):
        ab.assemble(left, key="name", close=ab.close.gap("1 s"), rejects=str(path)).collect()
    pairs = spark.sql(
        "SELECT 1L AS left_id, id AS right_id, nullif(timestamp_seconds(id), timestamp_seconds(3)) "
        "AS ts FROM range(2, 5)"
    )
    call: dict[str, Any] = {"gap": "1 minute", "streams": 1, "rejects": str(path)}
    ab.groups(pairs, bad_rows="drop", **call).collect()
    counted = {
        (row.verb, row.side): row["count"]
        for row in ab.rejects(spark, path).groupBy("verb", "side").count().collect()
    }
    nameless = left.filter("name IS NULL").count()
    assert counted == {
        ("dedupe", "stream"): 3,
        ("nearest", "objects"): 3,
        ("nearest", "queries"): 1,
        ("assemble", "input 0"): nameless,
        ("groups", "pairs"): 1,
    }


def test_a_wrong_path_is_named_at_the_call(spark: Any) -> None:
    table = spark.sql("SELECT 1L AS id, timestamp_seconds(1) AS ts, 1 AS x, 2 AS X")
    with pytest.raises(ab.errors.InvalidCall) as caught:
        ab.correlate(table, where=ab.same("id"), window="1 s", rejects=7)
    assert "rejects must be the path of a directory, got 7" in str(caught.value)
    assert "it has several columns 'x': rename one" in str(caught.value)
    with pytest.raises(ab.errors.InvalidCall, match="path must be the path of a directory"):
        ab.rejects(spark, "")


@pytest.mark.slow
def test_correlate_killed_in_mid_batch(spark: Any, tmp_path: Path) -> None:
    batches = spoilt(lagging(scripted(9, rows=(15, 15), seed=12)))
    feed, path = Feed(tmp_path).add(batches), tmp_path / "rejects"
    for kill in (3, 4, 7):
        with driver(
            tmp_path, "--rejects", "--hold", f"left_id BETWEEN {2000 * kill} AND 999999"
        ) as run:
            run.wait_until((tmp_path / "reached").exists, "the result to hold at")
            begun = newest(tmp_path, "offsets")
            run.wait_until(lambda: any(path.glob(f"*/{begun:08d}.*.parquet")), "a file of rejects")  # noqa: B023
            run.kill_when_held()
        assert max(row.batch for row in ab.rejects(spark, path).collect()) < begun
    with driver(tmp_path, "--rejects") as run:
        figures = run.finish()
    taken = feed.taken(batches)
    want = twin_rejects(taken, drivers.LATE)
    assert sum(reason == "late" for _, _, reason, _, _ in want) > 20
    assert rejected(spark, path) == want
    good = [tuple([r for r in rows if not reason_of(r["v"])] for rows in b) for b in taken]
    agree(
        found(feed.output(spark)),
        twin.pairs_in_time(good, drivers.SPANS, drivers.score, drivers.LATE),
    )
    assert figures["total"]["rows_in"]


def lagging(batches: Sequence[twin.Batch]) -> list[twin.Batch]:
    """The batches, with every fourth row six seconds older."""

    def lag(rows: Sequence[twin.Row]) -> list[twin.Row]:
        return [{**row, "t": row["t"] - 6 * SECOND * (n % 4 == 3)} for n, row in enumerate(rows)]

    return [(lag(left), lag(right)) for left, right in batches]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--routed",)], ids=["broadcast", "selective"])
def test_nearest_killed_in_mid_batch(spark: Any, tmp_path: Path, options: tuple[str, ...]) -> None:
    script = [([], objects) for objects in nearest_feed.objects_in_batches(8, seed=4)]
    batches = spoilt([*lagging(script), ([], [nearest_feed.closing()])])
    feed = nearest_feed.feed_of(tmp_path, [list(objects) for _, objects in batches])
    for kill in (2, 3):
        hold = f"object_id BETWEEN {1000 * kill} AND 99999"
        with driver(tmp_path, "--nearest", "--rejects", *options, "--hold", hold) as run:
            run.kill_when_held()
    with driver(tmp_path, "--nearest", "--rejects", *options) as run:
        run.finish()
    want = twin_rejects(feed.taken(batches), nearest_feed.LATE, ("queries", "objects"))
    assert sum(reason == "late" for _, _, reason, _, _ in want) > 20
    assert rejected(spark, tmp_path / "rejects") == want


@pytest.mark.slow
def test_assemble_killed_in_mid_batch(spark: Any, tmp_path: Path) -> None:
    def spoil(rows: Sequence[twin.Row]) -> list[twin.Row]:
        return [{**row, "page": None if n % 9 == 0 else row["page"]} for n, row in enumerate(rows)]

    batches = [(spoil(left), spoil(right)) for left, right in events(8, seed=5)]
    feed = Feed(tmp_path, (EVENT, EVENT), idle=True).add(batches)
    for second in (2, 4):
        hold = f"unix_micros(opened) >= {batches[0][0][0]['t'] + second * SECOND}"
        with driver(tmp_path, "--assemble", "--rejects", "--hold", hold) as run:
            run.kill_when_held()
    with driver(tmp_path, "--assemble", "--rejects") as run:
        run.finish()
    want = Counter(
        (f"input {side}", row["service"], "key column 'page' is null", number)
        for number, batch in enumerate(feed.taken(batches))
        for side, rows in enumerate(batch)
        for row in rows
        if row["page"] is None
    )
    got = Counter(
        (row.side, json.loads(row.row)["service"], row.reason, row.batch)
        for row in ab.rejects(spark, tmp_path / "rejects").collect()
    )
    assert want.total() > 50 and got == want


def without_time(v: Any) -> str | None:
    """Why the pair of a row with this vector is bad, in the mode `pairs`."""
    return None if reason_of(v) is None else "time column 'ts' is null"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "verb", "side", "why"),
    [
        ("dedupe", "dedupe", "stream", reason_of),
        ("groups", "correlate", "stream", reason_of),
        ("pairs", "groups", "pairs", without_time),
    ],
)
def test_dedupe_and_groups_killed_in_mid_batch(
    spark: Any, tmp_path: Path, name: str, verb: str, side: str, why: Callable[[Any], str | None]
) -> None:
    mode, path = modes.MODES[name], tmp_path / "rejects"
    batches = spoilt(modes.batches_of(mode, lagging))
    feed = Feed(tmp_path).add(batches)
    for kill in mode.kills.values():
        with driver(tmp_path, "--mode", name, "--rejects", "--hold", kill) as run:
            run.kill_when_held()
        committed = newest(tmp_path, "commits")
        assert all(row.batch <= committed for row in ab.rejects(spark, path).collect())
    with driver(tmp_path, "--mode", name, "--rejects") as run:
        run.finish()
    want = twin_rejects(feed.taken(batches, alone="left"), modes.LATE, (side, ""), why)
    late = sum(reason == "late" for _, _, reason, _, _ in want)
    assert late > 20 and want.total() - late == len(ODD) * len(batches)
    assert rejected(spark, path) == want
    kept = ab.rejects(spark, path)
    assert {row.verb for row in kept.collect()} == {verb}
    # Each is whole, and the result is that of a table of all the others.
    by_id = {row["id"]: row for rows, _ in batches for row in rows}
    found = [json.loads(row.row) for row in kept.collect()]
    assert all(row.get("name") == by_id[row["id"]]["name"] for row in found)
    gone = [row["id"] for row in found]
    table = feed.tables(spark)[0].filter(~F.col("id").isin(gone))
    result = modes.rows_of(mode.query(table, None))
    assert modes.rows_of(feed.output(spark)) == result
    assert len(result) > 10 and set(result.values()) == {1}
