"""Columns may be named inside a struct, or be Columns; settings and durations of any form."""

from __future__ import annotations

import logging
import math
import sys
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.errors import InvalidCall
from anabranch.spark.opening import opened
from anabranch.spark.settings import DAEMON

ROWS = """SELECT named_struct('nr', id, 'v', array(float(id), 1F), 'x', id % 4) AS payload,
          timestamp_seconds(1700000000 + id) AS at, id FROM range(12)"""


@pytest.mark.slow
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


def test_a_name_of_several_columns_is_answered_before_spark_does(spark: Any) -> None:
    """Spark's own word is AMBIGUOUS_REFERENCE, and comes when the plan is made."""
    rows = spark.sql(ROWS).selectExpr("payload.v AS v", "payload.x AS x", "at AS ts", "id")
    twice = rows.withColumn("w", F.col("v")).withColumnRenamed("w", "v")
    with pytest.raises(AnalysisException, match="AMBIGUOUS_REFERENCE"):
        twice.select("v")
    wanted = rows.selectExpr("id AS query_id", "v")
    calls = [
        lambda: ab.correlate(twice, rows, where=ab.cosine("v") >= 0.5, window="1m"),
        lambda: ab.correlate(rows, twice, where=ab.same("x"), window="1m", keep=["v"]),
        lambda: ab.dedupe(twice, where=ab.cosine("v") >= 0.5, window="1m"),
        lambda: ab.nearest(twice, wanted, by="v", k=1, window="1m"),
        lambda: ab.assemble(twice, key="v", close=ab.close.gap("1 minute")),
    ]
    for call in calls:
        with pytest.raises(InvalidCall, match=r"2 columns that 'v' .* may stand for, v, v: rename"):
            call()
    assert ab.correlate(rows, twice, where=ab.same("x"), window="1m").count() > 0


def test_every_predicate_takes_columns(spark: Any) -> None:
    """As names do: one for both sides or one for each."""
    rows = spark.sql(ROWS)
    flat = rows.selectExpr("payload.v AS v", "payload.x AS x", "at AS ts", "id")
    other = flat.withColumnRenamed("x", "y")
    v = F.col("v")

    def apart(left: Any, right: Any) -> Any:
        return left["n"][:, None] - right["m"][None, :]

    said = (
        (ab.cosine(v, other["v"]) >= 0.5)
        & (ab.euclidean(v.cast("array<double>")) <= 4)
        & (ab.manhattan(F.transform(v, lambda e: e * 1)) <= 4)
        & (ab.dot(v) >= 2)
        & (ab.hamming(F.col("id")) <= 3)
        & (ab.emd(v.cast("array<double>")) <= 0.5)
        & ab.within(F.col("id") * 2, F.col("id") * 2, 8)
        & ab.within(F.col("ts"), "9 seconds")
        & ab.same(F.col("x"), F.col("y"))
        & (ab.custom(apart, [F.col("id").alias("n")], F.col("id").alias("m")) <= 1)
    )
    meant = ab.within("id", 4) & ab.same("x", "y")
    pairs = []
    for where in (said, meant):
        found = ab.correlate(flat, other, where=where, window="1m", plan=ab.keyed(1))
        pairs.append({tuple(row) for row in found.select("left_id", "right_id").collect()})
    twin = {(a, b) for a, b in pairs[1] if a * b + 1 >= 2 and a - b <= 1 and hamming(a, b) <= 3}
    twin = {(a, b) for a, b in twin if turned(a, b) >= 0.5 and moved(a, b) <= 0.5}
    assert pairs[0] == twin and len(twin) > 10
    wanted = spark.sql("SELECT 'q' AS query_id, array(0D, 1D) AS w")
    for by, asked in (
        (F.col("v"), wanted.withColumnRenamed("w", "v")),
        (ab.euclidean(v.cast("array<double>"), F.col("w")), wanted),
    ):
        hits = ab.nearest(flat, asked, by=by, id="id", k=1, window="1 hour", plan=ab.broadcast(1))
        assert hits.columns[0] == "query_id"


def hamming(a: int, b: int) -> int:
    return (a ^ b).bit_count()


def turned(a: int, b: int) -> float:
    return (a * b + 1) / math.sqrt((a * a + 1) * (b * b + 1))


def moved(a: int, b: int) -> float:
    """The Earth Mover's Distance of two bins."""
    return abs(a / (a + 1) - b / (b + 1))


