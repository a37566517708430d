"""Rows that cannot be compared, and inputs that bring watermarks of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import anabranch as ab
from tests.correlation import twin
from tests.spark.feeds import SECOND, Feed, agree, found, scripted, settings
from tests.spark.tws import Correlating

SPANS = (2 * SECOND, 2 * SECOND)
CALL = {
    "where": ab.cosine("v", dim=2) >= 0.6,
    "window": "2 seconds",
    "plan": ab.broadcast(2, "left"),
}
NAN, INFINITY = float("nan"), float("inf")


score = twin.alike(0.6)


# What is put in place of a row's columns, and what the message must say of it.
SPOILT = {
    "null vector": ({"v": None}, "'v' is null"),
    "not a number": ({"v": [NAN, 1.0]}, "'v' holds null, NaN or infinity"),
    "null inside": ({"v": [1.0, None]}, "'v' holds null, NaN or infinity"),
    "no direction": ({"v": [0.0, 0.0]}, "'v' is a zero vector"),
    "another length": ({"v": [1.0, 2.0, 3.0]}, "'v' has 3 elements where 2 are expected"),
    "empty": ({"v": []}, "'v' is empty"),
    "null time": ({"ts": None}, "time column 'ts' is null"),
}


def spoil(r: twin.Row, change: dict[str, Any]) -> twin.Row:
    return {**r, **change}


@pytest.mark.parametrize("what", SPOILT)
def test_a_bad_row_is_named(what: str) -> None:
    change, reason = SPOILT[what]
    (left, right) = scripted(1, rows=(4, 4))[0]
    right = [*right[:2], spoil(right[2], change), *right[3:]]
    with pytest.raises(ab.errors.BadRow) as stop:
        Correlating(**CALL, watermark="1 second").run([(left, right)])
    assert f"right row with id {right[2]['id']} cannot be compared: {reason}" in str(stop.value)


def test_a_bad_row_stops_the_query_and_is_named(spark: Any, tmp_path: Path) -> None:
    change, reason = SPOILT["null time"]
    (left, right) = scripted(1, rows=(4, 4))[0]
    right = [*right[:2], spoil(right[2], change), *right[3:]]
    feed = Feed(tmp_path).add([(left, right)])
    with pytest.raises(StreamingQueryException) as stop:
        feed.run(ab.correlate(*feed.streams(spark), **CALL, watermark="1 second"))
    assert f"right row with id {right[2]['id']} cannot be compared: {reason}" in str(stop.value)
    assert "bad_rows='drop'" in str(stop.value)
    with pytest.raises(Exception, match=f"right row with id {right[2]['id']} cannot be compared"):
        ab.correlate(*feed.tables(spark), **CALL).collect()


def test_a_row_without_id_is_bad(spark: Any, tmp_path: Path) -> None:
    left, right = scripted(1, rows=(4, 4))[0]
    feed = Feed(tmp_path).add([([*left, spoil(left[0], {"id": None})], right)])
    with pytest.raises(Exception, match="left row with id None cannot be compared: id column"):
        ab.correlate(*feed.tables(spark), **CALL).collect()


def test_bad_rows_are_dropped_and_counted(spark: Any, tmp_path: Path) -> None:
    script = scripted(4, rows=(12, 12), disorder=0.5, seed=4)
    changes = [change for change, _ in SPOILT.values()]
    bad = len(changes)
    # The first rows of batches 1 and 2 stay good: a length is judged by the rows before it.
    batches = [
        script[0],
        (
            [*script[1][0][:3], *map(spoil, script[1][0][3 : 3 + bad], changes)],
            script[1][1],
        ),
        (script[2][0], [*script[2][1][:3], *map(spoil, script[2][1][3 : 3 + bad], changes)]),
        ([spoil(r, {"v": None}) for r in script[3][0]], []),  # a batch of bad rows only
        ([], []),
    ]
    good = [
        tuple([r for r in side if r.get("ts", 0) is not None and sound(r["v"])] for side in batch)
        for batch in batches
    ]
    feed = Feed(tmp_path).add(batches)
    query = feed.run(
        ab.correlate(*feed.streams(spark), **CALL, watermark="2 seconds", bad_rows="drop")
    )
    want = twin.pairs_in_time(good, SPANS, score, 2 * SECOND)
    agree(found(feed.output(spark)), want)
    total = ab.metrics(query)["total"]
    assert total["rejected_rows"] == 2 * bad + 12
    assert total["late_rows"] == 0
    at_once = ab.correlate(*feed.tables(spark), **CALL, bad_rows="drop")
    agree(found(at_once), want)


def sound(v: list[float] | None) -> bool:
    """Whether a vector can be compared with others of two elements."""
    return v is not None and len(v) == 2 and None not in v and v[0] == v[0] and any(v)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["min", "max"])
def test_watermarks_of_the_inputs(spark: Any, tmp_path: Path, policy: str) -> None:
    """The right side runs four seconds behind: harmless under Spark's own policy, the minimum."""
    script = scripted(6, rows=(8, 8), disorder=0.4, seed=9)
    batches: list[twin.Batch] = [
        (left, [{**r, "t": r["t"] - 4 * SECOND} for r in right]) for left, right in script
    ]
    feed = Feed(tmp_path).add(batches)
    left, right = feed.streams(spark)
    with settings(spark, streaming__multipleWatermarkPolicy=policy):
        query = feed.run(
            ab.correlate(
                left.withWatermark("ts", "1 second"),
                right.withWatermark("ts", "2 seconds"),
                **{**CALL, "window": "5 seconds"},
            )
        )
    marks = list(twin.watermarks_of_sides(batches, (1 * SECOND, 2 * SECOND), policy=policy))
    # Late is what lies before the watermark of the batch before, as in Spark's own operators.
    lefts, rights, late = twin.in_time(batches, [0, *marks[:-1]])
    assert (late > 0) == (policy == "max")
    agree(
        found(feed.output(spark)), twin.pairs(lefts, rights, (5 * SECOND, 5 * SECOND), score)
    )  # fmt: skip
    assert ab.metrics(query)["total"]["late_rows"] == late


