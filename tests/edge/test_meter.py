"""Rates that are reported: soon after a change, exactly after a while, and seldom without one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from anabranch.edge import meter as meter_module
from anabranch.edge.meter import Meter

SECOND = 1_000_000


def reported(
    rows: Callable[[int], int], seconds: int, step: float = 1.0
) -> list[tuple[int, float]]:
    """The second and the rate of each report, of a meter that is looked at every `step` seconds."""
    meter, found = Meter(), []
    for look in range(int(seconds / step)):
        now = int(look * step * SECOND)
        meter.count(now, rows(look))
        rate = meter.due(now)
        if rate is not None:
            found.append((now // SECOND, rate))
    return found


def even(rate: float) -> Callable[[int], int]:
    return lambda second: int(rate * second) - int(rate * (second - 1))


@pytest.mark.parametrize(
    ("before", "after", "most"),
    [(1.0, 5.0, 2), (5.0, 2.15, 4), (1.0, 0.43, 20), (2.0, 0.2, 6), (0.2, 2.0, 3)],
)
def test_a_change_of_a_regular_stream_is_known_within_seconds(
    before: float, after: float, most: int
) -> None:
    told = reported(lambda k: even(before if k < 100 else after)(k), 160)
    good = [second for second, rate in told if second >= 100 and abs(rate / after - 1) <= 0.2]
    assert good and good[0] - 100 <= most


def test_a_rate_is_neither_that_of_before_nor_a_mean() -> None:
    told = reported(lambda k: 1 if k < 200 else 5, 320)
    assert {rate for _, rate in told} == {1.0, 5.0}


@pytest.mark.parametrize("rate", [0.2, 1.0, 5.0, 30.0])
def test_chance_alone_is_hardly_ever_reported(rate: float) -> None:
    """One report a minute is due; half an hour of it."""
    rng = np.random.default_rng(3)
    told = reported(lambda k: int(rng.poisson(rate)), 1800)
    assert len(told) <= 36
    late = [one for second, one in told if second > 300]
    assert np.mean([abs(one / rate - 1) > 0.3 for one in late]) <= 0.1


def test_rows_in_bursts_are_no_change() -> None:
    """Ten rows every ten seconds are one a second."""
    told = reported(lambda k: 10 if k % 10 == 9 else 0, 900)
    assert len([one for second, one in told if second > 120]) <= 16
    assert all(abs(rate - 1) <= 0.25 for second, rate in told if second > 120)


@pytest.mark.parametrize("step", [0.05, 1.0, 5.0])
def test_it_does_not_matter_how_often_it_is_looked_at(step: float) -> None:
    each = 20 * step  # rows in a look: 20 a second
    before, after = int(200 / step), 4
    told = reported(lambda k: int(each) * (1 if k < before else after), 300, step)
    assert abs(told[0][1] - 20) < 0.01 and abs(told[-1][1] - 80) < 0.01
    assert min(second for second, rate in told if rate > 70) <= 206


def test_a_clock_that_is_set_back_begins_anew() -> None:
    meter = Meter()
    for second in (*range(100, 130), *range(10, 40)):
        meter.count(second * SECOND, 2)
        meter.due(second * SECOND)
    assert meter.told == 2.0 and meter.begun == 10 * SECOND


def test_a_clock_that_is_set_back_leaves_nothing_behind() -> None:
    """No rate over a moment, and changes at times to come make no later one less likely."""
    meter, told = Meter(), []
    for tenth in (*range(10_000, 10_600), *range(400)):
        now = tenth * SECOND // 10
        meter.count(now, int(tenth % 10 == 0) * (1 if tenth < 10_300 else 9))
        if (rate := meter.due(now)) is not None:
            told.append((now // SECOND, rate))
    assert len(meter.changes) == 0 and told[-1] == (5, 1.0)


@pytest.mark.parametrize("seconds", [(0, 0, 2, 4, 6, 8), (0, 1, 2, 2, 3, 4, 5), (0, 0, 0, 6, 7)])
@pytest.mark.parametrize("rows", [0, 3])
def test_two_counts_at_one_time_are_one(seconds: tuple[int, ...], rows: int) -> None:
    meter = Meter(told=5.0)
    with np.errstate(all="raise"):
        for second in seconds:
            meter.count(second * SECOND, rows)
            meter.due(second * SECOND)
    assert meter.told is None or meter.told <= 1.5 * rows


def test_a_silent_stream_that_wakes_is_reported() -> None:
    told = reported(lambda k: 0 if k < 200 else 1, 230)
    assert told[0] == (5, 0.0) and any(200 <= s <= 210 and rate == 1.0 for s, rate in told)


def test_a_change_is_not_looked_for_at_every_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look is at all counts of five minutes; what is counted stays as it is."""
    looks: list[int] = []
    likelihood = meter_module._likelihood

    def counting(rows: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        looks.append(len(rows))
        return likelihood(rows, seconds)

    monkeypatch.setattr(meter_module, "_likelihood", counting)
    told = reported(lambda k: 1, 100, step=0.05)
    assert told[0] == (5, 20.0) and len(looks) <= 3 * 4 * 100
