"""A checkpoint goes on in a session with another time zone and another number of partitions.

Instants come back as they went in, though no `datetime` of Python holds them in that zone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.spark.feeds import SECOND, Feed, at, found, row, settings

FAR = 253_402_300_799 * SECOND  # the last second of the year 9999, in London
EAST = {"session__timeZone": "Asia/Tokyo", "shuffle__partitions": 2}
WEST = {"session__timeZone": "America/New_York", "shuffle__partitions": 3}


def with_instants(frame: Any) -> Any:
    """The rows with instants of the far future, alone and inside a struct."""
    from pyspark.sql import functions as F

    far = F.timestamp_micros(F.lit(FAR))
    return frame.withColumn("seen", far).withColumn("more", F.struct(far.alias("z")))


@pytest.mark.slow
def test_pairs(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    feed = Feed(tmp_path).add([([row(1, at(0))], [row(2, at(0.5))])])
    call: dict[str, Any] = {
        "where": ab.within("x", 1),
        "window": "2 seconds",
        "plan": ab.broadcast(2),
    }

    def run() -> None:
        sides = map(with_instants, feed.streams(spark))
        feed.run(ab.correlate(*sides, **call, watermark="1 second", keep=["seen", "more"]))

    with settings(spark, **EAST):
        run()
    feed.add([([row(3, at(1))], [row(4, at(1.5))]), ([row(5, FAR)], [row(6, FAR)])])
    with settings(spark, **WEST):
        run()
        out = feed.output(spark)
        assert set(found(out)) == {(1, 2), (1, 4), (3, 2), (3, 4), (5, 6)}
        kept = [F.unix_micros(f"{side}_{name}") for side in ("left", "right")
                for name in ("seen", "more.z")]  # fmt: skip
        assert {tuple(each) for each in out.select(*kept).collect()} == {(FAR,) * 4}


@pytest.mark.slow
def test_instances(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    feed = Feed(tmp_path, idle=True).add([([row(1, at(0))], []), ([row(2, at(2))], [])])

    def run() -> None:
        rows = with_instants(feed.streams(spark)[0])
        close, keep = ab.close.gap("3 seconds", remember="9 seconds"), ["id", "more"]
        call: dict[str, Any] = {"key": ["room", "seen"], "close": close, "keep": keep}
        feed.run(ab.assemble(rows, **call, watermark="1 second", plan=ab.keyed(2)))

    with settings(spark, **EAST):
        run()
    # A row that no nanosecond reaches ends all that was open.
    feed.add([([row(3, at(4))], []), ([row(4, FAR)], []), ([row(5, at(5))], [])])
    with settings(spark, **WEST):
        run()
        out = feed.output(spark)
        each = out.select("reason", "items.id", F.unix_micros("seen"), F.unix_micros("opened"))
        assert sorted(map(tuple, each.collect())) == [
            ("gap", [1, 2, 3], FAR, at(0)),
            ("late", [5], FAR, at(5)),
        ]
        kept = out.select(F.explode("items.more.z").alias("z")).select(F.unix_micros("z"))
        assert {z for (z,) in kept.collect()} == {FAR}


def test_a_session_whose_timestamps_have_no_zone(spark: Any, tmp_path: Path) -> None:
    """What verbs send inside has types of its own, whatever text means in this session."""
    feed = Feed(tmp_path).add([([row(1, at(0))], [row(2, at(0.5))])])
    call: dict[str, Any] = {
        "where": ab.within("x", 1),
        "window": "2 seconds",
        "plan": ab.broadcast(2),
    }
    with settings(spark, timestampType="TIMESTAMP_NTZ", shuffle__partitions=2):
        feed.run(ab.correlate(*feed.streams(spark), **call, watermark="1 second"))
        table = ab.correlate(*feed.tables(spark), **call)
        assert set(found(feed.output(spark))) == set(found(table)) == {(1, 2)}
