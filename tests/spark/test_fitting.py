"""A sample on Spark is read as the same sample is read by pandas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.assembly.fitting.reading import Instances, read_instances, resolve
from anabranch.errors import InvalidCall
from anabranch.spark.fitting import _instances

SECOND = 1_000_000


def events(n: int = 400) -> list[dict[str, Any]]:
    """Events of 60 keys with all that may be missing in them."""
    random = np.random.default_rng(3)
    made = []
    for _ in range(n):
        seconds = float(random.integers(0, 10**9)) / 1e6
        row = {
            "a": [None, "x", "y", "z"][random.integers(4)],
            "b": [1.0, 2.0, math.nan, None][random.integers(4)],
            "c": int(random.integers(15)),
            "at": [None, math.nan, math.inf, -1e300, *[seconds] * 12][random.integers(16)],
            "us": [None, 1 << 62, -1 << 62, *[round(seconds * 1e6)] * 27][random.integers(30)],
            "ok": [None, False, *[True] * 20][random.integers(22)],
            "share": [None, math.nan, 0.0, *[1.0] * 20][random.integers(23)],
        }
        made.append(row)
    return made


SCHEMA = "a string, b double, c int, at double, us bigint, ok boolean, share double"


def alike(spark_sample: Any, table: pa.Table, **said: Any) -> Instances:
    """What both ways read, which must be the same."""
    asked = {"key": None, "time": None, "complete": None, **said}
    columns = resolve(spark_sample.columns, **asked)
    found = _instances(spark_sample, columns, 3.0)
    wanted = read_instances(table, settle=3.0, **asked)
    for name in ("rejected", "unsettled", "rate"):
        assert getattr(found, name) == getattr(wanted, name)
    one, two = (sorted(zip(x.sizes, x.spans, x.complete, strict=True)) for x in (found, wanted))
    assert one == two
    return found


@pytest.fixture(scope="module")
def made(spark: Any) -> tuple[Any, pa.Table]:
    rows = events()
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA).cache()
    types = {"c": pa.int32(), "us": pa.int64(), "ok": pa.bool_()}
    names = list(rows[0])
    table = pa.table(
        {name: pa.array([row[name] for row in rows], types.get(name)) for name in names}
    )
    return frame, table


@pytest.mark.parametrize(
    "said",
    [
        {"time": "at", "complete": "ok"},
        {"time": "us", "complete": "share"},
        {"time": "us", "key": "c", "complete": "c"},
    ],
    ids=lambda said: " ".join(said.values()),
)
def test_what_is_missing_is_missing(made: Any, said: dict[str, Any]) -> None:
    found = alike(*made, **{"key": ["a", "b", "c"], **said})
    assert found.rejected > 20 and found.count > 10
    assert 0 < found.complete.sum() < found.count


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_times_of_any_kind(made: Any, kind: str) -> None:
    frame, table = made
    stamped = frame.withColumn("ts", F.timestamp_micros("us").cast(kind))
    times = table["us"].cast(pa.timestamp("us", "UTC" if kind == "timestamp" else None))
    alike(stamped, table.append_column("ts", times), key="c")


@pytest.mark.parametrize("key", ["count", "Count", "first_ts", "whole", "k0", "a.b", "a`b"])
def test_columns_of_any_name(made: Any, key: str) -> None:
    frame, table = made
    renamed = frame.withColumnRenamed("c", key).withColumnRenamed("us", "c.d")
    names = {"c": key, "us": "c.d"}
    alike(
        renamed,
        table.rename_columns([names.get(name, name) for name in table.column_names]),
        key=key,
        time="c.d",
    )


def test_assembled_rows(spark: Any) -> None:
    """Second windows, revisions, missing keys, windows that were cut, and a key of arrays."""
    random = np.random.default_rng(5)
    rows = []
    for n in range(150):
        opened = int(random.integers(10**8))
        for revision in range(int(random.integers(1, 4))):
            rows.append(
                {
                    "kind": None if n % 17 == 0 else n % 20,
                    "seq": n % 3,
                    "opened": opened,
                    "count": 2 + revision,
                    "first_ts": opened,
                    "last_ts": None if n % 29 == 0 else opened + revision * SECOND,
                    "reason": [None, "full", "timeout", "flush", "evicted"][n % 5],
                }
            )
    schema = """kind long, seq int, opened long, count int, first_ts long, last_ts long,
                reason string"""
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], schema)
    table = pa.Table.from_pylist(rows)
    found = alike(frame, table)
    assert found.rejected and 0 < found.complete.sum() < found.count
    alike(frame.drop("kind"), table.drop_columns("kind"))
    arrays = frame.withColumn("kind", F.when(F.col("kind").isNotNull(), F.array("kind")))
    again = _instances(arrays, resolve(arrays.columns, None, None, None), 3.0)
    assert sorted(again.sizes) == sorted(found.sizes) and again.rejected == found.rejected


def test_the_verb_on_spark(spark: Any) -> None:
    random = np.random.default_rng(1)
    starts = np.sort(random.uniform(0, 1000, 300))
    rows = [
        (f"k{n}", float(start + gap))
        for n, start in enumerate(starts)
        for gap in [0, *random.gamma(2, 1, random.integers(0, 6))]
    ]
    frame = pd.DataFrame(rows, columns=["page", "when"])
    wanted = ab.fit_windows(frame, key="page", time="when")
    found = ab.fit_windows(spark.createDataFrame(frame), key="page", time="when")
    assert (found.size, found.events) == (wanted.size, wanted.events)
    assert found.timeout == pytest.approx(wanted.timeout, rel=1e-9)


def orders(spark: Any) -> Any:
    """Results of orders, under names that no verb guesses."""
    return spark.sql(
        """SELECT concat('o', id div 3) AS order_no, id div 3 % 10 <> 0 AS ok,
           timestamp_millis(1700000000000 + 10000 * (id div 3)
               + (500 + 20 * (id div 3 % 11)) * (id % 3)) AS resulted_at
           FROM range(900)"""
    )


@pytest.mark.slow
def test_a_fit_of_ones_own_columns_closes_windows(spark: Any) -> None:
    frame = orders(spark)
    said = {"key": "order_no", "time": "resulted_at"}
    fit = ab.fit_windows(frame, **said)
    assert fit.size == 3 and fit.timeout == pytest.approx(1.4, rel=0.1)
    windows = ab.assemble(frame, **said, close=fit)
    assert windows.filter("reason = 'full' AND count = 3").count() > 0.85 * 300
    forms = ("ok", "ok = true", F.col("ok"), lambda sample: sample["ok"])
    counts = {ab.fit_windows(frame, **said, complete=form).incomplete for form in forms}
    assert counts == {ab.fit_windows(frame.toPandas(), **said, complete="ok").incomplete} != {0}
    assert ab.fit_windows(frame, **said, complete=True).incomplete == 0


def test_learning_by_what_comes_once_is_warned_of(spark: Any) -> None:
    frame = orders(spark)
    said = {"key": "order_no", "time": "resulted_at"}
    with pytest.warns(
        UserWarning, match="every value of 'order_no' was seen once, so ab.close.learned"
    ):
        ab.assemble(frame, **said, close=ab.close.learned())
    late = frame.filter("order_no = 'o5'").limit(1)
    late = late.withColumn("resulted_at", F.expr("resulted_at + interval 1 day"))
    with pytest.warns(UserWarning, match="learns only from all kinds together, and no usual_count"):
        ab.assemble(frame.union(late), **said, close=ab.close.learned())  # one lasts long
    again = frame.withColumn("order_no", F.lit("one"))
    ab.assemble(
        again, **said, close=ab.close.learned("1 second")
    )  # a value that comes again and again


def test_sessions_end_by_a_gap(spark: Any) -> None:
    windows = ab.assemble(
        orders(spark), key="order_no", time="resulted_at", close=ab.close.gap("5 seconds")
    )
    reasons = {row["reason"]: row["count"] for row in windows.groupBy("reason").count().collect()}
    assert reasons == {"gap": 299, "flush": 1}


def test_wrong_samples(spark: Any) -> None:
    frame = spark.sql("SELECT map('a', 1) AS m, 'x' AS k, 'now' AS ts, 1 AS at, id FROM range(1)")
    stream = spark.readStream.format("rate").load()
    for call, message in (
        (lambda: ab.fit_windows(stream, key="value", time="timestamp"), "batch DataFrame"),
        (lambda: ab.fit_windows(frame, key="k"), "column 'ts' is string; the event time must be"),
        (lambda: ab.fit_windows(frame, key="m", time="at"), "key column 'm' is map<string,int>"),
        (
            lambda: ab.fit_windows(frame, key="k", time="at", complete="ts"),
            "must be true or false of a row, got values of type string",
        ),
        (
            lambda: ab.fit_windows(frame, key="k", time="at", complete="reflect('A', 'b') > id"),
            "complete: \"reflect('A', 'b') > id\" holds 'reflect': text may hold no sub-query",
        ),
        (lambda: ab.fit_windows(frame, key="no", time="at"), "no column 'no'; the sample has m, k"),
        (lambda: ab.fit_windows(frame.select("id", "id"), key="id", time="id"), "several columns"),
        (lambda: ab.fit_windows(frame, settle="soon"), "settle must be a number of seconds"),
        (lambda: ab.fit_windows(frame.limit(0), key="k", time="at"), "no usable event"),
    ):
        with pytest.raises(InvalidCall) as error:
            call()
        assert message in str(error.value)
