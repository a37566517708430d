"""Spans as the messages of opentelemetry-proto have them, from protobuf and from JSON."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.assembly.otlp.decoding import REJECTED, Decoder
from anabranch.assembly.otlp.spans import KINDS, STATUSES
from anabranch.errors import BadRow
from tests.examples import examples

trace_pb2 = pytest.importorskip("opentelemetry.proto.trace.v1.trace_pb2")
from google.protobuf.json_format import MessageToDict  # noqa: E402
from google.protobuf.message import DecodeError  # noqa: E402
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2  # noqa: E402
from opentelemetry.proto.common.v1.common_pb2 import AnyValue  # noqa: E402

# ---------------------------------------------------------------- messages

INTS = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = st.recursive(
    st.one_of(
        st.just({}),
        st.fixed_dictionaries({"string_value": st.text(max_size=5)}),
        st.fixed_dictionaries({"bool_value": st.booleans()}),
        st.fixed_dictionaries({"int_value": INTS}),
        st.fixed_dictionaries({"double_value": st.floats()}),
        st.fixed_dictionaries({"bytes_value": st.binary(max_size=4)}),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda v: {"array_value": {"values": v}}),
        st.lists(st.tuples(st.text(max_size=2), inner), max_size=3).map(
            lambda pairs: {"kvlist_value": {"values": [{"key": k, "value": v} for k, v in pairs]}}
        ),
    ),
    max_leaves=4,
)
ATTRIBUTES = st.lists(
    st.tuples(st.sampled_from(["http.route", "service.name", "", "é"]), VALUES), max_size=3
).map(lambda pairs: [{"key": key, "value": value} for key, value in pairs])
NANOS = st.one_of(st.just(0), st.integers(1, 1 << 62), st.just(1_700_000_000_123_456_789))


def ids(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size).filter(any)


SPAN = st.fixed_dictionaries(
    {
        "trace_id": ids(16),
        "span_id": ids(8),
        "parent_span_id": st.one_of(st.just(b""), st.just(bytes(8)), ids(8)),
        "name": st.text(max_size=6),
        "kind": st.integers(0, 5),
        "start_time_unix_nano": NANOS,
        "end_time_unix_nano": NANOS,
        "attributes": ATTRIBUTES,
        "status": st.fixed_dictionaries(
            {"code": st.integers(0, 2), "message": st.text(max_size=3)}
        ),
        # What is not read must not be in the way.
        "trace_state": st.text(max_size=3),
        "flags": st.integers(0, 511),
        "events": st.lists(st.fixed_dictionaries({"name": st.text(max_size=3)}), max_size=1),
        "links": st.lists(st.fixed_dictionaries({"span_id": ids(8)}), max_size=1),
    }
)
MESSAGE = st.lists(
    st.fixed_dictionaries(
        {
            "resource": st.fixed_dictionaries({"attributes": ATTRIBUTES}),
            "scope_spans": st.lists(
                st.fixed_dictionaries(
                    {
                        "scope": st.fixed_dictionaries({"name": st.text(max_size=3)}),
                        "spans": st.lists(SPAN, max_size=3),
                    }
                ),
                max_size=2,
            ),
        }
    ),
    max_size=2,
).map(lambda resources: trace_pb2.TracesData(resource_spans=resources))


# ---------------------------------------------------------------- the twin


def plain(value: AnyValue) -> Any:
    which = value.WhichOneof("value")
    if which is None:
        return None
    held = getattr(value, which)
    if which == "array_value":
        return [plain(one) for one in held.values]
    if which == "kvlist_value":
        return {pair.key: plain(pair.value) for pair in held.values}
    if which == "double_value" and not math.isfinite(held):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(held, "NaN")
    return base64.b64encode(held).decode() if which == "bytes_value" else held


def text(value: AnyValue) -> str | None:
    found = plain(value)
    if found is None or isinstance(found, str):
        return found
    return repr(found) if isinstance(found, float) else json.dumps(found, ensure_ascii=False)


def texts(attributes: Any) -> dict[str, str | None]:
    return {pair.key: text(pair.value) for pair in attributes}


def twin(message: Any) -> list[dict[str, Any]]:
    """The spans of a message that protobuf itself has read."""
    rows = []
    for resource in message.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                start, end = span.start_time_unix_nano, span.end_time_unix_nano
                rows.append(
                    {
                        "trace_id": span.trace_id.hex(),
                        "span_id": span.span_id.hex(),
                        "parent_span_id": span.parent_span_id.hex()
                        if any(span.parent_span_id)
                        else None,
                        "name": span.name,
                        "kind": KINDS[span.kind] if 0 <= span.kind < 6 else "unspecified",
                        "service": texts(resource.resource.attributes).get("service.name"),
                        "start": start // 1000 if start else None,
                        "end": end // 1000 if end else None,
                        "duration": (end - start) / 1e9 if start and end else None,
                        "status": STATUSES[span.status.code]
                        if 0 <= span.status.code < 3
                        else "unset",
                        "attributes": texts(span.attributes),
                        "is_root": not any(span.parent_span_id),
                    }
                )
    return rows


def as_json(message: Any) -> str:
    """OTLP/JSON, which is protobuf's but for the ids: these are in hexadecimal digits."""
    found = MessageToDict(message, use_integers_for_enums=True)
    for resource in found.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                for name in ("traceId", "spanId", "parentSpanId"):
                    if name in span:
                        span[name] = base64.b64decode(span[name]).hex()
    return json.dumps(found)


