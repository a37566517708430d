"""For operators: alerts and dashboards name what is exported; OpenTelemetry hears of each batch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import anabranch as ab
from anabranch.flow.announced import Announced, announce
from anabranch.flow.load import AssembleLoad, GroupsLoad, Load
from anabranch.spark.dashboard import prometheus, view
from anabranch.spark.dashboard.feed import Query
from tests.dashboard.reports import START, report
from tests.dashboard.test_board import running
from tests.sinks.stories import installed, needed

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"


def test_alerts_and_the_dashboard_of_grafana_name_what_is_exported() -> None:
    pytest.importorskip("prometheus_client")
    from prometheus_client.parser import text_string_to_metric_families

    text = prometheus.exposition([])[1].decode()
    known = set()
    for family in text_string_to_metric_families(text):
        ends = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}
        known |= {family.name + end for end in ends.get(family.type, ("",))}
    for name in ("alerts.yml", "alerts_test.yml", "grafana.json"):
        used = set(re.findall(r"anabranch_[a-z_]+", (DEPLOY / name).read_text()))
        assert used and used <= known, name
    documented = set(re.findall(r"`(anabranch_[a-z_]+)", (ROOT / "docs/dashboard.md").read_text()))
    assert {re.sub("_(bucket|count|sum)$", "", name) for name in known} == documented


def exported(*queries: Query) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels; no labels come twice."""
    pytest.importorskip("prometheus_client")
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(prometheus.exposition(queries)[1].decode()):
        for sample in family.samples:
            key = (sample.name.removeprefix("anabranch_"), *sample.labels.values())
            assert key not in found
            found[key] = sample.value
    return found


def seen(ident: str, *reports: Any, busy: bool = False) -> Query:
    query = Query(ident)
    for one in reports:
        query.add(one)
    query.hold(SimpleNamespace(name="news", status={"isTriggerActive": busy}))
    return query


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock to so many seconds after the start of the reports."""

    def put(seconds: float) -> None:
        for module in (prometheus, view):
            monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: START + seconds))

    return put


@pytest.mark.parametrize(
    ("after", "busy", "light"),
    [(10, False, "good"), (100, False, "off"), (100, True, "bad")],  # well, idle, stuck
)
def test_the_exported_light_is_that_of_the_page(
    clock: Callable[[float], None], after: float, busy: bool, light: str
) -> None:
    query = seen("a", *(report(n) for n in range(5)), busy=busy)
    clock(after)
    (subject,) = view.View().state([query])["subjects"]
    assert subject["health"][0]["light"] == light
    assert prometheus.LIGHTS[int(exported(query)["health", "news", "correlate"])] == light


def test_of_two_runs_of_a_name_the_newest_is_exported_and_a_clean_end_is_no_failure() -> None:
    old, new = seen("a", report(0), report(1)), seen("b", *(report(n) for n in range(3, 8)))
    old.end("Boom")
    for queries in ((old, new), (new, old)):
        found = exported(*queries)
        assert found["query_active", "news", "correlate"] == 1
        assert found["query_failed", "news", "correlate"] == 0
        assert found["rows_total", "news", "left", "correlate"] == 25
    assert exported(old)["query_failed", "news", "correlate"] == 1
    new.end(None)
    found = exported(new)
    assert (
        found["query_active", "news", "correlate"],
        found["query_failed", "news", "correlate"],
    ) == (0, 0)
    # What it was like when it ended is nothing to be alarmed about later.
    gone = {"last_batch_seconds", "watermark_lag_seconds", "state_rows", "batch_cadence_seconds"}
    assert not gone & {name for name, *_ in found}


def test_a_new_start_takes_the_place_of_one_of_its_name_that_failed() -> None:
    dead, new = Query("a"), Query("b")
    dead.begin("one", "2026-03-01T10:00:00Z", "news")
    dead.end("Boom")
    assert exported(dead)["query_failed", "news", ""] == 1
    new.begin("two", "2026-03-01T10:00:05Z", "news")
    found = exported(dead, new)
    assert (found["query_failed", "news", ""], found["query_active", "news", ""]) == (0, 1)
    new.add(report(0, run="two"))
    found = exported(dead, new)
    assert ("query_failed", "news", "") not in found
    assert found["query_failed", "news", "correlate"] == 0


def test_rows_are_those_that_were_not_rejected_whatever_the_verb() -> None:
    load = AssembleLoad(0, rows=5, rejected=2)
    found = exported(seen("a", report(0, load, verb="assemble")))
    assert found["rows_total", "news", "all", "assemble"] == 5
    found = exported(seen("a", report(0, Load(0, rows_left=5, rejected=2))))
    assert found["rows_total", "news", "left", "correlate"] == 5


def test_two_operators_of_a_verb_have_labels_of_their_own() -> None:
    load = {"load": [Load(0, rows_left=5).to_json()]}
    observed = {"anabranch_correlate_1a": load, "anabranch_correlate_2b": load}
    found = exported(seen("a", report(0, observedMetrics=observed)))
    parts = [part for name, _, part in (key for key in found if key[0] == "health")]
    assert parts == ["correlate", "correlate 2"]


def test_without_an_interval_the_cadence_is_exported() -> None:
    found = exported(seen("a", *(report(n) for n in range(5))))
    assert ("trigger_interval_seconds", "news", "correlate") not in found
    assert found["batch_cadence_seconds", "news", "correlate"] == 2


def test_busy_seconds_are_those_of_the_workers_of_the_plan() -> None:
    announce("anabranch_correlate_0bea", Announced("Pairs", ab.grid(1, 2)))
    loads = [Load(n, rows_left=1, busy_seconds=0.5, state_rows=3).to_json() for n in (0, 5)]
    found = exported(
        seen("a", report(1, observedMetrics={"anabranch_correlate_0bea": {"load": loads}}))
    )
    busy = {key[3]: value for key, value in found.items() if key[0] == "worker_busy_seconds"}
    assert busy == {"0": 0.5, "1": 0.0}
    assert found["state_rows", "news", "correlate", "5"] == 3


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
    installed("prometheus_client", extra="metrics")
    from scripts.services.promtool import promtool

    program = needed(promtool)
    with ab.dashboard(running(*(report(n) for n in range(3)))) as board:
        text = prometheus.exposition(board._queries())[1]
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
            observed = report(batch).observedMetrics
            groups = {"anabranch_groups_1a2b": {"load": [GroupsLoad(0, rows=4).to_json()]}}
            board._feed.progressed(
                report(batch, seconds=1.5, observedMetrics={**observed, **groups})
            )
        board._feed.ended(SimpleNamespace(id=board._only, runId="run", exception="Boom"))
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
    assert [of["anabranch.batch"].int_value for of in told] == [1, 2, 3, 4]
    assert {span.name for span in spans} == {"micro-batch"}
    assert [span.status.code for span in spans] == [0, 0, 0, 2]
    assert spans[3].status.message == "Boom"
    assert told[0]["anabranch.correlate.rows"].int_value == 7
    assert told[0]["anabranch.groups.rows"].int_value == 4
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
    assert {p.count for p in sent["anabranch.batch.duration"].histogram.data_points} == {3}
    assert sent["anabranch.state_rows"].gauge.data_points[0].as_int == 7


def test_without_the_package_otel_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ab.errors.AnabranchError, match=r"pip install 'anabranch\[otel\]'"):
        ab.dashboard(running(), otel=True)
