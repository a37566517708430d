"""`rescale` where the inputs have watermarks of their own: what is late is late on all workers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.spark.versions import repartition_problems
from tests.spark import nearest_feed
from tests.spark.events import CALL, events
from tests.spark.feeds import ROW, Feed, at, found, row, settings, stragglers
from tests.spark.test_rescale import JOIN, run

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(bool(repartition_problems()), reason="Spark 4.2 brought the repartition"),
]


def marked(feed: Feed, spark: Any, delay: str = "1 second") -> list[Any]:
    return [stream.withWatermark("ts", delay) for stream in feed.streams(spark)]


def nearest(spark: Any, feed: Feed, plan: Any) -> Any:
    queries = nearest_feed.query_frame(spark, nearest_feed.lasting_queries())
    control = str(feed.folder / "control") if "selective" in str(plan) else None
    return ab.nearest(marked(feed, spark)[1], queries, by="v", plan=plan, control=control)


def of_nearest() -> list[Any]:
    made = nearest_feed.objects_in_batches(7, rows=20, seed=3)
    return [([], objects) for objects in made]


def one_stream() -> list[Any]:
    return [([*left, *right], []) for left, right in stragglers()]


def correlated(how: str) -> Callable[[Any, Feed], Any]:
    def result(spark: Any, feed: Feed) -> Any:
        return ab.correlate(*marked(feed, spark), **JOIN, plan=ab.grid(1, 2), how=how)

    return result


def deduped(spark: Any, feed: Feed) -> Any:
    where = ab.cosine("v") >= 0.9
    return ab.dedupe(marked(feed, spark)[0], where=where, window="2 seconds", plan=ab.triangle(2))


def grouped(spark: Any, feed: Feed) -> Any:
    pairs = ab.correlate(*marked(feed, spark), **JOIN, plan=ab.grid(1, 2))
    return ab.groups(pairs, gap="1 second")


def assembled(spark: Any, feed: Feed) -> Any:
    shape = {"key": ["page", "client"], "keep": ["service", "ms"], "plan": ab.keyed(8)}
    return ab.assemble(marked(feed, spark), **shape, close=ab.close.gap("1 second"))


VERBS: dict[str, tuple[Callable[[Any, Feed], Any], Callable[[], list[Any]], Any]] = {
    "correlate": (correlated("inner"), stragglers, (ROW, ROW)),
    "correlate full": (correlated("full"), stragglers, (ROW, ROW)),
    "dedupe": (deduped, one_stream, (ROW, ROW)),
    "groups": (grouped, stragglers, (ROW, ROW)),
    "assemble": (assembled, lambda: events(7, rows=20, seed=3), (CALL, CALL)),
    "nearest": (
        lambda spark, feed: nearest(spark, feed, ab.broadcast(2)),
        of_nearest,
        (nearest_feed.OP, nearest_feed.OBJECT),
    ),
}


def story(spark: Any, verb: str, folder: Path, workers: int | None) -> tuple[list[str], int]:
    """The rows that come out and how many were late; over so many partitions after half of it."""
    result, made, schemas = VERBS[verb]
    script, checkpoint = made(), folder / "checkpoint"
    feed = Feed(folder, schemas)
    with settings(spark, shuffle__partitions=2):
        run(feed.add(script[:4]), result(spark, feed), checkpoint)
    if workers is not None:
        moved = ab.rescale(checkpoint, workers)
        shutil.rmtree(checkpoint)
        checkpoint = moved.checkpoint  # type: ignore[assignment]
    feed.idle = True
    with settings(spark, shuffle__partitions=max(2, workers or 0)):
        query = run(feed.add(script[4:]), result(spark, feed), checkpoint)
    last = [value for key, value in ab.metrics(query).items() if key == "late_rows"]
    return sorted(map(str, feed.output(spark).collect())), sum(last)


@pytest.mark.parametrize("verb", VERBS)
def test_the_answer_is_the_same_with_a_rescale(spark: Any, tmp_path: Path, verb: str) -> None:
    want, late = story(spark, verb, tmp_path / "as it was", None)
    assert want and story(spark, verb, tmp_path / "more", 4) == (want, late)


#   row at   0 s | 500 s, which no worker sees | rescale | 100 s, late: no partner for anything
def test_workers_that_a_rescale_brings_take_no_late_rows(spark: Any, tmp_path: Path) -> None:
    def keyed(number: int, seconds: float) -> list[Any]:
        made = [row(100 * number + n, at(seconds)) | {"name": f"key {n}"} for n in range(12)]
        return [(made, [{**r, "id": r["id"] + 50} for r in made])]

    feed = Feed(tmp_path).add(keyed(0, 0))
    for number, seconds in enumerate((500, 501)):
        unseen = {**row(9_000 + 2 * number, at(seconds)), "x": -1}
        feed.add([([unseen], [{**unseen, "id": unseen["id"] + 1}])])

    def result(workers: int) -> Any:
        # With the time in it Spark leaves the filter behind the watermark, which so sees all rows.
        seen = [stream.filter("x >= 0 OR ts IS NULL") for stream in marked(feed, spark)]
        plan = ab.keyed(workers)
        return ab.correlate(*seen, where=ab.same("name"), window="2 seconds", plan=plan)

    with settings(spark, shuffle__partitions=2):
        run(feed, result(2), tmp_path / "checkpoint")
    checkpoint = ab.rescale(tmp_path / "checkpoint", 4).checkpoint
    on_time = len(found(feed.output(spark)))
    with settings(spark, shuffle__partitions=4):
        feed.add(keyed(1, 100))
        with pytest.raises(Exception, match="plan has 4 workers, and 2 know the watermark"):
            run(feed, result(4), checkpoint)
        run(feed, result(2), checkpoint)
        run(feed.add(keyed(2, 101) + keyed(3, 600)), result(4), checkpoint)
    pairs = found(feed.output(spark))
    assert on_time == 12 and len(pairs) == 24
    assert {left // 100 for left, _ in pairs} == {0, 3}, "nothing of what came late"
