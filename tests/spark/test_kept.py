"""Kept columns of every type come out as they went in, streaming and batch alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import anabranch as ab
from tests.spark.feeds import Feed, scripted, settings

BIG = 2**53 + 1

# Spark's type, and values that some way of travelling would spoil.
TYPES: dict[str, list[str]] = {
    "boolean": ["true", "NULL"],
    "tinyint": ["tinyint(-7)", "NULL"],
    "bigint": [str(BIG), "NULL", "-9223372036854775807"],
    "float": ["float('NaN')", "NULL", "float('-Infinity')", "float(0.1)"],
    "double": ["double('NaN')", "NULL", "0.1D", "-0.0D"],
    "decimal(38,18)": ["12345678901234567890.123456789012345678BD", "NULL"],
    "decimal(5,2)": ["-0.10BD", "999.99BD"],
    "string": ["''", "NULL", "'h\u00e9 \u2713'"],
    "binary": ["X''", "X'00FF00'", "NULL"],
    "date": ["DATE'0001-01-01'", "DATE'1969-12-31'", "DATE'9999-12-31'", "NULL"],
    "timestamp": [
        "TIMESTAMP'1883-11-10 12:00:00.000001'",
        "TIMESTAMP'2023-11-05 01:30:00.123456'",
        "TIMESTAMP'9999-12-31 12:59:59.999999'",
        "NULL",
    ],
    "timestamp_ntz": ["TIMESTAMP_NTZ'2023-11-05 01:30:00.123456'", "NULL"],
    "interval day to second": ["INTERVAL '1 02:03:04.000005' DAY TO SECOND", "NULL"],
    "array<bigint>": [f"array({BIG}L, NULL)", "array()", "NULL"],
    "array<double>": ["array(double('NaN'), NULL, 0.1D)", "array()", "NULL"],
    "array<timestamp>": ["array(TIMESTAMP'2023-11-05 01:30:00.123456', NULL)", "NULL"],
    "struct<a:bigint,b:string>": [
        f"named_struct('a', {BIG}L, 'b', NULL)",
        "named_struct('a', CAST(NULL AS bigint), 'b', 'x')",
        "NULL",
    ],
    "struct<d:decimal(20,5),at:timestamp,on:date>": [
        "named_struct('d', 1.00001BD, 'at', TIMESTAMP'2023-03-12 03:30:00', 'on', "
        "DATE'2023-03-12')",
        "NULL",
    ],
    "map<string,bigint>": [f"map('a', {BIG}L, 'b', NULL)", "map()", "NULL"],
    "map<int,array<string>>": ["map(1, array('x', NULL))", "NULL"],
    "array<struct<k:string,v:array<int>>>": [
        "array(named_struct('k', 'x', 'v', array(1, NULL)))",
        "NULL",
    ],
}


def names() -> list[str]:
    return [f"c{n}" for n in range(len(TYPES))]


def query_of(kept: int) -> str:
    """Rows one second apart that hold each value of each type, from `kept` on."""
    columns = [f"{kept} + id AS id", "timestamp_seconds(1700000000 + id) AS ts", "0 AS x"]
    for name, (type_, values) in zip(names(), TYPES.items(), strict=True):
        cases = " ".join(
            f"WHEN id = {n} THEN CAST({values[n % len(values)]} AS {type_})" for n in range(4)
        )
        columns.append(f"CASE {cases} END AS {name}")
    return f"SELECT {', '.join(columns)} FROM range(4)"


@pytest.fixture(scope="module")
def results(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Types and values of the inputs and of both results, in a time zone that is not UTC."""
    feed = Feed(tmp_path_factory.mktemp("kept"))
    with settings(spark, session__timeZone="America/Los_Angeles"):
        for side, first in (("left", 0), ("right", 100)):
            spark.sql(query_of(first)).coalesce(1).write.parquet(str(feed.input(side)))
        call = {"where": ab.within("x", 0), "window": "0 seconds", "keep": names()}
        feed.run(ab.correlate(*feed.streams(spark), **call, watermark="1 second"))
        at_once = ab.correlate(*feed.tables(spark), **call)
        frames = {"streaming": feed.output(spark), "batch": at_once}
        frames |= dict(zip(("left", "right"), feed.tables(spark), strict=True))
        return {name: (dict(frame.dtypes), frame.collect()) for name, frame in frames.items()}


