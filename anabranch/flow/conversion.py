"""Columns as they arrive and as kernels compare them: matrices, words, integers, texts and sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.flow.blocks import Column
from anabranch.flow.sides import UNKNOWN, Slot
from anabranch.flow.words import from_arrow

__all__ = ["compared_form", "filled", "readable", "undecodable", "unknown"]


def compared_form(slot: Slot, column: pa.Array) -> Column:
    """A column as kernels compare it; nulls only where a slot is `nullable`.

    Examples
    --------
    >>> slot = Slot("s0", "n", "int", "bigint", nullable=True)
    >>> compared_form(slot, pa.array([7, None])).tolist() == [7, UNKNOWN]
    True
    """
    if slot.kind in ("raw", "text", "string"):
        return column
    if slot.kind == "set":
        return _distinct(column)
    if slot.kind == "vector":
        flat = column.flatten()
        if pa.types.is_integer(flat.type):  # counts, exact up to 2**53
            flat = flat.cast(pa.float64(), safe=False)
        flat = flat.to_numpy(zero_copy_only=False)
        return flat.reshape(len(column), -1) if len(column) else flat.reshape(0, slot.dim or 1)
    if slot.kind == "bits":
        return _words(column) if slot.type == "binary" else column.to_numpy()[:, None].view("u8")
    if slot.kind == "float":
        # A null becomes what is no number.
        return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    if slot.kind == "decimal":
        return _scaled(slot, column)
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    column = column.cast(pa.int64())
    return (column.fill_null(UNKNOWN) if slot.nullable else column).to_numpy()


def _scaled(slot: Slot, column: pa.Array) -> np.ndarray:
    """Decimals, or whole numbers, in units of the last digit of a slot's scale, exactly.

    Examples
    --------
    >>> slot = Slot("s0", "x", "decimal", "decimal(4,1)", scale=2, nullable=True)
    >>> _scaled(slot, pa.array([1, None], pa.decimal128(3, 1))).tolist() == [100, UNKNOWN]
    True
    """
    # 38 digits before and 38 after the point: nothing is too large for 256 bits.
    wide = column.cast(pa.decimal256(76, slot.scale))
    words = np.frombuffer(wide.buffers()[1], np.int64).reshape(-1, 4)
    values = from_arrow(words[wide.offset : wide.offset + len(wide)], slot.words)
    values[np.asarray(column.is_null())] = UNKNOWN if slot.nullable else 0
    return values


def _words(column: pa.Array) -> np.ndarray:
    """Equally long byte strings as rows of 64-bit words, padded with zeros."""
    size = len(column[0].as_py()) if len(column) else 0
    padded = np.zeros((len(column), -(-max(size, 1) // 8) * 8), np.uint8)
    if len(column):
        joined = b"".join(column.to_pylist())
        padded[:, :size] = np.frombuffer(joined, np.uint8).reshape(len(column), size)
    return padded.view(np.uint64)


def unknown(slot: Slot, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with nulls for latitudes that are no number, as the points beside them have."""
    column = batch.column(slot.name)
    if slot.measure != "latitude" or not pa.types.is_floating(column.type):
        return batch
    column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
    return batch.set_column(batch.schema.get_field_index(slot.name), slot.name, column)


def filled(slot: Slot, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with a harmless value where an optional column is null; nobody will look at it."""
    column = batch.column(slot.name)
    if slot.kind == "raw" or not column.null_count:
        return batch
    if slot.kind in ("vector", "bits"):
        width = slot.dim or 1
        value: object = [1, *[0] * (width - 1)] if slot.kind == "vector" else 0
        value = bytes(width) if slot.type == "binary" else value
    else:
        value = {"string": "", "text": "", "set": []}.get(slot.kind, 0)
    more = pa.concat_arrays([column, pa.array([value], column.type)])
    rows = np.where(column.is_valid().to_numpy(False), np.arange(len(column)), len(column))
    return batch.set_column(batch.schema.get_field_index(slot.name), slot.name, more.take(rows))


def _distinct(sets: pa.Array) -> pa.Array:
    """Lists with each element once.

    Examples
    --------
    >>> _distinct(pa.array([["b", "a", "b"], [], ["b"]])).to_pylist()
    [['b', 'a'], [], ['b']]
    """
    whole = pa.types.is_integer(sets.type.value_type)
    values = sets.flatten().cast(pa.int64() if whole else pa.string())
    rows = np.repeat(np.arange(len(sets)), sets.value_lengths().to_numpy(zero_copy_only=False))
    codes = values.dictionary_encode().indices.to_numpy()
    # Codes count from the first value on, so elements stay in the order in which they come first.
    _, first = np.unique(rows * (codes.max(initial=0) + 1) + codes, return_index=True)
    ends = np.append(0, np.cumsum(np.bincount(rows[first], minlength=len(sets))))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values.take(pa.array(first)))


def undecodable(column: pa.Array) -> np.ndarray:
    r"""Which texts, or values with texts in them, are not UTF-8.

    Spark makes such of bytes and does not mind.

    Examples
    --------
    >>> odd = pa.array([b"a", b"\xff", None]).view(pa.string())
    >>> undecodable(odd).tolist(), readable(odd[0]), readable(odd[1])
    ([False, True, False], 'a', b'\xff')
    """
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([not _decodes(value) for value in column])
    return np.zeros(len(column), bool)


def _decodes(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    except (OverflowError, ValueError):  # a time that Python does not know
        return True
    return True


def readable(value: pa.Scalar) -> Any:
    """A value for people, or to be read as text: the bytes of a text that is not UTF-8."""
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes()
