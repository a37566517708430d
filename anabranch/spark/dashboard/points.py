"""One progress report of a query as a point: the figures of a micro-batch that the page draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from anabranch.flow.load import Load
from anabranch.flow.metrics import seconds_of
from anabranch.spark.dashboard.backlog import backlog_of

__all__ = ["LATEST", "SUMMED", "Point", "epoch", "merged", "point_of"]

Point = dict[str, float | None]
"""Figures of a micro-batch by name; None where there is none."""

SUMMED = (
    "rows",
    "left",
    "right",
    "copies",
    "comparisons",
    "found",
    "late",
    "rejected",
    "duplicates",
)
LATEST = (
    "batch",
    "at",
    "watermark",
    "skew",
    "state_rows",
    "state_bytes",
    "open_windows",
    "open_groups",
)
_MICROS = 1_000_000
_OF_THE_START = ("seconds", "slowest", "mean")
_MEMORY = "memoryUsedBytes"


def point_of(
    progress: Any,
    loads: Iterable[Any],
    held: Mapping[str, int],
    counts: Mapping[str, int],
    found: int | None,
    busy: Sequence[float],
) -> Point:
    """What workers of a verb reported of a micro-batch.

    `held` is what all of them hold now, `counts` what they did and `found` what they emitted;
    `busy` is how long each worker of the live plans computed,
    also those that had nothing to do: how even the work is goes by all of them.
    """
    loads = list(loads)
    at, seconds = epoch(getattr(progress, "timestamp", None)), seconds_of(progress)
    mark = epoch(dict(getattr(progress, "eventTime", None) or {}).get("watermark"))
    compares = any(isinstance(load, Load) for load in loads)
    return {
        "batch": int(progress.batchId),
        "at": at,
        "seconds": seconds,
        "rows": counts["rows_in"],
        "left": _sum(loads, "rows_left") if compares else None,
        "right": _sum(loads, "rows_right") if compares else None,
        "copies": _sum(loads, "copies_left", "copies_right") if compares else None,
        "comparisons": _sum(loads, "comparisons") if compares else None,
        "found": found,
        "duplicates": counts.get("duplicates"),
        "late": _sum(loads, "late"),
        "rejected": _sum(loads, "rejected"),
        "slowest": max(busy, default=None),
        "mean": math.fsum(busy) / len(busy) if busy else None,
        "watermark": mark,
        "lag": None if mark is None or at is None else at + seconds - mark,
        "skew": _skew(loads),
        "ahead": _ahead(loads, mark),
        "backlog": backlog_of(progress).left,
        "memory": _state_store(progress, _MEMORY),
        "commit": _state_store(progress, "commitTimeMs"),
        "state_rows": held.get("state_rows", 0),
        "state_bytes": held.get("state_bytes", 0),
        "open_windows": held.get("open_windows"),
        "open_groups": held.get("open_groups"),
    }


def merged(one: Point, other: Point) -> Point:
    """Two neighbouring points as one: counts are summed, times are the longer ones.

    Those of the first micro-batch, which starts workers, are left out, as the rules leave them out.

    Examples
    --------
    >>> merged({"batch": 1, "rows": 3, "seconds": 2.0}, {"batch": 2, "rows": 4, "seconds": 1.0})
    {'batch': 2, 'rows': 7, 'seconds': 2.0}
    """
    made: Point = {}
    for name, late in other.items():
        early = one.get(name)
        starts = one.get("batch") == 0 and name in _OF_THE_START
        if name in LATEST or starts or early is None or late is None:
            made[name] = early if late is None else late
        else:
            made[name] = early + late if name in SUMMED else max(early, late)
    return made


def epoch(text: str | None) -> float | None:
    """Seconds since 1970 of a moment as Spark writes it; None of the beginning of time.

    Examples
    --------
    >>> epoch("2023-11-14T22:13:20.500Z"), epoch("1970-01-01T00:00:00.000Z"), epoch(None)
    (1700000000.5, None, None)
    """
    if not text:
        return None
    return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() or None


def _sum(loads: Iterable[Any], *names: str) -> float:
    return sum(getattr(load, name, 0) for load in loads for name in names)


def _skew(loads: Iterable[Any]) -> float | None:
    """How far the newest left row is ahead of the newest right one, in seconds of event time."""
    sides = [
        max((getattr(load, name, 0) for load in loads), default=0)
        for name in ("newest_left", "newest_right")
    ]
    return (sides[0] - sides[1]) / _MICROS if all(sides) else None


def _ahead(loads: Iterable[Any], mark: float | None) -> float | None:
    """How far the newest row of either side is ahead of the watermark, in seconds."""
    newest = max(
        (getattr(load, name, 0) for load in loads for name in ("newest_left", "newest_right")),
        default=0,
    )
    return newest / _MICROS - mark if newest and mark is not None else None


def _state_store(progress: Any, name: str) -> float | None:
    """A figure of the state stores of all operators."""
    operators = getattr(progress, "stateOperators", None) or ()
    found = [number for one in operators if (number := getattr(one, name, None)) is not None]
    # Spark fills in 0 where a micro-batch has not looked at its state.
    return sum(found) or None if name == _MEMORY else sum(found) if found else None
