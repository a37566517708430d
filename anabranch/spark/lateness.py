"""Watermarks: what bounds the lateness of a call's inputs, and what stands in its way.

Either the call says `watermark=`, and one watermark goes by the newest time of all inputs; or the
inputs have watermarks of their own. In the second case rows are judged as Spark's own operators
do, by the watermark of the batch before, so that what an aggregate, an outer join or `assemble`
emits once the watermark has passed it is in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame

from anabranch.flow.metrics import verb_of

__all__ = ["WATERMARK", "has_watermark", "lateness_problems", "mixed_problems", "with_watermark"]

WATERMARK = "spark.watermarkDelayMs"
"""The metadata by which Spark knows a column that carries a watermark."""

# Operators that hold rows back until the watermark has passed them.
_WAITING = {
    "Aggregate": "an aggregate",
    "Distinct": "an aggregate",
    "LeftOuter": "an outer join",
    "RightOuter": "an outer join",
    "FullOuter": "an outer join",
    "assemble": "ab.assemble",
    "nearest": "ab.nearest",
    "groups": "ab.groups",
    "dedupe_waits": "ab.dedupe",
    "correlate_waits": "ab.correlate with rows that found no partner, or with a window of rows",
}


def with_watermark(blocks: DataFrame, delay: int | None) -> DataFrame:
    """Packed rows under one watermark, `delay` microseconds behind the newest; if that is given."""
    if delay is None:
        return blocks
    behind = f"{-(-delay // 1000)} milliseconds"
    return blocks.withWatermark("newest", behind)


def mixed_problems(frames: Mapping[str, DataFrame]) -> list[str]:
    """What to say where one input is a stream and another a table."""
    live = {name: frame.isStreaming for name, frame in frames.items()}
    if len(set(live.values())) < 2:
        return []
    one = next(name for name, streaming in live.items() if streaming)
    other = next(name for name, streaming in live.items() if not streaming)
    return [
        f"{one} is streaming and {other} is not: read all inputs with spark.readStream or all "
        "with spark.read (to look rows up in a static table, use an ordinary Spark join)"
    ]


def lateness_problems(
    frames: Mapping[str, DataFrame], times: Mapping[str, Any], watermark: Any
) -> list[str]:
    """What is wrong with the bound on lateness of streams, whose times are in these columns."""
    if not all(frame.isStreaming for frame in frames.values()):
        return []
    marked = [name for name, frame in frames.items() if has_watermark(frame, times[name])]
    if watermark is not None and marked:
        return [
            f"{' and '.join(marked)} already has a watermark: leave watermark= out and give all "
            "inputs one, or remove withWatermark"
        ]
    if problems := _upstream_problems(frames, times, watermark is not None):
        return problems
    if watermark is None and len(marked) < len(frames):
        missing: dict[str, list[str]] = {}
        for name in frames:
            if name not in marked:
                missing.setdefault(str(times[name]), []).append(name)
        hints = " and ".join(
            f".withWatermark({column!r}, '10 seconds') to {' and '.join(names)}"
            for column, names in missing.items()
        )
        return [
            "streaming needs a bound on how late rows come, or state would grow without end: add "
            f"watermark='10 seconds' to the call (or {hints})"
        ]
    return []


def has_watermark(frame: DataFrame, column: Any = None) -> bool:
    """Whether this column has a watermark, or any."""
    return any(
        WATERMARK in (field.metadata or {})
        for field in frame.schema
        if column is None or field.name == column
    )


def _upstream_problems(
    frames: Mapping[str, DataFrame], times: Mapping[str, Any], given: bool
) -> list[str]:
    """What stands in the way of a second watermark: one that an operator upstream waits for.

    Spark takes the least of a query's watermarks, and that of `watermark=`, or of a withWatermark
    behind that operator, is at the beginning of time until it has seen a row. So an operator that
    emits its rows when the watermark has passed them would never emit any, its state would grow,
    and nothing would come out, without a word; and if another input moves the watermark, all that
    it emits is late. One that emits rows as they come, such as an inner join, waits for nothing.
    Under Spark Connect the plan is on the server and cannot be looked at.
    """
    problems = []
    for name, frame in frames.items():
        operator, again = next(_waiting(frame), (None, False))
        if operator is None or (has_watermark(frame, times[name]) and not again):
            continue
        if has_watermark(frame) and not again:
            remedy = "leave watermark= out and " if given else ""
            remedy += (
                "take as time the column that carries the watermark (of an aggregate by windows, "
                "F.window_time('window').alias('ts'))"
            )
        else:
            remedy = (
                "take as time the column that carries the first one; where it is not, or if none "
                "does, write these rows to a table or topic and read them from there"
            )
        problems.append(
            f"{name} comes out of {operator} with a watermark, which emits rows once that has "
            "passed them; with a second one (watermark=, or withWatermark behind it) it would emit "
            f"nothing, or all its rows would be late: {remedy}"
        )
    return problems


def _waiting(frame: DataFrame) -> Iterator[tuple[str, bool]]:
    """The operators of a stream that hold rows back until a watermark has passed them.

    The last one first, each with whether a second watermark is set behind it.
    """
    inner = getattr(frame, "_jdf", None)
    if inner is None:
        return
    nodes = [(inner.queryExecution().analyzed(), False)]
    while nodes:
        node, again = nodes.pop()
        kind = _kind(node)
        if kind in _WAITING and node.isStreaming() and _has_watermark(node):
            yield _WAITING[kind], again
        again = again or _is_mark(node)
        nodes += [(child, again) for child in _children(node)]


def _kind(node: Any) -> str:
    """The name of a plan's node; of a join its type, and of our own operators the verb."""
    name = str(node.nodeName())
    if name == "Join":  # with a table it waits for nothing
        waits = all(child.isStreaming() for child in _children(node))
        return str(node.joinType().toString()) if waits else name
    if name == "CollectMetrics":
        verb = verb_of(str(node.name()))
        return name if verb is None else verb
    return name


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(number) for number in range(children.size())]


def _is_mark(node: Any) -> bool:
    return str(node.nodeName()) == "EventTimeWatermark"


def _has_watermark(node: Any) -> bool:
    nodes = [node]
    while nodes:
        node = nodes.pop()
        if _is_mark(node):
            return True
        nodes += _children(node)
    return False
