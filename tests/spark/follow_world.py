"""A small world of people who move, and the views over them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

import anabranch as ab
from anabranch.placement.views import Views
from tests.spark.follow_twin import Row, results

PEOPLE = ("ann", "bob", "cy", "dee")
COLUMNS = "xy array<double>, room string, speed double"
BEGIN = 1_700_000_000_000_000


def views() -> list[Views]:
    me = ab.feed("gps", by="user", tick="1 second", columns=COLUMNS)
    them = ab.feed("gps", by="friend", tick="1 second", columns=COLUMNS)
    where = (ab.euclidean("xy") <= 5) & ab.differs("room")
    near = ab.view(
        "nearby",
        {me: "every_me", them: "every_them"},
        where=where,
        window=("4 seconds", "4 seconds"),
        symmetric=True,
        keep=["xy"],
        deliver=("cloud", "inputs"),
    )
    follows = ab.view("follows", {me: None, them: "3 seconds"}, window=("0 seconds", "2 seconds"))
    fast = ab.view("fast", {me: "2 seconds"}, where=[("speed", ">=", 0.5)], keep=["room"])
    friends = pd.DataFrame(
        [
            ("ann", "bob", "1 second", "2 seconds"),
            ("bob", "ann", "5 seconds", "3 seconds"),
            ("bob", "cy", "1 second", "1 second"),
            ("dee", "ann", "7 seconds", "2 seconds"),
        ],
        columns=["user", "friend", "every_me", "every_them"],
    )
    return [near.over(friends), follows.over(friends), fast.over(friends[["user"]])]


def rows(seed: int = 3, count: int = 60) -> list[Row]:
    """Rows of everybody, several of them within one tick, and some at the same time."""
    rng = np.random.default_rng(seed)
    found = []
    for key in PEOPLE:
        t = BEGIN + np.cumsum(rng.choice([0, 200_000, 900_000, 1_000_000, 2_500_000], count))
        xy = np.cumsum(rng.normal(0, 1.5, (count, 2)), axis=0)
        for n in range(count):
            values = {
                "xy": xy[n].tolist(),
                "room": str(rng.choice(["r1", "r2", "r3"])),
                "speed": float(rng.random()),
            }
            found.append({"key": key, "n": (1 << 32) + n, "t": int(t[n]), **values})
    return found


def table(spark: Any, given: list[Row]) -> Any:
    from pyspark.sql import functions as F

    fields = f"key string, n long, t long, {COLUMNS}"
    frame = spark.createDataFrame([{**row} for row in given], fields)
    return frame.withColumn("time", F.timestamp_micros("t")).drop("t")


def near(a: Row, b: Row) -> bool:
    return math.dist(a["xy"], b["xy"]) <= 5 and a["room"] != b["room"]


def truth(given: list[Row]) -> set[tuple[Any, ...]]:
    """What all three views find, by brute force."""
    nearby, follows, fast = views()
    tables = {"gps": given}
    found = results(nearby, tables, near)
    found |= results(follows, tables, lambda a, b: True)
    return found | results(fast, tables, lambda a: a["speed"] >= 0.5)


def identities(found: list[Any]) -> list[tuple[Any, ...]]:
    """(view, n, n) or (view, n) of rows of a result, sorted."""
    named = [(r["view"], r["left_n"], r["right_n"]) for r in found]
    return sorted(one if one[2] is not None else one[:2] for one in named)
