"""A band join on two attributes in Apache Flink, as a process of its own; see `rivals_bands`.

::

    python benchmarks/flink_band.py FOLDER BAND SECONDS {plain,cells}

runs in an environment that has ``apache-flink`` (and not necessarily Anabranch): it joins the CSV
files of ``FOLDER/left`` and ``FOLDER/right`` twice in one process, once cold and once warm, and
prints the seconds, the number of pairs and a sum over them as JSON. Flink wants an equality in a
join over a window of time: ``plain`` gives it one that always holds; ``cells`` lays a grid of cells
as wide as the band over both attributes and copies the left rows into the nine cells around their
own.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

_SOURCE = """
CREATE TEMPORARY TABLE {name} (
    id BIGINT, t BIGINT, x DOUBLE, y DOUBLE,
    ts AS TO_TIMESTAMP_LTZ(t, 3), WATERMARK FOR ts AS ts
) WITH ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv')
"""
_NEAR = """
    ABS(a.x - b.x) <= {band} AND ABS(a.y - b.y) <= {band}
    AND b.ts BETWEEN a.ts - INTERVAL '{seconds}' SECOND AND a.ts + INTERVAL '{seconds}' SECOND
"""
# MOD of a long by an int is an int, whose sum overflows.
_TOLD = "COUNT(*), SUM(CAST(MOD(a.id * 31 + b.id, 1000003) AS BIGINT))"
_CELL = "CAST(FLOOR({side}.{name} / {band}) AS BIGINT)"


def _query(band: float, seconds: int, by_cells: bool) -> str:
    near = _NEAR.format(band=band, seconds=seconds)
    if not by_cells:
        keyed = "(SELECT *, 0 AS k FROM {0}) AS {1}"
        left, right = keyed.format("lefts", "a"), keyed.format("rights", "b")
        return f"SELECT {_TOLD} FROM {left} JOIN {right} ON a.k = b.k AND {near}"
    steps = ", ".join(f"({i}, {j})" for i in (-1, 0, 1) for j in (-1, 0, 1))

    def cell(side: str, name: str) -> str:
        return _CELL.format(side=side, name=name, band=band)

    left = (
        f"(SELECT l.*, {cell('l', 'x')} + s.i AS cx, {cell('l', 'y')} + s.j AS cy FROM lefts AS l "
        f"CROSS JOIN (VALUES {steps}) AS s(i, j)) AS a"
    )
    right = f"(SELECT r.*, {cell('r', 'x')} AS cx, {cell('r', 'y')} AS cy FROM rights AS r) AS b"
    return f"SELECT {_TOLD} FROM {left} JOIN {right} ON a.cx = b.cx AND a.cy = b.cy AND {near}"


def main() -> None:
    """Run the join twice."""
    from pyflink.table import EnvironmentSettings, TableEnvironment  # of its own environment

    folder, band, seconds, way = sys.argv[1:]
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    # Two cores; and the count is told now and then, not for every pair.
    for name, value in {
        "parallelism.default": "2",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "2 s",
        "table.exec.mini-batch.size": "1000000",
    }.items():
        tables.get_config().set(name, value)
    for name in ("left", "right"):
        tables.execute_sql(_SOURCE.format(name=f"{name}s", path=Path(folder) / name))
    took, count, total = [], 0, 0
    for _ in range(2):
        began = time.perf_counter()
        result = tables.execute_sql(_query(float(band), int(seconds), way == "cells"))
        with result.collect() as rows:
            for row in rows:  # the count as it grows
                count, total = int(row[0]), int(row[1])
        took.append(time.perf_counter() - began)
    print(json.dumps({"seconds": took, "pairs": count, "sum": total}))


if __name__ == "__main__":
    main()
