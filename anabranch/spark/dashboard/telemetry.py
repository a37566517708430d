"""Queries in OpenTelemetry: metrics, and one span per micro-batch, by the process's providers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from anabranch.flow.metrics import counts_of, reports_of
from anabranch.spark.dashboard.feed import Query
from anabranch.spark.dashboard.history import History

__all__ = ["Telemetry"]

_SCOPE = "anabranch"
_GAUGES = ("state_rows", "state_bytes", "lag", "open_windows", "open_groups")
_ATTRIBUTES = ("rows", "comparisons", "found", "late", "rejected", "slowest", "state_rows")
_NANOS = 1_000_000_000


class Telemetry:
    """Reports each micro-batch as it is told of it; with `only`, of the query of this id."""

    def __init__(self, only: str | None = None) -> None:
        from opentelemetry import metrics, trace  # an extra, which only those who ask for it need

        meter = metrics.get_meter(_SCOPE)
        self._only = only
        self._meter = meter
        self._tracer = trace.get_tracer(_SCOPE)
        self._wrong = trace.StatusCode.ERROR
        self._counters: dict[str, Any] = {}
        self._seconds = meter.create_histogram("anabranch.batch.duration", "s")
        self._gauges = {name: meter.create_gauge(f"anabranch.{name}") for name in _GAUGES}

    def progressed(self, query: Query, parts: Sequence[str], progress: Any) -> None:
        """A micro-batch has ended."""
        if self._only not in (None, query.id):
            return
        histories = [query.histories[part] for part in parts]
        for history in histories:
            self._measure(query, history, progress)
        point = histories[0].latest
        if point.get("at") is None:
            return
        figures = {
            f"anabranch.{one.part}.{name}".replace(" ", "."): value
            for one in histories
            for name in _ATTRIBUTES
            if (value := one.latest[name]) is not None
        }
        span = self._span(query, int(progress.batchId), point["at"] or 0.0, figures)
        span.end(int(((point["at"] or 0.0) + (point["seconds"] or 0.0)) * _NANOS))

    def failed(self, query: Query) -> None:
        """An error has ended a query: Spark does not say when its micro-batch began."""
        if self._only not in (None, query.id):
            return
        last = max((one.latest.get("batch") or 0 for one in query.histories.values()), default=-1)
        now = time.time()
        span = self._span(query, int(last) + 1, now, {})
        span.set_status(self._wrong, query.error)
        span.end(int(now * _NANOS))

    def _measure(self, query: Query, history: History, progress: Any) -> None:
        where = {"anabranch.query": query.label, "anabranch.verb": history.part}
        loads = [one for one in reports_of(progress, history.verb) if one.operator in history.names]
        for name, count in counts_of(loads, history.verb).items():
            if name not in self._counters:
                self._counters[name] = self._meter.create_counter(f"anabranch.{name}")
            self._counters[name].add(count, where)
        self._seconds.record(history.latest["seconds"] or 0.0, where)
        for name, gauge in self._gauges.items():
            if (value := history.latest.get(name)) is not None:
                gauge.set(value, where)

    def _span(self, query: Query, batch: int, start: float, figures: dict[str, Any]) -> Any:
        return self._tracer.start_span(
            "micro-batch",
            start_time=int(start * _NANOS),
            attributes={"anabranch.query": query.label, "anabranch.batch": batch, **figures},
        )
