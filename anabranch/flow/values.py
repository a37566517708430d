"""Arrow columns as bytes that tell values apart, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["plain_values"]


def plain_values(array: pa.Array) -> Iterator[bytes]:
    """Bytes that are the same for the same values.

    It does not matter where in its buffers an array begins, what lies there in place of nulls, and
    how wide its offsets are.
    """
    kind = array.type
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    yield np.packbits(valid).tobytes()
    array = array.drop_null()
    if pa.types.is_dictionary(kind):
        yield from plain_values(array.dictionary_decode())
    elif pa.types.is_struct(kind):
        for child in array.flatten():
            yield from plain_values(child)
    elif pa.types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        yield from plain_values(array.cast(pa.list_(entries)))
    elif pa.types.is_nested(kind):
        yield pc.list_value_length(array).cast(pa.int64()).to_numpy().tobytes()
        yield from plain_values(array.flatten())
    elif pa.types.is_boolean(kind):
        yield np.packbits(array.to_numpy(zero_copy_only=False)).tobytes()
    elif _is_text(kind):
        text = array.cast(pa.large_binary())
        _, offsets, data = text.buffers()
        ends = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
        yield np.diff(ends).tobytes()
        yield bytes(data[ends[0] : ends[-1]]) if data is not None else b""
    elif len(array):  # of a null type nothing is left
        width = kind.bit_width // 8
        yield bytes(array.buffers()[1][array.offset * width :][: len(array) * width])


def _is_text(kind: pa.DataType) -> bool:
    small = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return bool(small or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))
