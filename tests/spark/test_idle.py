"""Sides and workers that fall silent: nothing is lost, and their state is freed all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anabranch as ab
from tests.correlation import twin
from tests.spark.feeds import SECOND, Feed, agree, at, figures, found, row
from tests.spark.tws import Correlating

WHERE = ab.cosine("v") >= 1
DAY = 86_400


def alike(left: twin.Row, right: twin.Row) -> float:
    return 1.0


def rows(side: int, batch: int, *seconds: float) -> list[dict[str, Any]]:
    """Rows at these seconds that match every row of the other side."""
    return [row((batch * 100 + n) * 2 + side, at(s)) for n, s in enumerate(seconds)]


def batch(number: int, left: list[float], right: list[float]) -> twin.Batch:
    return rows(0, number, *left), rows(1, number, *right)


def spread(second: float, count: int) -> list[float]:
    return [second + n / count for n in range(count)]


def test_a_side_that_pauses_longer_than_the_window() -> None:
    # second   0    1    2    3    4    5    6    7    8    9
    # left     10   10   10   -    -    -    -    -    10   10     rows
    # right    2    2    2    2    2    2    2    2    2    2
    #          |<- window 2 s ->|  |<- left's state is gone ->|
    silent = range(3, 8)
    batches = [
        batch(n, [] if n in silent else spread(n, 10), spread(n, 2)) for n in range(10)
    ]  # fmt: skip
    run = Correlating(where=WHERE, window="2 seconds", watermark="1 second", plan=ab.broadcast(2))
    reports = [
        sum(run.run([taken]).bench.state_rows().values()) for taken in batches
    ]  # fmt: skip
    agree(run.pairs, twin.pairs_in_time(batches, (2 * SECOND, 2 * SECOND), alike, SECOND))
    assert reports[2] == 3 * (10 + 2 * 2)  # left rows once, right rows in both workers
    # Batch 7 sees watermark 5.5 s, so left rows up to 3.5 s are gone, and right rows of batches
    # up to the third.
    assert reports[7] == 4 * 2 * 2


def test_a_worker_without_rows_frees_its_state(spark: Any, tmp_path: Path) -> None:
    # segments of 20 s     |      worker 1      |      worker 0      |
    # second              20               34   40      46      50   60
    # rows                                  2            2       2
    batches = [batch(n, [s], [s + 0.1]) for n, s in enumerate([34, 46, 50])]
    call = {"where": WHERE, "window": "3 seconds", "watermark": "1 second"}
    call["plan"] = ab.segments(2, "20 seconds")
    feed = Feed(tmp_path, idle=True).add(batches)
    query = feed.run(ab.correlate(*feed.streams(spark), **call))
    want = twin.pairs_in_time(batches, (3 * SECOND, 3 * SECOND), alike, SECOND)
    agree(found(feed.output(spark)), want)
    held = {
        load["worker"]: load["state_rows"]
        for report in figures(query)
        for load in report["workers"]
    }
    # Spark ends with a batch without rows, whose watermark has passed 46.1 s and the window.
    assert held == {0: 2, 1: 0}
    run = Correlating(**call).run([*batches, ([], [])])
    agree(run.pairs, want)
    assert run.bench.state_rows() == held, "the bench and Spark are two"


def test_a_worker_without_rows_frees_slices_that_were_merged() -> None:
    # segments of 20 s     |           worker 1          |        worker 0       |
    # second              20    35.00 35.05 ... 35.45    40     44.2    50    51  60
    # watermark (late 5 s)                                      ... 39.2 ... 45
    #
    # Ten slices of worker 1 become one that lives until 35.45 + 4 s; its timer was set for the
    # oldest of them, at 35.00 + 4 s, and the watermark visits 39.2 s in between.
    seconds = [35 + n / 20 for n in range(10)] + [44.2, 50, 51]
    batches = [batch(n, [s], [s]) for n, s in enumerate(seconds)]
    plan = ab.segments(2, "20 seconds")
    run = Correlating(where=WHERE, window="4 seconds", watermark="5 seconds", plan=plan).run(
        batches
    )
    agree(run.pairs, twin.pairs_in_time(batches, (4 * SECOND, 4 * SECOND), alike, 5 * SECOND))
    assert run.bench.state_rows()[1] == 0


def test_state_stays_bounded_and_goes_when_time_moves_on() -> None:
    # second   0 1 2 3 ... 13           a day later: 0 1
    # rows     4 4 4 4     4                         4 4     on each side
    steady = [batch(n, spread(n, 4), spread(n, 4)) for n in range(14)]
    leap = [batch(14 + n, spread(DAY + n, 4), spread(DAY + n, 4)) for n in range(2)]
    run = Correlating(where=WHERE, window="2 seconds", watermark="1 second", plan=ab.broadcast(2))
    sizes = [sum(run.run([taken]).bench.state_rows().values()) for taken in steady + leap]
    want = twin.pairs_in_time(steady + leap, (2 * SECOND, 2 * SECOND), alike, SECOND)
    agree(run.pairs, want)
    # A batch brings 4 left rows once and 4 right rows twice. Batch n sees the watermark n - 1.25
    # and frees batch n - 4, whose last row, at n - 3.25, has waited its two seconds.
    assert sizes[:14] == [12, 24, 36] + [48] * 11
    assert sizes[-1] == 2 * 12
