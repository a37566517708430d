"""`ab.follow` on Spark as a process that may be killed: ``FOLDER HUB ADDRESS DEVICES MASTER``.

Each micro-batch is a file of FOLDER/out, and written once more if it runs again.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd

import anabranch as ab
from tests.edge.fleet import NEAR, WINDOW, ring
from tests.spark.sessions import new_session


def views(devices: int) -> Any:
    """Who is near whom, as `fleet.friends` has it."""
    me, them = (ab.feed("gps", by=who, columns="xy array<double>") for who in ("user", "friend"))
    near = ab.view(
        "near",
        {me: None, them: None},
        where=ab.euclidean("xy") <= NEAR,
        window=f"{WINDOW} microseconds",
        deliver=("cloud", "inputs"),
    )
    pairs = [(f"d{a}", f"d{b}") for a, b in ring(devices)]
    return near.over(pd.DataFrame(pairs, columns=["user", "friend"]))


def main(folder: str, hub: str, address: str, devices: str, master: str) -> None:
    place = Path(folder)
    (place / "out").mkdir(exist_ok=True)
    spark = new_session(place, master)
    attempts = count()

    def keep(rows: Any, batch: int) -> None:
        part = place / f"part-{next(attempts)}.parquet"
        rows.select("view", "left_n", "right_n").toPandas().to_parquet(part)
        part.replace(place / "out" / f"{batch:06d}.parquet")

    found = ab.follow(
        spark,
        views(int(devices)),
        broker=address,
        control=str(Path(hub) / "control"),
        credentials=str(Path(hub) / "cloud"),
    )
    query = found.writeStream.foreachBatch(keep)
    query = query.option("checkpointLocation", str(place / "out.checkpoint"))
    query.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
