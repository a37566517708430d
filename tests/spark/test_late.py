"""Late rows: which they are, that each counts once, and that rows in time miss no partner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.correlation import twin
from tests.spark.feeds import SECOND, Feed, agree, at, figures, found, row, stragglers
from tests.spark.tws import Correlating

WHERE = ab.cosine("v") >= 0.6
SPANS = (2 * SECOND, 1 * SECOND)
WINDOW = ("2 seconds", "1 second")


score = twin.alike(0.6)


PLANS = {
    "broadcast, right rows copied": ab.broadcast(2),
    "broadcast, left rows copied": ab.broadcast(2, "left"),
    "segments": ab.segments(2, "1 second"),
}


@pytest.mark.parametrize("name", PLANS)
def test_late_rows_are_dropped_and_counted_once(name: str) -> None:
    batches = stragglers()
    left, right, late = twin.in_time(batches, twin.watermarks(batches, SECOND))
    assert late > 20
    run = Correlating(where=WHERE, window=WINDOW, watermark="1 second", plan=PLANS[name]).run(
        batches
    )
    agree(run.pairs, twin.pairs(left, right, SPANS, score))
    assert run.bench.total("late") == late
    rows_in = run.bench.total("rows_left") + run.bench.total("rows_right")
    assert rows_in == sum(len(rows) for batch in batches for rows in batch)


def test_rows_at_the_very_edge_of_watermark_and_window(spark: Any, tmp_path: Path) -> None:
    # window 5 s, late 2 s; + means a microsecond more
    #
    # batch  watermark   left                          right
    # 0      0           |0  |8                        |12
    # 1      10          |10 late  |10+ in time        |15+ joins 10+  |15++ does not
    # 2      13          |17 joins 12  |17+ does not   |13 late  |13+ in time
    #                    |20
    # 3      18                                        |18 late  |18+ in time
    #                                                  |25 joins 20  |25+ does not
    micro = 1e-6
    seconds: list[tuple[list[float], list[float]]] = [
        ([0, 8], [12]),
        ([10, 10 + micro], [15 + micro, 15 + 2 * micro]),
        ([17, 17 + micro, 20], [13, 13 + micro]),
        ([], [18, 18 + micro, 25, 25 + micro]),
    ]
    batches: list[twin.Batch] = [
        (
            [row(20 * n + 2 * k, at(s)) for k, s in enumerate(left)],
            [row(20 * n + 2 * k + 1, at(s)) for k, s in enumerate(right)],
        )
        for n, (left, right) in enumerate(seconds)
    ]
    assert list(twin.watermarks(batches, 2 * SECOND)) == [0, at(10), at(13), at(18)]
    left, right, late = twin.in_time(batches, twin.watermarks(batches, 2 * SECOND))
    assert [r["id"] for r in (*left, *right) if r["t"] in (at(10), at(13), at(18))] == []
    feed = Feed(tmp_path).add(batches)
    query = feed.run(
        ab.correlate(
            *feed.streams(spark),
            where=WHERE,
            window="5 seconds",
            watermark="2 seconds",
            plan=ab.broadcast(2),
        )
    )
    want = twin.pairs(left, right, (5 * SECOND, 5 * SECOND), score)
    agree(found(feed.output(spark)), want)
    assert ab.metrics(query)["total"]["late_rows"] == late == 3
    marks = {report["batch"]: report["watermark"] for report in figures(query)}
    assert [marks[n] for n in range(4)] == list(twin.watermarks(batches, 2 * SECOND))


def test_state_stays_until_no_row_in_time_can_meet_it() -> None:
    # window 5 s, late 0 s; one slice holds left rows 4 and 5 (a slice goes as a whole, once its
    # last row has waited).
    #
    # batch 0     left   |4  |5
    # batch 1     right  |9.999            watermark 5; makes the next one 9.999
    # batch 2     right  |10               watermark 9.999: left 5 waits until 10, meets it
    # batch 3     right  |10.001           watermark 10: left 5 is freed, and 10.001 is too far
    batches: list[twin.Batch] = [
        ([row(0, at(4)), row(2, at(5))], []),
        ([], [row(1, at(9.999))]),
        ([], [row(3, at(10))]),
        ([], [row(5, at(10.001))]),
    ]
    run = Correlating(where=WHERE, window="5 seconds", watermark="0 seconds", plan=ab.broadcast(1))
    sizes = [run.run([batch]).bench.state_rows()[0] for batch in batches]
    agree(run.pairs, {(2, 1): 1.0, (2, 3): 1.0})
    assert sizes == [2, 3, 4, 3]