def test_a_column_in_a_predicate_has_a_name_that_stays(spark: Any) -> None:
    """It is the same after a restart: of the text in a repr, and of what the state is told by."""
    rows = spark.sql(ROWS)
    frames = [rows, rows]

    def named() -> list[str]:
        plus = F.udf(lambda x: x + 1, "bigint")
        where = [
            ab.within(F.col("id").cast("double"), 1),
            ab.same(plus("id")),
            ab.cosine(F.transform("payload.v", lambda e: e + 1)) >= 0.5,
            ab.same(F.col("id") % 2, (F.col("id") + 1).alias("next")),
        ]
        assert where[2].measure == ab.cosine(F.transform("payload.v", lambda e: e + 1))
        return [repr(one) for one in (*where, *opened(frames, [], *where)[1])]

    first = named()
    assert first == named() and "@" not in "".join(first)
    assert first[4:] == [
        "within('CAST(id AS DOUBLE)', 1)",
        "same('<lambda>(id)')",
        "cosine('transform(payload.v, lambdafunction((namedlambdavariable() + 1), "
        "namedlambdavariable()))') >= 0.5",
        "same('(id % 2)', 'next')",
    ]


def test_columns_that_cannot_be_named_are_rejected(spark: Any) -> None:
    rows = spark.sql(ROWS)
    call = {"window": "1 second", "time": "at"}
    with pytest.raises(InvalidCall, match=r"rand\(.*is drawn anew.*\.alias\('name'\)"):
        ab.correlate(rows, rows, where=ab.within(F.rand(), 1), **call)
    one, two = (F.udf(lambda x, n=n: x + n, "bigint")("id") for n in (1, 2))
    with pytest.raises(InvalidCall, match=r"has the name of another column of the call"):
        ab.correlate(rows, rows, where=ab.same(one) & ab.within(two, 1), **call)
    twice = ab.correlate(rows, rows, where=ab.same(one) & ab.within(one, 1), **call)
    assert twice.columns[0] == "left_id"
    with pytest.raises(InvalidCall, match=r"left has no column 'nothing' \(needed by same"):
        ab.correlate(rows, rows, where=ab.same(F.col("nothing")), **call)
    for wrong in (5, None, ""):
        with pytest.raises(InvalidCall, match=r"a column is a name, .*or a Column of Spark.*got"):
            ab.same(wrong)


def test_a_column_of_one_side_is_no_column_of_the_other(spark: Any) -> None:
    """``time=(a, b)``, ``id=`` and two lists in ``keep=`` are of one input each."""
    rows = spark.sql(ROWS).selectExpr("id", "at", "payload.x AS x", "payload.v AS v")
    other = rows.withColumnRenamed("at", "ts").withColumn("title", F.lit("t"))
    found = ab.correlate(
        rows, other, where=ab.same("x"), window="1 s", time=(F.col("at").alias("ts"), "ts"),
        keep=([F.upper(F.lit("n")).alias("title")], ["title"]), plan=ab.keyed(1),
    )  # fmt: skip
    assert {tuple(row) for row in found.select("left_title", "right_title").collect()} == {
        ("N", "t")
    }
    things = other.withColumn("k", F.lit(1))
    wanted = spark.sql("SELECT 'q' AS query_id, array(0D, 1D) AS v")
    call = {"by": "v", "k": 1, "window": "1 hour", "plan": ab.broadcast(1)}
    plain = ab.nearest(things, wanted, **call).count()
    for kept in (F.col("k"), (F.col("id") + 1).alias("rows"), F.lit(2).alias("k2")):
        hits = ab.nearest(things, wanted, **call, keep=[kept])
        assert hits.count() == plain and len(hits.columns) == 7, hits.columns


def test_a_column_of_a_view_or_an_alias_is_that_column(spark: Any) -> None:
    """Spark puts the name of the view before it when it prints it."""
    rows = spark.sql(ROWS).selectExpr("payload.v AS v", "payload.x AS x", "at AS ts", "id")
    rows.createOrReplaceTempView("rows_of_a_view")
    call = {"window": "1 second", "plan": ab.keyed(1)}
    want = ab.correlate(rows, rows, where=ab.same("x"), **call)
    for table in (
        spark.table("rows_of_a_view"),
        rows.alias("l"),
        rows.alias("l").filter("id >= 0"),
    ):
        found = ab.correlate(
            table, rows, where=ab.same(table.x, "x"), id=(table.id, "id"), time=(table.ts, "ts"),
            keep=([table.x], []), **call,
        )  # fmt: skip
        assert found.columns == [*want.columns, "left_x"]
        asked = ab.same(table.x) & ab.within(table.id, 9)
        assert opened([table], [], asked)[0][0].columns == table.columns
    assert found.count() == want.count()


