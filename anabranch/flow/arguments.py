"""What a custom function receives: each column in a form that its type alone decides.

A function is shown whichever rows happen to share a block, so neither a null nor an array of
another length in one row may change how the others look. Nulls never get this far: rows with a
null column, or with a null among the numbers or booleans of an array, are bad rows. Dates and
timestamps are ``datetime64`` also inside structs, maps and arrays: Python's own end with the year
9999 of some time zone.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["null_elements", "plain"]


def plain(column: pa.Array) -> np.ndarray:
    """An Arrow column as a one-dimensional numpy array.

    Examples
    --------
    >>> plain(pa.array([1, 2])).dtype, plain(pa.array(["a"])).dtype
    (dtype('int64'), dtype('O'))
    >>> plain(pa.array([[1, 2], [3, 4]]))
    array([array([1, 2]), array([3, 4])], dtype=object)
    >>> late = pa.array([253402300799 * 10**6]).cast(pa.timestamp("us", "Asia/Tokyo"))
    >>> plain(pa.StructArray.from_arrays([late], ["at"]))[0]
    {'at': np.datetime64('9999-12-31T23:59:59.000000')}
    """
    if _is_list(column.type) and not pa.types.is_nested(column.type.value_type):
        return _arrays(column)
    if pa.types.is_nested(column.type):
        return _objects(_listed(column))
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    return values


def null_elements(column: pa.Array, texts: bool = False) -> pa.Array:
    """Which rows of a column are arrays of numbers or booleans, or `texts`, with a null in them."""
    none = np.zeros(len(column), bool)
    if not _is_list(column.type) or not (texts or _is_plain(column.type.value_type)):
        return pa.array(none)
    elements, parents = column.flatten(), pc.list_parent_indices(column).to_numpy()
    none[parents[elements.is_null().to_numpy(zero_copy_only=False)]] = True
    return pa.array(none)


def _arrays(column: pa.Array) -> np.ndarray:
    flat = column.flatten().to_numpy(zero_copy_only=False)
    lengths = pc.fill_null(column.value_lengths(), 0).to_numpy()
    ends = np.cumsum(lengths)
    begins = ends - lengths
    return _objects([flat[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)])


def _listed(column: pa.Array) -> list[Any]:
    """``column.to_pylist()``, but dates and timestamps as ``datetime64``."""
    kind, valid = column.type, column.is_valid().to_pylist()
    if not _has_moments(kind):
        rows: list[Any] = column.to_pylist()
        return rows
    if not pa.types.is_nested(kind):
        found: list[Any] = list(column.to_numpy(zero_copy_only=False))
    elif pa.types.is_struct(kind):
        names = [field.name for field in kind]
        children = [_listed(child) for child in column.flatten()]
        found = [dict(zip(names, row, strict=True)) for row in zip(*children, strict=True)]
    elif pa.types.is_map(kind):
        offsets = column.offsets.to_pylist()
        begin, size = offsets[0], offsets[-1] - offsets[0]
        sides = [_listed(side.slice(begin, size)) for side in (column.keys, column.items)]
        entries = list(zip(*sides, strict=True))
        found = [entries[a - begin : b - begin] for a, b in pairwise(offsets)]
    else:
        elements = _listed(column.flatten())
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        ends = np.cumsum(lengths.to_numpy()).tolist()
        found = [elements[a:b] for a, b in pairwise([0, *ends])]
    return [value if known else None for value, known in zip(found, valid, strict=True)]


def _has_moments(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_):
        return _has_moments(type_.key_type) or _has_moments(type_.item_type)
    if pa.types.is_nested(type_):
        return any(_has_moments(type_.field(n).type) for n in range(type_.num_fields))
    return bool(pa.types.is_timestamp(type_) or pa.types.is_date(type_))


def _objects(values: list[object]) -> np.ndarray:
    """One object a row, also where all are arrays of one length, which numpy would stack."""
    out = np.empty(len(values), object)
    for row, value in enumerate(values):
        out[row] = value
    return out


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _is_plain(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return any(kind(type_) for kind in kinds)
