"""One stream against itself on Spark: exact in batch, and in a stream through changes of plan."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.errors import InvalidCall
from tests.correlation import twin
from tests.spark.feeds import SECOND, START, Feed, agree, flat, found, scripted, settings

BATCHES = [([*left, *right], []) for left, right in scripted(8, rows=(15, 15), seed=5)]
WHERE = (ab.cosine("v") >= 0.6) & ab.differs("room")


def pairs(rows: list[twin.Row], window: int) -> twin.Pairs:
    ordered = sorted(rows, key=lambda row: (row["t"], row["id"]))
    scores = {
        (a["id"], b["id"]): twin.cosine(a["v"], b["v"])
        for a, b in combinations(ordered, 2)
        if b["t"] - a["t"] <= window and a["room"] != b["room"]
    }
    return {pair: score for pair, score in scores.items() if score >= 0.6}


def test_in_batch(spark: Any, tmp_path: Path) -> None:
    table, _ = Feed(tmp_path).add(BATCHES).tables(spark)
    result = ab.correlate(table, where=WHERE, window="2 seconds", keep="room")
    assert result.columns[-2:] == ["left_room", "right_room"]
    agree(found(result), pairs(flat(BATCHES)[0], 2 * SECOND))
    assert result.filter("left_ts > right_ts OR left_room = right_room").count() == 0


def test_two_columns_the_first_of_the_earlier_row(spark: Any) -> None:
    """A bid near what was asked before, by a nested name and a Column; not the other way round."""
    rows = spark.sql(
        """SELECT id, timestamp_seconds(1700000000 + id) AS ts, named_struct('asked', asked) AS of,
                  bid FROM VALUES (1L, 10, 0), (2L, 50, 10), (3L, 0, 50), (4L, 10, 9) AS
                  t(id, asked, bid)"""
    )
    where = ab.within("of.asked", F.col("bid") + 0, 1)
    found = ab.correlate(rows, where=where, window="1 minute", ordered=True).collect()
    assert {(row.left_id, row.right_id) for row in found} == {(1, 2), (1, 4), (2, 3)}
    with pytest.raises(InvalidCall, match="or pass ordered=True to correlate"):
        ab.correlate(rows, where=where, window="1 minute")


@pytest.mark.slow
def test_in_a_stream_that_is_restarted_under_other_plans(spark: Any, tmp_path: Path) -> None:
    feed, control = Feed(tmp_path), str(tmp_path / "control")
    with settings(spark, shuffle__partitions=4):
        for part, plan in ((BATCHES[:3], None), (BATCHES[3:6], ab.segments(4, "1 second")),
                           (BATCHES[6:], ab.grid(2, 2))):  # fmt: skip
            if plan is not None:
                ab.plans.PlanLog(control).append(plan)
            stream, _ = feed.add(part).streams(spark)
            result = ab.correlate(
                stream,
                where=WHERE,
                window="2 seconds",
                watermark="3 seconds",
                plan=ab.triangle(2),
                control=control,
            )
            feed.run(result)
    entries = ab.plans.PlanLog(control).entries()
    assert {str(entry.plan).partition("(")[0] for entry in entries} == {
        "triangle",
        "segments",
        "grid",
    }
    agree(found(feed.output(spark)), pairs(flat(BATCHES)[0], 2 * SECOND))


@pytest.mark.slow
def test_rows_without_an_earlier_alike_one(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path, idle=True).add(BATCHES[:4])
    rows = flat(BATCHES[:4])[0]
    # The last batch moves the watermark past all others.
    last = [{**rows[0], "id": 99_999, "t": START + 60 * SECOND}]
    stream, _ = feed.add([(last, [])]).streams(spark)
    call = {"where": ab.cosine("v") >= 0.6, "window": "2 seconds"}
    feed.run(ab.dedupe(stream, watermark="3 seconds", **call))
    first = sorted(row["id"] for row in rows if not _alike_before(row, rows))
    got = feed.output(spark)
    assert got.columns == stream.columns
    assert sorted(row.id for row in got.collect() if row.id != 99_999) == first
    table = feed.tables(spark)[0]
    again = ab.dedupe(table, **call)
    times = [(row.ts, row.id) for row in again.collect()]
    assert sorted(ident for _, ident in times) == [*first, 99_999]
    assert times == sorted(times)
    whole = {row.id: row for row in table.collect()}
    assert all(row == whole[row.id] for row in again.collect())


@pytest.mark.slow
def test_plans_change_while_rows_are_deduped(spark: Any, tmp_path: Path) -> None:
    feed, control = Feed(tmp_path, idle=True), str(tmp_path / "control")
    rows = flat(BATCHES)[0]
    end = [([{**rows[0], "id": 99_999, "t": START + 600 * SECOND}], [])]
    with settings(spark, shuffle__partitions=4):
        for part, plan in ((BATCHES[:4], None), (BATCHES[4:], ab.grid(2, 2)), (end, None)):
            if plan is not None:
                ab.plans.PlanLog(control).append(plan)
            stream, _ = feed.add(part).streams(spark)
            result = ab.dedupe(
                stream,
                where=ab.cosine("v") >= 0.6,
                window="2 seconds",
                keep=(),
                watermark="3 seconds",
                plan=ab.triangle(2),
                control=control,
            )
            feed.run(result)
    plans = [str(entry.plan) for entry in ab.plans.PlanLog(control).entries()]
    assert plans[0].startswith("triangle(2") and plans[-1].startswith("grid(2, 2")
    got = feed.output(spark)
    assert sorted(got.columns) == ["id", "ts"]
    first = sorted(row["id"] for row in rows if not _alike_before(row, rows))
    assert sorted(row.id for row in got.collect() if row.id != 99_999) == first


def test_deduped_rows_carry_what_is_to_be_kept(spark: Any) -> None:
    rows = spark.sql(
        """SELECT id % 2 AS x, named_struct('n', id) AS of, timestamp_seconds(id) AS ts, 'a' AS a,
           id FROM range(6)"""
    )
    call = {"where": ab.same("x"), "window": "1 minute", "plan": ab.keyed(1)}
    kept = ab.dedupe(rows, keep="a", **call)
    assert kept.columns == ["ts", "a", "id"] and kept.count() == 2
    nested = ab.dedupe(rows, keep=["of.n", "X"], **call)
    assert nested.columns == ["x", "ts", "id", "of.n"]
    assert [tuple(row) for row in nested.select("id", "`of.n`").sort("id").collect()] == [
        (0, 0),
        (1, 1),
    ]
    for wrong, says in (
        ({"keep": 5}, "keep must be the name of a column or a list of them"),
        ({"keep": "b"}, "no column 'b'"),
        ({"control": "logs"}, "control= is for streaming"),
        ({"control": __file__}, "control must be the path of a directory, and .* is a file"),
        ({"rejects": __file__}, "rejects must be the path of a directory, and .* is a file"),
        ({"where": ab.within("x", "id", 1)}, r"the first is not said: name one column(\n|$)"),
        ({"plan": ab.adaptive(2)}, r"plan=ab.adaptive\(...\) is for streaming"),
    ):
        with pytest.raises(InvalidCall, match=says):
            ab.dedupe(rows, **{**call, **wrong})


def test_deduped_columns_that_differ_by_case_alone_stay_apart(spark: Any) -> None:
    with settings(spark, caseSensitive="true"):
        rows = spark.sql(
            "SELECT id, timestamp_seconds(id) AS ts, 7 AS TS, id + 10 AS ID, id AS x FROM range(3)"
        )
        call = {"where": ab.same("ID"), "window": "1 minute", "plan": ab.keyed(1)}
        for keep, names in ((None, "id ts TS ID x"), (["ID"], "id ts ID")):
            found = ab.dedupe(rows, keep=keep, **call)
            assert found.columns == names.split()
            want = rows.select(*found.columns).sort("id").collect()
            assert found.sort("id").collect() == want


def _alike_before(row: twin.Row, rows: list[twin.Row]) -> bool:
    return any(
        (other["t"], other["id"]) < (row["t"], row["id"])
        and row["t"] - other["t"] <= 2 * SECOND
        and twin.cosine(other["v"], row["v"]) >= 0.6
        for other in rows
    )
