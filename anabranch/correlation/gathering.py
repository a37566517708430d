"""Matches gathered into Arrow batches that are worth sending and never too large.

An Arrow array of strings holds 2 GB and no more, and a batch is copied several times on its way to
Spark. So many matches of rows with long kept columns are cut by the bytes that they carry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.correlation.call import Side
from anabranch.correlation.matching import Matches
from anabranch.flow.blocks import Block, Column, joined, take
from anabranch.flow.sides import AT, keep_column

__all__ = ["Gathering", "times_of"]

# Pairs are sent once there are so many, or once they carry so many bytes.
PAIRS_AT_ONCE = 50_000
BYTES_AT_ONCE = 64 << 20
_PAIR_BYTES = 48  # two ids, two times and a score


class Gathering:
    """Pairs waiting to be sent.

    Batches have the columns ``left_id, right_id, left_t, right_t, score`` and ``left_k0, ...
    right_k0, ...`` for the kept columns; times are microseconds.
    """

    def __init__(self, left: Side, right: Side) -> None:
        self._carried = [
            ("id", *(keep_column(number) for number in range(len(side.keep))))
            for side in (left, right)
        ]
        self._parts: list[tuple[Block, Block, Matches]] = []
        self._rows = 0
        self._bytes = 0.0

    def add(self, left: Block, right: Block, found: Matches) -> Iterator[pa.RecordBatch]:
        """Take in matches of two blocks; the batches that this fills."""
        for piece, size in self._cut(left, right, found):
            if self._parts and self._bytes + size > BYTES_AT_ONCE:
                yield self._batch()
            self._parts.append((left, right, piece))
            self._rows += len(piece.left)
            self._bytes += size
            if self._rows >= PAIRS_AT_ONCE:
                yield self._batch()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What no batch has held yet."""
        if self._parts:
            yield self._batch()

    def _cut(self, left: Block, right: Block, found: Matches) -> Iterator[tuple[Matches, float]]:
        """Pieces that carry no more than a batch should, and how much."""
        each = _PAIR_BYTES + sum(
            _at(_weights(block, names), rows)
            for block, names, rows in zip(
                (left, right), self._carried, (found.left, found.right), strict=True
            )
        )
        whole = each.sum() if isinstance(each, np.ndarray) else each * len(found.left)
        if whole <= BYTES_AT_ONCE:
            yield found, float(whole)
            return
        ends = np.cumsum(np.broadcast_to(each, len(found.left)))
        start, before = 0, 0.0
        while start < len(ends):
            full = int(np.searchsorted(ends, before + BYTES_AT_ONCE, "right"))
            stop = max(start + 1, full)
            size = float(ends[stop - 1]) - before
            yield Matches(*(values[start:stop] for values in found)), size
            start, before = stop, before + size

    def _batch(self) -> pa.RecordBatch:
        parts, self._parts, self._rows, self._bytes = self._parts, [], 0, 0.0
        left_t = np.concatenate([times_of(left)[found.left] for left, _, found in parts])
        right_t = np.concatenate([times_of(right)[found.right] for _, right, found in parts])
        columns: dict[str, Any] = {
            "left_id": _gather([(left.columns["id"], found.left) for left, _, found in parts]),
            "right_id": _gather([(right.columns["id"], found.right) for _, right, found in parts]),
            "left_t": pa.array(left_t),
            "right_t": pa.array(right_t),
            "score": pa.array(
                np.concatenate([found.score for _, _, found in parts]), from_pandas=True
            ),
        }
        for name in self._carried[0][1:]:
            columns[f"left_{name}"] = _gather(
                [(left.columns[name], found.left) for left, _, found in parts]
            )
        for name in self._carried[1][1:]:
            columns[f"right_{name}"] = _gather(
                [(right.columns[name], found.right) for _, right, found in parts]
            )
        return pa.RecordBatch.from_pydict(columns)


def times_of(block: Block) -> np.ndarray:
    """Event times, also where ranks stand in their place."""
    found: np.ndarray = block.columns.get(AT, block.t)
    return found


def _weights(block: Block, names: tuple[str, ...]) -> np.ndarray | float:
    """Bytes of these columns by row, or one number where all rows have the same."""
    return block.derive(
        ("weights", names), lambda of: sum(_bytes_of(of.columns[name]) for name in names)
    )


def _at(weights: np.ndarray | float, rows: np.ndarray) -> np.ndarray | float:
    return weights[rows] if isinstance(weights, np.ndarray) else weights


def _bytes_of(column: Column) -> np.ndarray | float:
    """Bytes that each value takes, or one number if all take the same; about, where nested."""
    if isinstance(column, np.ndarray):
        return column.nbytes / max(len(column), 1)
    kind = column.type
    if pa.types.is_map(kind):
        return _spread(column.offsets, [column.keys, column.items])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _spread(column.offsets, [column.values])
    if pa.types.is_struct(kind):
        return sum((_bytes_of(column.field(n)) for n in range(kind.num_fields)), 1.0)
    if any(is_kind(kind) for is_kind in _OF_ANY_LENGTH):
        found: np.ndarray = pc.fill_null(pc.binary_length(column), 0).to_numpy() + 4.0
        return found
    return float(column.nbytes) / max(len(column), 1)


_OF_ANY_LENGTH = (
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_large_string,
    pa.types.is_large_binary,
)


def _spread(offsets: pa.Array, children: Sequence[pa.Array]) -> np.ndarray:
    """Bytes of lists, from those of their elements."""
    ends = offsets.to_numpy().astype(np.int64)
    total = np.full(len(ends) - 1, 4.0)
    for child in children:
        sums = np.zeros(len(child) + 1)
        np.cumsum(np.broadcast_to(_bytes_of(child), len(child)), out=sums[1:])
        total += np.diff(sums[ends])
    return total


def _gather(parts: Sequence[tuple[Any, np.ndarray]]) -> pa.Array:
    return pa.array(joined([take(column, rows) for column, rows in parts]))
