"""What a folder's segments give, without Spark: offsets, plans, rows and reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from anabranch.video.planning import Folder, Planner
from anabranch.video.rows import Reading, rows_of

ROWS_ALONE = Reading(picture=None)
START = {"": 1_714_521_600_000_000}


def read(
    path: Path, reading: Reading = ROWS_ALONE, **folder: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All rows in order of channel, segment and time, and the sum of all reports."""
    planner = Planner(Folder(str(path), **{"start": START, "closed": "all", **folder}))
    return rows_and_report(planner.between({}, planner.latest({})), reading)


def rows_and_report(planned: Any, reading: Reading) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    total: dict[str, Any] = {}
    for one in planned:
        batches = list(rows_of(one, reading))
        found = [row for batch in batches for row in batch.to_pylist()]
        for name, value in json.loads(found.pop()["report"]).items():
            total[name] = total[name] + value if name in total else value
        rows += found
    return rows, total