def decoded(values: list[Any], text: bool = False) -> tuple[list[dict[str, Any]], list[str]]:
    """Spans and reasons of rejection."""
    rows, reasons = [], []
    kind = pa.string() if text else pa.binary()
    batch = pa.record_batch({"value": pa.array([None, *values], kind).slice(1)})
    for part in Decoder(text, fail=False)([batch]):
        for name in ("start", "end"):
            place = part.schema.get_field_index(name)
            part = part.set_column(place, name, part.column(name).cast(pa.int64()))
        for row in part.to_pylist():
            reason = row.pop(REJECTED)
            if reason is None:
                rows.append({**row, "attributes": dict(row["attributes"])})
            else:
                reasons.append(reason)
    return rows, reasons


def alike(got: list[dict[str, Any]], want: list[dict[str, Any]]) -> None:
    ours, theirs = (
        sorted(repr({**row, "attributes": sorted(row["attributes"].items())}) for row in rows)
        for rows in (got, want)
    )
    assert ours == theirs


# ---------------------------------------------------------------- laws


@given(st.lists(MESSAGE, max_size=3))
@settings(max_examples=examples(25))
def test_every_span_is_what_protobuf_reads(messages: list[Any]) -> None:
    want = [row for message in messages for row in twin(message)]
    raw = [message.SerializeToString() for message in messages]
    rows, reasons = decoded(raw)
    assert reasons == []
    alike(rows, want)
    for values, is_text in (
        ([as_json(message) for message in messages], True),
        ([as_json(message).encode() for message in messages], False),
    ):
        rows, reasons = decoded(values, is_text)
        assert reasons == []
        alike(rows, want)


@given(MESSAGE, MESSAGE, st.data())
@settings(max_examples=examples(25))
def test_a_message_that_is_cut_is_rejected_and_others_are_not(
    message: Any, other: Any, data: st.DataObject
) -> None:
    raw = message.SerializeToString()
    cut = raw[: data.draw(st.integers(0, len(raw)), label="bytes left")]
    read = trace_pb2.TracesData()
    try:
        read.ParseFromString(cut)
        want = twin(read)
    except DecodeError:
        want = None
    rows, reasons = decoded([cut, other.SerializeToString()])
    assert len(reasons) == (want is None)
    alike(rows, [*(want or ()), *twin(other)])


@given(MESSAGE, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3))
@settings(max_examples=examples(60))
def test_bytes_that_are_changed_are_read_as_protobuf_reads_them_or_rejected(
    message: Any, changes: list[tuple[int, int]]
) -> None:
    raw = bytearray(message.SerializeToString())
    for place, byte in changes:
        if raw:
            raw[place % len(raw)] = byte
    rows, reasons = decoded([bytes(raw)])
    if reasons:
        assert rows == [] and len(reasons) == 1
        return
    read = trace_pb2.TracesData()
    try:
        read.ParseFromString(bytes(raw))
    except DecodeError:
        return  # in a part that is not read, for example the name of an event
    alike(rows, twin(read))


@given(st.one_of(st.binary(max_size=40), st.text(max_size=40).map(lambda t: ("{" + t).encode())))
@settings(max_examples=examples(60))
def test_nothing_ends_without_a_named_cause(raw: bytes) -> None:
    rows, reasons = decoded([raw])
    assert len(reasons) <= 1 and not (rows and reasons)


MEMBERS = (
    *("resourceSpans", "resource", "scopeSpans", "spans", "traceId", "spanId", "parentSpanId"),
    *("kind", "startTimeUnixNano", "status", "code", "attributes", "key", "value", "intValue"),
    *("doubleValue", "bytesValue", "arrayValue", "kvlistValue", "values"),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(MEMBERS),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=12,
)


@given(JSON)
@settings(max_examples=examples(60))
def test_any_json_is_read_or_rejected(value: Any) -> None:
    for holder in (value, {"resourceSpans": [{"scopeSpans": [{"spans": [value]}]}]}):
        rows, reasons = decoded([json.dumps(holder)], text=True)
        assert len(reasons) <= 1 and not (rows and reasons)


