"""How much sources have that a micro-batch has left: by what Spark reports of each, or unknown.

Spark reports where a micro-batch ended and, of some sources, where they ended when it was planned.
A source without limits is read up to its end, so nothing is left. Kafka's, `jetstream` and `video`
know their end. Spark's source of files and others say nothing, or in figures of their own.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

__all__ = ["Backlog", "backlog_of"]

_NAME = 40  # letters of a source
# What sources outside of Spark say of files that they have not sent yet.
_OUTSTANDING = "numFilesOutstanding"


class Backlog(NamedTuple):
    """Rows, messages or files that are left, of the sources that say so, and those that do not."""

    left: float | None
    silent: tuple[str, ...]


def backlog_of(progress: Any) -> Backlog:
    """What all sources of a micro-batch have left.

    Examples
    --------
    >>> from types import SimpleNamespace as Of
    >>> kafka = Of(description="KafkaV2[Subscribe[news]]", endOffset='{"news": {"0": 70, "1": 8}}',
    ...     latestOffset='{"news": {"0": 90, "1": 9}}', metrics={})
    >>> files = Of(description="FileStreamSource[file:/in]", endOffset='{"logOffset": 3}',
    ...     latestOffset="null", metrics={})
    >>> backlog_of(Of(sources=[kafka])), backlog_of(Of(sources=[files]))
    (Backlog(left=21.0, silent=()), Backlog(left=None, silent=('FileStreamSource',)))
    """
    known, silent = [], []
    for source in getattr(progress, "sources", None) or ():
        found = _left(source)
        if found is None:
            silent.append(_name(str(getattr(source, "description", None) or "a source")))
        else:
            known.append(found)
    return Backlog(float(sum(known)) if known else None, tuple(dict.fromkeys(silent)))


def _name(description: str) -> str:
    """What a source is called, without its options and its package.

    Examples
    --------
    >>> _name("FileStreamSource[file:/in/a.b]"), _name("org.apache.spark.x.PythonStream@1a2b")
    ('FileStreamSource', 'PythonStream')
    """
    return re.split(r"[\[@(]", description)[0].rpartition(".")[2].strip()[:_NAME]


def _left(source: Any) -> float | None:
    try:
        said = dict(getattr(source, "metrics", None) or {})
        if _OUTSTANDING in said:
            return float(said[_OUTSTANDING])
        ends = (_offset(getattr(source, name, None)) for name in ("endOffset", "latestOffset"))
        end, latest = ends
        if latest is None or latest == {}:
            return None
        return 0.0 if latest == end else float(_ahead(latest, end))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return None  # an offset, or a figure, of another shape: nobody knows


def _ahead(latest: Any, end: Any) -> int:
    """By how much an offset is ahead of another of its source."""
    if latest.keys() >= {"gen", "seq", "created"}:  # of jetstream, whose generations count anew
        if any(latest[name] != end[name] for name in ("gen", "created")):
            raise ValueError("another stream")
        return max(0, int(latest["seq"]) - int(end["seq"]))
    # Of video each channel says what it has left; of Kafka there are offsets by topic, partition.
    return sum(
        int(of["left"])
        if "left" in of
        else sum(max(0, int(n) - int(end.get(name, {}).get(part, 0))) for part, n in of.items())
        for name, of in latest.items()
    )


def _offset(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:  # not JSON: another shape
        return text
