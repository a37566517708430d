"""The Spark form equals the local planner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.placement import plan_graph
from anabranch.placement.graph import pair_graph


def network(seed: int, users: int = 120, pairs: int = 900) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.integers(0, users, (pairs, 2)), axis=1)
    ends = np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)
    rates = np.where(rng.random(ends.shape) < 0.3, rng.random(ends.shape).round(2), 0.0)
    return pd.DataFrame(
        {"a": ends[:, 0], "b": ends[:, 1], "rate_a": rates[:, 0], "rate_b": rates[:, 1]}
    )


@pytest.mark.parametrize("down", [1.0, 0.2])
def test_pairs_cost_the_same_as_locally(spark: Any, down: float) -> None:
    from anabranch.spark.demand_pairs import pair_cost

    table = network(3)
    placed = ab.place_pairs(spark.createDataFrame(table), upload_cost=1.0, download_cost=down)
    graph = pair_graph(*(table[c] for c in table.columns), sources=120, up=1.0, down=down)
    plan = plan_graph(graph)
    assert plan.optimal and (down == 1.0 or plan.components)
    assert placed.columns == [*table.columns, "location"]
    assert placed.count() == len(table)
    assert pair_cost(placed, 1.0, down) == pytest.approx(plan.cost)
    found = placed.toPandas().sort_values(["a", "b"])["location"].tolist()
    if not plan.components:
        assert found == [str(plan.graph.device_name(int(d))) for d in plan.places]


def test_streams_in_the_cloud_keep_nothing(spark: Any) -> None:
    rows = [("news", "p", 9.0, 1.0), ("p", "q", 5.0, 1.0)]
    frame = spark.createDataFrame(rows, "a string, b string, rate_a double, rate_b double")
    placed = (
        ab.place_pairs(frame, {"news": "cloud"}, upload_cost=1.0, download_cost=1.0)
        .orderBy("a")
        .collect()
    )
    assert [row["location"] for row in placed] == ["cloud", "p"]


def test_tables_are_planned_locally(spark: Any) -> None:
    rows = [("w", "p", 10.0), ("w", "q", 2.0)]
    plan = ab.place(
        spark.createDataFrame(rows, "view string, input string, rate double"),
        spark.createDataFrame([("p", "P"), ("q", "cloud")], "source string, device string"),
    )
    assert plan.location == {"w": "P"} and plan.cost == 1.0
    named = ab.place(
        spark.createDataFrame(rows, "board string, feed string, mbit double"),
        {"p": "P", "q": "cloud"},
        columns={"view": "board", "input": "feed", "rate": "mbit"},
    )
    assert named.location == plan.location
    nested = spark.createDataFrame(
        [((*row,),) for row in rows], "p struct<v:string,i:string,r:double>"
    )
    own = {"view": "p.v", "input": "p.i", "rate": "p.r"}
    assert ab.place(nested, {"p": "P", "q": "cloud"}, columns=own).location == plan.location


PAIRS = "a string, b string, rate_a double, rate_b double"


@pytest.mark.parametrize("down", [1.0, pytest.param(0.1, marks=pytest.mark.slow)])
def test_a_result_with_new_rates_is_planned_again(spark: Any, down: float) -> None:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame([("ann", "bob", 10.0, 2.0), ("bob", "cy", 9.0, 10.0)], PAIRS)
    first = ab.place_pairs(frame, download_cost=down)
    again = ab.place_pairs(first.withColumn("rate_a", F.lit(0.5)), download_cost=down)
    assert again.columns == first.columns == [*frame.columns, "location"]
    found = again.orderBy("a").select("location").collect()
    assert [row["location"] for row in found] == ["bob", "cy"]
    assert first.orderBy("a").first()["location"] == "ann"


@pytest.mark.parametrize("down", [1.0, 0.1])
def test_columns_of_any_name_are_kept(spark: Any, down: float) -> None:
    names = ["keeps_a", "a", "b", "level_a", "x.y", "rate_a", "rate_b", "stream", "tick`"]
    rows = [(1, "ann", "bob", 2, 3, 10.0, 9.0, 4, 5), (6, "bob", "cy", 7, 8, 10.0, 9.0, 9, 0)]
    placed = ab.place_pairs(spark.createDataFrame(rows, names), download_cost=down)
    assert placed.columns == [*names, "location"]
    assert [tuple(row)[:-1] for row in placed.orderBy("a").collect()] == rows


def test_pairs_with_columns_of_their_own_names(spark: Any) -> None:
    rows = [("ann", "bob", 10.0, 2.0), ("bob", "cy", 1.0, 1.0)]
    plain = spark.createDataFrame(rows, PAIRS)
    own = {"a": "user", "b": "a", "rate_b": "mbit"}  # one of them by a name that is ours
    named = plain.select(*(F.col(name).alias(own.get(name, name)) for name in plain.columns))
    found = ab.place_pairs(named, download_cost=1.0, columns=own)
    assert found.columns == ["user", "a", "rate_a", "mbit", "location"]
    assert [tuple(row) for row in found.orderBy("user").collect()] == [
        (*rows[0], "ann"),
        (*rows[1], "cloud"),
    ]
    for columns, says in (
        ({"a": "usr", "b": "a"}, "pairs needs columns usr, a, rate_a, rate_b; it has 'user', 'a'"),
        ({"view": "user"}, "columns names unknown columns 'view': there are 'a', 'b'"),
        ({"a": "user", "b": "user", "rate_b": "mbit"}, "one name to two columns: user, user"),
        ({"a": "user", "b": "mbit", "rate_b": "rate_a"}, "gives one name to two columns"),
        ({**own, "b": "user"}, "gives one name to two columns"),
        ("user", "columns must be a dict such as"),
    ):
        with pytest.raises(ab.errors.InvalidCall, match=says):
            ab.place_pairs(named, columns=columns)
    beside = named.withColumn("b", F.lit(1))
    with pytest.raises(
        ab.errors.InvalidCall, match="pairs has a column 'b' beside 'a', which columns="
    ):
        ab.place_pairs(beside, columns=own)
    with pytest.raises(
        ab.errors.InvalidCall, match="columns user and mbit must have the same type"
    ):
        ab.place_pairs(named, columns={"a": "user", "b": "mbit", "rate_b": "a"})


def test_columns_that_would_be_lost_are_refused(spark: Any) -> None:
    frame = spark.createDataFrame([("ann", "bob", 1.0, 1.0, 4.5)], f"{PAIRS}, Location double")
    with pytest.raises(ab.errors.InvalidCall, match="no earlier plan: rename it"):
        ab.place_pairs(frame)
    with pytest.raises(ab.errors.InvalidCall, match="are ours: rename '_anabranch_level_a'"):
        ab.place_pairs(frame.withColumnRenamed("Location", "_anabranch_level_a"))


def test_bad_sources_and_streams_are_refused_at_the_call(spark: Any) -> None:
    pairs = spark.createDataFrame([(1, 2, 1.0, 1.0)], PAIRS.replace("string", "int"))
    with pytest.raises(ab.errors.InvalidCall, match="which are int: 'news'"):
        ab.place_pairs(pairs, {"news": "cloud"})
    with pytest.raises(ab.errors.InvalidCall, match="which are string: 5"):
        ab.place_pairs(pairs.withColumns({c: pairs[c].cast("string") for c in "ab"}), {5: "cloud"})
    table = spark.createDataFrame([("w", "p", 1.0)], "view string, input string, rate double")
    with pytest.raises(
        ab.errors.InvalidCall, match="sources has no column 'source', 'device'; it has 'view'"
    ):
        ab.place(table, table)
    ticks = spark.readStream.format("rate").load()
    stream = ticks.selectExpr("'w' AS view", "'p' AS input", "1.0 AS rate")
    with pytest.raises(ab.errors.InvalidCall, match=r"inputs is streaming.*spark\.read"):
        ab.place(stream, {"p": "P"})
    sources = ticks.selectExpr("'p' AS source", "'P' AS device")
    with pytest.raises(ab.errors.InvalidCall, match="sources is streaming"):
        ab.place(table, sources)


def test_bad_pairs_are_refused_by_name(spark: Any) -> None:
    schema = "a long, b long, rate_a double, rate_b double"
    frame = spark.createDataFrame([(1, 2, -1.0, 2.0), (3, 4, 1.0, 1.0), (4, 3, 1.0, 1.0)], schema)
    with pytest.raises(ab.errors.InvalidCall, match="2 problems") as error:
        ab.place_pairs(frame)
    assert "(1, 2, -1.0, 2.0)" in str(error.value) and "(3, 4)" in str(error.value)
    with pytest.raises(ab.errors.InvalidCall, match="there is no capacity="):
        ab.place_pairs(frame, capacity={1: 1.0})
    with pytest.raises(ab.errors.InvalidCall, match="pairs must be a Spark DataFrame, got list"):
        ab.place_pairs([(1, 2, 1.0, 1.0)])
    with pytest.raises(ab.errors.InvalidCall, match=r"there is ab\.place_pairs"):
        ab.place(frame, {1: 1})
    with pytest.raises(ab.errors.InvalidCall, match="needs columns"):
        ab.place_pairs(frame.select("a", "b"))


@pytest.mark.parametrize("down", [1.0, 0.1])
def test_planning_pairs_leaves_nothing_cached(spark: Any, down: float) -> None:
    """A planner that plans again each minute must not fill the storage memory."""
    frame = spark.createDataFrame([("ann", "bob", 10.0, 9.0), ("bob", "cy", 9.0, 10.0)], PAIRS)
    before = _cached(spark)
    placed = ab.place_pairs(frame, download_cost=down)
    assert placed.count() == 2
    assert _cached(spark) == before


def _cached(spark: Any) -> tuple[int, bool]:
    """RDDs that are kept, and whether any query is."""
    queries = spark._jsparkSession.sharedState().cacheManager()
    return spark.sparkContext._jsc.getPersistentRDDs().size(), queries.isEmpty()


def test_sources_may_be_a_spark_table_beside_views_in_memory(spark: Any) -> None:
    sources = spark.createDataFrame([("p", "P"), ("q", "cloud")], "source string, device string")
    assert ab.place([("w", "p", 10.0), ("w", "q", 2.0)], sources).location == {"w": "P"}


@pytest.mark.parametrize(
    ("schema", "row", "text"),
    [
        (PAIRS.replace("rate_a double", "rate_a date"), None, "rate_a must hold numbers, got date"),
        (PAIRS.replace("string", "array<int>"), None, "not by array<int>"),
        (PAIRS.replace("double", "string"), ("a", "b", "1", "x"), "two rates of at least 0"),
    ],
)
def test_columns_of_wrong_types_are_named(spark: Any, schema: str, row: Any, text: str) -> None:
    frame = spark.createDataFrame([] if row is None else [row], schema)
    with pytest.raises(ab.errors.InvalidCall, match=text):
        ab.place_pairs(frame)


@pytest.mark.parametrize("time_limit", [None, 0, float("nan"), "1"])
def test_a_wrong_time_limit_is_refused_for_pairs_too(spark: Any, time_limit: Any) -> None:
    frame = spark.createDataFrame([], PAIRS)
    with pytest.raises(
        ab.errors.InvalidCall, match="time_limit must be a number of seconds above 0"
    ):
        ab.place_pairs(frame, time_limit=time_limit)


def test_a_stream_that_is_in_no_pair_is_named(spark: Any) -> None:
    frame = spark.createDataFrame([("a", "b", 1.0, 2.0)], ["a", "b", "rate_a", "rate_b"])
    with pytest.raises(ab.errors.InvalidCall, match="streams that are in no pair: 'traffik'"):
        ab.place_pairs(frame, {"a": "cloud", "traffik": "cloud"})
