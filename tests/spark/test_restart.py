"""A query that is stopped and started again: each pair once, or a refusal, never a gap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import anabranch as ab
from anabranch.plans.hashed import keyed
from anabranch.plans.plan import Plan
from tests.correlation import twin
from tests.spark.feeds import SECOND, Feed, agree, at, found, row, scripted

WHERE = ab.cosine("v") >= 0.6
SPANS = (3 * SECOND, 3 * SECOND)
CALL = {"where": WHERE, "window": "3 seconds", "late": "3 seconds"}


def score(left: twin.Row, right: twin.Row) -> float | None:
    return twin.when(lambda a, b: twin.cosine(a["v"], b["v"]), lambda s: s >= 0.6)(left, right)


def test_each_pair_once_across_restarts(spark: Any, tmp_path: Path) -> None:
    batches = scripted(9, rows=(10, 15), seed=5)
    feed = Feed(tmp_path)
    for part in (batches[:3], batches[3:4], [], batches[4:]):
        feed.add(part)
        feed.run(ab.correlate(*feed.streams(spark), **CALL, plan=ab.grid(1, 2)))
    want = twin.pairs_in_time(batches, SPANS, score, 3 * SECOND)
    agree(found(feed.output(spark)), want)


def test_the_threshold_may_change(spark: Any, tmp_path: Path) -> None:
    """State holds rows, not pairs, so a new threshold holds for the pairs to come."""
    before, after = scripted(2, rows=(6, 6), seed=6), scripted(4, rows=(6, 6), seed=6)[2:]
    feed = Feed(tmp_path).add(before)
    feed.run(ab.correlate(*feed.streams(spark), **CALL))
    feed.add(after)
    feed.run(ab.correlate(*feed.streams(spark), **{**CALL, "where": ab.cosine("v") >= 0.8}))
    old = twin.pairs_in_time(before, SPANS, score, 3 * SECOND)
    new = twin.pairs_in_time([*before, *after], SPANS, score, 3 * SECOND)
    want = {pair: s for pair, s in new.items() if pair in old or s >= 0.8}
    agree(found(feed.output(spark)), want)


OTHER = {
    "another window": {"window": "4 seconds"},
    "other kept columns": {"keep": ["name"]},
    "another plan": {"plan": ab.ssp(2, "right")},
    "fewer workers": {"plan": ab.ssp(1)},
}


@pytest.fixture(scope="module")
def begun(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Feed:
    """A feed whose query has seen two batches and stored their rows."""
    feed = Feed(tmp_path_factory.mktemp("begun")).add(scripted(2, rows=(6, 6)))
    feed.run(ab.correlate(*feed.streams(spark), **CALL, plan=ab.ssp(2)))
    return feed.add(scripted(3, rows=(6, 6))[2:])


@pytest.mark.parametrize("what", OTHER)
def test_state_of_another_query_is_refused(spark: Any, begun: Feed, what: str) -> None:
    call = {**CALL, "plan": ab.ssp(2), **OTHER[what]}
    kept = begun.output(spark).count()
    with pytest.raises(StreamingQueryException, match="StateMismatch") as refusal:
        begun.run(ab.correlate(*begun.streams(spark), **call))
    assert "begin a new checkpoint" in str(refusal.value)
    assert begun.output(spark).count() == kept


def test_kept_columns_of_another_type_are_refused(spark: Any, tmp_path: Path) -> None:
    """A timestamp and a bigint are stored alike, so the old ones would come out as numbers."""
    batches = scripted(3, rows=(6, 6))
    feed = Feed(tmp_path).add(batches[:2])
    call = {**CALL, "plan": ab.ssp(2), "keep": ["x"]}
    marked = [s.withColumn("x", F.timestamp_micros("x")) for s in feed.streams(spark)]
    feed.run(ab.correlate(*marked, **call).select("left_id", "right_id", "score"))
    feed.add(batches[2:])
    for kind in ("bigint", "string"):
        streams = [s.withColumn("x", F.col("x").cast(kind)) for s in feed.streams(spark)]
        with pytest.raises(StreamingQueryException, match="StateMismatch") as refusal:
            feed.run(ab.correlate(*streams, **call).select("left_id", "right_id", "score"))
        assert f"kept column 'x' of the left side as timestamp, and now it is {kind}" in str(
            refusal.value
        )


# Each worker sees only its own rows and state. Under these plans every row before the restart goes
# to one worker, and every row after it to another, which has no state that could contradict.
#
#   second          23.5   24   26  | restart |  27   29
#   first plan      one worker
#   second plan                                  the other
MOVES: dict[str, tuple[Plan, Plan]] = {
    "longer segments": (ab.csp(2, "20 seconds"), ab.csp(2, "40 seconds")),
    "other shares": (keyed(2, weights=[1, 0]), keyed(2, weights=[0, 1])),
}


@pytest.mark.parametrize("name", MOVES)
def test_a_plan_that_moves_every_row_is_refused_too(spark: Any, tmp_path: Path, name: str) -> None:
    first, second = MOVES[name]
    seconds = [23.5, 24, 26, 27, 29]
    batches = [([row(2 * n, at(s))], [row(2 * n + 1, at(s))]) for n, s in enumerate(seconds)]
    call = {**CALL, "where": WHERE & ab.same("room")}
    feed = Feed(tmp_path).add(batches[:3])
    feed.run(ab.correlate(*feed.streams(spark), **call, plan=first))
    feed.add(batches[3:])
    with pytest.raises(StreamingQueryException, match="StateMismatch"):
        feed.run(ab.correlate(*feed.streams(spark), **call, plan=second))
        agree(found(feed.output(spark)), twin.pairs_in_time(batches, SPANS, score, 3 * SECOND))
