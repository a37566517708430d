"""Plans that change while a real query runs: by hand, by themselves, and across kills."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import anabranch as ab
from anabranch.plans.story import story
from tests.correlation import twin
from tests.spark.driver import LATE, SPANS, TURNS, score
from tests.spark.feeds import SECOND, Feed, agree, figures, found, heard, scripted, settings
from tests.spark.processes import driver, newest

CALL = {
    "where": ab.cosine("v") >= 0.6,
    "window": ("3 seconds", "2 seconds"),
    "watermark": "3 seconds",
    "plan": ab.grid(2, 2),
}
BATCHES, KILLS = 66, (15, 31, 52)
pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Feed, list[twin.Batch]]:
    """A feed whose driver was killed on its way, under a new plan every five batches."""
    batches = scripted(BATCHES, rows=(12, 10), seed=11)
    folder = tmp_path_factory.mktemp("changing")
    feed = Feed(folder).add(batches)
    for kill in KILLS:
        with driver(folder, "--changing", "--hold", f"left_id >= {2000 * kill}") as run:
            run.kill_when_held()
    with driver(folder, "--changing") as run:
        run.finish()
    return feed, batches


@pytest.mark.slow
def test_each_pair_once_under_forced_switches_and_kills(spark: Any, survived) -> None:
    feed, batches = survived
    taken = feed.taken(batches)
    agree(found(feed.output(spark)), twin.pairs_in_time(taken, SPANS, score, LATE))


@pytest.mark.slow
def test_the_log_holds_the_whole_history(survived) -> None:
    feed, batches = survived
    entries = ab.plans.PlanLog(str(feed.folder / "control")).entries()
    switches = [entry for entry in entries if entry.cause["rule"] == "by hand"]
    retired = {n for a, b in pairwise(entries) for n in set(a.live) - set(b.live)}
    assert newest(feed.folder, "commits") >= len(batches) - 6
    assert len(switches) >= len(batches) // 7
    assert len(retired) >= len(batches) // 13, "plans are retired across restarts too"
    assert max(len(entry.live) for entry in entries) >= 3
    assert [entry.number for entry in entries] == list(range(len(entries)))
    assert [entry.first for entry in entries] == sorted(entry.first for entry in entries)
    assert {entry.plan for entry in entries} >= set(TURNS[: len(switches) // 2])
    assert len(story(entries)) == len(entries)


def swapping(regime: int, regimes: int) -> list[twin.Batch]:
    """One stream is ten times as fast as the other, and they swap every `regime` batches."""
    batches: list[twin.Batch] = []
    for number in range(regimes):
        rows = (30, 3) if number % 2 == 0 else (3, 30)
        part = scripted((number + 1) * regime, rows, disorder=0.5, seed=number)
        batches += part[-regime:]
    return batches


@pytest.mark.slow
def test_the_controller_follows_the_rates_by_itself(spark: Any, tmp_path: Path) -> None:
    batches = swapping(regime=22, regimes=2)
    feed = Feed(tmp_path).add(batches)
    call = {"where": CALL["where"], "window": "2 seconds", "watermark": "1 second"}
    control = str(tmp_path / "control")
    plan = ab.adaptive(4, start=ab.broadcast(4, "right"), policies=["shape"])
    with settings(spark, shuffle__partitions=4):
        query = feed.run(
            ab.correlate(*feed.streams(spark), **call, plan=plan, control=control), "adaptive"
        )
    want = twin.pairs_in_time(batches, (2 * SECOND, 2 * SECOND), score, SECOND)
    agree(found(feed.output(spark, "adaptive")), want)
    entries = ab.plans.PlanLog(control).entries()
    assert entries[-1].plan == ab.broadcast(4, "left")
    (switch,) = [entry for entry in entries if entry.cause["rule"] == "shape"]
    assert switch.first > 22
    line = next(line for line in story(entries) if "replaces" in line)
    assert (
        "broadcast(4, side=left), replaces plan 0, broadcast(4, side=right) (shape: saves" in line
    )
    # Under the first plan the fast stream is copied to all four workers once rates have swapped;
    # in the end only the slow one is.
    sent = [batch["copies_per_row"] for batch in figures(query)]
    assert sent[22] == pytest.approx((3 + 4 * 30) / 33, rel=0.01)
    assert sent[-2] == pytest.approx((30 + 4 * 3) / 33, rel=0.01)


@pytest.mark.slow
def test_a_foreign_log_is_refused(spark: Any, tmp_path: Path) -> None:
    batches = scripted(4, rows=(6, 6))
    call = {**CALL, "plan": ab.grid(1, 2)}
    first, second = Feed(tmp_path / "a").add(batches[:3]), Feed(tmp_path / "b").add(batches[:3])
    control = str(tmp_path / "control")
    first.run(ab.correlate(*first.streams(spark), **call, control=control))
    # A listener claims the log, and a busy machine may tell it late.
    heard(spark)
    with pytest.raises(StreamingQueryException, match="belongs to query"):
        second.run(ab.correlate(*second.streams(spark), **call, control=control))
    # The checkpoint goes on, but with a new and empty log whose plan 0 is another one.
    first.add(batches[3:])
    other = {**call, "plan": ab.broadcast(2)}
    with pytest.raises(StreamingQueryException, match="StateMismatch"):
        first.run(ab.correlate(*first.streams(spark), **other, control=str(tmp_path / "new")))


def test_two_alike_calls_of_a_query_do_not_share_a_log(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path).add(scripted(2, rows=(6, 6)))
    call = {**CALL, "plan": ab.grid(1, 2), "control": str(tmp_path / "control")}
    one, other = (ab.correlate(*feed.streams(spark), **call) for _ in range(2))
    assert not (tmp_path / "control").exists()
    with pytest.raises(StreamingQueryException, match="two calls in this query were given"):
        feed.run(one.union(other))


@pytest.mark.slow
def test_a_log_that_skips_a_plan_still_in_state_is_refused(spark: Any, tmp_path: Path) -> None:
    batches = scripted(5, rows=(6, 6))
    feed, folder = Feed(tmp_path).add(batches[:3]), tmp_path / "control"
    call = {**CALL, "plan": ab.grid(1, 2), "control": str(folder)}
    feed.run(ab.correlate(*feed.streams(spark), **call))
    entries = ab.plans.PlanLog(str(folder)).entries()
    form = {**entries[0].to_dict(), "number": len(entries), "epoch": 1, "first": 3, "live": [1]}
    (folder / f"{len(entries):08d}.json").write_text(json.dumps(form))
    feed.add(batches[3:])
    with pytest.raises(StreamingQueryException, match="not routed under a common plan"):
        feed.run(ab.correlate(*feed.streams(spark), **call))


def test_a_request_that_does_not_fit_is_dropped_with_a_word(spark: Any, tmp_path: Path) -> None:
    batches = scripted(4, rows=(6, 6))
    feed = Feed(tmp_path).add(batches)
    log = ab.plans.PlanLog(str(tmp_path / "control"))
    log.append(ab.broadcast(64), cause="far too many")
    feed.run(
        ab.correlate(*feed.streams(spark), **{**CALL, "plan": ab.broadcast(2)}, control=log.path)
    )
    heard(spark)
    assert log.requests() == []
    assert [refusal.cause for refusal in log.refused()] == ["far too many"]
    assert {entry.plan for entry in log.entries()} == {ab.broadcast(2)}
    taken = feed.taken(batches)
    agree(found(feed.output(spark)), twin.pairs_in_time(taken, SPANS, score, LATE))


def test_wrong_calls(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path).add(scripted(1, rows=(2, 2)))
    streams, tables = feed.streams(spark), feed.tables(spark)
    plan = ab.adaptive(2)
    with pytest.raises(ab.errors.InvalidCall, match="add control='path/of/a/directory'"):
        ab.correlate(*streams, **{**CALL, "plan": plan})
    with pytest.raises(
        ab.errors.InvalidCall, match="is for streaming; tables are joined under one plan"
    ):
        ab.correlate(*tables, **{**CALL, "plan": plan}, control="c")
    with pytest.raises(ab.errors.InvalidCall, match="control= is for streaming"):
        ab.correlate(*tables, **{**CALL, "plan": ab.broadcast(2)}, control="c")
    marked = [frame.withWatermark("ts", "3 seconds") for frame in streams]
    with pytest.raises(ab.errors.InvalidCall, match="control= needs watermark="):
        ab.correlate(*marked, **{**CALL, "watermark": None, "plan": ab.broadcast(2)}, control="c")
    with pytest.raises(
        ab.errors.InvalidCall, match=r"has 3 workers, but spark.sql.shuffle.partitions is 2"
    ):
        ab.correlate(*streams, **{**CALL, "plan": ab.adaptive(3)}, control="c")
