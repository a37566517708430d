"""`rescale`: every verb continues exactly on other partitions, and the old checkpoint can too."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as ab
from anabranch.flow.metrics import reports_of, verbs_of
from anabranch.flow.stored import place_of
from anabranch.spark.versions import repartition_problems
from tests.correlation import twin
from tests.spark import emd_driver, nearest_feed
from tests.spark.driver import LATE, SPANS, score
from tests.spark.events import CALL, alike, collected, events, expected
from tests.spark.feeds import (
    PATIENCE,
    SECOND,
    Feed,
    agree,
    found,
    heard,
    scripted,
    settings,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(bool(repartition_problems()), reason="Spark 4.2 brought the repartition"),
]
JOIN = {"where": ab.cosine("v") >= 0.6, "window": ("3 seconds", "2 seconds")}


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder, by what it holds."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def run(feed: Feed, result: Any, checkpoint: str | Path) -> Any:
    """Process all files there are, into the one sink; Spark's own for files misses a batch."""
    with settings(result.sparkSession, streaming__noDataMicroBatches__enabled=feed.idle):
        query = (
            result.writeStream.foreachBatch(ab.sinks.parquet(str(feed.folder / "out"), app="test"))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
    assert query.awaitTermination(PATIENCE), "the query hangs"
    return query


def continued(
    spark: Any,
    feed: Feed,
    halves: tuple[list[Any], list[Any]],
    result: Callable[[str | None], Any],
    workers: tuple[int, int] = (2, 4),
    control: bool = False,
    ask: Any = None,
) -> Any:
    """Run a query over the first files, rescale it, remove the old one, run it over the others."""
    log = str(feed.folder / "control") if control else None
    idle, feed.idle = feed.idle, False  # a batch without rows in between would be one too many
    old = feed.folder / "checkpoint"
    with settings(spark, shuffle__partitions=workers[0]):
        feed.add(halves[0])
        run(feed, result(log), old)
    feed.idle = idle
    heard(spark)
    before = contents(old), contents(feed.folder / "control")
    moved = ab.rescale(old, workers[1], control=log)
    assert (contents(old), contents(feed.folder / "control")) == before
    assert moved.partitions == workers[1]
    shutil.rmtree(old)
    shutil.rmtree(feed.folder / "control", ignore_errors=True)
    if ask is not None:
        ab.plans.PlanLog(moved.control).append(ask)
    with settings(spark, shuffle__partitions=max(workers)):
        feed.add(halves[1])
        query = run(feed, result(moved.control), moved.checkpoint)
    taken = {
        state.numShufflePartitions
        for progress in query.recentProgress
        for state in progress.stateOperators
    }
    assert taken == {workers[1]}, "the number of tasks is the one that was asked for"
    return query


def used(query: Any) -> set[int]:
    """The workers that computed something in some micro-batch."""
    return {
        load.worker
        for progress in query.recentProgress
        for verb in verbs_of(progress)
        for load in reports_of(progress, verb)
    }


def test_correlate_with_a_plan_log(spark: Any, tmp_path: Path) -> None:
    script = scripted(3, rows=(10, 12), seed=5)
    feed = Feed(tmp_path)

    def result(log: str | None) -> Any:
        call = {**JOIN, "plan": ab.grid(1, 2), "watermark": "3 seconds"}
        return ab.correlate(*feed.streams(spark), **call, control=log)

    continued(spark, feed, (script[:1], script[1:]), result, control=True)
    agree(found(feed.output(spark)), twin.pairs_in_time(script, SPANS, score, LATE))


#   batch     0  1 | rescale: 2 | 3 ... 5 | 6 7
#   workers   0, 1                0, 1      0 ... 3
@pytest.mark.slow
def test_a_plan_for_the_new_partitions(spark: Any, tmp_path: Path) -> None:
    script = scripted(7, rows=(10, 12), seed=5)
    feed = Feed(tmp_path)

    def result(log: str | None) -> Any:
        call = {**JOIN, "plan": ab.grid(1, 2), "watermark": "3 seconds"}
        return ab.correlate(*feed.streams(spark), **call, control=log)

    halves = script[:2], script[2:]
    query = continued(spark, feed, halves, result, control=True, ask=ab.grid(2, 2))
    agree(found(feed.output(spark)), twin.pairs_in_time(script, SPANS, score, LATE))
    assert used(query) == {0, 1, 2, 3}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(2, 4), (4, 2), (4, 1)])
