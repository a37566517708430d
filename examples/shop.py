"""A shop and its stock: two instrumented services that run here over local HTTP, under load.

The SDK of OpenTelemetry exports their spans as OTLP, one file per export, as a collector would get
them. Needs ``pip install 'anabranch[otel]'``.
"""

from __future__ import annotations

import random
import threading
import time
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry import baggage, context, propagate
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Tracer

__all__ = ["run_shop"]


class ToFolder(SpanExporter):
    """Writes every export as one OTLP message, as a collector would get it."""

    def __init__(self, folder: Path, service: str) -> None:
        self.folder, self.service, self.number = folder, service, 0

    def export(self, spans: Any) -> SpanExportResult:
        path = self.folder / f"{self.service}-{self.number:06}.otlp"
        path.write_bytes(encode_spans(spans).SerializeToString())
        self.number += 1
        return SpanExportResult.SUCCESS


class RouteOnEverySpan(SpanProcessor):
    """Copies the route of the request from the baggage, which travels with it, to each span."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        route = baggage.get_baggage("route", parent_context)
        if route is not None:
            span.set_attribute("route", str(route))


def provider(folder: Path, service: str) -> TracerProvider:
    made = TracerProvider(resource=Resource.create({"service.name": service}))
    made.add_span_processor(RouteOnEverySpan())
    made.add_span_processor(
        BatchSpanProcessor(ToFolder(folder, service), schedule_delay_millis=1000)
    )
    return made


def serve(tracer: Tracer, handle: Callable[[str], None]) -> ThreadingHTTPServer:
    """A server whose requests are spans of the caller's trace."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            inside = propagate.extract({name.lower(): x for name, x in self.headers.items()})
            if baggage.get_baggage("route", inside) is None:
                inside = baggage.set_baggage("route", self.path, inside)
            token = context.attach(inside)
            with tracer.start_as_current_span(f"GET {self.path}", kind=SpanKind.SERVER):
                handle(self.path)
                self.send_response(204)
                self.end_headers()
            context.detach(token)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def shop(tracer: Tracer, stock: str) -> Callable[[str], None]:
    """A search asks once, a cart for each of its goods; a checkout sends mail when it is over."""

    def ask(what: str) -> None:
        with tracer.start_as_current_span(f"ask {what}", kind=SpanKind.CLIENT):
            headers: dict[str, str] = {}
            propagate.inject(headers)
            urllib.request.urlopen(urllib.request.Request(f"{stock}/{what}", headers=headers))

    def mail(inside: Any) -> None:
        time.sleep(random.uniform(0.2, 1.5))
        with tracer.start_as_current_span("mail", inside, kind=SpanKind.PRODUCER):
            time.sleep(0.01)

    def handle(path: str) -> None:
        if path == "/search":
            ask("index")
        elif path == "/cart":
            for _ in range(random.randint(1, 5)):
                ask("goods")
        elif path == "/checkout":
            ask("reserve")
            ask("pay")
            threading.Thread(target=mail, args=(context.get_current(),)).start()
        else:  # a report takes its time
            ask("index")
            time.sleep(random.uniform(2, 7))
            ask("goods")

    return handle


def run_shop(folder: Path, seconds: float) -> None:
    """Serve requests under load, and leave the spans in the folder."""
    providers = {service: provider(folder, service) for service in ("stock", "shop")}
    behind = serve(
        providers["stock"].get_tracer("stock"),
        lambda path: time.sleep(random.lognormvariate(-4.5, 0.7)),
    )
    address = f"http://127.0.0.1:{behind.server_port}"
    front = serve(
        providers["shop"].get_tracer("shop"), shop(providers["shop"].get_tracer("shop"), address)
    )
    until = time.monotonic() + seconds
    routes, weights = ("/search", "/cart", "/checkout", "/report"), (60, 25, 13, 2)

    def client() -> None:
        while time.monotonic() < until:
            (route,) = random.choices(routes, weights)
            urllib.request.urlopen(f"http://127.0.0.1:{front.server_port}{route}")
            time.sleep(random.expovariate(2))

    clients = [threading.Thread(target=client) for _ in range(12)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    time.sleep(2)  # the last mail
    for one in providers.values():
        one.shutdown()
    for server in (front, behind):
        server.shutdown()
