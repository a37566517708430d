"""Every plan and every measure: streaming equals the twin, pair by pair, and equals batch.

The script covers ten seconds in ten micro-batches (in the gate, four of them), under windows of two
and three seconds; rows come up to 1.5 s early or late, and three in ten lie on whole seconds, so
that rows of different batches are exactly a window apart. Vectors are small integers: thresholds
are hit exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import anabranch as ab
from anabranch.plans.hashed import keyed
from tests.correlation import twin
from tests.spark.feeds import SECOND, Feed, agree, flat, found, scripted, settings

BATCHES = scripted(10)
WINDOW = ("3 seconds", "2 seconds")
SPANS = (3 * SECOND, 2 * SECOND)
LATE = "3 seconds"


def on(measure: Callable[[Any, Any], Any], column: str) -> Callable[[twin.Row, twin.Row], Any]:
    return lambda left, right: measure(left[column], right[column])


def gap(x: int, y: int) -> float:
    return float(abs(x - y))


def same_room(score: twin.Score) -> twin.Score:
    return lambda left, right: score(left, right) if left["room"] == right["room"] else None


def product_of_x() -> Any:
    """A user's function; made here, so that Spark ships its code and not its name."""

    def product(left: Any, right: Any) -> np.ndarray:
        return left["x"][:, None] * right["x"][None, :]

    return ab.custom(product, left=["x"], right=["x"]) >= 1000


@dataclass
class Case:
    plan: Any
    where: Any
    score: twin.Score
    partitions: int = 2
    more: dict[str, Any] = field(default_factory=dict)


CASES = {
    "broadcast, right rows copied": Case(
        ab.broadcast(2),
        ab.cosine("v") >= 0.6,
        twin.when(on(twin.cosine, "v"), lambda s: s >= 0.6),
    ),
    "broadcast, left rows copied, uneven": Case(
        ab.broadcast(2, "left", weights=[3, 1]),
        ab.dot("v") > 40,
        twin.when(on(twin.dot, "v"), lambda s: s > 40),
    ),
    "segments, right rows copied": Case(
        ab.segments(2, "1500 milliseconds"),
        ab.euclidean("v") <= 5,
        twin.when(on(twin.euclidean, "v"), lambda s: s <= 5),
    ),
    "segments, left rows copied": Case(
        ab.segments(2, "700 milliseconds", side="left"),
        ab.manhattan("v") > 12,
        twin.when(on(twin.manhattan, "v"), lambda s: s > 12),
    ),
    "grid of one row": Case(
        ab.grid(1, 2),
        ab.hamming("bits") <= 2,
        twin.when(on(twin.hamming, "bits"), lambda s: s <= 2),
    ),
    "keyed": Case(
        keyed(2),
        ab.same("room") & ab.within("x", 3),
        same_room(twin.when(on(gap, "x"), lambda s: s <= 3)),
    ),
    "default plan, blocks of a few rows": Case(
        None,
        product_of_x(),
        twin.when(lambda a, b: float(a["x"] * b["x"]), lambda s: s >= 1000),
        more={"execution__arrow__maxRecordsPerBatch": 3},
    ),
    "grid of four": Case(
        ab.grid(2, 2),
        (ab.cosine("v") <= -0.6) & ab.same("room"),
        same_room(twin.when(on(twin.cosine, "v"), lambda s: s <= -0.6)),
        partitions=4,
    ),
    "segments of four, left rows copied": Case(
        ab.segments(4, "1 second", side="left"),
        (ab.cosine("v") >= 0.8) & ab.within("x", 20),
        lambda a, b: (
            twin.when(on(twin.cosine, "v"), lambda s: s >= 0.8)(a, b)
            if gap(a["x"], b["x"]) <= 20
            else None
        ),
        partitions=4,
    ),
}


assert twin.in_time(BATCHES, twin.watermarks(BATCHES, 3 * SECOND))[2] == 0


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Feed:
    return Feed(tmp_path_factory.mktemp("exact")).add(BATCHES[:4])


@pytest.fixture(scope="module")
def long_feed(tmp_path_factory: pytest.TempPathFactory) -> Feed:
    return Feed(tmp_path_factory.mktemp("long")).add(BATCHES)


# Every predicate and plan is proved in-process; on Spark all of them by `make slow`.
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_streaming_equals_twin_and_batch(spark: Any, long_feed: Feed, name: str) -> None:
    check(spark, long_feed, BATCHES, name)


@pytest.mark.parametrize(
    "name", [pytest.param("keyed", marks=pytest.mark.slow), "default plan, blocks of a few rows"]
)
def test_a_short_stream_equals_twin_and_batch(spark: Any, feed: Feed, name: str) -> None:
    check(spark, feed, BATCHES[:4], name)


def check(spark: Any, feed: Feed, batches: list[twin.Batch], name: str) -> None:
    case = CASES[name]
    call = {"where": case.where, "window": WINDOW, "plan": case.plan, "keep": (["name"], ["x"])}
    with settings(spark, shuffle__partitions=case.partitions, **case.more):
        query = feed.run(ab.correlate(*feed.streams(spark), watermark=LATE, **call), name)
        at_once = ab.correlate(*feed.tables(spark), **call)
        streamed = feed.output(spark, name)
        agree(found(streamed), twin.pairs(*flat(batches), SPANS, case.score))
        assert streamed.dtypes == at_once.dtypes
        assert sorted(map(repr, streamed.collect())) == sorted(map(repr, at_once.collect()))
    total = ab.metrics(query)["total"]
    assert total["pairs"] == streamed.count()
    assert total["rows_in"] == sum(len(rows) for batch in batches for rows in batch)
    assert total["late_rows"] == 0


def test_times_and_kept_columns_are_those_of_the_two_rows(spark: Any, feed: Feed) -> None:
    result = ab.correlate(
        *feed.tables(spark), where=ab.same("room"), window=WINDOW, keep=(["name"], ["x"])
    )
    assert result.columns == [
        *("left_id", "right_id", "left_ts", "right_ts", "ts", "score"),
        *("left_name", "right_x"),
    ]
    lefts, rights = ({row["id"]: row for row in rows} for rows in flat(BATCHES[:4]))
    micros = result.selectExpr(
        "left_id", "right_id", "unix_micros(left_ts)", "unix_micros(right_ts)", "unix_micros(ts)",
        "score", "left_name", "right_x",
    )  # fmt: skip
    for left_id, right_id, left_t, right_t, t, score, name, x in micros.collect():
        left, right = lefts[left_id], rights[right_id]
        assert (left_t, right_t, t) == (left["t"], right["t"], max(left["t"], right["t"]))
        assert (score, name, x) == (None, left["name"], right["x"])
