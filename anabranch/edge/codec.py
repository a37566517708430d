"""Columns as msgpack: whole numbers by their differences, decimal fractions as whole numbers.

A float that people would write with few decimals is that many digits, and comes back as the same
float. Other floats, vectors of them included, are their bytes.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

__all__ = ["deltas", "read_column", "read_deltas", "write_column"]

_FLOAT64, _FLOAT32, _BOOL, _INT32 = 1, 2, 3, 4
_BYTES = {_FLOAT64: "<f8", _FLOAT32: "<f4", _BOOL: "?"}
_DIGITS = 7  # of degrees on the globe: a centimetre
_WHOLE = 2.0**53


def deltas(values: np.ndarray) -> list[int]:
    """Whole numbers as the first and the differences.

    Examples
    --------
    >>> deltas(np.array([100, 101, 103]))
    [100, 1, 2]
    """
    if not len(values):
        return []
    first = int(values[0])
    if len(values) == 1:  # as most are
        return [first]
    return [first, *np.diff(values).tolist()]


def read_deltas(form: Any) -> np.ndarray:
    """The numbers of `deltas`."""
    if len(form) == 1:  # as most are: a frame has a row of a stream, and numpy is slow to start
        return np.array(form, np.int64)
    return np.array(form, np.int64).cumsum()


def write_column(values: np.ndarray) -> Any:
    """A column, each element a number, text or vector."""
    if values.ndim == 2:
        return [values.shape[1], write_column(values.reshape(-1, order="F"))]
    kind = values.dtype.kind
    if kind in "OU":
        return values.tolist()
    if kind == "b":
        return msgpack.ExtType(_BOOL, values.tobytes())
    if kind == "i":
        wide = deltas(values.astype(np.int64))
        return wide if values.dtype == np.int64 else msgpack.ExtType(_INT32, msgpack.packb(wide))
    if values.dtype == np.float32:
        return msgpack.ExtType(_FLOAT32, values.astype("<f4").tobytes())
    digits = _decimals(values)
    if digits is None:
        return msgpack.ExtType(_FLOAT64, values.astype("<f8").tobytes())
    return {digits: deltas(np.rint(values * 10.0**digits).astype(np.int64))}


def read_column(form: Any, rows: int) -> np.ndarray:
    """The column of `write_column`, of which the number of rows is known."""
    column: np.ndarray
    if isinstance(form, dict):
        ((digits, whole),) = form.items()
        column = read_deltas(whole) / 10.0**digits
    elif isinstance(form, msgpack.ExtType):
        if form.code == _INT32:
            column = read_deltas(msgpack.unpackb(form.data)).astype(np.int32)
        else:
            column = np.frombuffer(form.data, _BYTES[form.code])
    elif len(form) == 2 and isinstance(form[1], (dict, msgpack.ExtType)):
        length, flat = form
        return read_column(flat, length * rows).reshape(rows, length, order="F")
    elif form and isinstance(form[0], str):
        column = np.array(form, object)
    else:
        column = read_deltas(form)
    if len(column) != rows:
        raise ValueError(f"a column has {len(column)} rows in place of {rows}")
    return column


def _decimals(values: np.ndarray) -> int | None:
    """How many decimals all of the numbers have; None if it is many, or bytes are shorter."""
    if not len(values) or np.abs(values).max() >= _WHOLE / 10.0**_DIGITS:
        return None
    if (np.signbit(values) & (values == 0)).any():  # which no whole number tells from 0
        return None
    for digits in range(_DIGITS + 1):
        unit = 10.0**digits
        if np.array_equal(np.rint(values * unit) / unit, values):
            return digits
    return None
