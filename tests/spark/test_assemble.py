"""Real streaming queries of `assemble` give what the twin gives."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.errors import InvalidCall
from anabranch.flow.load import AssembleLoad
from tests.spark.events import CALL, alike, collected, events, expected, micros
from tests.spark.feeds import PATIENCE, SECOND, START, Feed, settings
from tests.spark.processes import driver, lose_an_executor, newest

SHAPE = {
    "key": ["page", "client"],
    "keep": ["service", "ms"],
    "response": "ms",
}
POLICIES = {
    "count or timeout": ab.close.count(3, "2500 ms"),
    "session": ab.close.gap("700 ms", remember="2 seconds"),
    "wait": ab.close.after("2 seconds"),
    "learned": ab.close.learned("300 ms", risk=0.4, after=4, remember="900 ms"),
}


def feed_of(folder: Path, batches: list[Any]) -> Feed:
    return Feed(folder, (CALL, CALL), idle=True).add(batches)


def first_rows(result: Any, folder: Path) -> list[dict[str, Any]]:
    """Run a query over input that has ended until something comes out."""
    rows: list[dict[str, Any]] = []
    came = threading.Event()

    def take(frame: Any, batch: int) -> None:
        rows.extend(collected(frame))
        if rows:
            came.set()

    query = (
        result.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(folder / "check"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        assert came.wait(PATIENCE), query.exception()
    finally:
        query.stop()
    return rows


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "learned" else pytest.mark.slow) for name in POLICIES],
)
def test_streams_out_of_order_and_late(spark: Any, tmp_path: Path, name: str) -> None:
    """Rows come up to 3 s behind the newest, 1 s is allowed: many are late, none is lost."""
    batches = events(5, seed=3)
    feed = feed_of(tmp_path, batches)
    query = feed.run(
        ab.assemble(feed.streams(spark), **SHAPE, close=POLICIES[name], watermark="1 second")
    )
    got = collected(feed.output(spark))
    alike(got, expected(spark, batches, POLICIES[name], SECOND))
    figures = ab.metrics(query)
    assert figures["total"]["rows_in"] == 5 * 60
    assert figures["total"]["late_rows"] > 20
    assert figures["total"]["revisions"] == sum(row["revision"] > 0 for row in got) > 0
    assert figures["total"]["instances"] == sum(row["revision"] == 0 for row in got)
    inside = sum(len(row["items"]) for row in got)
    assert figures["open_windows"] > 0 and inside < 5 * 60
    assert name != "learned" or {"complete", "gap"} <= {row["reason"] for row in got}


@pytest.mark.parametrize("name", ["count or timeout", "learned"])
def test_tables(spark: Any, tmp_path: Path, name: str) -> None:
    batches = events(6, seed=4)
    feed = feed_of(tmp_path, batches)
    got = collected(ab.assemble(feed.tables(spark), **SHAPE, close=POLICIES[name], max_open=60))
    want = expected(spark, batches, POLICIES[name], 0, max_open=30, flush=True)
    alike(got, want)
    assert {row["reason"] for row in got} >= {"flush", "gap" if name == "learned" else "timeout"}
    assert sum(len(row["items"]) for row in got) == 6 * 60


@pytest.mark.slow
def test_a_hot_kind_is_spread_over_buckets(spark: Any, tmp_path: Path) -> None:
    """There is one page only: its keys go to several buckets, each of which learns."""
    batches = events(4, rows=50, pages=1, clients=60, seed=5)
    closing = ab.close.learned("300 ms", risk=0.4, after=4, spread=8)
    feed = feed_of(tmp_path, batches)
    query = feed.run(ab.assemble(feed.streams(spark), **SHAPE, close=closing, watermark="1 second"))
    alike(collected(feed.output(spark)), expected(spark, batches, closing, SECOND))
    shares = Counter()
    for progress in query.recentProgress:
        for name, observed in progress.observedMetrics.items():
            assert name.startswith("anabranch_assemble_")
            for text in observed["load"] or ():
                load = AssembleLoad.from_json(text)
                shares[load.worker] += load.rows
    assert set(shares) == {0, 1} and min(shares.values()) > 0.2 * sum(shares.values())


#  bucket      second 0   1   2   3  ...       watermark moves with the other bucket's rows
#  of key A           o                        closes at 2, though A's bucket gets no rows
#  of key B           o   o   o   o   o   o
def test_a_bucket_without_rows_closes_its_windows(spark: Any, tmp_path: Path) -> None:
    batches = events(1, rows=20, clients=40, disorder=0, seed=6)
    one = batches[0][0][0]
    for second in range(1, 4):
        batches.append(([{**one, "t": START + second * SECOND, "service": f"x{second}"}], []))
    closing = ab.close.count(50, "2 seconds")
    feed = feed_of(tmp_path, batches)
    query = feed.run(
        ab.assemble(feed.streams(spark), **SHAPE, close=closing, watermark="0 seconds")
    )
    got = collected(feed.output(spark))
    alike(got, expected(spark, batches, closing, 0))
    assert len({row["key"] for row in got}) == len(
        {(r["page"], r["client"]) for s in batches[0] for r in s}
    )
    assert ab.metrics(query)["open_windows"] <= 1


def test_windows_close_while_all_inputs_are_silent(spark: Any, tmp_path: Path) -> None:
    """`idle` lets the wall clock move the watermark."""
    now = int(time.time() * SECOND)
    rows = [{"t": now, "page": "/", "client": 1, "service": "a", "ms": 1.0}]
    feed = feed_of(tmp_path, [(rows, [])])
    result = ab.assemble(
        feed.streams(spark),
        **SHAPE,
        close=ab.close.gap("1 second"),
        watermark="1 second",
        idle="1 second",
    )
    (row,) = first_rows(result, tmp_path)
    assert (row["reason"], row["count"], row["opened"]) == ("gap", 1, now)


def test_processing_time(spark: Any, tmp_path: Path) -> None:
    """Event times a year apart do not matter; a timer closes the window without new rows."""
    rows = [
        {"t": START + n * 86_400 * SECOND, "page": "/", "client": 1, "service": f"s{n}", "ms": 1.0}
        for n in range(3)
    ]
    feed = feed_of(tmp_path, [(rows, [])])
    close = ab.close.count(50, "500 milliseconds")
    result = ab.assemble(feed.streams(spark), **SHAPE, close=close, clock="processing")
    (row,) = first_rows(result, tmp_path)
    assert (row["reason"], row["count"]) == ("timeout", 3)
    assert row["closed"] - row["opened"] == SECOND // 2
    assert abs(row["opened"] - time.time() * SECOND) < 600 * SECOND


def test_restarts_and_refusals(spark: Any, tmp_path: Path) -> None:
    batches = events(4, seed=7)
    closing = POLICIES["session"]
    feed = feed_of(tmp_path, [])
    for part in (batches[:2], batches[2:]):
        feed.add(part)
        feed.run(ab.assemble(feed.streams(spark), **SHAPE, close=closing, watermark="2 seconds"))
    # Each start ends with a batch without rows, which moves the clock as far as it goes.
    alike(collected(feed.output(spark)), expected(spark, batches, closing, 2 * SECOND))
    feed.add(events(5, seed=7)[4:])
    with pytest.raises(StreamingQueryException, match="StateMismatch"):
        feed.run(
            ab.assemble(feed.streams(spark), **SHAPE, close=POLICIES["wait"], watermark="2 seconds")
        )
    with pytest.raises(StreamingQueryException, match="StateMismatch"):
        feed.run(
            ab.assemble(
                feed.streams(spark),
                **{**SHAPE, "keep": ["ms"]},
                close=closing,
                watermark="2 seconds",
            )
        )


@pytest.mark.slow
def test_driver_killed_in_mid_batch(spark: Any, tmp_path: Path) -> None:
    batches = events(8, seed=8)
    feed = feed_of(tmp_path, batches)
    hold = f"unix_micros(first_ts) >= {START + 2 * SECOND}"
    with driver(tmp_path, "--assemble", "--hold", hold) as run:
        run.kill_when_held()
    with driver(tmp_path, "--assemble") as run:
        run.finish()
    taken = feed.taken(batches)
    alike(collected(feed.output(spark)), expected(spark, taken, POLICIES["learned"], SECOND))


@pytest.mark.slow
def test_executor_killed_in_mid_run(spark: Any, tmp_path: Path) -> None:
    batches = events(9, seed=11)
    feed = feed_of(tmp_path, batches)
    with driver(tmp_path, "--master", "local-cluster[2,1,1024]", "--assemble") as run:
        lose_an_executor(run)
        assert newest(tmp_path, "commits") < len(batches) - 1
        run.finish()
    taken = feed.taken(batches)
    alike(collected(feed.output(spark)), expected(spark, taken, POLICIES["learned"], SECOND))


@pytest.mark.slow
def test_through_connect(spark: Any, tmp_path: Path) -> None:
    batches = events(5, seed=12)
    feed = feed_of(tmp_path, batches)
    with driver(tmp_path, "--remote", "local[2]", "--assemble") as run:
        figures = run.finish()
    got = collected(feed.output(spark))
    alike(got, expected(spark, batches, POLICIES["learned"], SECOND))
    assert figures["total"]["rows_in"] == 5 * 60
    assert figures["total"]["instances"] == sum(row["revision"] == 0 for row in got)


def test_rows_without_key_or_time_are_counted(spark: Any, tmp_path: Path) -> None:
    batches = events(2, rows=10, seed=9)
    for row in batches[0][0][:3]:
        row["page"] = None
    batches[0][1][0]["client"] = None
    feed = feed_of(tmp_path, batches)
    close = ab.close.gap("1 second")
    query = feed.run(ab.assemble(feed.streams(spark), **SHAPE, close=close, watermark="9 seconds"))
    assert ab.metrics(query)["total"]["rejected_rows"] == 4
    assert ab.metrics(query)["total"]["rows_in"] == 40
    with pytest.warns(UserWarning, match="4 rows have no"):
        ab.assemble(feed.tables(spark), **SHAPE, close=close)
    refused = ab.assemble(feed.tables(spark), **SHAPE, close=close, bad_rows="fail")
    with pytest.raises(Exception, match=r"event with page .* cannot be assembled: key column '"):
        refused.collect()


@pytest.mark.slow
def test_instances_feed_further_operators(spark: Any, tmp_path: Path) -> None:
    """One input, with a watermark of its own."""
    batches = [(rows, []) for rows, _ in events(5, rows=60, disorder=0, seed=10)]
    feed = feed_of(tmp_path, batches)
    closing = ab.close.count(2, "1 second")
    marked = feed.streams(spark)[0].withWatermark("ts", "0 seconds")
    result = ab.assemble(marked, **SHAPE, close=closing)
    counted = result.groupBy(F.window("closed", "1 second")).agg(F.sum("count").alias("n"))
    feed.run(counted.select("window.start", "n"))
    want: dict[int, int] = {}
    for row in expected(spark, batches, closing, 0):
        second = row["closed"] // SECOND * SECOND
        want[second] = want.get(second, 0) + row["count"]
    got = {micros(r["start"]): r["n"] for r in feed.output(spark).collect()}
    assert len(got) >= 2
    assert got == {second: want[second] for second in got}


def test_odd_columns_come_back_as_they_went_in(spark: Any) -> None:
    table = spark.sql(
        """SELECT timestamp_seconds(1700000000 + id) AS ts, date'2024-01-01' AS day,
                  cast(id AS decimal(20, 3)) AS money, array(id, null) AS list,
                  map('a', id) AS dict, named_struct('x', id, 'y', array('p')) AS pair,
                  timestamp_ntz'2024-01-01 00:00:00' AS plain, X'00FF' AS raw,
                  cast(null AS string) AS nothing, id AS `odd name.`
           FROM range(3)"""
    )
    names = [name for name in table.columns if name != "day"]
    result = ab.assemble(table, key="day", close=ab.close.gap("1 minute"), keep=names)
    (row,) = result.collect()
    assert [item.asDict() for item in row["items"]] == [
        r.asDict() for r in table.orderBy("ts").select(*[f"`{n}`" for n in names]).collect()
    ]
    assert str(row["day"]) == "2024-01-01"


@pytest.mark.parametrize("kind", ["int", "float", "double", "decimal(12, 1)"])
def test_responses_of_any_length_and_none(spark: Any, kind: str) -> None:
    """An hour of milliseconds is no overflow, and what is no number is no end."""
    odd = {"float": ["float('NaN')", "float('inf')"], "double": ["double('NaN')", "1e300D"]}
    values = ["3600000", "null", *odd.get(kind, ["null", "null"])]
    table = spark.sql(
        f"""SELECT id AS page, timestamp_seconds(1700000000 + n) AS ts,
                   cast(if(n = 0, array({", ".join(values)})[id], null) AS {kind}) AS ms
            FROM range(4) CROSS JOIN (SELECT id AS n FROM range(2))"""
    )
    found = ab.assemble(table, key="page", close=ab.close.gap("1 minute"), response="ms")
    assert {r["page"]: r["duration"] for r in found.collect()} == {0: 3600.0, 1: 1, 2: 1, 3: 1}


def test_responses_inside_a_struct_and_as_a_column(spark: Any) -> None:
    table = spark.sql(
        "SELECT 'a' AS page, timestamp_seconds(1700000000) AS ts, named_struct('ms', 2500) AS http"
    )
    for response in ("http.ms", F.col("http")["ms"] * 1):
        found = ab.assemble(table, key="page", close=ab.close.gap("1 minute"), response=response)
        assert [row["duration"] for row in found.collect()] == [2.5]


WRONG = {
    "streaming needs a bound on how late rows come": {},
    "idle= moves the watermark of a stream": {"idle": "1 second"},
    "idle must not be negative, got '-1 hour'": {"idle": "-1 hour", "watermark": "1 second"},
    "got ['ts']: inputs are united, so they share the name of their time": {"time": ["ts"]},
    "plan must be ab.keyed(workers)": {"plan": ab.grid(2, 2), "watermark": "1 second"},
    "control='log' would have no effect": {"control": "log", "watermark": "1 second"},
    "leave weights out": {"plan": ab.keyed(2, weights=[1, 2]), "watermark": "1 second"},
    "bad_rows must be": {"bad_rows": "keep", "watermark": "1 second"},
    "close must be a policy": {"close": 5, "watermark": "1 second"},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_calls(spark: Any, message: str) -> None:
    stream = spark.readStream.format("rate").load().withColumnRenamed("timestamp", "ts")
    call = {"key": "value", "close": ab.close.gap("1 second"), **WRONG[message]}
    with pytest.raises(InvalidCall) as error:
        ab.assemble(stream, **call)
    assert message in str(error.value)


def test_wrong_inputs(spark: Any) -> None:
    stream = spark.readStream.format("rate").load()
    table = spark.range(1)
    close = ab.close.gap("1 second")
    with pytest.raises(InvalidCall, match="must be a Spark DataFrame, got int"):
        ab.assemble([3], key="value", close=close)
    with pytest.raises(InvalidCall, match="input 0 is streaming and input 1 is not"):
        ab.assemble([stream, table], key="value", close=close)
    with pytest.raises(InvalidCall, match="a table has no time of arrival"):
        ab.assemble(table, key="id", time="id", close=close, clock="processing")
    marked = stream.withWatermark("timestamp", "1 second")
    with pytest.raises(InvalidCall, match="already has a watermark"):
        ab.assemble(marked, key="value", time="timestamp", close=close, watermark="1 second")


@pytest.mark.slow
def test_a_hundred_thousand_open_windows(spark: Any, tmp_path: Path) -> None:
    """Open in one batch, joined in the next, closed by time in the third."""
    n = 100_000
    for batch, shift in enumerate((0, 1, 400)):
        t = f"timestamp_micros({START} + {shift * SECOND} + id)"
        rows = n if batch < 2 else 1
        spark.sql(f"SELECT {t} AS ts, id AS page, id % 7 AS client FROM range({rows})").coalesce(
            1
        ).write.mode("append").parquet(str(tmp_path / "in"))
    stream = (
        spark.readStream.schema("ts timestamp, page long, client long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp_path / "in"))
    )
    closing = ab.close.count(5, "60 seconds")
    result = ab.assemble(
        stream, key=["page", "client"], close=closing, keep="client", watermark="0 seconds"
    )
    with settings(spark, streaming__numRecentProgressUpdates=100):
        query = Feed(tmp_path, idle=True).run(result)
    frame = Feed(tmp_path).output(spark)
    assert frame.count() == n
    assert frame.filter("count = 2 AND reason = 'timeout' AND size(items) = 2").count() == n
    peaks = [
        load["peak_windows"] for load in ab.metrics(query)["workers"] if load["peak_windows"] > 0
    ]
    assert sum(peaks) >= n


def test_keys_of_arrays_and_structs_are_told_apart(spark: Any) -> None:
    """Spark's hash leaves nulls inside out: these five would be one instance."""
    rows = spark.sql(
        """SELECT timestamp_seconds(1700000000 + n) AS ts, k FROM VALUES
           (1, named_struct('a', array('x', null), 'b', 'y')),
           (2, named_struct('a', array(null, 'x'), 'b', 'y')),
           (3, named_struct('a', array('x'), 'b', 'y')),
           (4, named_struct('a', array('x', 'y'), 'b', null)),
           (5, named_struct('a', array('null', 'x'), 'b', 'y')) AS t(n, k)"""
    )
    found = ab.assemble(rows, key="k", close=ab.close.gap("1 hour")).collect()
    assert sorted(row["count"] for row in found) == [1, 1, 1, 1, 1]


@pytest.mark.parametrize("kind", ["null", "double", "collated"])
def test_the_order_of_ties_is_that_of_their_content(spark: Any, kind: str) -> None:
    """Rows of one key and time: whichever comes first, they are taken in the same order."""
    rows = {
        "null": ["(1, null)", "(null, 1)"],
        "double": ["(0.0D, 1)", "(-0.0D, 1)"],
        "collated": ["(collate('a', 'UTF8_LCASE'), 1)", "(collate('A', 'UTF8_LCASE'), 1)"],
    }[kind]
    found = []
    for some in (rows, rows[::-1]):
        made = spark.sql(
            f"""SELECT 'k' AS k, timestamp_seconds(1700000000) AS ts, a, b
                FROM VALUES {", ".join(some)} AS t(a, b)"""
        )
        close = ab.close.count(1, "1 minute")
        each = ab.assemble(made.coalesce(1), key="k", close=close, keep=["a", "b"])
        found.append(sorted((row["seq"], str(row["items"])) for row in each.collect()))
    assert found[0] == found[1] and len(found[0]) == 2
