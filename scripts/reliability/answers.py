"""What the queries of `lives` must have answered by now, as the twins say."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import anabranch as ab
from scripts.reliability.streams import SECOND, START, STEP
from tests.correlation import twin
from tests.correlation.test_grouping import twin as grouped
from tests.neighbours import runs
from tests.spark import events

__all__ = ["ANSWERS", "CLOSING", "QUERIES"]

DELAY = 900 * SECOND
WINDOW = (1200 * SECOND, 600 * SECOND)
CLOSING = ab.close.learned("20 minutes", risk=0.4, after=4, remember="45 minutes")
QUERIES = [
    {"id": n, "v": [float(3 - n), float(n)], "k": 1 + n % 3, "span": (600 + 300 * n) * SECOND}
    for n in range(4)
]
GAP = 180 * SECOND
_FEW = 3
"""Micro-batches after the watermark within which what has waited for it may come out."""

Rows = Sequence[tuple[list[dict[str, Any]], list[dict[str, Any]]]]
Answers = tuple[Counter[Any], Counter[Any]]


def _comparable(row: dict[str, Any]) -> bool:
    return row["v"] is not None and not any(x != x for x in row["v"])


def _in_time(given: Rows, sides: int = 2) -> tuple[list[Any], list[Any], list[int]]:
    """Rows of both sides, or of the first, that have an angle and are not late; the watermarks."""
    good: list[Any] = [
        [[row for row in side if _comparable(row) and any(row["v"])] for side in batch[:sides]]
        + [[]] * (2 - sides)
        for batch in given
    ]
    marks = list(twin.watermarks(good, DELAY))
    left, right, _ = twin.in_time(good, marks)
    in_order = [sorted(rows, key=lambda row: (row["t"], row["id"])) for rows in (left, right)]
    return *in_order, marks  # type: ignore[return-value]


def _near(
    left: Sequence[Any], right: Sequence[Any], window: tuple[int, int], least: float
) -> Counter[Any]:
    """The pairs of the twin, of rows that are near in time, so that it ends."""
    times = [row["t"] for row in right]
    found: Counter[Any] = Counter()
    for first in range(0, len(left), 50):
        part = left[first : first + 50]
        low = bisect.bisect_left(times, part[0]["t"] - window[1])
        high = bisect.bisect_right(times, part[-1]["t"] + window[0])
        found.update(twin.pairs(part, right[low:high], window, twin.alike(least)).keys())
    return found


def _within(rows: Sequence[Any], span: int, least: float) -> Counter[Any]:
    """The pairs of one stream, the earlier row first; no two rows have the same time."""
    pairs = _near(rows, rows, (span, 0), least)
    return Counter({(a, b): often for (a, b), often in pairs.items() if a != b})


def _ids(got: pa.Table, *names: str) -> Counter[Any]:
    return Counter(zip(*got.select(list(names)).to_pydict().values(), strict=True))


def _decided(
    want: Iterable[tuple[Any, int]], got: Counter[Any], marks: Sequence[int]
) -> Counter[Any]:
    """What must have come out, by results and the times that the watermark has to pass for them.

    What it has passed in the last few micro-batches may have come out.
    """
    sure = marks[-1 - _FEW] if len(marks) > _FEW else 0
    return Counter(r for r, t in want if t <= sure or (t <= marks[-1] and r in got))


def _pairs(spark: Any, given: Rows, got: pa.Table) -> Answers:
    left, right, _ = _in_time(given)
    return _ids(got, "left_id", "right_id"), _near(left, right, WINDOW, 0.6)


def _full(spark: Any, given: Rows, got: pa.Table) -> Answers:
    """All pairs, and the rows that are in none once none can come."""
    left, right, marks = _in_time(given)
    window = (120 * SECOND, 60 * SECOND)
    want, found = _near(left, right, window, 0.9), _ids(got, "left_id", "right_id")
    met = {a for a, _ in want}, {b for _, b in want}
    alone = [((row["id"], None), row["t"] + window[0]) for row in left if row["id"] not in met[0]]
    alone += [((None, row["id"]), row["t"] + window[1]) for row in right if row["id"] not in met[1]]
    return found, want + _decided(alone, found, marks)


def _firsts(spark: Any, given: Rows, got: pa.Table) -> Answers:
    """Rows without an earlier one that is alike."""
    rows, _, marks = _in_time(given, 1)
    later = {b for _, b in _within(rows, 240 * SECOND, 0.9)}
    found = _ids(got, "id")
    want = [((row["id"],), row["t"]) for row in rows if row["id"] not in later]
    return found, _decided(want, found, marks)


def _grouped(spark: Any, given: Rows, got: pa.Table) -> Answers:
    """Every pair once, in the event that it caused; and the groups that have closed."""
    rows, _, marks = _in_time(given, 1)
    times = {row["id"]: row["t"] for row in rows}
    pairs = [(times[b], a, b) for a, b in _within(rows, 120 * SECOND, 0.99)]
    want: list[tuple[Any, int]] = [((a, b), t) for t, a, b in pairs]
    for group in grouped(pairs, GAP, one=True):
        members = sorted({row for _, *both in group for row in both})
        want.append(((len(group), *members), max(t for t, _, _ in group) + GAP + 1))
    found: Counter[Any] = Counter()
    for event in got.to_pylist():
        if event["event"] == "closed":
            found[(event["pairs"], *sorted(event["members"]))] += 1
        elif event["event"] != "merged":
            found[event["left_id"], event["right_id"]] += 1
    return found, _decided(want, found, marks)


def _hits(spark: Any, given: Rows, got: pa.Table) -> Answers:
    good = [([row for row in left if _comparable(row)], []) for left, _ in given]
    marks = list(twin.watermarks(good, DELAY))
    objects, _, _ = twin.in_time(good, marks)
    objects = sorted((row["t"], row["id"], row["v"]) for row in objects)
    times = [thing[0] for thing in objects]
    longest = max(query["span"] for query in QUERIES)
    want: Counter[Any] = Counter()
    first = START - 20 * STEP
    while first <= times[-1]:  # an object can enter while it is in the window, and only then
        last = first + 2 * longest
        low, high = (bisect.bisect_left(times, t) for t in (first - longest, last + longest))
        for hit in runs.expected(objects[low:high], QUERIES):
            if first <= hit[2] < last and hit[3] <= marks[-1]:
                want[hit] += 1
        first = last
    got = got.set_column(2, "object_ts", got["object_ts"].cast(pa.int64()))
    got = got.set_column(3, "entered_ts", got["entered_ts"].cast(pa.int64()))
    names = ["query_id", "object_id", "object_ts", "entered_ts", "distance", "rank"]
    return Counter(zip(*got.select(names).to_pydict().values(), strict=True)), want


def _instances(spark: Any, given: Rows, got: pa.Table) -> Answers:
    good: list[Any] = [
        tuple([row for row in side if row["page"] is not None] for side in batch) for batch in given
    ]
    want = events.expected(spark, good, CLOSING, DELAY, buckets=2, idle=False)
    rows = [_plain(row) for row in got.to_pylist()]
    return Counter(map(repr, events.collected(_Collected(rows)))), Counter(map(repr, want))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    names = ("opened", "closed", "first_ts", "last_ts")
    return {**row, **{name: row[name].replace(tzinfo=None) for name in names}}


@dataclass
class _Collected:
    """Rows as a frame would collect them."""

    rows: list[dict[str, Any]]

    def collect(self) -> list[dict[str, Any]]:
        """All of them."""
        return self.rows


ANSWERS: dict[str, Callable[[Any, Rows, pa.Table], Answers]] = {
    "correlate": _pairs,
    "nearest": _hits,
    "assemble": _instances,
    "full": _full,
    "dedupe": _firsts,
    "groups": _grouped,
}
