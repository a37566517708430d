"""What a custom function receives: each column in a form that its type alone decides.

A function is shown whichever rows happen to share a block, so neither a null nor an array of
another length in one row may change how the others look. Nulls never get this far: rows with a
null column, or with a null among the numbers or booleans of an array, are bad rows.
"""

from __future__ import annotations

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
    """
    if _is_list(column.type) and not pa.types.is_nested(column.type.value_type):
        return _arrays(column)
    if pa.types.is_nested(column.type):
        return _objects(column.to_pylist())
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    return values


def null_elements(column: pa.Array) -> pa.Array:
    """Which rows of a column are arrays of numbers or booleans with a null among them."""
    none = np.zeros(len(column), bool)
    if not _is_list(column.type) or not _is_plain(column.type.value_type):
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
