"""Distances on the globe: great circles between points given by latitude and longitude.

A point travels as a vector of length 1 from the centre of the Earth, and two of them are compared
by their *chord*, the straight line between them, which the kernels compute as any Euclidean
distance. The chord decides, and says how long the way over the surface is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from anabranch.errors import InvalidCall, renamed
from anabranch.predicates.columns import Named, column_of
from anabranch.predicates.measures import VectorMeasure
from anabranch.predicates.terms import Compared, Measure, Term, columns_text
from anabranch.predicates.values import Within

__all__ = ["RADIUS", "Globe", "GreatCircle", "haversine", "on_globe"]

RADIUS = 6_371_008.8
"""The mean radius of the Earth in metres."""

_SLACK = 1e-9  # far more than what rounding does to a chord or to a latitude


@dataclass(frozen=True, eq=False, repr=False)
class Globe(Measure):
    """Metres between two points; `left` and `right` are the columns of latitude and longitude."""

    left: tuple[Named, Named]
    right: tuple[Named, Named]

    @property
    def example(self) -> str:
        return "<= 500"

    def __repr__(self) -> str:
        if self.left == self.right:
            return f"haversine({', '.join(map(repr, self.left))})"
        return f"haversine({self.left!r}, {self.right!r})"

    def problems_with(self, term: Compared) -> list[str]:
        if term.threshold < 0:
            return [f"{term!r}: a distance is never negative, so compare with 0 or more"]
        return []


@dataclass(frozen=True, eq=False, repr=False)
class GreatCircle(VectorMeasure):
    """The same of vectors of length 1, as kernels compare them.

    Examples
    --------
    >>> way = GreatCircle("euclidean", "p", "p", 3)
    >>> round(float(way.value(np.array([2.0]))[0])), round(way.reach(20_015_115, False), 6)
    (20015114, 2.0)
    """

    @property
    def label(self) -> str:
        return "haversine"

    def __repr__(self) -> str:
        return str(self.left) if self.left == self.right else f"{self.left}, {self.right}"

    def value(self, raw: np.ndarray) -> np.ndarray:
        """Metres, of chords."""
        metres: np.ndarray = 2 * RADIUS * np.arcsin(np.minimum(raw / 2, 1.0))
        return metres

    def reach(self, threshold: float, upward: bool) -> float:
        """The chord of so many metres, a little too short or too long, so that none is missed."""
        chord = 2 * math.sin(min(threshold / (2 * RADIUS), math.pi / 2))
        return chord * (1 - _SLACK) if upward else chord * (1 + _SLACK)


class Latitudes(Within):
    """The band of latitudes beside points, which says for what its columns are compared."""

    label: ClassVar[str] = "latitude"

    def __repr__(self) -> str:
        return f"haversine's latitudes ({columns_text(self.left, self.right)})"


@renamed()
def haversine(lat: Any, lon: Any, other_lat: Any = None, other_lon: Any = None) -> Globe:
    """Great-circle distance in metres of two points, by columns of latitude and longitude.

    Degrees, on a sphere with the Earth's mean radius. Four names are those of the left and of the
    right input.

    Examples
    --------
    >>> haversine("lat", "lon") <= 500
    haversine('lat', 'lon') <= 500
    >>> haversine("lat", "lon", "y", "x") < 9_000
    haversine(('lat', 'lon'), ('y', 'x')) < 9000
    """
    if (other_lat is None) != (other_lon is None):
        problem = "give latitude and longitude of the right input, or none: other_lat=, other_lon="
        raise InvalidCall("haversine", [problem])
    left = (column_of("haversine", lat, "lat"), column_of("haversine", lon, "lon"))
    if other_lat is None:
        return Globe(left, left)
    right = (("other_lat", other_lat), ("other_lon", other_lon))
    return Globe(left, tuple(column_of("haversine", value, name) for name, value in right))  # type: ignore[arg-type]


def on_globe(term: Compared, latitudes: tuple[str, str], points: tuple[str, str]) -> list[Term]:
    """What kernels compare instead: points, and for nearness a band of latitudes beside them.

    Examples
    --------
    >>> near, band = on_globe(haversine("lat", "lon") <= 500, ("lat", "lat"), ("point", "point"))
    >>> near, round(band.limit, 6)
    (point <= 500, 0.004497)
    """
    found: list[Term] = [
        Compared(GreatCircle("euclidean", *points, 3), term.op, term.threshold),
    ]
    if not term.upward:
        degrees = math.degrees(float(term.threshold) / RADIUS) * (1 + _SLACK)
        found.append(Latitudes(*latitudes, degrees))
    return found
