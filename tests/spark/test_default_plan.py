"""The plan of tables for which none is named: few copies, and no worker with all the rows."""

from __future__ import annotations

from typing import Any

import anabranch as ab
from anabranch.correlation.call import plan_correlation
from anabranch.plans.hashed import Grid
from anabranch.plans.plan import Plan
from anabranch.plans.segments import Segments
from anabranch.spark.default_plan import default_plan
from anabranch.spark.frames import column_types
from tests.spark.feeds import START

ROWS = 5_000
EVENLY = f"timestamp_micros({START} + id * 500 * 1000000)"  # over 29 days


def plan_of(spark: Any, when: str, how: str = "inner") -> Plan:
    table = spark.sql(f"SELECT id, {when} AS ts, 0 AS x FROM range({ROWS})")
    call = {"where": ab.within("x", 0), "window": "1 minute", "how": how}
    types = column_types(table)
    correlation, problems = plan_correlation(types, types, **call)
    assert correlation is not None, problems
    return default_plan(correlation, (table, table), 8)


def test_the_job_is_logged_under_the_verb_that_was_called(spark: Any, caplog: Any) -> None:
    table = spark.sql(f"SELECT id, {EVENLY} AS ts, 0 AS x FROM range(3)")
    with caplog.at_level("INFO", "anabranch"):
        ab.dedupe(table, where=ab.within("x", 0), window="1 minute")
        ab.correlate(table, where=ab.within("x", 0), window="1 minute")
        asked = table.selectExpr("id AS query_id", "array(1F) AS v", "'add' AS op", "ts")
        objects = table.selectExpr("id", "ts", "array(1F) AS v")
        ab.nearest(objects, asked, by="v", k=1, window="1 minute")
    said = [line.partition(" runs a job")[0] for line in caplog.messages if "plan=" in line]
    assert said == ["dedupe", "correlate", "nearest"]


def test_segments_for_a_long_time(spark: Any) -> None:
    plan = plan_of(spark, EVENLY)
    assert isinstance(plan, Segments)
    assert 0.9 < plan.length * 8 * 16 / (ROWS * 500 * 1_000_000) <= 1.01


def test_one_time_far_off_changes_nothing(spark: Any) -> None:
    far = "TIMESTAMP'9999-12-31 00:00:00'"
    plan = plan_of(spark, f"CASE WHEN id = 17 THEN {far} ELSE {EVENLY} END")
    assert isinstance(plan, Segments)
    assert 0.9 < plan.length * 8 * 16 / (ROWS * 500 * 1_000_000) <= 1.01


def test_a_grid_where_many_rows_are_of_one_moment(spark: Any) -> None:
    plan = plan_of(spark, f"CASE WHEN id % 3 = 0 THEN timestamp_micros({START}) ELSE {EVENLY} END")
    assert isinstance(plan, Grid)


def test_tables_without_rows_or_times(spark: Any) -> None:
    assert isinstance(plan_of(spark, "CAST(NULL AS timestamp)"), Grid)


def test_rows_that_wait_for_a_partner_go_to_one_worker_each(spark: Any) -> None:
    for how, side in (("left", 0), ("anti", 0), ("right", 1)):
        for when in (EVENLY, f"timestamp_micros({START})"):
            assert plan_of(spark, when, how).once(side)
