"""For operators: alerts and dashboards name what is exported; OpenTelemetry hears of each batch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from tests.dashboard.reports import START, report
from tests.dashboard.test_board import running
from tests.sinks.stories import needed

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"


def test_alerts_and_the_dashboard_of_grafana_name_what_is_exported() -> None:
    pytest.importorskip("prometheus_client")
    from prometheus_client.parser import text_string_to_metric_families

    from anabranch.spark.dashboard.prometheus import exposition
    from anabranch.spark.dashboard.view import View

    text = exposition([], View())[1].decode()
    known = set()
    for family in text_string_to_metric_families(text):
        ends = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}
        known |= {family.name + end for end in ends.get(family.type, ("",))}
    for name in ("alerts.yml", "alerts_test.yml", "grafana.json"):
        used = set(re.findall(r"anabranch_[a-z_]+", (DEPLOY / name).read_text()))
        assert used and used <= known, name
    documented = set(re.findall(r"`(anabranch_[a-z_]+)", (ROOT / "docs/dashboard.md").read_text()))
    assert {re.sub("_(bucket|count|sum)$", "", name) for name in known} == documented


def test_the_dashboard_of_grafana_asks_one_data_source_that_the_reader_chooses() -> None:
    board = json.loads((DEPLOY / "grafana.json").read_text())
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {"${source}"}
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]}
    assert len(places) == len(board["panels"]) >= 10


@pytest.mark.services
def test_prometheus_itself_accepts_the_alerts() -> None:
    from scripts.services.promtool import promtool

    program = needed(promtool)
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        run = subprocess.run([program, *command], cwd=DEPLOY, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.services
def test_prometheus_itself_reads_what_is_served() -> None:
    pytest.importorskip("prometheus_client")
    from anabranch.spark.dashboard.prometheus import exposition
    from anabranch.spark.dashboard.view import View
    from scripts.services.promtool import promtool

    program = needed(promtool)
    with ab.dashboard(running(*(report(n) for n in range(3)))) as board:
        text = exposition(board._queries(), View())[1]
    run = subprocess.run([program, "check", "metrics"], input=text, capture_output=True)
    assert run.returncode == 0, run.stdout + run.stderr


# ---------------------------------------------------------------- OpenTelemetry


@pytest.fixture
def collector() -> Iterator[tuple[str, dict[str, list[bytes]]]]:
    """A collector that keeps what it is sent over HTTP."""
    got: dict[str, list[bytes]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.setdefault(self.path, []).append(body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", got
    server.shutdown()
    server.server_close()


def test_a_collector_gets_metrics_and_one_span_per_batch(
    collector: tuple[str, dict[str, list[bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry import metrics, trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    address, got = collector
    tracing = TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{address}/v1/traces")))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{address}/v1/metrics"))
    metering = MeterProvider([reader])
    monkeypatch.setattr(trace, "get_tracer", tracing.get_tracer)
    monkeypatch.setattr(metrics, "get_meter", metering.get_meter)
    with ab.dashboard(running(report(0)), otel=True) as board:
        for batch in (1, 2, 3):
            board._feed.progressed(report(batch, seconds=1.5))
        board._take_in()
    board._feed.progressed(report(4))
    tracing.shutdown()
    metering.shutdown()

    spans = [
        span
        for body in got["/v1/traces"]
        for resource in trace_service_pb2.ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    told = [{a.key: a.value for a in span.attributes} for span in spans]
    assert [of["anabranch.batch"].int_value for of in told] == [1, 2, 3]
    assert {span.name for span in spans} == {"correlate micro-batch"}
    assert spans[0].start_time_unix_nano == (START + 2) * 10**9
    assert spans[0].end_time_unix_nano - spans[0].start_time_unix_nano == 1_500_000_000
    assert told[0]["anabranch.query"].string_value == "news"
    sent = {
        metric.name: metric
        for body in got["/v1/metrics"]
        for resource in metrics_service_pb2.ExportMetricsServiceRequest.FromString(
            body
        ).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert sent["anabranch.pairs"].sum.data_points[0].as_int == 9
    assert sent["anabranch.batch.duration"].histogram.data_points[0].count == 3
    assert sent["anabranch.state_rows"].gauge.data_points[0].as_int == 7


def test_without_the_package_otel_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ab.errors.AnabranchError, match=r"pip install 'anabranch\[otel\]'"):
        ab.dashboard(running(), otel=True)
