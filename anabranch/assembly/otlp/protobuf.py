"""Spans out of protobuf: ``ExportTraceServiceRequest`` and ``TracesData``, which are alike.

Messages are taken apart level by level, all of one level at once: requests, resources, scopes,
spans, attributes, values. A field that is not known, or has another wire type than it should, is
passed over, as protobuf wants it; of a field that comes twice the last counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.assembly.otlp.spans import LATEST, spans_table
from anabranch.assembly.otlp.values import (
    BOOL,
    DOUBLE,
    INT,
    RAW,
    STRING,
    WIRES,
    from_wire,
    text_of,
)
from anabranch.assembly.otlp.wire import BYTES, FAULTS, FIXED64, VARINT, Fields, read_fields

__all__ = ["read_protobuf"]

# Numbers of fields, by message.
_RESOURCE_SPANS = 1
_RESOURCE, _SCOPE_SPANS = 1, 2
_RESOURCE_ATTRIBUTES, _SPANS = 1, 2
_TRACE_ID, _SPAN_ID, _PARENT, _NAME, _KIND = 1, 2, 4, 5, 6
_START, _END, _ATTRIBUTES, _STATUS = 7, 8, 9, 15
_CODE = 3
_KEY, _VALUE = 1, 2

_HEX = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], np.uint8)


def read_protobuf(values: pa.Array) -> tuple[pa.RecordBatch, dict[int, str]]:
    """The spans of all messages that have no fault, and what is wrong with the others, by place.

    Examples
    --------
    >>> read_protobuf(pa.array([b"", bytes.fromhex("0a7f")]))[1]
    {1: 'it ends within a field'}
    """
    found = _Messages(values)
    table = found.spans()
    if found.faults:  # as if they had not been there
        good = np.setdiff1d(np.arange(len(values)), list(found.faults))
        table = _Messages(values.take(pa.array(good))).spans()
    return table, found.faults


Places = tuple[np.ndarray, np.ndarray]


class _Parts(NamedTuple):
    """Messages of one level: where each is, and which row of the input it came in."""

    starts: np.ndarray
    stops: np.ndarray
    row: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)


class _Messages:
    """Rows of bytes, and what is wrong with them."""

    def __init__(self, values: pa.Array) -> None:
        values = values.cast(pa.large_binary())
        _, offsets, data = values.buffers()
        places = np.frombuffer(offsets, np.int64, len(values) + 1, 8 * values.offset)
        self.data = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        self.parts = _Parts(places[:-1], places[1:], np.arange(len(values)))
        self.faults: dict[int, str] = {}

    def spans(self) -> pa.RecordBatch:
        """One row per span."""
        resources, _ = self._inner(self._split(self.parts), self.parts, _RESOURCE_SPANS)
        inside = self._split(resources)
        scopes, resource_of = self._inner(inside, resources, _SCOPE_SPANS)
        spans, scope_of = self._inner(self._split(scopes), scopes, _SPANS)
        fields, n = self._split(spans), len(spans)
        statuses, span_of = self._inner(fields, spans, _STATUS)
        code = np.zeros(n, np.int64)
        inner = self._split(statuses)
        coded = (inner.number == _CODE) & (inner.wire == VARINT)
        code[span_of[inner.of[coded]]] = inner.first[coded]
        owner, keys, texts = self._attributes(fields, spans, _ATTRIBUTES)
        order = _last_of_each(owner, keys)
        return spans_table(
            trace_id=self._id(spans, _last(fields, n, _TRACE_ID, BYTES), 16, "trace_id"),
            span_id=self._id(spans, _last(fields, n, _SPAN_ID, BYTES), 8, "span_id"),
            parent_span_id=self._id(spans, _last(fields, n, _PARENT, BYTES), 8, "parent_span_id"),
            name=self._texts(*_last(fields, n, _NAME, BYTES), spans.row),
            kind=_last(fields, n, _KIND, VARINT)[0],
            service=self._services(inside, resources).take(pa.array(resource_of[scope_of])),
            start=self._nanos(spans, _last(fields, n, _START, FIXED64), "start"),
            end=self._nanos(spans, _last(fields, n, _END, FIXED64), "end"),
            status=code,
            attributes=(
                np.bincount(owner[order], minlength=n),
                keys.take(order),
                texts.take(order),
            ),
        )

    def _split(self, parts: _Parts) -> Fields:
        """The fields of messages; what is wrong with one is noted."""
        fields, faults = read_fields(self.data, parts.starts, parts.stops)
        self._note(parts.row, faults, dict(enumerate(FAULTS)))
        return fields

    def _note(self, rows: np.ndarray, faults: np.ndarray, reasons: dict[int, str]) -> None:
        for place in np.flatnonzero(faults):
            self.faults.setdefault(int(rows[place]), reasons[int(faults[place])])

    def _inner(self, fields: Fields, outer: _Parts, number: int) -> tuple[_Parts, np.ndarray]:
        """The messages in a field, and the number of the one that each is in."""
        chosen = (fields.number == number) & (fields.wire == BYTES)
        of = fields.of[chosen]
        return _Parts(fields.first[chosen], fields.last[chosen], outer.row[of]), of

    def _texts(self, starts: np.ndarray, stops: np.ndarray, row: np.ndarray) -> pa.Array:
        """Text at these places; what is no UTF-8 is noted."""
        lengths = stops - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data[places])]
        found = pa.Array.from_buffers(pa.large_binary(), len(starts), buffers)
        try:
            return found.cast(pa.large_string())
        except pa.ArrowInvalid:
            wrong = np.array([not _is_text(one.as_py()) for one in found])
            self._note(row, wrong, {1: "a text is no UTF-8"})
            return pa.array([""] * len(found), pa.large_string())

    def _id(self, spans: _Parts, at: Places, size: int, name: str) -> pa.Array:
        """Ids as hexadecimal digits; what has another length, or is zero, is noted.

        Only a parent may be missing, and is null.
        """
        starts, lengths = at[0], at[1] - at[0]
        right = lengths == size
        raw = np.zeros((len(starts), size), np.uint8)
        raw[right] = self.data[starts[right][:, None] + np.arange(size)]
        zero = ~raw.any(axis=1)
        absent = (
            (lengths == 0) | (right & zero) if name == "parent_span_id" else np.zeros_like(zero)
        )
        wrong = ~absent & (~right | zero)
        self._note(spans.row, wrong, {1: f"a {name} has not {size} bytes, or only zeros"})
        offsets = np.arange(len(starts) + 1, dtype=np.int64) * 2 * size
        buffers = [pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(_HEX[raw]))]
        digits = pa.Array.from_buffers(pa.large_string(), len(starts), [None, *buffers])
        return pc.if_else(pa.array(~absent), digits, pa.scalar(None, digits.type))

    def _nanos(self, spans: _Parts, at: Places, name: str) -> np.ndarray:
        """Times in nanoseconds, 0 where there is none; what no timestamp holds is noted."""
        found = self._fixed(at).view(np.uint64)
        late = found > np.uint64(LATEST)
        self._note(spans.row, late, {1: f"{name}_time_unix_nano is beyond the year 2262"})
        return np.where(late, 0, found.view(np.int64))

    def _fixed(self, at: Places) -> np.ndarray:
        """Eight bytes each as an integer; 0 where there are none."""
        given = at[1] > at[0]
        found = np.zeros((len(given), 8), np.uint8)
        found[given] = self.data[at[0][given][:, None] + np.arange(8)]
        return found.view("<i8")[:, 0]

    def _services(self, inside: Fields, resources: _Parts) -> pa.Array:
        """``service.name`` of each resource, or null."""
        parts, resource_of = self._inner(inside, resources, _RESOURCE)
        fields = self._split(parts)
        owner, keys, texts = self._attributes(fields, parts, _RESOURCE_ATTRIBUTES)
        named = np.flatnonzero(pc.equal(keys, "service.name"))
        place = np.full(len(resources), -1)
        place[resource_of[owner[named]]] = named
        return texts.take(pa.array(place, mask=place < 0))

    def _attributes(
        self, fields: Fields, parts: _Parts, number: int
    ) -> tuple[np.ndarray, pa.Array, pa.Array]:
        """Attributes of messages: whose each is, its key, and its value as text."""
        pairs, owner = self._inner(fields, parts, number)
        inside, n = self._split(pairs), len(pairs)
        keys = self._texts(*_last(inside, n, _KEY, BYTES), pairs.row)
        starts, stops = _last(inside, n, _VALUE, BYTES)
        values = _Parts(starts, stops, pairs.row)
        return owner, keys, self._values(values)

    def _values(self, values: _Parts) -> pa.Array:
        """Each ``AnyValue`` as text; null where it holds nothing."""
        fields, n = self._split(values), len(values)
        kind, first, last = (np.zeros(n, np.int64) for _ in range(3))
        known = fields.wire == np.array(WIRES)[np.minimum(fields.number, RAW)]
        known &= fields.number <= RAW
        of = fields.of[known]
        kind[of], first[of], last[of] = (
            fields.number[known],
            fields.first[known],
            fields.last[known],
        )
        parts, places = [pa.nulls(int((kind == 0).sum()), pa.large_string())], [kind == 0]
        for number in range(1, 8):
            chosen = kind == number
            if chosen.any():
                at = first[chosen], last[chosen]
                parts.append(self._of_kind(number, at, values.row[chosen]))
                places.append(chosen)
        order = np.argsort(np.concatenate([np.flatnonzero(place) for place in places]))
        return pa.concat_arrays(parts).take(pa.array(order))

    def _of_kind(self, number: int, at: Places, row: np.ndarray) -> pa.Array:
        """Values of one kind as text."""
        if number == STRING:
            return self._texts(*at, row)
        if number == INT:
            return pa.array(at[0]).cast(pa.large_string())
        if number == BOOL:
            return pa.array(np.where(at[0] != 0, "true", "false"), pa.large_string())
        if number == DOUBLE:
            doubles = self._fixed(at).view(np.float64).tolist()
            return pa.array(list(map(text_of, doubles)), pa.large_string())
        found = []  # values within values, and bytes, are rare
        for place, (first, last) in enumerate(zip(*(part.tolist() for part in at), strict=True)):
            try:
                found.append(text_of(from_wire(self.data, number, first, last)))
            except ValueError as error:
                self.faults.setdefault(int(row[place]), str(error))
                found.append(None)
        return pa.array(found, pa.large_string())


def _last(fields: Fields, n: int, number: int, wire: int) -> Places:
    """Where a field of each of n messages is, or its value; zeros where there is none."""
    chosen = (fields.number == number) & (fields.wire == wire)
    first, last = np.zeros(n, np.int64), np.zeros(n, np.int64)
    of = fields.of[chosen]
    first[of], last[of] = fields.first[chosen], fields.last[chosen]
    return first, last


def _last_of_each(owner: np.ndarray, keys: pa.Array) -> np.ndarray:
    """Places of the attributes of each span in turn; of a key that it has twice, the last."""
    codes = keys.dictionary_encode()
    wide = np.int64(len(codes.dictionary))
    ranks = owner * wide + codes.indices.to_numpy()
    _, places = np.unique(ranks[::-1], return_index=True)
    found: np.ndarray = len(ranks) - 1 - places
    return found


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
