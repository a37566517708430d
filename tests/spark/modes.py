"""Queries for a driver that is killed: each as a stream, and as the table that has the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pyspark.sql import functions as F

import anabranch as ab
from tests.spark.feeds import SECOND, START, Batch, scripted

COUNT = 8
LATE = 5 * SECOND  # how late a row may be
LAST = 90_000  # the id of a row that only moves the watermark
ALIKE = ab.cosine("v", dim=2) >= 0.8
ALIKE_IN_NAME = ab.edit("name") <= 1  # a fifth of the names are null


class Mode(NamedTuple):
    """A query, and results at which its driver is killed, by a name for what then is under way.

    The query gets both sides and what else its verb needs, which is a watermark in a stream.
    """

    query: Callable[..., Any]
    kills: Mapping[str, str]
    one_stream: bool = True


def _groups(left: Any, _: Any, **more: Any) -> Any:
    """Groups of the pairs of one stream; both verbs keep what they reject."""
    pairs = ab.correlate(left, where=ALIKE, window="300 ms", **more)
    return ab.groups(pairs, gap="400 ms", rejects=more.get("rejects"))


def _pairs(left: Any, _: Any, **more: Any) -> Any:
    """Groups of pairs that come as rows: of a row and its number, and without a time if it is bad.

    Groups of the rows that only move the watermark are left out, for the last of them stays open.
    """
    pairs = left.select(
        *("id", "v", "name", F.col("id").alias("left_id"), (-1 - F.col("x")).alias("right_id")),
        F.when(F.expr("size(v) = 2 AND NOT isnan(v[0])"), F.col("ts")).alias("ts"),
    )
    events = ab.groups(pairs, gap="700 ms", streams=1, **more)
    return events.filter(f"split(group, '[|]')[1] <= {LAST}")


def _globe(left: Any, right: Any, **more: Any) -> Any:
    """Places by the number of a row, up to forty thousandths of a degree from a corner."""
    sides = [
        frame.withColumns(
            {"lat": 48 + F.col("x") / 1000, "lon": 16 + F.pmod("bits", F.lit(7)) / 1000}
        )
        for frame in (left, right)
    ]
    where = ab.haversine("lat", "lon") <= 800.0
    return ab.correlate(*sides, where=where, window="2 seconds", **more)


MODES = {
    "one": Mode(
        lambda left, _, **more: ab.correlate(
            left, where=ALIKE & ab.differs("room"), window="2 seconds", keep="room", **more
        ),
        {"pairs": "left_id >= 6000"},
    ),
    "dedupe": Mode(
        lambda left, _, **more: ab.dedupe(left, where=ALIKE, window="50 ms", **more),
        {"rows": "id >= 4000"},
    ),
    "left": Mode(
        lambda left, right, **more: ab.correlate(
            *(left, right), where=ALIKE, window="50 ms", keep="name", how="left", **more
        ),
        {"a pair": "right_id >= 4000", "a row without a partner": "right_id IS NULL"},
        one_stream=False,
    ),
    "full": Mode(
        lambda left, right, **more: ab.correlate(
            *(left, right), where=ALIKE, window="50 ms", keep="name", how="full", **more
        ),
        {
            "a pair": "left_id >= 4000 AND right_id >= 4000",
            "a left row without a partner": "left_id >= 6000 AND right_id IS NULL",
            "a right row without a partner": "left_id IS NULL AND right_id >= 8000",
        },
        one_stream=False,
    ),
    "anti": Mode(
        lambda left, right, **more: ab.correlate(
            *(left, right), where=ALIKE, window="50 ms", how="anti", plan=ab.grid(1, 2), **more
        ),
        {"a row that waited at home": "left_id >= 4000"},
        one_stream=False,
    ),
    "rows": Mode(
        lambda left, right, **more: ab.correlate(
            *(left, right), where=ALIKE, window=(9, 5), **more
        ),
        {"ranked pairs": "right_id >= 4000"},
        one_stream=False,
    ),
    "groups": Mode(
        _groups,
        {"growth": "event = 'grew' AND left_id >= 4000", "an end": "event = 'closed'"},
    ),
    "pairs": Mode(
        _pairs,
        {"growth": "event = 'grew' AND left_id >= 4000", "an end": "event = 'closed'"},
    ),
    "either": Mode(
        lambda left, right, **more: ab.correlate(
            *(left, right), where=ALIKE_IN_NAME | ab.within("x", 1), window="2 seconds", **more
        ),
        {
            "a pair by its texts": "left_id >= 4000 AND score IS NOT NULL",
            "a pair by the other side": "left_id >= 6000 AND score IS NULL",
        },
        one_stream=False,
    ),
    "globe": Mode(
        lambda left, right, **more: _globe(left, right, **more),
        {"places": "left_id >= 6000"},
        one_stream=False,
    ),
}


def rows_of(frame: Any) -> Counter[tuple[Any, ...]]:
    """Rows of a result that the end of the feed has no part in."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in frame.select(*sorted(frame.columns)).collect():
        ids = [row[name] for name in ("id", "left_id", "right_id") if name in frame.columns]
        if not any(one is not None and one > LAST for one in ids):
            found[tuple(map(str, row))] += 1
    return found


def batches_of(mode: Mode, lag: Callable[[list[Batch]], list[Batch]] = list) -> list[Batch]:
    """What the query reads: one side alone for one stream, and the end of time as last batch.

    `lag` may make rows of the script late.
    """
    batches = lag(scripted(COUNT, rows=(12, 12), seed=21))
    if mode.one_stream:
        batches = [([*left, *right], []) for left, right in batches]
    ends = [{**batches[0][0][0], "id": LAST + n, "t": START + 600 * n * SECOND} for n in (1, 2)]
    return batches + [([row], []) for row in ends]
