"""Traces out of OpenTelemetry's spans, decided on when they are over instead of after a fixed wait.

::

    pip install 'anabranch[otel]'
    python examples/traces.py [--seconds 180] [--folder spans]

Two instrumented services, a shop and its stock, run here over local HTTP under load. The SDK of
OpenTelemetry exports their spans as OTLP, one file per export. `ab.spans_of` reads them and
`ab.assemble` puts traces together. Then policies are compared: how many traces were complete when
they were decided on, and how long after their last span that was. A tail sampler in a collector
waits for a fixed time, its ``decision_wait``.
The same code runs on a stream: replace ``spark.read`` by ``spark.readStream`` with the schema of
``binaryFile`` (or read a Kafka topic) and add ``watermark="10 seconds"``.
"""

from __future__ import annotations

import argparse
import random
import tempfile
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
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import anabranch as ab

# ---------------------------------------------------------------- two instrumented services


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


# ---------------------------------------------------------------- traces


def assembled(spans: DataFrame, close: Any) -> DataFrame:
    """Traces, by one policy."""
    return ab.assemble(
        spans.withColumn("route", F.col("attributes")["route"]),
        key=["route", "trace_id"],
        time="end",
        close=close,
        keep=["service", "name", "duration", "status"],
    )


def judged(spans: DataFrame, close: Any, skip: float, rest: float) -> Any:
    """Shares and waits of the traces that began after `skip` seconds, `rest` before the end."""
    window = spans.agg(F.min("end").alias("a"), F.max("end").alias("b"))
    truth = (
        spans.groupBy("trace_id")
        .agg(F.count("*").alias("spans"), F.max("end").alias("over"), F.min("end").alias("began"))
        .crossJoin(window)
        .filter(f"began >= a + make_dt_interval(0, 0, 0, {skip})")
        .filter(f"began <= b - make_dt_interval(0, 0, 0, {rest})")
    )
    first = assembled(spans, close).filter("seq = 0 AND revision = 0").join(truth, "trace_id")
    wait = F.unix_micros("closed") / 1e6 - F.unix_micros("over") / 1e6
    complete = F.col("count") == F.col("spans")
    return first.agg(
        F.count("*").alias("traces"),
        F.avg(complete.cast("int")).alias("complete"),
        F.median(F.when(complete, wait)).alias("median"),
        F.percentile(F.when(complete, wait), 0.95).alias("p95"),
        F.avg(F.unix_micros("closed") / 1e6 - F.unix_micros("opened") / 1e6).alias("open"),
        F.max(F.unix_micros("over") / 1e6 - F.unix_micros("began") / 1e6).alias("longest"),
    ).first()


def fixed_wait(spans: DataFrame, complete: float, skip: float, rest: float) -> float:
    """The shortest fixed wait, in steps of 0.1 s, that leaves as many traces complete."""
    low, high = 1, 300
    while low < high:
        tenths = (low + high) // 2
        found = judged(spans, ab.close.after(f"{100 * tenths} ms"), skip, rest)
        low, high = (low, tenths) if found["complete"] >= complete else (tenths + 1, high)
    return low / 10


def main(folder: Path, seconds: float) -> None:
    """Run the shop, assemble its traces, and compare policies."""
    run_shop(folder, seconds)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = ab.configure(builder.getOrCreate(), workers=2)
    spans = ab.spans_of(spark.read.format("binaryFile").load(str(folder)), "content").cache()
    print(f"{spans.count()} spans in {len(list(folder.iterdir()))} exports")

    learned = ab.close.learned("10 seconds", risk=0.005)
    ours = ab.close.until("is_root", grace="3 seconds", otherwise=learned)
    traces = assembled(spans, ours)
    traces.select("route", "reason", "count", "usual_count", "duration").orderBy(
        F.desc("opened")
    ).show(5)
    traces.groupBy("route", "reason").count().orderBy("route", "reason").show()

    # Learning begins after three times its timeout, and the last traces wait for no end of 30 s.
    skip, rest = 31, 31
    best = judged(spans, ours, skip, rest)
    equal = fixed_wait(spans, best["complete"], skip, rest)
    policies = {
        "decision_wait 30 s": ab.close.after("30 seconds"),
        "decision_wait 10 s": ab.close.after("10 seconds"),
        f"fixed wait of {equal:g} s, as complete as ours": ab.close.after(f"{equal} seconds"),
        "the root and 3 s of grace": ab.close.until("is_root", "3 seconds"),
        "learned": learned,
        "the root and 3 s of grace, or learned": ours,
    }
    print(f"{best['traces']} traces, the longest of {best['longest']:.1f} s")
    print(f"{'':42}{'complete':>9}{'wait after last span':>22}{'open':>8}")
    print(f"{'':42}{'':>9}{'median':>11}{'95 %':>11}{'mean':>8}")
    for name, close in policies.items():
        found = best if close is ours else judged(spans, close, skip, rest)
        waits = f"{found['median']:>9.2f} s{found['p95']:>9.2f} s{found['open']:>6.1f} s"
        print(f"{name:42}{found['complete']:>9.2%}{waits}")
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.folder is None:
        with tempfile.TemporaryDirectory() as place:
            main(Path(place), given.seconds)
    else:
        given.folder.mkdir(parents=True, exist_ok=True)
        main(given.folder, given.seconds)
