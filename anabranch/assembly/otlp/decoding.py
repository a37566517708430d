"""Rows of OTLP to rows of spans: which form each row has, and what becomes of malformed ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.assembly.otlp.protobuf import read_protobuf
from anabranch.assembly.otlp.spans import SPANS
from anabranch.assembly.otlp.text import read_json
from anabranch.errors import BadRow

__all__ = ["REJECTED", "Decoder"]

REJECTED = "rejected"
"""The column that says why a message was rejected; null for spans."""

_AT_ONCE = 8 << 20  # bytes of messages; a span takes some hundred, and several times that here


@dataclass(frozen=True)
class Decoder:
    """Batches of one column of messages to batches of spans, and of what was rejected.

    Parameters
    ----------
    text
        Messages are text, and so JSON. Of bytes, what begins with ``{`` is JSON, which no protobuf
        message of spans does.
    fail
        Stop at the first message that is malformed.

    Examples
    --------
    >>> decode = Decoder(text=False, fail=False)
    >>> messages = pa.record_batch({"value": [b'{"resourceSpans": []}', b"", b"hello", None]})
    >>> [batch.column(REJECTED).to_pylist() for batch in decode([messages])]
    [['a message is null', 'a message of 5 bytes (68656c6c6f) is no OTLP: a field has a wire type \
that is not in use']]
    """

    text: bool
    fail: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The spans of all batches."""
        for batch in batches:
            values = batch.column(0).cast(pa.large_binary())
            sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy()
            part = np.cumsum(sizes) // _AT_ONCE
            edges = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(values)]
            for start, stop in pairwise(edges):
                yield from self._decoded(values.slice(start, stop - start))

    def _decoded(self, values: pa.Array) -> Iterator[pa.RecordBatch]:
        reasons = ["a message is null"] * values.null_count
        values = values.drop_null()
        is_json = pc.starts_with(values, b"{").to_numpy(zero_copy_only=False)
        if self.text:
            is_json = pc.binary_length(values).to_numpy() > 0
        for rows, read in ((~is_json, read_protobuf), (is_json, read_json)):
            messages = values.filter(pa.array(rows))
            table, faults = read(messages)
            for place, reason in sorted(faults.items()):
                reasons.append(f"{_named(messages[place].as_py())} is no OTLP: {reason}")
            if table.num_rows:
                yield table.append_column(REJECTED, pa.nulls(table.num_rows, pa.string()))
        if reasons and self.fail:
            raise BadRow(
                f"{reasons[0]}; repair the input, or pass bad_rows='drop' to leave such messages "
                "out, or bad_rows='keep' to see them"
            )
        if reasons:
            nothing = [pa.nulls(len(reasons), field.type) for field in SPANS]
            schema = SPANS.append(pa.field(REJECTED, pa.string()))
            yield pa.RecordBatch.from_arrays([*nothing, pa.array(reasons)], schema=schema)


def _named(message: bytes) -> str:
    """A message by its length and how it begins."""
    dots = "..." if len(message) > 16 else ""
    return f"a message of {len(message)} bytes ({message[:16].hex()}{dots})"
