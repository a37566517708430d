"""Distances on the globe: exact against the textbook's formula, whatever the plan."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.correlation.call import plan_correlation
from anabranch.errors import BadRow, InvalidCall
from anabranch.predicates.globe import RADIUS, on_globe
from anabranch.predicates.naming import with_names
from anabranch.predicates.terms import together
from anabranch.testing import InProcess
from tests.examples import examples

BASE = 1_700_000_000_000_000


def spot(lat: float, lon: float) -> tuple[float, float]:
    """The one name of a point: a pole has no longitude, and others have one from -180 on."""
    if abs(lat) == 90:
        return lat, 0.0
    return lat, lon - 360 if lon >= 180 else lon + 360 if lon < -180 else lon


def metres(a: tuple[float, float], b: tuple[float, float]) -> float:
    """The formula that gave the measure its name."""
    (p, east), (q, west) = (map(math.radians, spot(*point)) for point in (a, b))
    h = math.sin((q - p) / 2) ** 2 + math.cos(p) * math.cos(q) * math.sin((west - east) / 2) ** 2
    return 2 * RADIUS * math.asin(min(1.0, math.sqrt(h)))


def rows(points: list[tuple[float, float]]) -> pa.Table:
    lat, lon = np.radians(np.array([spot(*point) for point in points]).reshape(-1, 2)).T
    unit = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)
    return pa.table(
        {
            "id": np.arange(len(points)),
            "ts": pa.array([BASE] * len(points), pa.timestamp("us", "UTC")),
            "lat": np.degrees(lat),
            "p": pa.array(unit.tolist(), pa.list_(pa.float64())),
        }
    )


spots = st.tuples(
    st.one_of(st.floats(-90, 90), st.sampled_from([-90.0, 90.0, 0.0, 48.2, 48.2000001])),
    st.one_of(
        st.floats(-360, 360),
        st.sampled_from([-180.0, 180.0, 0.0, 360.0, -360.0, 16.37, 16.3700001]),
    ),
)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(spots, max_size=12),
    st.lists(spots, max_size=12),
    st.sampled_from([0.0, 0.02, 5.0, 12_345.6, 1e6, 1.9e7, 2.1e7]),
    st.booleans(),
)
def test_pairs_are_those_of_the_formula(
    left: list[Any], right: list[Any], limit: float, near: bool
) -> None:
    measure = ab.haversine("lat", "lon")
    term = measure <= limit if near else measure >= limit
    where = together(on_globe(term, ("lat", "lat"), ("p", "p")))
    tables = rows(left), rows(right)
    run = InProcess(
        tables[0].schema, tables[1].schema, where=where, window="1 s", plan=ab.grid(2, 2)
    )
    run.step(*tables)
    found = {(pair["left_id"], pair["right_id"]): pair["score"] for pair in run.pairs}
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            true = metres(a, b)
            # Near the other side of the globe the formula itself is good to some metres only.
            error = 1e-6 if true < 1e7 else 20.0
            if (i, j) in found:
                assert found[i, j] == pytest.approx(true, abs=error, rel=1e-9)
            if spot(*a) == spot(*b):  # to the last bit
                assert ((i, j) in found) == (near or limit == 0)
                assert found.get((i, j), 0.0) == 0
            elif abs(true - limit) > error:
                assert ((i, j) in found) == (true <= limit if near else true >= limit)


@pytest.mark.parametrize("lat", [None, 91.0, math.nan, math.inf, -math.inf])
def test_a_point_that_is_none_is_unknown_inside(lat: float | None) -> None:
    """Another side of ``|`` may match; outside such a row is bad."""
    near = with_names(ab.haversine("lat", "lon") <= 500, lambda _, name: name, lambda *_: "p")
    points = rows([(0.0, 0.0), (0.0, 0.001)])
    points = points.append_column("key", pa.array(["k", "l"]))
    nowhere = {"id": 2, "ts": points["ts"][0].as_py(), "lat": lat, "p": None, "key": "k"}
    table = pa.concat_tables([points, pa.Table.from_pylist([nowhere], points.schema)])
    run = InProcess(table.schema, None, where=near | ab.same("key"), window="1 s")
    run.step(table)
    assert {(pair["left_id"], pair["right_id"]) for pair in run.pairs} == {(0, 1), (0, 2)}
    what = "with id 2 cannot be compared: 'p' is no point: latitude is beyond 90, longitude beyond"
    with pytest.raises(BadRow, match=what):
        InProcess(table.schema, None, where=near & ab.same("key"), window="1 s").step(table)


def test_calls() -> None:
    with pytest.raises(
        InvalidCall, match="give latitude and longitude of the right input, or none"
    ):
        ab.haversine("lat", "lon", "y")
    types = {"id": "bigint", "ts": "timestamp", "lat": "double", "lon": "double"}
    for limit, says in (
        (-1, "a distance is never negative"),
        *((wrong, "must be a finite number") for wrong in (None, math.nan, math.inf, "500")),
    ):
        where = with_names(ab.haversine("lat", "lon") <= limit, lambda _, name: name, _point)
        _, (problem,) = plan_correlation(types, None, where=where, window="1 s")
        assert f"haversine('lat', 'lon') <= {limit!r}: " in problem and says in problem
    turned = ab.haversine("lat", "lon", "lon", "lat") <= 5
    types |= {"lat, lon": "array<double>", "lon, lat": "array<double>"}
    where = with_names(turned, lambda _, name: name, _point)
    _, (problem,) = plan_correlation(types, None, where=where, window="1 s")
    assert problem.startswith("lat, lon, lon, lat <= 5 compares two different columns")
    mixed = {**types, "lat": "decimal(9,6)"}
    where = with_names(ab.haversine("lat", "lon") <= 5, lambda _, name: name, _point)
    _, (problem,) = plan_correlation(types, mixed, where=where, window="1 s")
    assert problem.startswith("haversine's latitudes ('lat') compares decimals exactly")


def _point(side: int, lat: str, lon: str) -> str:
    return f"{lat}, {lon}"
