"""Sensor readings like a known fault: twenty faults of a space shuttle are searched for, live.

::

    pip install river
    python examples/sensors.py

Nine sensors of a NASA shuttle, 49,097 readings of which 7 % are faults (UCI Statlog, CC BY 4.0, in
the package `river`, BSD-3). They have no times; here one comes a second. Twenty faults of the first
2,000 readings are known. Each is a saved search, to which like readings are reported as they come.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from from_package import file_in
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import anabranch as ab

KNOWN, PAST = 20, 2_000  # faults, and readings at the beginning that they are taken from


def readings() -> pd.DataFrame:
    """All readings: what sensors say in units of how much they varied at first, and the truth."""
    table = pd.read_csv(file_in("river", "datasets/shuttle.csv.gz"))
    sensors = table[[f"f{n}" for n in range(1, 10)]].to_numpy(np.float32)
    spread = np.maximum(sensors[:PAST].std(axis=0), 1)
    return pd.DataFrame(
        {
            "id": np.arange(len(table)),
            "ts": pd.date_range("2026-03-01", periods=len(table), freq="s"),
            "v": list(np.clip((sensors - np.median(sensors[:PAST], axis=0)) / spread, -10, 10)),
            "fault": table.anomaly == 1,
        }
    )


def judged(hits: pd.DataFrame, later: pd.DataFrame) -> dict[str, float]:
    """How many readings were reported, how many were faults, and how many faults were reported."""
    reported = set(hits.object_id)
    faults = set(later.id[later.fault])
    right = len(reported & faults)
    return {
        "readings": len(later),
        "faults": len(faults),
        "reported": len(reported),
        "precision": right / max(1, len(reported)),
        "recall": right / max(1, len(faults)),
    }


# %% [markdown]
# ## Saved searches over the readings
# A reading is a hit if it is among the 10 nearest of the last five minutes to a known fault, and
# at most 1 away from it.
# %%
if __name__ == "__main__":
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = ab.configure(builder, workers=2).getOrCreate()
    table = readings()
    past, later = table[:PAST], table[PAST:]
    known = past[past.fault].head(KNOWN).rename(columns={"id": "query_id"})[["query_id", "v"]]
    hits = ab.nearest(
        spark.createDataFrame(later), spark.createDataFrame(known), by="v", k=10, within=1.0,
        window="5 minutes", keep="fault",
    ).cache()  # fmt: skip
    hits.groupBy("query_id").agg(
        F.count("*").alias("hits"), F.avg(F.col("object_fault").cast("int")).alias("faults")
    ).orderBy(F.desc("hits")).show(6)
    # %% [markdown]
    # ## Against the truth
    # %%
    hits = hits.toPandas()
    for name, value in judged(hits, later).items():
        print(f"{name:10} {value:,.3f}" if value <= 1 else f"{name:10} {value:,}")
    spark.stop()
