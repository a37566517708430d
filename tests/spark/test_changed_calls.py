"""A query that goes on under a changed call: another threshold, a length that is named at last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import anabranch as ab
from tests.correlation.twin import Batch
from tests.spark.feeds import SECOND, START, Feed, figures

BINS = 16
ROW = pa.schema({"id": pa.int64(), "ts": pa.timestamp("us", "UTC"), "h": pa.list_(pa.float32())})
CALL = {"window": "10 seconds", "late": "5 seconds"}


def batch(second: int) -> Batch:
    """On each side one histogram for each bin, all of its mass in that bin."""

    def rows(side: int) -> list[dict[str, Any]]:
        return [
            {
                "id": second * 1000 + 2 * at + side,
                "t": START + second * SECOND + at,
                "h": [float(bin_ == at) for bin_ in range(BINS)],
            }
            for at in range(BINS)
        ]

    return rows(0), rows(1)


def within(threshold: int, lefts: list[int], rights: list[int]) -> set[tuple[int, int]]:
    """The pairs of batches that are all in one window."""
    return {
        (m * 1000 + 2 * i, n * 1000 + 2 * j + 1)
        for m in lefts
        for n in rights
        for i in range(BINS)
        for j in range(BINS)
        if abs(i - j) <= threshold
    }


def pairs(spark: Any, feed: Feed) -> set[tuple[int, int]]:
    rows = [(row.left_id, row.right_id) for row in feed.output(spark).collect()]
    assert len(rows) == len(set(rows)), "a pair came twice"
    return set(rows)


#   second      0  1 | restart | 2  3 | restart | 20  21
#   threshold   1                5                 2
@pytest.mark.filterwarnings("error:the plan log")
@pytest.mark.parametrize("logged", [True, False])
def test_a_changed_threshold_under_spans(spark: Any, tmp_path: Path, logged: bool) -> None:
    feed = Feed(tmp_path, (ROW, ROW))
    more = {"control": str(tmp_path / "control")} if logged else {}

    def run(threshold: int, seconds: list[int]) -> None:
        feed.add([batch(second) for second in seconds])
        where = ab.emd("h", dim=BINS) <= threshold
        feed.run(ab.correlate(*feed.streams(spark), where=where, plan=ab.spans(2), **CALL, **more))

    run(1, [0, 1])
    first = within(1, [0, 1], [0, 1])
    assert pairs(spark, feed) == first
    run(5, [2, 3])
    raised = pairs(spark, feed) - first
    # Right rows that came before the restart were sent as far as the old threshold reached.
    certain = within(5, [0, 1, 2, 3], [2, 3]) | within(1, [2, 3], [0, 1])
    assert certain <= raised <= certain | within(5, [2, 3], [0, 1])
    run(2, [20, 21])
    assert pairs(spark, feed) - first - raised == within(2, [20, 21], [20, 21])


def test_a_stopped_query_goes_on_once_the_length_is_named(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path, (ROW, ROW)).add([batch(0)])

    def run(bad_rows: str = "fail", **named: int) -> Any:
        where = ab.emd("h", **named) <= 1
        frames = feed.streams(spark)
        return feed.run(ab.correlate(*frames, where=where, bad_rows=bad_rows, **CALL))

    run()
    left, right = batch(1)
    feed.add([([{**left[0], "h": [1.0] * 5}, *left[1:]], right)])
    with pytest.raises(StreamingQueryException) as stop:
        run()
    says = "'h' has 5 elements in the row with id 1000 and 16 in that with id 1002"
    assert f"left rows cannot be compared: {says}" in str(stop.value)
    assert "dim= and pass bad_rows='drop'" in str(stop.value)
    with pytest.raises(StreamingQueryException, match="StateMismatch") as stop:
        run(dim=5, bad_rows="drop")
    assert "holds 'h' of length 16, and the call says dim=5" in str(stop.value)
    query = run(dim=BINS, bad_rows="drop")
    assert sum(batch_["rejected_rows"] for batch_ in figures(query)) == 1
    want = {pair for pair in within(1, [0, 1], [0, 1]) if pair[0] != 1000}
    assert pairs(spark, feed) == want
    run()  # and without, again
