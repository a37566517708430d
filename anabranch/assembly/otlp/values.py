"""Values of attributes as text: the same from protobuf and from JSON."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from anabranch.assembly.otlp.wire import BYTES, FAULTS, FIXED64, VARINT, read_fields

__all__ = [
    "ARRAY",
    "BOOL",
    "DOUBLE",
    "INT",
    "KVLIST",
    "RAW",
    "STRING",
    "WIRES",
    "from_json",
    "from_wire",
    "text_of",
    "typed",
    "whole",
]

# The fields of ``AnyValue``, of which one is set, and the wire type of each.
STRING, BOOL, INT, DOUBLE, ARRAY, KVLIST, RAW = range(1, 8)
WIRES = (-1, BYTES, VARINT, VARINT, FIXED64, BYTES, BYTES, BYTES)
_DEEPEST = 50
_URL_SAFE = str.maketrans("-_", "+/")


def text_of(value: Any) -> str | None:
    """A value as text: text as it is, lists and maps as JSON, bytes in base 64.

    Examples
    --------
    >>> [text_of(value) for value in ("a", True, 3, 0.5, ["a", None], {"k": 1})]
    ['a', 'true', '3', '0.5', '["a", null]', '{"k": 1}']
    >>> text_of(float("nan")), text_of([1.5, float("-inf")])
    ('NaN', '[1.5, "-Infinity"]')
    """
    value = _writable(value)
    if value is None or isinstance(value, str):
        return value
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _writable(value: Any) -> Any:
    """The value with texts, which are protobuf's, for the numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [_writable(one) for one in value]
    if isinstance(value, dict):
        return {key: _writable(one) for key, one in value.items()}
    return value


def from_wire(data: np.ndarray, number: int, first: int, last: int, depth: int = 0) -> Any:
    """The value of a field of ``AnyValue``, as `read_fields` gives it.

    Raises
    ------
    ValueError
        If the bytes are none.
    """
    if number == INT:
        return first
    if number == BOOL:
        return first != 0
    raw = data[first:last].tobytes()
    if number == DOUBLE:
        return struct.unpack("<d", raw)[0]
    if number == RAW:
        return base64.b64encode(raw).decode()
    if number == STRING:
        return _text(raw)
    if depth == _DEEPEST:
        raise ValueError(f"an attribute is nested more than {_DEEPEST} deep")
    members = [part for part in _fields(data, first, last) if part[:2] == (1, BYTES)]
    if number == ARRAY:
        return [_any(data, *part[2:], depth + 1) for part in members]
    pairs = {}
    for part in members:
        key, value = "", None
        for which, wire, start, stop in _fields(data, *part[2:]):
            if (which, wire) == (1, BYTES):
                key = _text(data[start:stop].tobytes())
            elif (which, wire) == (2, BYTES):
                value = _any(data, start, stop, depth + 1)
        pairs[key] = value
    return pairs


def _any(data: np.ndarray, first: int, last: int, depth: int) -> Any:
    """The last value that is set in an ``AnyValue``."""
    value = None
    for number, wire, start, stop in _fields(data, first, last):
        if number <= RAW and wire == WIRES[number]:
            value = from_wire(data, number, start, stop, depth)
    return value


def _fields(data: np.ndarray, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
    fields, faults = read_fields(data, np.array([first]), np.array([last]))
    if faults[0]:
        raise ValueError(FAULTS[faults[0]])
    yield from zip(*(array.tolist() for array in fields[1:]), strict=True)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError("a text is no UTF-8") from None


def from_json(value: Any, depth: int = 0) -> Any:
    """The value of an ``AnyValue`` in JSON, which is an object with one member.

    Examples
    --------
    >>> from_json({"arrayValue": {"values": [{"intValue": "3"}, {"boolValue": True}]}})
    [3, True]
    """
    if depth > _DEEPEST:
        raise ValueError(f"an attribute is nested more than {_DEEPEST} deep")
    found = None
    for name, inner in (value or {}).items():
        if inner is None:
            continue
        if name == "stringValue":
            found = typed(name, inner, str)
        elif name == "boolValue":
            found = typed(name, inner, bool)
        elif name == "intValue":
            found = whole(name, inner, -(1 << 63), (1 << 63) - 1)
        elif name == "doubleValue":
            found = _double(name, inner)
        elif name == "bytesValue":
            found = _base64(name, typed(name, inner, str))
        elif name == "arrayValue":
            found = [from_json(one, depth + 1) for one in inner.get("values") or ()]
        elif name == "kvlistValue":
            pairs = inner.get("values") or ()
            found = {
                typed("key", one.get("key") or "", str): from_json(one.get("value"), depth + 1)
                for one in pairs
            }
    return found


def _double(name: str, value: Any) -> float:
    """A number as JSON holds it, or the text of one; raises if it is none or too great."""
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} must be a number, got {value!r}") from None


def _base64(name: str, value: str) -> str:
    """Bytes in base 64, of either alphabet and with or without padding, in the standard form.

    Examples
    --------
    >>> _base64("bytesValue", "-_8"), _base64("bytesValue", "+/8=")
    ('+/8=', '+/8=')
    """
    digits = value.translate(_URL_SAFE).rstrip("=")
    try:
        raw = base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except ValueError:
        raise ValueError(f"{name} must be base 64, got {value!r}") from None
    return base64.b64encode(raw).decode()


def whole(name: str, value: Any, least: int, most: int) -> int:
    """A number as JSON holds it, which may be text; raises if it is none or out of range."""
    problem = ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):
        raise problem from None
    is_whole = isinstance(value, str) or (found == value and not isinstance(value, bool))
    if not is_whole or not least <= found <= most:
        raise problem
    return found


def typed(name: str, value: Any, kind: type) -> Any:
    """A member of an object in JSON; raises if it is of another type."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be of type {kind.__name__}, got {value!r}")
    return value
