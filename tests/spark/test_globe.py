"""`haversine` on Spark: points by latitude and longitude, with bad ones among them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import anabranch as ab
from tests.correlation.test_globe import metres

PLACES = {
    1: (48.2082, 16.3738),
    2: (48.2085, 16.3721),
    3: (48.3069, 14.2858),
    4: (-33.8688, 151.2093),
    5: (48.2082, -343.6262),  # the same, once around
}

EQUAL = [
    [(0.0, 180.0), (0.0, -180.0)],
    [(90.0, 0.0), (90.0, 77.0), (90.0, -200.0)],
    [(-90.0, 0.0), (-90.0, 360.0)],
    [(10.0, 0.0), (10.0, 360.0), (10.0, -360.0), (10.0, -0.0)],
    [(48.25, 16.375), (48.25, -343.625)],
    [(-33.5, 190.5), (-33.5, -169.5)],
]


def test_equal_points_are_no_metre_apart(spark: Any) -> None:
    """By whichever longitude, at both ends of the map, and at the poles."""
    rows = [(10 * n + m, *spot) for n, spots in enumerate(EQUAL) for m, spot in enumerate(spots)]
    table = spark.createDataFrame(rows, "id long, lat double, lon double")
    table = table.withColumn("ts", F.timestamp_seconds(F.lit(0)))
    ids = [row[0] for row in rows]
    alike = {(a, b): 0.0 for a in ids for b in ids if a < b and a // 10 == b // 10}
    measure = ab.haversine("lat", "lon")
    pairs = ab.correlate(table, where=measure <= 0, window="1 second").collect()
    assert {(row.left_id, row.right_id): row.score for row in pairs} == alike
    apart = ab.correlate(table, where=measure > 0, window="1 second").collect()
    assert len(apart) == len(ids) * (len(ids) - 1) // 2 - len(alike)


def test_pairs_within_a_kilometre(spark: Any) -> None:
    rows = [(n, 0, {"lat": lat, "lon": lon}) for n, (lat, lon) in PLACES.items()]
    kind = "id long, t long, at struct<lat: double, lon: double>"
    table = spark.createDataFrame(rows, kind).selectExpr("id", "timestamp_seconds(t) AS ts", "at")
    table = table.unionByName(
        spark.sql("SELECT 6L AS id, timestamp_seconds(0) AS ts, "
                  "named_struct('lat', 91D, 'lon', 0D) AS at")
    )  # fmt: skip
    where = ab.haversine("at.lat", "at.lon") <= 1000
    good = table.filter("id < 6")
    pairs = ab.correlate(good, where=where, window="1 second").collect()
    found = {(row.left_id, row.right_id): row.score for row in pairs}
    assert found.keys() == {(1, 2), (1, 5), (2, 5)}
    assert found[1, 2] == pytest.approx(metres(PLACES[1], PLACES[2]), rel=1e-9)
    assert found[1, 5] == pytest.approx(0, abs=1e-6)
    far = ab.haversine("at.lat", "at.lon") > 15_000_000
    assert {row.right_id for row in ab.correlate(good, where=far, window="0 s").collect()} == {4, 5}
    with pytest.raises(Exception, match="id 6"):
        ab.correlate(table, where=where, window="1 second").collect()
    with pytest.raises(ab.errors.InvalidCall, match="there is no column 'latitude'"):
        ab.correlate(table, where=ab.haversine("latitude", "lon") <= 1, window="1 second")
    named = table.withColumn("name", F.lit("x"))
    with pytest.raises(
        ab.errors.InvalidCall, match="column 'name' is string; latitude and longitude"
    ):
        ab.correlate(named, where=ab.haversine("name", "at.lon") <= 1, window="1 second")


def test_what_is_no_point_is_said(spark: Any, tmp_path: Path) -> None:
    places = [(91.0, 0.0), (1.0, 361.0), (None, 1.0), (1.0, None), (math.nan, 1.0), (1.0, math.inf)]
    rows = [(n, *place) for n, place in enumerate([*places, (48.2, 16.4)])]
    table = spark.createDataFrame(rows, "id long, lat double, lon double")
    table = table.withColumn("ts", F.timestamp_seconds(F.lit(0)))
    where = ab.haversine("lat", "lon") <= 5
    folder = str(tmp_path / "left out")
    call = {"window": "1 second", "bad_rows": "drop", "rejects": folder}
    assert ab.correlate(table, where=where, **call).count() == 0
    kept = ab.rejects(spark, folder).collect()
    assert len(kept) == len(places)
    assert {row.reason for row in kept} == {
        "'haversine(lat, lon)' is no point: latitude is beyond 90, longitude beyond 360, or one is "
        "null or no number"
    }
    asked = table.select(F.col("id").alias("query_id"), F.array("lat").alias("v"))
    objects = table.withColumn("v", F.array("lat"))
    with pytest.raises(ab.errors.InvalidCall, match=r"nearest takes ab.same\(...\)") as refusal:
        ab.nearest(objects, asked, by="v", k=1, window="1 s", where=where)
    assert "haversine('lat', 'lon') <= 5" in str(refusal.value)
    assert len(refusal.value.problems) == 1