def test_correlate_without_a_log(spark: Any, tmp_path: Path, workers: tuple[int, int]) -> None:
    script = scripted(4, rows=(10, 12), seed=5)
    feed = Feed(tmp_path)
    plan = ab.grid(2, workers[0] // 2)

    def result(log: str | None) -> Any:
        return ab.correlate(*feed.streams(spark), **JOIN, plan=plan, watermark="3 seconds")

    query = continued(spark, feed, (script[:2], script[2:]), result, workers)
    agree(found(feed.output(spark)), twin.pairs_in_time(script, SPANS, score, LATE))
    assert used(query) == set(range(workers[0])), "a plan stays, however many tasks there are"


@pytest.mark.slow
def test_slices_in_several_parts(spark: Any, tmp_path: Path) -> None:
    script, random = scripted(4, rows=(10, 12), seed=5), np.random.default_rng(1)
    for batch in script:
        for row in (row for rows in batch for row in rows):
            row["name"] = random.bytes(100_000).hex()  # which no compression makes small
    feed, call = Feed(tmp_path), {**JOIN, "keep": ["name"], "watermark": "3 seconds"}

    def result(log: str | None) -> Any:
        return ab.correlate(*feed.streams(spark), **call, plan=ab.grid(1, 2))

    query = continued(spark, feed, (script[:2], script[2:]), result)
    state = spark.read.format("statestore").option("stateVarName", "pieces")
    pieces = state.option("batchId", 2).load(str(tmp_path / "checkpoint-4"))
    most = pieces.selectExpr("max(user_map_key.number)").head()[0]
    assert most >= place_of(0, 1), "a slice lies in several parts"
    assert used(query) == {0, 1}
    agree(found(feed.output(spark)), twin.pairs_in_time(script, SPANS, score, LATE))
    names = {row["id"]: row["name"] for batch in script for rows in batch for row in rows}
    for pair in (
        feed.output(spark).select("left_id", "left_name", "right_id", "right_name").collect()
    ):
        assert pair.left_name == names[pair.left_id] and pair.right_name == names[pair.right_id]


@pytest.mark.slow
def test_emd(spark: Any, tmp_path: Path) -> None:
    script = emd_driver.batches(7, rows=10, seed=8)
    feed = Feed(tmp_path, (emd_driver.SCHEMA, emd_driver.SCHEMA))
    where = ab.emd("h", dim=emd_driver.BINS) <= emd_driver.THRESHOLD
    call = {"where": where, "window": ("3 seconds", "2 seconds"), "watermark": "3 seconds"}

    def result(log: str | None) -> Any:
        return ab.correlate(*feed.streams(spark), **call, plan=ab.ranges(2), control=log)

    halves = script[:2], script[2:]
    query = continued(spark, feed, halves, result, control=True, ask=ab.ranges(4))
    pairs = found(feed.output(spark)).items()
    want = twin.pairs_in_time(script, SPANS, emd_driver.score, LATE)
    agree({pair: round(value, 9) for pair, value in pairs}, want)
    assert max(used(query)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["broadcast", "selective", "streamed"])
def test_nearest(spark: Any, tmp_path: Path, plan: str) -> None:
    asked = nearest_feed.lasting_queries()
    objects = [*nearest_feed.objects_in_batches(7, rows=20, seed=3), [nearest_feed.closing()]]
    script: list[Any] = [([], made) for made in objects]
    if plan == "streamed":
        ops = [{**q, "query_id": q["id"], "t": objects[0][0]["t"], "op": "add",
                "window": f"{q['span'] // SECOND} seconds"} for q in asked]  # fmt: skip
        script[0] = (ops, objects[0])
    feed = Feed(tmp_path, (nearest_feed.OP, nearest_feed.OBJECT), idle=True)

    def result(log: str | None) -> Any:
        ops, stream = feed.streams(spark)
        queries = ops if plan == "streamed" else nearest_feed.query_frame(spark, asked)
        chosen = ab.selective(2) if plan == "selective" else ab.broadcast(2)
        return ab.nearest(stream, queries, by="v", watermark="3 seconds", plan=chosen, control=log)

    more = ab.broadcast(4) if plan == "broadcast" else None
    halves = script[:3], script[3:]
    continued(spark, feed, halves, result, control=plan != "streamed", ask=more)
    hits = nearest_feed.got(feed.output(spark))
    if plan == "streamed":
        t = objects[0][0]["t"]
        asked = [{**query, "t": t} for query in asked]
    assert hits == nearest_feed.want(objects, asked)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(2, 4), (8, 2)])
def test_assemble_with_more_keys_than_partitions(
    spark: Any, tmp_path: Path, workers: tuple[int, int]
) -> None:
    script = events(5, rows=20, seed=3)
    feed = Feed(tmp_path, (CALL, CALL), idle=True)
    closing = ab.close.learned("300 ms", risk=0.4, after=4, remember="900 ms")
    shape = {"key": ["page", "client"], "keep": ["service", "ms"], "response": "ms"}

    def result(log: str | None) -> Any:
        return ab.assemble(
            feed.streams(spark), **shape, close=closing, watermark="1 second", plan=ab.keyed(8)
        )

    query = continued(spark, feed, (script[:2], script[2:]), result, workers)
    alike(collected(feed.output(spark)), expected(spark, script, closing, SECOND, buckets=8))
    assert len(used(query)) > 4


