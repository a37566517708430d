"""Points on the globe as vectors, made of columns of latitude and longitude."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["unit_vector"]


def unit_vector(lat: Column, lon: Column) -> Column:
    """The vector of length 1 of a point given in degrees; null if one is null or no angle.

    A point has many longitudes: one more turn, both ends of the map, any at a pole. They are made
    one first, so that equal points have equal vectors, and 0 metres between them.

    Examples
    --------
    >>> from pyspark.sql import functions as F
    >>> places = [(10.0, 0.0), (10.0, 360.0), (90.0, 77.0), (91.0, 0.0)]
    >>> rows = spark.createDataFrame(places, "lat double, lon double")
    >>> found = rows.select(unit_vector(F.col("lat"), F.col("lon")).alias("v")).collect()
    >>> found[0].v == found[1].v, found[2].v[1], found[3].v
    (True, 0.0, None)
    """
    from pyspark.sql import functions as F

    # Within a factor of two numbers are subtracted without rounding.
    turned = F.when(lon >= 180, lon - 360).when(lon < -180, lon + 360).otherwise(lon)
    phi = F.radians(lat)
    turn = F.radians(F.when(F.abs(lat) == 90, F.lit(0.0)).otherwise(turned))
    vector = F.array(F.cos(phi) * F.cos(turn), F.cos(phi) * F.sin(turn), F.sin(phi))
    return F.when((F.abs(lat) <= 90) & (F.abs(lon) <= 360), vector)
