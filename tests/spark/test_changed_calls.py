"""A query that goes on under a changed call: another threshold, a length that is named at last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import BadRow, StateMismatch
from anabranch.spark.operator import Packer
from tests.correlation.twin import Batch
from tests.spark.feeds import SECOND, START, Feed
from tests.spark.tws import Correlating

BINS = 16
ROW = pa.schema({"id": pa.int64(), "ts": pa.timestamp("us", "UTC"), "h": pa.list_(pa.float32())})
CALL = {"window": "10 seconds", "watermark": "5 seconds"}


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


#   second      0  1 | restart | 2  3 | restart | 20  21
#   threshold   1                5                 2
def test_a_changed_threshold_under_ranges() -> None:
    def where(threshold: int) -> Any:
        return ab.emd("h", dim=BINS) <= threshold

    run = Correlating((ROW, ROW), where=where(1), plan=ab.ranges(2), **CALL)
    run.run([batch(0), batch(1)])
    first = within(1, [0, 1], [0, 1])
    assert run.pairs.keys() == first
    run = run.restarted(where=where(5)).run([batch(2), batch(3)])
    raised = run.pairs.keys() - first
    # Right rows that came before the restart were sent as far as the old threshold reached.
    certain = within(5, [0, 1, 2, 3], [2, 3]) | within(1, [2, 3], [0, 1])
    assert certain <= raised <= certain | within(5, [2, 3], [0, 1])
    run = run.restarted(where=where(2)).run([batch(20), batch(21)])
    assert run.pairs.keys() - first - raised == within(2, [20, 21], [20, 21])


@pytest.mark.filterwarnings("error:the plan log")
def test_a_changed_threshold_under_ranges_of_a_plan_log(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path, (ROW, ROW))
    control = str(tmp_path / "control")
    for threshold, second in ((1, 0), (5, 1)):
        feed.add([batch(second)])
        where = ab.emd("h", dim=BINS) <= threshold
        frames = feed.streams(spark)
        feed.run(ab.correlate(*frames, where=where, plan=ab.ranges(2), control=control, **CALL))
    rows = [(row.left_id, row.right_id) for row in feed.output(spark).collect()]
    assert len(rows) == len(set(rows)), "a pair came twice"
    certain = within(1, [0], [0]) | within(5, [0, 1], [1]) | within(1, [1], [0])
    assert certain <= set(rows) <= certain | within(5, [1], [0])


def test_a_stopped_query_goes_on_once_the_length_is_named() -> None:
    def where(**named: int) -> Any:
        return ab.emd("h", **named) <= 1

    run = Correlating((ROW, ROW), where=where(), plan=ab.broadcast(2), **CALL).run([batch(0)])
    left, right = batch(1)
    spoilt = [([{**left[0], "h": [1.0] * 5}, *left[1:]], right)]
    with pytest.raises(BadRow) as stop:
        run.run(spoilt)
    says = "'h' has 5 elements in the row with id 1000 and 16 in that with id 1002"
    assert f"left rows cannot be compared: {says}" in str(stop.value)
    assert "dim= and pass bad_rows='drop'" in str(stop.value)
    with pytest.raises(StateMismatch, match="holds 'h' of length 16, and the call says dim=5"):
        run.restarted(where=where(dim=5), bad_rows="drop").run(spoilt)
    run = run.restarted(where=where(dim=BINS), bad_rows="drop").run(spoilt)
    assert run.bench.total("rejected") == 1
    want = {pair for pair in within(1, [0, 1], [0, 1]) if pair[0] != 1000}
    assert run.pairs.keys() == want
    run.restarted(where=where(), bad_rows="fail").run([batch(2)])  # and without, again


def test_any_mismatch_of_a_task_is_one_line_before_any_trace(capsys: Any) -> None:
    """Not only of settings: here of a vector's length, and where rows are packed."""
    call = {"where": ab.emd("h") <= 1, "plan": ab.broadcast(2), **CALL}
    run = Correlating((ROW, ROW), **call).run([batch(0)])
    with pytest.raises(StateMismatch):
        left, right = batch(1)
        spoilt = [([{**left[0], "h": [1.0] * 5}, *left[1:]], right)]
        run.restarted(where=ab.emd("h", dim=5) <= 1, bad_rows="drop").run(spoilt)
    (line,) = set(capsys.readouterr().err.splitlines())
    assert line.startswith("StateMismatch: ") and "holds 'h' of length 16" in line

    class Logged:
        """Packs nothing: its plan log is of another query."""

        def pack(self, rows: Any, live: Any) -> Any:
            raise StateMismatch("entry 00000001.json is missing,\nthough later ones are there")

    with pytest.raises(StateMismatch):
        list(Packer(Logged())(iter([pa.RecordBatch.from_pydict({"x": [1]})])))
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "StateMismatch: entry 00000001.json is missing, though later ones are there"


def test_a_changed_setting_is_one_line_before_any_trace(capsys: Any) -> None:
    call = {"where": ab.emd("h") <= 1, "plan": ab.broadcast(2), **CALL}
    run = Correlating((ROW, ROW), **call).run([batch(0)])
    with pytest.raises(StateMismatch):
        run.restarted(window="1 h").run([batch(1)])
    (line,) = set(capsys.readouterr().err.splitlines())
    assert line.startswith("StateMismatch: this checkpoint was begun with window=")
    assert "and the call now says window='1 hour': put it back" in line
