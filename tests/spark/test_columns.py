"""Columns may be named inside a struct, or be Columns; settings and durations of any form."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.errors import InvalidCall

ROWS = """SELECT named_struct('nr', id, 'v', array(float(id), 1F), 'x', id % 4) AS payload,
          timestamp_seconds(1700000000 + id) AS at, id FROM range(12)"""


def test_nested_names_and_columns_in_every_verb(spark: Any) -> None:
    rows = spark.sql(ROWS)
    flat = rows.selectExpr("payload.nr AS nr", "payload.v AS v", "payload.x AS x", "at AS ts", "id")
    where = (ab.euclidean("v") <= 4) & ab.same("x")
    want = ab.correlate(flat, flat, where=where, window="1m", id="nr").count()
    assert want > 12
    nested = (ab.euclidean("payload.v") <= 4) & ab.same("payload.x")
    for said in (
        {"id": "payload.nr", "time": "at", "keep": ["payload.x"]},
        {"id": F.col("payload.nr").alias("nr"), "time": F.col("at"), "keep": [F.col("id")]},
    ):
        found = ab.correlate(rows, rows, where=nested, window="1m", **said)
        assert found.count() == want
    assert "left_id" in found.columns and "left_nr" in found.columns
    groups = ab.assemble(rows, key="payload.x", time="at", close=ab.close.gap("1 minute"))
    assert groups.count() == 4 and groups.columns[0] == "payload.x"
    groups = ab.assemble(
        rows, key=(F.col("id") % 2).alias("half"), time=F.col("at"), close=ab.close.after("1 h")
    )
    assert groups.count() == 2
    wanted = spark.sql("SELECT 'q' AS query_id, named_struct('v', array(0F, 1F)) AS payload")
    hits = ab.nearest(rows, wanted, by="payload.v", time="at", id="id", k=1, window="1 hour")
    assert hits.count() > 0


def test_columns_that_are_none_are_named(spark: Any) -> None:
    rows = spark.sql(ROWS)
    call = {"where": ab.same("payload.x"), "window": "1 second", "time": "at"}
    with pytest.raises(InvalidCall, match=r"left has no column 'payload\.no'"):
        ab.correlate(rows, rows, **{**call, "where": ab.same("payload.no")})
    with pytest.raises(InvalidCall, match="give it another alias"):
        ab.correlate(rows, rows, id=(F.col("id") + 1).alias("id"), **call)
    with pytest.raises(InvalidCall, match=r"left has no column 'nothing' \(needed by id\)"):
        ab.correlate(rows, rows, id=F.col("nothing"), **call)


def test_a_column_of_one_side_alone_prints_no_trace_of_spark(spark: Any) -> None:
    rows = spark.sql(ROWS)
    other = rows.withColumnRenamed("id", "nr").withColumnRenamed("at", "due")
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[method-assign]
    names = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
    loggers = [PySparkLogger.getLogger(name) for name in names]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        ab.correlate(
            rows,
            other,
            where=ab.same("payload.x"),
            window="1 second",
            id=(F.col("id"), F.col("nr")),
            time=(F.col("at"), F.col("due")),
            plan=ab.grid(1, 1),
        )
        with pytest.raises(InvalidCall, match="is no condition on these columns"):
            ab.fit_windows(rows, key="id", time="at", complete="cuont > 1")
        assert seen == []
        with pytest.raises(AnalysisException):  # what the user asks of Spark is still logged
            rows.select("nothing")
        assert len(seen) == 1
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def test_a_missing_window_is_named(spark: Any) -> None:
    rows = spark.sql(ROWS)
    with pytest.raises(InvalidCall, match="window= is missing: add for example window='1 minute'"):
        ab.correlate(rows, rows, where=ab.same("id"), time="at")


def test_objects_per_window_is_used_or_rejected(spark: Any, tmp_path: Any) -> None:
    rows = spark.sql(ROWS).selectExpr("id", "at AS ts", "payload.v AS v")
    wanted = spark.sql("SELECT 'q' AS query_id, array(0F, 1F) AS v")
    call = {"by": "v", "k": 1, "window": "1 hour", "objects_per_window": 200}
    with pytest.raises(InvalidCall, match="objects_per_window= would have no effect: without"):
        ab.nearest(rows, wanted, **call)
    with pytest.raises(InvalidCall, match="objects_per_window= would have no effect: plan="):
        ab.nearest(rows, wanted, plan=ab.broadcast(2), **call)


def test_configure_takes_a_builder_and_says_what_it_set(spark: Any, caplog: Any) -> None:
    builder = SparkSession.builder.appName("mine")
    with caplog.at_level(logging.INFO, "anabranch"):
        assert ab.configure(builder, workers=11) is builder
    assert builder._options["spark.sql.shuffle.partitions"] == "12"
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("workers=11: 12 partitions")
    assert "spark.sql.shuffle.partitions=12" in said[1] and "RocksDB" in said[1]
    with pytest.raises(InvalidCall, match=r"SparkSession\.builder, got int"):
        ab.configure(5)
    builder._options.clear()