def test_a_column_that_makes_several_rows_is_rejected(spark: Any) -> None:
    rows = spark.sql(ROWS).selectExpr("payload.v AS v", "payload.x AS x", "at AS ts", "id")
    many = F.explode("v").alias("e")
    overlapping = F.window("ts", "9 seconds", "3 seconds").start.alias("w")
    calls = [
        lambda: ab.correlate(rows, rows, where=ab.same("x"), window="1 s", keep=[many]),
        lambda: ab.dedupe(rows, where=ab.within(F.explode("v"), 0), window="1 s"),
        lambda: ab.nearest(rows, rows, by="v", k=1, window="1 s", id=(many, "id")),
        lambda: ab.assemble(rows, key=many, close=ab.close.gap("1 s")),
        lambda: ab.assemble(rows, key=overlapping, close=ab.close.gap("1 s")),
    ]
    for call in calls:
        with pytest.raises(InvalidCall, match="several rows of one: explode before the call"):
            call()
    hours = F.window("ts", "1 hour").start.alias("hour")  # of which each row has one
    assert ab.assemble(rows, key=hours, close=ab.close.gap("1 hour")).count() == 1


def test_names_are_found_as_spark_finds_them(spark: Any) -> None:
    """It does not tell upper from lower case, inside structs neither."""
    rows = spark.sql(ROWS).withColumnRenamed("payload", "Payload")
    found = ab.correlate(
        rows, rows, where=ab.same("payload.x"), window="1 s", time="AT", keep=["pAyload.v"]
    )
    assert found.columns[-1] == "right_pAyload.v"
    top = spark.sql("SELECT 'q' AS Qid, timestamp_seconds(1) AS TS, 1 AS rank, 7 AS object_id")
    assert ab.top(top, id="qid").count() == 1


def test_columns_that_are_none_are_named(spark: Any) -> None:
    rows = spark.sql(ROWS)
    call = {"where": ab.same("payload.x"), "window": "1 second", "time": "at"}
    with pytest.raises(InvalidCall, match=r"left has no column 'payload\.no'"):
        ab.correlate(rows, rows, **{**call, "where": ab.same("payload.no")})
    with pytest.raises(InvalidCall, match="give it another alias"):
        ab.correlate(rows, rows, id=(F.col("id") + 1).alias("id"), **call)
    with pytest.raises(InvalidCall, match=r"left has no column 'nothing' \(needed by id\)"):
        ab.correlate(rows, rows, id=F.col("nothing"), **call)
    # A sum over rows is no column of a row.
    with pytest.raises(InvalidCall, match=r"left has no column 'max\(id\)' \(needed by id\)"):
        ab.correlate(rows, rows, id=F.max("id"), **call)
    with pytest.raises(InvalidCall, match=r"left has no column 'max\(id\)' \(needed by same"):
        ab.correlate(rows, rows, **{**call, "where": ab.same(F.max("id"))})


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


def test_configure_says_what_it_set_to_a_person_who_looks_on(
    spark: Any, capsys: Any, monkeypatch: Any
) -> None:
    kept = spark.conf.get("spark.sql.shuffle.partitions")
    ab.configure(spark, workers=int(kept))
    assert capsys.readouterr().err == ""  # nobody looks on
    monkeypatch.setattr("anabranch.spark.settings.screen", lambda: "a terminal")
    ab.configure(spark, workers=3)
    ab.configure(spark, workers=int(kept))
    ab.configure(SparkSession.builder, workers=3)
    said = capsys.readouterr().err.splitlines()
    tail = "; state in RocksDB with changelog checkpoints; Spark's chatter off (its state servers"
    head = "shuffle partitions for every query of this session"
    starts = [f"3 {head}, {kept} before{tail})", f"{kept} {head}, 3 before{tail})"]
    for line, start in zip(said, [*starts, f"3 {head}{tail} and progress bars)"], strict=True):
        assert line.startswith(f"anabranch: {start}")
        assert line.removeprefix(f"anabranch: {start}") in ("", f"; they are started by {DAEMON}")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    builder: Any = SparkSession.Builder()
    builder._options = {}
    ab.configure(builder, workers=3)
    python = f"; Python workers are {sys.executable}; they are started by {DAEMON}"
    assert capsys.readouterr().err.strip().endswith(python)


