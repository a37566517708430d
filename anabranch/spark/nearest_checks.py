"""What is wrong with a call of `nearest` that only its DataFrames can tell."""

from __future__ import annotations

import os
from typing import Any

from pyspark.sql import DataFrame

from anabranch.interest import Interest

__all__ = ["control_problems", "kind_problems", "watermark_problems"]

_WATERMARK = "spark.watermarkDelayMs"


def kind_problems(objects: DataFrame, queries: DataFrame) -> list[str]:
    """What does not fit between streams and tables."""
    ops = "op" in queries.columns
    if queries.isStreaming and not objects.isStreaming:
        return ["queries are streaming and objects are not: read both with spark.readStream"]
    if queries.isStreaming and not ops:
        return [
            "queries are streaming but have no column 'op': add one that says 'add' or 'cancel', "
            "and a time"
        ]
    if ops and objects.isStreaming and not queries.isStreaming:
        return [
            "queries have a column 'op' but are not streaming as objects are: read them with "
            "spark.readStream, or drop the column if all of them hold for the whole run"
        ]
    return []


def watermark_problems(objects: DataFrame, queries: DataFrame, time: Any, late: Any) -> list[str]:
    """What is wrong with the bound on lateness."""
    if not objects.isStreaming:
        return []
    times = time if isinstance(time, (tuple, list)) and len(time) == 2 else (time, time)
    frames = [("objects", objects, times[0])]
    if queries.isStreaming:
        frames.append(("queries", queries, times[1]))
    marked = [
        name
        for name, frame, column in frames
        if any(f.name == column and _WATERMARK in (f.metadata or {}) for f in frame.schema)
    ]
    if late is not None and marked:
        return [
            f"{' and '.join(marked)} already have a watermark: leave late= out and give all "
            "streaming inputs one, or remove withWatermark"
        ]
    if late is None and len(marked) < len(frames):
        return [
            "streaming needs a bound on lateness, or objects would wait for ever: add "
            "late='10 seconds' to the call"
        ]
    return []


def control_problems(
    control: Any,
    objects: DataFrame,
    queries: DataFrame,
    late: Any,
    rows: Any,
    schema: Any,
    plan: Any,
) -> list[str]:
    """What stands in the way of a control directory, or of a plan that needs one."""
    problems = []
    routed = isinstance(plan, Interest)
    if routed and not objects.isStreaming:
        problems.append(f"plan {plan} is for streaming: use ab.ssp(workers) in a batch")
    elif routed and control is None:
        problems.append(
            f"plan {plan} needs control=, a directory that driver and workers share, through which "
            "owners of queries tell homes of objects what cannot matter; or use ab.ssp(workers)"
        )
    if control is None:
        return problems
    if not isinstance(control, (str, os.PathLike)):
        problems.append(f"control must be the path of a directory, got {control!r}")
    if not objects.isStreaming:
        problems.append("control= is for streaming; a batch query has one plan")
    elif late is None and not routed:
        problems.append("control= needs late=, which bounds how long a replaced plan stays live")
    if "op" in queries.columns:
        problems.append("control= needs fixed queries; those with 'op' stay where they began")
    if rows is not None or "rows" in schema:
        problems.append("control= needs windows of time, given by window and not by rows")
    return problems
