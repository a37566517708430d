"""Aircraft that come within 5 nautical miles and 1,000 feet of each other.

::

    pip install traffic
    python examples/aircraft.py

Three hours around Paris, a position each second as transponders sent them: 284,505 rows of 213
aircraft, in the package `traffic` (MIT licence). Both calls run on a stream with a watermark too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from from_package import file_in
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import anabranch as ab

MILE, FEET = 1852, 975  # heights are sent in steps of 25 feet: below 1,000 is at most 975
AIRPORTS = {"Charles de Gaulle": (49.0097, 2.5479), "Orly": (48.7233, 2.3794)}


def positions() -> pd.DataFrame:
    """Positions of aircraft that fly above 5,000 feet, where these limits are the rule."""
    table = pd.read_json(file_in("traffic", "data/samples/collections/quickstart.json.gz"))
    table = table.rename(columns={"timestamp": "ts", "latitude": "lat", "longitude": "lon"})
    table = table[~table.onground & table.altitude.between(5_000, 45_000)]
    table["point"] = list(from_centre(table.lat, table.lon))
    kept = table[["ts", "icao24", "callsign", "lat", "lon", "altitude", "point"]]
    return kept.drop_duplicates(["icao24", "ts"]).reset_index(names="id")


def from_centre(lat: Any, lon: Any) -> np.ndarray:
    """Points on the globe in kilometres from its centre, for distances in a straight line."""
    lat, lon = np.radians(lat), np.radians(lon)
    parts = [np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)]
    return 6371.0 * np.stack(parts, axis=-1)


# %% [markdown]
# ## Who came close to whom
# One stream with itself: positions at most 2 seconds apart, then the nearest of each two aircraft.
# %%
CLOSE = (ab.haversine("lat", "lon") <= 5 * MILE) & ab.within("altitude", FEET)
CLOSE &= ab.differs("icao24")
CLOSE
# %%
if __name__ == "__main__":
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = ab.configure(builder, workers=2).getOrCreate()
    table = positions()
    flights = spark.createDataFrame(table).cache()
    kept = ["callsign", "altitude", "lat", "lon"]
    pairs = ab.correlate(flights, where=CLOSE, window="2 seconds", keep=kept)
    both = F.array_sort(F.array("left_callsign", "right_callsign")).alias("aircraft")
    apart = F.abs(F.col("left_altitude") - F.col("right_altitude"))
    meetings = pairs.groupBy(both).agg(
        F.round(F.min("score") / MILE, 2).alias("miles"),
        F.min_by(apart, "score").alias("feet"),
        *(F.min_by(name, "score").alias(name) for name in ("ts", "left_lat", "left_lon")),
    )
    meetings = meetings.orderBy("miles").toPandas()
    print(meetings.to_string(index=False))
    # %% [markdown]
    # ## The five aircraft nearest to each airport
    # A standing query is a point; an aircraft comes out when it enters the five of the last minute.
    # %%
    places = [(name, from_centre(*at).tolist()) for name, at in AIRPORTS.items()]
    queries = spark.createDataFrame(places, ["query_id", "point"])
    each = flights.filter("second(ts) = 0 AND hour(ts) = 13")  # one a minute and aircraft
    hits = ab.nearest(each, queries, by="point", k=5, window="1 minute", keep="callsign")
    shown = ["entered_ts", "query_id", "object_callsign", "rank", F.round("distance").alias("km")]
    hits.orderBy("entered_ts", "query_id", "rank").select(*shown).show(10, truncate=False)
    spark.stop()
