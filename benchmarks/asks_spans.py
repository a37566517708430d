"""How many spans a core reads out of OpenTelemetry's messages: a section of `benchmarks.asks`."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.assembly.otlp.decoding import Decoder
from benchmarks.measuring import Row, Screen, in_turns, rate

__all__ = ["spans"]

_MESSAGES, _SPANS = 200, 100  # spans in each message
_START = 1_700_000_000_000_000_000


def spans(screen: Screen, rounds: int) -> None:
    """200 messages of 100 spans with five attributes each, as protobuf and as JSON."""
    try:
        as_json = import_module("google.protobuf.json_format").MessageToJson
        traces = import_module("opentelemetry.proto.trace.v1.trace_pb2").TracesData
    except ImportError:
        screen.step("spans: not measured, opentelemetry-proto is not installed")
        return
    random = np.random.default_rng(9)
    made = [traces(resource_spans=[_resource(random)]) for _ in range(_MESSAGES)]
    messages = {
        "protobuf": pa.record_batch({"message": [one.SerializeToString() for one in made]}),
        "JSON": pa.record_batch({"message": [_text(as_json(one, indent=None)) for one in made]}),
    }

    def read(batch: pa.RecordBatch) -> Callable[[], int]:
        return lambda: sum(found.num_rows for found in Decoder(False, fail=True)([batch]))

    variants = {name: read(batch) for name, batch in messages.items()}
    count = _MESSAGES * _SPANS
    assert all(run() == count for run in variants.values())
    seconds = in_turns(variants, rounds)
    for name, batch in messages.items():
        size = sum(len(value.as_py()) for value in batch.column(0)) / count
        note = f"{size:.0f} bytes a span, five attributes each"
        screen.add(
            Row("spans", f"spans of {name}", rate(count, seconds[name]), "spans/s", note=note)
        )


def _resource(random: np.random.Generator) -> dict[str, Any]:
    route = {"key": "http.route", "value": {"string_value": "/cart/{id}"}}
    service = [{"key": "service.name", "value": {"string_value": "shop"}}]
    made = []
    for number in range(_SPANS):
        begun = _START + int(random.integers(0, 1 << 40))
        attributes: list[dict[str, Any]] = [route]
        for name, value in (("http.status", 200), ("items", int(random.integers(0, 9)))):
            attributes.append({"key": name, "value": {"int_value": value}})
        attributes.append({"key": "cached", "value": {"bool_value": bool(number % 2)}})
        attributes.append({"key": "load", "value": {"double_value": float(random.random())}})
        made.append(
            {
                "trace_id": random.bytes(16),
                "span_id": random.bytes(8),
                "parent_span_id": random.bytes(8) if number else b"",
                "name": "GET /cart",
                "kind": 2,
                "start_time_unix_nano": begun,
                "end_time_unix_nano": begun + int(random.integers(1, 1 << 30)),
                "attributes": attributes,
            }
        )
    return {"resource": {"attributes": service}, "scope_spans": [{"spans": made}]}


def _text(json: str) -> bytes:
    """OTLP/JSON, which writes ids in hexadecimal where protobuf's own JSON has base 64."""

    def hexadecimal(found: re.Match[str]) -> str:
        return f'"{found[1]}": "{base64.b64decode(found[2]).hex()}"'

    return re.sub(r'"(\w*[sS]panId|traceId)": "([^"]+)"', hexadecimal, json).encode()