@pytest.mark.parametrize("number", range(len(TYPES)), ids=list(TYPES))
@pytest.mark.parametrize("how", ["streaming", "batch"])
def test_kept_values_survive(results: Any, how: str, number: int) -> None:
    name = names()[number]
    types, rows = results[how]
    assert len(rows) == 4
    for side in ("left", "right"):
        given, inputs = results[side]
        assert types[f"{side}_{name}"] == given[name]
        want = {row["id"]: repr(row[name]) for row in inputs}
        assert {row[f"{side}_id"]: repr(row[f"{side}_{name}"]) for row in rows} == want


# Types that cannot travel everywhere: they arrive whole or are refused at the call.
ODD = {
    "variant": "parse_json('{\"a\": 1}')",
    "variant in a struct": "named_struct('v', parse_json('[1]'))",
    "field names with spaces and dots": "named_struct('a b', 1, 'c.d', 2)",
    "map with structs as keys": "map(named_struct('a', 1), 'x')",
    "void": "NULL",
}


def test_odd_types_survive_or_are_refused(spark: Any, tmp_path: Path) -> None:
    columns = [f"{value} AS c{n}" for n, value in enumerate(ODD.values())]
    table = spark.sql(
        f"SELECT 1 AS id, timestamp_seconds(1700000000) AS ts, 0 AS x, {', '.join(columns)}"
    )
    call = {"where": ab.within("x", 0), "window": "0 seconds"}
    taken = []
    for name in table.columns[3:]:
        try:
            ab.correlate(table, table, **call, keep=[name])
            taken.append(name)
        except ab.errors.InvalidCall as refusal:
            assert f"'{name}'" in str(refusal)
    assert "c2" in taken
    feed = Feed(tmp_path)
    for side in ("left", "right"):
        table.select("id", "ts", "x", *taken).coalesce(1).write.parquet(str(feed.input(side)))
    feed.run(ab.correlate(*feed.streams(spark), **call, watermark="1 second", keep=taken))
    at_once = ab.correlate(*feed.tables(spark), **call, keep=taken)
    given = feed.tables(spark)[0].select(*taken)
    for result in (feed.output(spark), at_once):
        kept = result.select(*[F.col(f"left_{name}").alias(name) for name in taken])
        assert [f.dataType for f in kept.schema] == [f.dataType for f in given.schema]
        assert kept.collect() == given.collect()


def test_string_ids_and_names_that_need_quotes(spark: Any, tmp_path: Path) -> None:
    source = """SELECT concat('row ', id, '`') AS `my.id`,
                       timestamp_seconds(1700000000 + id) AS `at time`,
                       float(id) AS `a.b`, array(float(id), 1f) AS `the `` vector`, id AS `k 1.5`
                FROM range(3)"""
    feed = Feed(tmp_path)
    for side in ("left", "right"):
        spark.sql(source).coalesce(1).write.parquet(str(feed.input(side)))
    call = {
        "where": (ab.euclidean("the ` vector") <= 1) & ab.within("a.b", 1),
        "window": "5 seconds",
        "time": "at time",
        "id": "my.id",
        "keep": ["a.b", "k 1.5"],
    }
    feed.run(ab.correlate(*feed.streams(spark), **call, watermark="1 second"))
    at_once = ab.correlate(*feed.tables(spark), **call)
    streamed = feed.output(spark)
    assert at_once.columns == [
        *("left_my.id", "right_my.id", "left_at time", "right_at time", "ts", "score"),
        *("left_a.b", "left_k 1.5", "right_a.b", "right_k 1.5"),
    ]
    assert streamed.dtypes == at_once.dtypes
    want = {
        (f"row {a}`", f"row {b}`", float(abs(a - b)), float(a), b)
        for a in range(3)
        for b in range(3)
        if abs(a - b) <= 1
    }
    for result in (streamed, at_once):
        columns = ("`left_my.id`", "`right_my.id`", "score", "`left_a.b`", "`right_k 1.5`")
        got = [tuple(r) for r in result.select(*columns).collect()]
        assert len(got) == len(want) and set(got) == want


def test_strings_of_any_length_in_batch(spark: Any, tmp_path: Path) -> None:
    """Under this setting Spark expects strings and bytes with offsets of 64 bits."""
    feed = Feed(tmp_path).add(scripted(1, rows=(4, 4)))
    call = {"where": ab.within("x", 10**6), "window": "1 minute", "keep": ["name", "v"]}
    want = sorted(ab.correlate(*feed.tables(spark), **call).collect())
    with settings(spark, execution__arrow__useLargeVarTypes="true"):
        assert sorted(ab.correlate(*feed.tables(spark), **call).collect()) == want
    assert len(want) == 16
