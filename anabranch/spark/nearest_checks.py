"""What is wrong with a call of `nearest` that only its DataFrames can tell."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from anabranch.calls import Schema
from anabranch.neighbours.call import Nearest
from anabranch.neighbours.selective.routing import Selective
from anabranch.spark.keeper import shared_path_problems
from anabranch.spark.lateness import has_watermark, lateness_problems

__all__ = [
    "control_problems",
    "choice_problems",
    "kind_problems",
    "watermark_problems",
]

_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def kind_problems(objects: DataFrame, queries: DataFrame, schema: Schema) -> list[str]:
    """What does not fit between streams and tables; `schema` is that of the queries."""
    ops = "op" in schema
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


def watermark_problems(
    objects: DataFrame, queries: DataFrame, time: Any, watermark: Any
) -> list[str]:
    """What is wrong with the bound on lateness.

    Of several watermarks Spark takes the least, unless it is told otherwise. A stream of queries is
    silent most of the time, so with one of its own it would hold all hits back, without a word.
    """
    if not objects.isStreaming:
        return []
    column = time[0] if isinstance(time, (tuple, list)) else time
    if queries.isStreaming and has_watermark(queries):
        if objects.sparkSession.conf.get(_POLICY, "min") != "max":
            return [
                "queries have a watermark of their own, which stands still while none is added or "
                "cancelled and would hold back all hits: remove withWatermark from the queries, "
                "and either from the objects too, with watermark='10 seconds' in the call, or let "
                "time follow the watermark of the objects alone"
            ]
        if watermark is None and has_watermark(objects, column):
            return []
    return lateness_problems({"objects": objects}, {"objects": column}, watermark)


def control_problems(
    control: Any,
    objects: DataFrame,
    schema: Schema,
    watermark: Any,
    rows: Any,
    plan: Any,
) -> list[str]:
    """What stands in the way of a control directory, or of a plan that needs one."""
    problems = []
    routed = isinstance(plan, Selective)
    if routed and not objects.isStreaming:
        problems.append(f"plan {plan} is for streaming: use ab.broadcast(workers) in a batch")
    elif routed and control is None:
        problems.append(
            f"plan {plan} needs control=, a directory that driver and workers share, through which "
            "owners of queries publish there what cannot matter; or use "
            "ab.broadcast(workers)"
        )
    if control is None:
        return problems
    problems += shared_path_problems(objects.sparkSession, "control", control)
    if not objects.isStreaming:
        problems.append("control= is for streaming; a batch query has one plan: leave it out")
    elif watermark is None and not routed:
        problems.append(
            "control= needs watermark=, which bounds how long a replaced plan stays live"
        )
    if "op" in schema:
        problems.append("control= needs fixed queries; those with 'op' stay where they began")
    if rows is not None or "rows" in schema:
        problems.append("control= needs windows of time, given by window and not by rows")
    return problems


def choice_problems(count: Any, plan: Any, control: Any, call: Nearest | None) -> list[str]:
    """Why `objects_per_window` would have no say: it helps where there is a plan to choose."""
    if count is None or call is None:
        return []
    why = ""
    if plan is not None:
        why = f"plan={plan} is chosen already: leave one of the two out"
    elif control is None:
        why = "without control= there is one plan: add control='path/of/a/directory'"
    elif call.has_ops or call.method != "exact":
        why = "it takes fixed queries and method='exact'"
    return [f"objects_per_window= would have no effect: {why}"] if why else []
