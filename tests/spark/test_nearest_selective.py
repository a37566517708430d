"""`nearest` under selective routing on Spark: the hits of brute force, with few copies sent."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.spark.nearest_feed import (
    closing,
    feed_of,
    got,
    lasting_queries,
    objects_in_batches,
    query_frame,
    want,
)
from tests.spark.processes import driver
from tests.spark.test_nearest_elsewhere import judged

QUERIES = lasting_queries()


@pytest.mark.slow
def test_stream_equals_brute_force_and_sends_less(spark: Any, tmp_path: Path) -> None:
    objects = [*objects_in_batches(11, rows=60, seed=3, width=40), [closing()]]
    feed = feed_of(tmp_path, objects)
    call: dict[str, Any] = {"by": "v", "watermark": "3 seconds", "plan": ab.selective(2)}
    call["control"] = str(tmp_path / "control")
    asked = query_frame(spark, QUERIES)
    query = feed.run(ab.nearest(feed.streams(spark)[1], asked, **call))
    assert got(feed.output(spark)) == want(objects, QUERIES)
    figures = ab.metrics(query)
    total = figures["total"]
    assert (total["rows_in"], total["late_rows"]) == (11 * 60 + 1, 0)
    sent = total["sent_at_once"] + total["sent_later"]
    assert sent + total["dropped"] == 2 * 11 * 60  # all but the last object, to two owners
    assert total["withheld"] > 0 and sent < 0.8 * 2 * 11 * 60
    assert list((tmp_path / "control" / "mergers").glob("*.bin"))
    # The thresholds of one query are not another's.
    with pytest.raises(Exception, match="belongs to query"):
        feed.run(ab.nearest(feed.streams(spark)[1], asked, **call), "other")


@pytest.mark.slow
def test_a_restored_checkpoint_does_not_believe_its_lost_future(spark: Any, tmp_path: Path) -> None:
    """Checkpoint and sink go back three batches; then others come, in twice as many files."""
    objects = objects_in_batches(9, rows=40, seed=3, width=40)
    feed = feed_of(tmp_path, objects[:3])
    call: dict[str, Any] = {"by": "v", "watermark": "3 seconds", "plan": ab.selective(2)}
    call["control"] = str(tmp_path / "control")
    asked = query_frame(spark, QUERIES)

    def run() -> Any:
        return feed.run(ab.nearest(feed.streams(spark)[1], asked, **call))

    run()
    for name in ("out", "out.checkpoint"):
        shutil.copytree(tmp_path / name, tmp_path / "saved" / name)
    # What will not have been: the same times, every object beside a query.
    near = [[{**o, "v": QUERIES[o["id"] % 8]["v"]} for o in batch] for batch in objects[3:]]
    feed.add([([], near[n] + near[n + 1]) for n in (0, 2, 4)])
    run()
    published = set((tmp_path / "control" / "mergers").iterdir())
    for name in ("out", "out.checkpoint"):
        shutil.rmtree(tmp_path / name)
        (tmp_path / "saved" / name).rename(tmp_path / name)
    for side in ("left", "right"):
        for path in sorted(feed.input(side).iterdir())[3:]:
            path.unlink()
    feed.written = 3
    feed.add([([], batch) for batch in [*objects[3:], [closing()]]])
    query = run()
    assert got(feed.output(spark)) == want([*objects, [closing()]], QUERIES)
    assert ab.metrics(query)["total"]["withheld"] > 0
    assert published & set((tmp_path / "control" / "mergers").iterdir()) != published


@pytest.mark.slow
def test_a_killed_driver_loses_and_repeats_nothing(spark: Any, tmp_path: Path) -> None:
    objects = [*objects_in_batches(16, rows=60, seed=7, width=40), [closing()]]
    feed = feed_of(tmp_path, objects)
    for kill in (1, 4, 7, 9):
        hold = ("--hold", f"object_id >= {1000 * kill}")
        with driver(tmp_path, "--nearest", "--routed", *hold) as run:
            run.kill_when_held()
    with driver(tmp_path, "--nearest", "--routed") as run:
        run.finish()
    judged(spark, feed, objects, QUERIES)


def test_wrong_calls(spark: Any, tmp_path: Path) -> None:
    feed = feed_of(tmp_path, objects_in_batches(1))
    stream, table = feed.streams(spark)[1], feed.tables(spark)[1]
    asked = query_frame(spark, QUERIES)
    plan = ab.selective(2)
    call = {"by": "v", "watermark": "3 seconds", "plan": plan, "control": str(tmp_path / "c")}
    for objects, change, message in (
        (stream, {"control": None}, "needs control=, a directory"),
        (stream, {"method": "probabilistic"}, "needs method='exact', got 'probabilistic'"),
        (stream, {"rows": 10}, "needs windows of time"),
        (
            stream,
            {"objects_per_window": 0},
            "objects_per_window must be a whole number of at least 1",
        ),
        (table, {"watermark": None, "control": None}, "is for streaming: use ab.broadcast"),
    ):
        with pytest.raises(ab.errors.InvalidCall, match=message):
            ab.nearest(objects, asked, **{**call, **change})
    with pytest.raises(ab.errors.InvalidCall, match=r"selective\(2\) is for ab.nearest"):
        ab.correlate(
            table, table, where=ab.cosine("v") >= 0.9, window="1 second", plan=ab.selective(2)
        )
    with pytest.raises(ab.errors.InvalidCall, match="workers must be a whole number"):
        ab.selective(0)