# ---------------------------------------------------------------- stories


def one(**span: Any) -> bytes:
    made = {"trace_id": b"t" * 16, "span_id": b"s" * 8, **span}
    request = trace_service_pb2.ExportTraceServiceRequest(
        resource_spans=[{"scope_spans": [{"spans": [made]}]}]
    )
    return request.SerializeToString()


def in_json(name: str = "", **value: Any) -> bytes:
    """A span with one attribute, whose value is this."""
    span = {"traceId": "a1" * 16, "spanId": "b2" * 8, "name": name}
    span["attributes"] = [{"key": "k", "value": value}]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (one(trace_id=b"short"), "a trace_id has not 16 bytes, or only zeros"),
        (one(trace_id=bytes(16)), "a trace_id has not 16 bytes, or only zeros"),
        (one(parent_span_id=b"x"), "a parent_span_id has not 8 bytes"),
        (one(start_time_unix_nano=1 << 63), "start_time_unix_nano is beyond the year 2262"),
        (one(name="né").replace("né".encode(), b"n\xff\xff"), "a text is no UTF-8"),
        (b"hello", "a message of 5 bytes (68656c6c6f) is no OTLP"),
        (b'{"resourceSpans": 5}', "it has not the form of OTLP"),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]}',
         "traceId must be 32 hexadecimal digits"),
        (in_json(name="NAME").replace(b"NAME", b"\xed\xa0\x80"), "it is no JSON: 'utf-8' codec"),
        (in_json(name="\ud800"), "it is no JSON: 'utf-8' codec"),
        (in_json(bytesValue="-_-*"), "bytesValue must be base 64, got '-_-*'"),
        (in_json(bytesValue="+/+/+"), "bytesValue must be base 64, got '+/+/+'"),
        (in_json(doubleValue=10**400), "doubleValue must be a number, got 1000"),
        (None, "a message is null"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(raw: bytes | None, reason: str) -> None:
    rows, reasons = decoded([raw, one(name="good")])
    assert [row["name"] for row in rows] == ["good"]
    assert len(reasons) == 1 and reason in reasons[0]
    batch = pa.record_batch({"value": pa.array([raw], pa.binary())})
    with pytest.raises(BadRow, match="pass bad_rows='drop'"):
        list(Decoder(text=False, fail=True)([batch]))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        *(({"bytesValue": form}, "+/+/") for form in ("+/+/", "-_-_")),
        *(({"bytesValue": form}, "+/8=") for form in ("+/8=", "+/8", "-_8=", "-_8")),
        ({"bytesValue": ""}, ""),
        *(({"doubleValue": form}, form) for form in ("NaN", "Infinity", "-Infinity")),
        ({"doubleValue": 1e400}, "Infinity"),
        ({"doubleValue": "-2.50"}, "-2.5"),
    ],
)  # fmt: skip
def test_values_are_those_of_protobuf_in_json(value: dict[str, Any], wanted: str) -> None:
    """Either alphabet of base 64, padded or not; what JSON has no number for is a text."""
    nested = {"arrayValue": {"values": [value]}}
    rows, reasons = decoded([in_json(**value), in_json(**nested)])
    assert reasons == []
    plain, listed = (row["attributes"]["k"] for row in rows)
    assert plain == wanted
    (inner,) = json.loads(listed, parse_constant=pytest.fail)
    assert str(inner) == wanted


def test_values_nested_too_deep_are_rejected() -> None:
    def within(*numbers: int) -> bytes:
        """The innermost value in messages within messages, each in the field of its number."""
        found = b""
        for number in reversed(numbers):
            size = len(found)
            length = bytes([size % 128 | 128, size // 128]) if size > 127 else bytes([size])
            found = bytes([number << 3 | 2]) + length + found
        return found

    # Beyond what protobuf itself writes: a request, a span's attribute, lists in lists.
    raw = within(1, 2, 2, 9, 2, *(5, 1) * 60)
    value: Any = {"stringValue": "x"}
    for _ in range(60):
        value = {"arrayValue": {"values": [value]}}
    span = json.loads(as_json(trace_pb2.TracesData.FromString(one())))
    inner = span["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    inner["attributes"] = [{"key": "k", "value": value}]
    for values, is_text in (([raw], False), ([json.dumps(span)], True)):
        assert "nested more than 50 deep" in decoded(values, is_text)[1][0]


def test_a_batch_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = [one(name=f"span {n}") for n in range(50)]
    whole = decoded(raw)
    monkeypatch.setattr("anabranch.assembly.otlp.decoding._AT_ONCE", 200)
    assert decoded(raw) == whole and len(whole[0]) == 50