@pytest.mark.slow
def test_two_verbs_of_one_query(spark: Any, tmp_path: Path) -> None:
    script = scripted(6, rows=(10, 12), seed=5)
    whole, feed = Feed(tmp_path / "whole", idle=True), Feed(tmp_path / "parts", idle=True)

    def result(feed: Feed) -> Any:
        pairs = ab.correlate(
            *feed.streams(spark), **JOIN, plan=ab.grid(1, 2), watermark="3 seconds"
        )
        return ab.groups(pairs, gap="1 second")

    run(whole.add(script), result(whole), whole.folder / "checkpoint")
    continued(spark, feed, (script[:3], script[3:]), lambda log: result(feed))
    want = sorted(map(str, whole.output(spark).collect()))
    assert sorted(map(str, feed.output(spark).collect())) == want
    assert want


def test_what_cannot_be_rescaled_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ab.errors.InvalidCall) as wrong:
        ab.rescale("", 0, to=5, spark=5)  # type: ignore[arg-type]
    assert wrong.value.problems == (
        "checkpoint must be the path of a directory, got ''",
        "workers must be a whole number of at least 1, got 0",
        "to must be the path of a directory, got 5",
        "spark must be a classic SparkSession, got int: Connect has no way to a checkpoint's state",
    )
    folder = tmp_path / "checkpoint"
    with pytest.raises(
        ab.errors.InvalidCall, match=r"checkpoint is no checkpoint of a query that has"
    ):
        ab.rescale(folder, 4)
    rate = spark.readStream.format("rate").load().groupBy("value").count().writeStream
    rate = rate.format("noop").outputMode("update").option("checkpointLocation", str(folder))
    query = rate.start()
    try:
        query.processAllAvailable()
        with pytest.raises(
            ab.errors.InvalidCall, match=rf"query {query.id} is running on .*: stop it"
        ):
            ab.rescale(folder, 4)
    finally:
        query.stop()
    done = max(int(path.name) for path in (folder / "commits").iterdir() if path.name.isdigit())
    for path in (folder / "offsets").iterdir():  # what stop() may have begun
        if path.name.isdigit() and int(path.name) > done:
            path.unlink()
    with pytest.raises(ab.errors.InvalidCall, match="checkpoint has 2 partitions already"):
        ab.rescale(folder, 2)
    (tmp_path / "taken").mkdir()
    with pytest.raises(
        ab.errors.InvalidCall, match=r"there is something at file:.*/taken: name another"
    ):
        ab.rescale(folder, 4, to=tmp_path / "taken")
    (folder / "commits" / str(done)).unlink()
    with pytest.raises(
        ab.errors.InvalidCall, match=rf"micro-batch {done} of .* begun and not finished"
    ):
        ab.rescale(folder, 4)
    assert not (tmp_path / "checkpoint-4").exists()


def finished(spark: Any, folder: Path) -> Path:
    """The checkpoint of a query that ran two micro-batches to their end."""
    feed = Feed(folder).add(scripted(2, rows=(4, 4), seed=5))
    counts = feed.streams(spark)[0].groupBy("id").count().writeStream.outputMode("update")
    counts = counts.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    with settings(spark, shuffle__partitions=2, streaming__noDataMicroBatches__enabled=False):
        query = counts.trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE)
    return folder / "checkpoint"


def test_a_plan_log_is_never_mixed_with_another(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = finished(spark, tmp_path)
    control, copy = tmp_path / "control", tmp_path / "control-4"
    with pytest.raises(ab.errors.InvalidCall, match=r"control there is nothing"):
        ab.rescale(folder, 4, control=control)
    ab.plans.PlanLog(str(control)).begin(ab.grid(1, 2))
    ab.plans.PlanLog(str(copy)).begin(ab.grid(2, 1))
    before = contents(tmp_path)
    with pytest.raises(
        ab.errors.InvalidCall, match=r"something at .*/control-4, where the copy of control goes"
    ):
        ab.rescale(folder, 4, control=control)
    assert contents(tmp_path) == before, "nothing was copied, nothing was removed"
    shutil.rmtree(copy)

    def full(path: Any, to: str) -> None:
        Path(to).mkdir()
        (Path(to) / "half").touch()
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["anabranch.spark.rescale"], "copy_folder", full)
        with pytest.raises(OSError, match="No space"):
            ab.rescale(folder, 4, control=control)
    assert not copy.exists()
    assert not (tmp_path / "checkpoint-4").exists()
    moved = ab.rescale(folder, 4, control=f"{control}/")
    assert moved.control == str(copy)
    assert contents(copy) == contents(control)
