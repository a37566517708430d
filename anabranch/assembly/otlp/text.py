"""Spans out of OTLP/JSON: ids in hexadecimal digits, names in camel case, long numbers as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from anabranch.assembly.otlp.spans import KINDS, LATEST, STATUSES, spans_table
from anabranch.assembly.otlp.values import from_json, text_of, typed, whole

__all__ = ["read_json"]

_COLUMNS = ("trace_id", "span_id", "parent_span_id", "name", "kind", "service", "start", "end")
_MOST = (1 << 31) - 1


def read_json(values: pa.Array) -> tuple[pa.RecordBatch, dict[int, str]]:
    """The spans of all messages that have no fault, and what is wrong with the others, by place.

    Examples
    --------
    >>> read_json(pa.array([b'{"resourceSpans": []}', b'{"resourceSpans": ']))[1]
    {1: 'it is no JSON: Expecting value: line 1 column 19 (char 18)'}
    """
    spans: list[dict[str, Any]] = []
    faults = {}
    for place, value in enumerate(values):
        try:
            spans += list(_spans(_parsed(value.as_py())))  # all of a message or nothing
        except (ValueError, RecursionError) as error:
            faults[place] = str(error)
        except (AttributeError, TypeError):  # a list or a text stands where an object should
            faults[place] = "it has not the form of OTLP"
    columns = {name: [span[name] for span in spans] for name in (*_COLUMNS, "status")}
    pairs = [pair for span in spans for pair in span["attributes"].items()]
    counts = [len(span["attributes"]) for span in spans]
    keys, texts = [key for key, _ in pairs], [text for _, text in pairs]
    return spans_table(attributes=(counts, keys, texts), **columns), faults


def _parsed(raw: bytes) -> Any:
    try:
        # Of bytes json.loads itself takes halves of pairs of surrogates, which no column holds.
        found = json.loads(raw.decode("utf-8-sig"))
        if b"\\ud" in raw.lower():  # half of a pair of surrogates is no text
            json.dumps(found, ensure_ascii=False).encode()
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    return found


def _spans(message: Any) -> Iterator[dict[str, Any]]:
    for resource in message.get("resourceSpans") or ():
        service = _attributes(resource.get("resource") or {}).get("service.name")
        for scope in resource.get("scopeSpans") or ():
            for span in scope.get("spans") or ():
                status = span.get("status") or {}
                yield {
                    "trace_id": _id(span, "traceId", 32),
                    "span_id": _id(span, "spanId", 16),
                    "parent_span_id": _id(span, "parentSpanId", 16),
                    "name": typed("name", span.get("name") or "", str),
                    "kind": _number(span, "kind", "SPAN_KIND_", KINDS),
                    "service": service,
                    "start": whole(
                        "startTimeUnixNano", span.get("startTimeUnixNano") or 0, 0, LATEST
                    ),
                    "end": whole("endTimeUnixNano", span.get("endTimeUnixNano") or 0, 0, LATEST),
                    "status": _number(status, "code", "STATUS_CODE_", STATUSES),
                    "attributes": _attributes(span),
                }


def _attributes(holder: Any) -> dict[str, str | None]:
    pairs = holder.get("attributes") or ()
    return {
        typed("key", pair.get("key") or "", str): text_of(from_json(pair.get("value")))
        for pair in pairs
    }


def _id(span: Any, name: str, digits: int) -> str | None:
    """An id in small letters; null for no parent."""
    found = str(span.get(name) or "").lower()
    if name == "parentSpanId" and not found.strip("0") and len(found) in (0, digits):
        return None
    if len(found) != digits or found.strip("0123456789abcdef") or not found.strip("0"):
        raise ValueError(f"{name} must be {digits} hexadecimal digits, not all 0, got {found!r}")
    return found


def _number(holder: Any, name: str, prefix: str, names: tuple[str, ...]) -> int:
    """A number, which may be given by its name."""
    found = holder.get(name) or 0
    if isinstance(found, str) and found.startswith(prefix):
        short = found.removeprefix(prefix).lower()
        return names.index(short) if short in names else 0
    return whole(name, found, -_MOST - 1, _MOST)
