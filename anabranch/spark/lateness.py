"""What lies upstream of a call's inputs, where it decides whether `late=` can work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame

from anabranch.spark.metrics import ASSEMBLY_PREFIX, METRICS_PREFIX

__all__ = ["late_problems"]

_WAITING = {
    "Aggregate": "an aggregate",
    "Distinct": "an aggregate",
    "LeftOuter": "an outer join",
    "RightOuter": "an outer join",
    "FullOuter": "an outer join",
    "assemble": "ab.assemble",
    "nearest": "ab.nearest",
}


_KEEP_IT = (
    "leave late= out and take as time the column that carries the watermark (of an aggregate by "
    "windows, F.window_time('window').alias('ts'))"
)
_APART = "write it to a table in a query of its own, and read that as a stream"


def late_problems(
    frames: Mapping[str, DataFrame], late: Any, takes_told: bool = False
) -> list[str]:
    """What stands in the way of `late=`: a watermark that an operator upstream waits for.

    Spark takes the least of a query's watermarks, and that of `late=` is at the beginning of time
    until it has seen a row. So an operator that tells its rows when the watermark has passed them
    would never tell any, its state would grow, and nothing would come out, without a word; and if
    another input moves the watermark, all that it tells is late. One that tells rows as they come,
    such as an inner join, waits for nothing. Under Spark Connect the plan is on the server and
    cannot be looked at. A verb that `takes_told` rows has no late ones among them without `late=`.
    """
    if late is None:
        return []
    return [
        f"{name} comes out of {found[0]} with a watermark, which tells rows once that has passed "
        "them; with late= it would wait for ever, or all its rows would be late: "
        f"{_KEEP_IT if takes_told else _APART}"
        for name, frame in frames.items()
        if frame.isStreaming and (found := list(_waiting(frame)))
    ]


def _waiting(frame: DataFrame) -> Iterator[str]:
    """The operators of a stream that hold rows back until a watermark has passed them."""
    inner = getattr(frame, "_jdf", None)
    if inner is None:
        return
    nodes = [inner.queryExecution().analyzed()]
    while nodes:
        node = nodes.pop()
        kind = _kind(node)
        if kind in _WAITING and node.isStreaming() and _has_watermark(node):
            yield _WAITING[kind]
        nodes += _children(node)


def _kind(node: Any) -> str:
    """The name of a plan's node; of a join its type, and of our own operators the verb."""
    name = str(node.nodeName())
    if name == "Join":
        return str(node.joinType().toString())
    if name == "CollectMetrics":
        observed = str(node.name())
        carries = "UpdateEventTime" in str(_children(node)[0].nodeName())
        # Instances by event time come when the watermark has passed them, by arrival at once.
        if observed.startswith(ASSEMBLY_PREFIX) and carries:
            return "assemble"
        # So do hits, and carry no watermark on; pairs do, and come at once.
        if observed.startswith(METRICS_PREFIX) and not carries:
            return "nearest"
    return name


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(number) for number in range(children.size())]


def _has_watermark(node: Any) -> bool:
    nodes = [node]
    while nodes:
        node = nodes.pop()
        if str(node.nodeName()) == "EventTimeWatermark":
            return True
        nodes += _children(node)
    return False
