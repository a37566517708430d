"""Queries in OpenTelemetry: metrics, and one span per micro-batch, by the process's providers."""

from __future__ import annotations

from typing import Any

from anabranch.flow.metrics import counts_of, reports_of
from anabranch.spark.dashboard.feed import Query

__all__ = ["Telemetry"]

_SCOPE = "anabranch"
_GAUGES = ("state_rows", "state_bytes", "lag", "open_windows", "open_groups")
_ATTRIBUTES = ("rows", "comparisons", "found", "late", "rejected", "slowest", "state_rows")
_NANOS = 1_000_000_000


class Telemetry:
    """Reports each micro-batch as it is told of it."""

    def __init__(self) -> None:
        from opentelemetry import metrics, trace  # an extra, which only those who ask for it need

        meter = metrics.get_meter(_SCOPE)
        self._meter = meter
        self._tracer = trace.get_tracer(_SCOPE)
        self._counters: dict[str, Any] = {}
        self._seconds = meter.create_histogram("anabranch.batch.duration", "s")
        self._gauges = {name: meter.create_gauge(f"anabranch.{name}") for name in _GAUGES}

    def __call__(self, query: Query, verb: str, progress: Any) -> None:
        """A micro-batch has ended."""
        point = query.histories[verb].latest
        where = {"anabranch.query": query.label, "anabranch.verb": verb}
        for name, count in counts_of(reports_of(progress, verb), verb).items():
            if name not in self._counters:
                self._counters[name] = self._meter.create_counter(f"anabranch.{name}")
            self._counters[name].add(count, where)
        self._seconds.record(point["seconds"] or 0.0, where)
        for name, gauge in self._gauges.items():
            if (value := point.get(name)) is not None:
                gauge.set(value, where)
        if point.get("at") is not None:
            self._span(point, where, int(progress.batchId))

    def _span(self, point: Any, where: dict[str, str], batch: int) -> None:
        start = int(point["at"] * _NANOS)
        figures = {f"anabranch.{name}": point[name] for name in _ATTRIBUTES}
        span = self._tracer.start_span(
            f"{where['anabranch.verb']} micro-batch",
            start_time=start,
            attributes={
                **where,
                "anabranch.batch": batch,
                **{name: value for name, value in figures.items() if value is not None},
            },
        )
        span.end(start + int((point["seconds"] or 0.0) * _NANOS))
