"""Calls that cannot work are refused at the call, with every problem and its remedy."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.plans.hashed import Broadcast, keyed
from anabranch.spark.listening import sessions
from tests.spark.feeds import Feed, scripted, settings

GOOD = {"where": ab.cosine("v") >= 0.6, "window": "2 seconds"}


@pytest.fixture(scope="module")
def feed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Feed:
    """Read once: a refusal needs schemas alone."""
    feed = Feed(tmp_path_factory.mktemp("calls")).add(scripted(1, rows=(2, 2)))
    streams, tables = feed.streams(spark), feed.tables(spark)
    feed.streams = lambda spark: streams  # type: ignore[method-assign]
    feed.tables = lambda spark: tables  # type: ignore[method-assign]
    return feed


def problems(left: Any, right: Any, **call: Any) -> tuple[str, ...]:
    with pytest.raises(ab.errors.InvalidCall) as refusal:
        ab.correlate(left, right, **{**GOOD, **call})
    for problem in refusal.value.problems:
        assert problem in str(refusal.value)
    return refusal.value.problems


COLUMNS = "id, ts, v, x, bits, room, name"
# What is wrong, and all that must be said about it.
WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "missing compared column": (
        {"where": ab.cosine("w") >= 0.6},
        [
            f"{side} has no column 'w' (needed by cosine('w') >= 0.6); it has {COLUMNS}"
            for side in ("left", "right")
        ],
    ),
    "missing id": (
        {"id": ("id", "key")},
        [f"right has no column 'key' (needed by id); it has {COLUMNS}"],
    ),
    "missing kept column": (
        {"keep": (["colour"], [])},
        [f"left has no column 'colour' (needed by keep); it has {COLUMNS}"],
    ),
    "a name is not a vector": (
        {"where": ab.cosine("v", "name") >= 0.6},
        [
            "cosine('v', 'name') >= 0.6 compares array<float> or array<double>; "
            "left is array<float>, right is string"
        ],
    ),
    "time is not a timestamp": (
        {"time": ("ts", "x")},
        ["time: right column 'x' is bigint, not timestamp; cast it, for example with to_timestamp"],
    ),
    "id is not long, int or string": (
        {"id": ("v", "id")},
        [
            "id: left column 'v' is array<float>, not bigint or int or string; "
            "cast it to long or string"
        ],
    ),
    "negative window": (
        {"window": ("-1 second", "1 second")},
        ["window must not be negative, got '-1 second'; 0 seconds is allowed"],
    ),
    "window without unit": (
        {"window": "5"},
        [
            "window: '5' is not a duration; write for example '60 seconds', '1h30m' or a "
            "datetime.timedelta; units are w, d, h, m, s, ms, us, ns and their names (weeks, days, "
            "hours, minutes, seconds, ...)"
        ],
    ),
    "threshold is text": (
        {"where": ab.cosine("v") >= "0.6"},  # type: ignore[operator]
        ["cosine('v') >= '0.6': the threshold must be a finite number, got '0.6'"],
    ),
    "threshold out of reach": (
        {"where": ab.cosine("v") >= 6},
        ["cosine('v') >= 6: a cosine lies between -1 and 1, so compare with such a number"],
    ),
    "no comparison": (
        {"where": ab.cosine("v")},
        [
            "where=cosine('v') is not compared with anything yet: write for example "
            "cosine('v') >= 0.9"
        ],
    ),
    "not a predicate": (
        {"where": "v > 1"},
        ["where must be a predicate such as ab.cosine('v') >= 0.9, got 'v > 1'"],
    ),
    "more workers than partitions": (
        {"plan": ab.grid(2, 3)},
        [
            "plan grid(2, 3) has 6 workers, but spark.sql.shuffle.partitions is 2: use fewer, or "
            "call ab.configure(spark, workers=6)"
        ],
    ),
    "keyed without key": (
        {"plan": keyed(2)},
        ["plan keyed(2) spreads by key: add ab.same(...) to the predicate"],
    ),
    "plan is text": (
        {"plan": "ssp"},
        [
            "plan must be one of ab.broadcast(...), ab.segments(...), ab.grid(...), "
            "ab.ranges(...), ab.keyed(...), ab.triangle(...), got 'ssp'"
        ],
    ),
    "bad_rows": ({"bad_rows": "skip"}, ["bad_rows must be 'fail' or 'drop', got 'skip'"]),
    "kept twice": (
        {"keep": ["name", "name"]},
        [
            "keep: the result would have two columns named 'left_name'",
            "keep: the result would have two columns named 'right_name'",
        ],
    ),
    "several at once": (
        {"window": "-1 second", "id": "nr", "plan": ab.broadcast(3)},
        [
            "window must not be negative, got '-1 second'; 0 seconds is allowed",
            f"left has no column 'nr' (needed by id); it has {COLUMNS}",
            f"right has no column 'nr' (needed by id); it has {COLUMNS}",
            "plan broadcast(3, side=right) has 3 workers, but spark.sql.shuffle.partitions is 2: "
            "use fewer, or call ab.configure(spark, workers=3)",
        ],
    ),
}


@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "streaming"])
@pytest.mark.parametrize("what", WRONG)
def test_every_problem_is_named(spark: Any, feed: Feed, what: str, streaming: bool) -> None:
    call, want = WRONG[what]
    frames = feed.streams(spark) if streaming else feed.tables(spark)
    call = {**call, "watermark": "1 second"} if streaming else call
    assert sorted(problems(*frames, **call)) == sorted(want)
    assert spark.streams.active == []


def test_names_are_found_as_spark_finds_them(spark: Any, feed: Feed) -> None:
    left, right = feed.tables(spark)
    call = {"window": "2 seconds", "time": "TS", "id": "Id", "keep": ["NAME"]}
    found = ab.correlate(left, right, where=ab.cosine("V") >= 0.6, **call)
    assert found.columns[:4] == ["left_id", "right_id", "left_ts", "right_ts"]
    assert found.count() == ab.correlate(left, right, **GOOD).count()
    with settings(spark, caseSensitive="true"):
        assert "left has no column 'V'" in problems(left, right, where=ab.cosine("V") >= 0.6)[0]
    (problem,) = problems(left, right.withColumn("x", right.v).select("*", right.v))
    assert problem.startswith("right has 2 columns that 'v' (needed by cosine('v') >= 0.6)")


def test_what_must_be_given_is_named(spark: Any, feed: Feed) -> None:
    left, right = feed.tables(spark)
    for verb, frames in (("correlate", (left, right)), ("nearest", (left, right))):
        with pytest.raises(ab.errors.InvalidCall, match="= is missing: add for example"):
            getattr(ab, verb)(*frames)
    with pytest.raises(ab.errors.InvalidCall, match="key= is missing: add for example"):
        ab.assemble(left)


def test_one_side_streaming(spark: Any, feed: Feed) -> None:
    found = problems(feed.streams(spark)[0], feed.tables(spark)[1], watermark="1 second")
    assert [text[:39] for text in found] == ["left is streaming and right is not: rea"]


def test_streaming_needs_a_bound_on_lateness(spark: Any, feed: Feed) -> None:
    left, right = feed.streams(spark)
    (found,) = problems(left, right)
    assert "watermark='10 seconds'" in found and "to left and right" in found
    (found,) = problems(left.withWatermark("ts", "1 second"), right)
    assert ".withWatermark('ts', '10 seconds') to right" in found


def test_each_side_is_told_its_own_time_column(spark: Any, feed: Feed) -> None:
    left, right = feed.streams(spark)
    (found,) = problems(left, right.withColumnRenamed("ts", "at"), time=("ts", "at"))
    assert (
        "(or .withWatermark('ts', '10 seconds') to left and .withWatermark('at', '10 seconds') to "
        "right)"
    ) in found


def test_adaptive_plans_are_not_for_tables(spark: Any, feed: Feed, tmp_path: Path) -> None:
    for more in ({}, {"control": str(tmp_path)}):
        (found,) = problems(*feed.tables(spark), plan=ab.adaptive(2), **more)
        assert found.startswith("plan=ab.adaptive(...) is for streaming; tables are joined under")


def test_a_control_directory_has_a_name(spark: Any, feed: Feed) -> None:
    (found,) = problems(*feed.streams(spark), watermark="1 second", control="")
    assert found == "control must be the path of a directory, got ''"


def test_a_plan_that_a_log_cannot_hold_is_refused(spark: Any, feed: Feed, tmp_path: Path) -> None:
    class Mine(Broadcast):
        name = "mine"

        def to_dict(self) -> dict[str, Any]:
            return {**super().to_dict(), "plan": "mine"}

    call = {**GOOD, "watermark": "1 second", "control": str(tmp_path / "c")}
    with pytest.raises(ValueError, match=r"cannot be written to a log.*without control="):
        ab.correlate(*feed.streams(spark), **call, plan=Mine(2))
    assert ab.plans.PlanLog(call["control"]).entries() == []


def test_a_plan_other_than_that_of_the_log_is_warned_of(
    spark: Any, feed: Feed, tmp_path: Path
) -> None:
    control = str(tmp_path / "c")
    call = {**GOOD, "watermark": "1 second", "control": control}
    ab.plans.PlanLog(control).begin(ab.broadcast(2))
    with pytest.warns(
        UserWarning, match=r"begun with broadcast\(2.*plan=grid\(1, 2\) has no effect"
    ):
        ab.correlate(*feed.streams(spark), **call, plan=ab.grid(1, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ab.correlate(*feed.streams(spark), **call, plan=ab.broadcast(2))
        ab.correlate(*feed.streams(spark), **call)
    assert [str(entry.plan) for entry in ab.plans.PlanLog(control).entries()] == [
        "broadcast(2, side=right)"
    ]


def test_calls_write_no_file_and_leave_one_listener(spark: Any, feed: Feed, tmp_path: Path) -> None:
    control = tmp_path / "c"
    call = {**GOOD, "watermark": "1 second", "control": str(control)}
    before = len(spark.streams._jsqm.listListeners()) - (spark in sessions())
    for _ in range(20):
        ab.correlate(*feed.streams(spark), **call, plan=ab.broadcast(2))
    assert not control.exists()
    assert len(spark.streams._jsqm.listListeners()) == before + 1


def test_two_bounds_on_lateness(spark: Any, feed: Feed) -> None:
    left, right = feed.streams(spark)
    (found,) = problems(left.withWatermark("ts", "1 second"), right, watermark="1 second")
    assert found.startswith("left already has a watermark")


def test_a_watermark_on_another_column_does_not_count(spark: Any, feed: Feed) -> None:
    left, right = (s.withColumn("seen", s.ts) for s in feed.streams(spark))
    (found,) = problems(
        left.withWatermark("seen", "1 second"), right.withWatermark("ts", "1 second")
    )
    assert "to left)" in found


def test_the_state_store_must_be_rocksdb(spark: Any, feed: Feed) -> None:
    provider = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    with settings(spark, streaming__stateStore__providerClass=provider):
        (found,) = problems(*feed.streams(spark), watermark="1 second")
        assert "HDFSBackedStateStoreProvider" in found and "ab.configure(spark" in found
        assert ab.correlate(*feed.tables(spark), **GOOD).count() >= 0  # batch needs no state


def test_partitions_that_do_not_spread_are_warned_of(spark: Any, feed: Feed) -> None:
    with (
        settings(spark, shuffle__partitions=11),
        pytest.warns(UserWarning, match=r"spark.sql.shuffle.partitions is 11.*ab.configure"),
    ):
        ab.correlate(*feed.streams(spark), **GOOD, watermark="1 second")


def test_something_that_is_no_dataframe(spark: Any, feed: Feed) -> None:
    assert problems([1, 2], feed.tables(spark)[1]) == (
        "left must be a Spark DataFrame, got list",
    )  # fmt: skip


def test_configure_refuses_no_workers(spark: Any) -> None:
    with pytest.raises(ab.errors.InvalidCall, match="workers must be a whole number of at least 1"):
        ab.configure(spark, workers=0)
    with pytest.raises(
        ab.errors.InvalidCall, match=r"workers must be .* at most 20,160, got 10,00"
    ):
        ab.configure(spark, workers=10**7)


def test_configure_keeps_workers_in_this_environment(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without PYSPARK_PYTHON Spark would take the system's python3, which has no anabranch."""
    count = spark.conf.get("spark.sql.shuffle.partitions")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    ab.configure(spark, workers=int(count))
    assert spark.sparkContext.pythonExec == "python3", "what was asked for stays"
    monkeypatch.delenv("PYSPARK_PYTHON")
    ab.configure(spark, workers=int(count))
    assert spark.sparkContext.pythonExec == sys.executable


def test_nothing_was_started(spark: Any, feed: Feed, tmp_path: Path) -> None:
    assert spark.streams.active == []
    assert sorted(path.name for path in feed.folder.iterdir()) == ["left", "right"]
