"""End markers: stories of one window, and what is learned beside them over a long stream."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from anabranch.assembly import close
from anabranch.assembly.closing import Closing
from tests.assembly.test_laws import Bucket, event
from tests.assembly.twin import Row, Twin


def reasons(closing: Closing, rows: list[Row]) -> list[tuple[str, int, int]]:
    """Reason, count and close of what comes out."""
    bucket = Bucket(closing)
    bucket.step(rows, 0)
    return [(row["reason"], row["count"], row["closed"]) for row in bucket.step([], 500)]


#  t            1   2   3   4   5   6   7   8
#  events       o   o   Mo      o       o          M is the marker, of one of two events at 3
#  grace 0              |                          the event beside the marker belongs to it
#  grace 3                          |              a timer at 6: what comes at 7 does not
EVENTS = [event(1, t) for t in (1, 2, 5, 7)] + [event(1, 3, ends=True), event(1, 3, tie=2)]


@pytest.mark.parametrize(
    ("grace", "found"),
    [
        ("0 us", [("end", 4, 3), ("late", 5, 5), ("late", 6, 7)]),
        ("3 us", [("end", 5, 6), ("late", 6, 7)]),
        ("4 us", [("end", 5, 7), ("late", 6, 7)]),
        ("5 us", [("end", 6, 8)]),
    ],
)
def test_a_window_closes_its_grace_after_the_end(grace: str, found: list) -> None:
    closing = close.until("last", grace, otherwise=close.after("50 us"))
    assert reasons(closing, EVENTS) == found
    assert reasons(closing, EVENTS[::-1]) == found


@pytest.mark.parametrize(
    ("otherwise", "found"),
    [
        (close.after("3 us", remember="9 us"), [("timeout", 4, 4), ("late", 5, 5), ("late", 6, 7)]),
        (close.gap("2 us"), [("gap", 4, 5), ("gap", 1, 7), ("gap", 1, 9)]),
        (close.count(4, "50 us"), [("full", 4, 3), ("timeout", 2, 55)]),
    ],
)
def test_the_other_policy_may_be_first(otherwise: Closing, found: list) -> None:
    assert reasons(close.until("last", "9 us", otherwise=otherwise), EVENTS) == found


def test_the_first_marker_counts_and_a_late_one_counts_at_the_clock() -> None:
    closing = close.until("last", "4 us", otherwise=close.after("50 us"))
    rows = [event(1, 1), event(1, 3, ends=True), event(1, 5, ends=True)]
    assert reasons(closing, rows) == [("end", 3, 7)]
    bucket = Bucket(closing)
    bucket.step([event(1, 11)], 10)
    bucket.step([event(1, 8, ends=True)], 13)
    (row,) = bucket.step([], 500)
    assert (row["reason"], row["count"], row["closed"]) == ("end", 2, 17)


@pytest.mark.parametrize("seed", range(2))
def test_what_is_learned_beside_an_end_marker_is_what_the_twin_learns(seed: int) -> None:
    """Most instances end with a marker; some have an event after it, some no marker at all."""
    random = np.random.default_rng(seed)
    rows: list[Row] = []
    for key in range(400):
        t = 12 * key + 1
        size = (2, 3, 6)[key % 3]
        gaps = random.choice([0, 1, 2, 4, 9], size)
        end = size - 1 - int(random.random() < 0.3) if random.random() < 0.9 else size
        for n, gap in enumerate(gaps):
            t += int(gap)
            rows.append(event(key, t, tie=n, ends=n == end))
    learned = close.learned("15 us", risk=0.05, after=10, remember="20 us")
    closing = close.until("last", "6 us", otherwise=learned)
    twin, bucket = Twin(closing), Bucket(closing)
    for clock in [0, *range(500, 6000, 500)]:
        part = [row for row in rows if clock < row["t"] + 30 <= clock + 500]  # some are late
        assert bucket.step(part, clock) == twin.step(part, clock)
    found = Counter(row["reason"] for row in twin.results)
    assert min(found[name] for name in ("complete", "end", "gap", "timeout")) > 5, found