def test_texts_that_are_not_utf8(spark: Any, tmp_path: Path) -> None:
    """What is compared by its bytes may be any text; what people read, or groups, may not."""
    rows = spark.sql(
        "SELECT CAST(id AS string) AS id, timestamp_seconds(n) AS ts, "
        "CAST(kind AS string) AS kind, array(1.0D) AS v "
        "FROM VALUES (X'61', 1, X'FF'), (X'FE', 2, X'FE'), (X'FD', 3, X'FF') AS t (id, n, kind)"
    )
    window = {"window": "1 minute"}

    def pairs(where: Any) -> set[tuple[str, str]]:
        found = ab.correlate(rows, where=where, **window).select(
            F.hex("left_id"), F.hex("right_id")
        )
        return {tuple(row) for row in found.collect()}

    assert pairs(ab.same("kind")) == {("61", "FD")}
    assert pairs(ab.differs("kind")) == {("61", "FE"), ("FE", "FD")}
    found = ab.dedupe(rows, where=ab.same("kind"), **window).select(F.hex("id")).collect()
    assert {row[0] for row in found} == {"61", "FE"}
    ends = rows.select(F.col("id").alias("left_id"), F.col("kind").alias("right_id"), "ts")
    folder = str(tmp_path / "left out")
    groups = ab.groups(ends, gap="1 s", streams=2, bad_rows="drop", rejects=folder)
    assert groups.count() == 0
    kept = ab.rejects(spark, folder).collect()
    assert {row.reason for row in kept} == {
        "its left id is no text in UTF-8",
        "its right id is no text in UTF-8",
    }
    with pytest.raises(Exception, match=r"cannot be grouped: its .* id is no text in UTF-8"):
        ab.groups(ends, gap="1 s", streams=2).collect()
    asked = rows.withColumnRenamed("id", "query_id").drop("ts")
    hits = ab.nearest(rows, asked, by="v", k=3, where=ab.same("kind"), **window)
    assert hits.count() == 5
    with pytest.raises(ab.errors.InvalidCall, match=r"query_id b'\\xfe' is there more than once"):
        ab.nearest(
            rows, asked.union(asked.filter("kind = CAST(X'FE' AS string)")), by="v", k=1, **window
        )
    windows = asked.withColumn("window", F.col("kind"))
    with pytest.raises(ab.errors.InvalidCall, match=r"window: b'\\xff' is not a duration"):
        ab.nearest(rows, windows, by="v", k=1)
    kinds = ab.assemble(rows, key="kind", close=ab.close.gap("1 minute"))
    assert {(row[0], row[1]) for row in kinds.select(F.hex("kind"), "count").collect()} == {
        ("FF", 2),
        ("FE", 1),
    }
    assert ab.sla(kinds, "1 hour", service="kind").count() == 2
    known = ab.assembly.ServiceStats(tmp_path / "known", "1 hour", service="kind")
    known.update(kinds)
    assert known.get("\ufffd").count == 2