@pytest.mark.slow
def test_policies_take_fields_and_columns(spark: Any) -> None:
    """Every other argument does."""
    rows = spark.sql(
        """SELECT named_struct('page', id % 2, 'last', id % 6 >= 4) AS payload,
           timestamp_seconds(1700000000 + id) AS ts, id div 6 AS visit FROM range(24)"""
    )
    flat = rows.selectExpr("payload.page AS page", "payload.last AS last", "ts", "visit")
    key = ["visit", "payload.page"]

    def found(close: Any, frame: Any = rows, key: Any = key) -> list[Any]:
        made = ab.assemble(frame, key=key, close=close)
        columns = ["visit", made.columns[1], "closed", "reason", "count", "usual_count"]
        return sorted(tuple(row) for row in made.select(*(f"`{c}`" for c in columns)).collect())

    ends = found(ab.close.until("last"), flat, ["visit", "page"])
    assert {row[3] for row in ends} == {"end"} and len(ends) == 8
    for marker in ("payload.last", F.col("payload.last"), F.col("payload")["last"] == F.lit(True)):
        assert found(ab.close.until(marker)) == ends
    quick = {"timeout": "3 seconds", "after": 4}
    learned = found(ab.close.learned(**quick, kind="page"), flat, ["visit", "page"])
    assert found(ab.close.learned(**quick, kind="payload.page")) == learned
    column = F.col("payload.page").alias("page")
    assert found(ab.close.learned(**quick, kind=column), key=["visit", column]) == learned
    with pytest.raises(InvalidCall, match="kind='payload' is not one of the key columns 'visit'"):
        found(ab.close.learned(kind=F.col("payload")))


def test_top_takes_fields_and_columns(spark: Any) -> None:
    tops = spark.sql(
        """SELECT named_struct('id', id % 2) AS query, timestamp_seconds(id div 2) AS ts, 1 AS rank
           FROM range(8)"""
    )
    for name in ("query.id", F.col("query.id"), (F.col("query.id") + 1).alias("mine")):
        newest = ab.top(tops, id=name)
        assert newest.columns == tops.columns and newest.count() == 2
    with pytest.raises(InvalidCall, match=r"no column 'query.nr', it has query, ts, rank"):
        ab.top(tops, id="query.nr")


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


@pytest.mark.slow
def test_calls_that_run_a_job_say_so_and_no_others(spark: Any, caplog: Any) -> None:
    rows = spark.sql("SELECT id, timestamp_seconds(id) AS ts, array(1D, id) AS v FROM range(1, 9)")
    pairs = {"where": ab.euclidean("v") <= 2, "window": "5 s"}
    wanted = rows.selectExpr("id AS query_id", "v")
    seen = spark.sql(
        "SELECT 'a' AS kind, 0 AS seq, 0 AS revision, timestamp_seconds(5) AS opened, "
        "timestamp_seconds(9) AS closed, 1D AS duration FROM range(9)"
    )
    promises = spark.sql("SELECT 'a' AS service, 1D AS promised")
    views = spark.sql("SELECT 'w' AS view, concat('s', id) AS input, 1D AS rate FROM range(3)")
    streams = spark.sql("SELECT 'p' AS a, 'q' AS b, 1D AS rate_a, 2D AS rate_b")
    complete = {"complete": True}
    calls: dict[str, tuple[bool, Any]] = {
        "correlate": (True, lambda: ab.correlate(rows, rows, **pairs)),
        "correlate, plan": (False, lambda: ab.correlate(rows, rows, plan=ab.grid(1, 1), **pairs)),
        "nearest": (True, lambda: ab.nearest(rows, wanted, by="v", k=1, window="5 s")),
        "assemble": (True, lambda: ab.assemble(rows, key="id", close=ab.close.gap("1 s"))),
        "assemble, learned": (
            True,
            lambda: ab.assemble(rows.withColumn("k", F.lit(1)), key="k", close=ab.close.learned()),
        ),
        "fit_windows": (True, lambda: ab.fit_windows(rows, key="v", time="ts")),
        "place": (True, lambda: ab.place(views, "own")),
        "place_pairs": (True, lambda: ab.place_pairs(streams)),
        "sla": (False, lambda: ab.sla(seen, "1 s", **complete)),
        "sla, dict": (False, lambda: ab.sla(seen, {"a": "1 s"}, **complete)),
        "sla, table": (True, lambda: ab.sla(seen, promises, **complete)),
        "rank": (False, lambda: ab.rank_services(seen, "1 s", **complete)),
        "rank, age": (True, lambda: ab.rank_services(seen, "1 s", half_life="1 d", **complete)),
        "rank, likes": (True, lambda: ab.rank_services(seen, "1 s", prefer={"a": 1}, **complete)),
    }  # fmt: skip
    told = {"assemble, learned": 2}
    context = spark.sparkContext
    for name, (runs, call) in calls.items():
        caplog.clear()
        context.setJobGroup(name, name)
        with caplog.at_level(logging.INFO, "anabranch"):
            call()
        said = [r.getMessage() for r in caplog.records if " job" in r.getMessage()]
        ran = context.statusTracker().getJobIdsForGroup(name)
        assert (bool(said), bool(ran)) == (runs, runs), (name, said, ran)
        assert len(said) >= told.get(name, 0), (name, said)
    context._jsc.clearJobGroup()
