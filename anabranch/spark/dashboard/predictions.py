"""What was to be expected beside what is seen: the formulas of docs/spark.md, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from anabranch.flow.announced import Announced
from anabranch.plans.costs import copies
from anabranch.plans.hashed import Broadcast, Grid
from anabranch.plans.segments import Segments
from anabranch.plans.triangle import Triangle
from anabranch.spark.dashboard.points import Point

__all__ = ["Prediction", "Said", "full", "predict_assembly", "predict_pairs"]

# Plans under which any two rows of a window meet; others compare fewer, by how the data lie.
_ALL_MEET = (Broadcast, Grid, Segments, Triangle)
_FILLED = 1800.0  # seconds after which windows of unknown length count as full
_LEAST = 5  # micro-batches that a rate is taken from
_MICROS = 1_000_000


class Prediction(NamedTuple):
    """A figure, what it should be and what it is."""

    what: str
    predicted: float
    observed: float

    @property
    def error(self) -> float | None:
        """How much more there is than predicted, as a share; None of nothing."""
        return self.observed / self.predicted - 1 if self.predicted else None


def full(points: Sequence[Point], call: Announced | None) -> list[Point]:
    """Micro-batches in which windows were full: before, state and comparisons only rise.

    Windows of unknown length, such as those of `assemble`, count as full after half an hour.

    Examples
    --------
    >>> line = [{"at": 60.0 * n, "watermark": 60.0 * n} for n in range(90)]
    >>> len(full(line, Announced("pairs", window=(600_000_000, 0)))), len(full(line, None))
    (80, 60)
    """
    window = None if call is None else call.window
    name = "at" if window is None else "watermark"
    known = [point for point in points if point.get(name) is not None]
    if not known:
        return []
    fills = _FILLED
    if call is not None and window is not None:
        fills = (max(window) + (call.delay or 0)) / _MICROS
    return [point for point in known if (point[name] or 0) >= (known[0][name] or 0) + fills]


Said = tuple[list[Prediction], str]
"""Predictions, or why there are none."""


def predict_pairs(points: Sequence[Point], call: Announced | None, plan: Any) -> Said:
    """Copies, comparisons and state of a correlation, from its rates by event time.

    None before the windows are full: then fewer rows meet than will. A row stays for its window,
    and for as long as the watermark is behind the newest rows: at least its delay, and more where
    micro-batches are long.
    """
    if call is None or call.window is None:
        return [], "The call was made by another driver, so its window is not known here."
    if not isinstance(plan, _ALL_MEET):
        return [], f"Under {plan} how many rows meet depends on how the data lie."
    later = full(points, call)
    took = (later[-1]["watermark"] or 0.0) - (later[0]["watermark"] or 0.0) if later else 0.0
    if len(later) < _LEAST + 1 or took <= 0:
        return [], f"Windows have to be full first, for {_LEAST} micro-batches: they are not yet."
    seen = later[1:]
    left, right = (width / _MICROS for width in call.window)
    behind = [ahead for point in seen if (ahead := point.get("ahead")) is not None]
    delay = max((call.delay or 0) / _MICROS, median(behind or [0.0]))
    stays = [width + delay for width in (left, right)]
    rows = (sum(p["left"] or 0.0 for p in seen), sum(p["right"] or 0.0 for p in seen))
    if call.one_stream:
        rows = (rows[0], rows[0])
    rates = (rows[0] / took, rows[1] / took)
    share = 0.5 if call.one_stream else 1.0
    sent = copies(plan, rows, call.window, call.one_stream)
    each = rows[0] if call.one_stream else sum(rows)
    if not each:
        return [], "No row has come since windows are full."
    stored = sent / each * sum(r * stay for r, stay in zip(rates, stays, strict=True)) * share
    compared = rates[0] * rates[1] * (left + right) * took * share
    return [
        Prediction("copies per row", sent / each, sum(p["copies"] or 0.0 for p in seen) / each),
        Prediction(
            "comparisons per micro-batch",
            compared / len(seen),
            sum(p["comparisons"] or 0.0 for p in seen) / len(seen),
        ),
        Prediction("rows in state", stored, later[-1]["state_rows"] or 0.0),
    ], ""


def predict_assembly(estimate: Any, latest: Point) -> Said:
    """What `ab.estimate_state` said of an assembly."""
    if estimate is None:
        return [], "None was given: ab.dashboard(..., prediction=ab.estimate_state(...))."
    pairs = (
        ("open windows", estimate.windows, "open_windows"),
        ("events held", estimate.tuples, "state_rows"),
        ("bytes of state", estimate.storage, "state_bytes"),
    )
    return [
        Prediction(what, float(value), float(latest[name] or 0.0))
        for what, value, name in pairs
        if latest.get(name) is not None
    ], ""
