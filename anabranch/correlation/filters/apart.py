"""Rows that must differ in a column, compared value by value: equal ones never meet.

The rows of a block are taken apart by their value, each part in time order. Of N values that come
in turn, one pair in N is of equal ones and is not looked at. That costs something for each two
parts, so it is done only where it saves more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.correlation.filters.tiles import Pair, comparisons
from anabranch.flow.blocks import Block

__all__ = ["Apart", "Part", "taken_apart"]

MOST_VALUES = 64
# Nanoseconds on one core to look at two parts at all; measured.
PART_NS = 100_000.0
_CARRIED = re.compile(r"k\d+$|h$")


@dataclass(frozen=True)
class _Rows:
    """The rows of one value: their places in the block, and what filters look at."""

    places: np.ndarray
    block: Block


@dataclass(frozen=True)
class Part:
    """Rows of one value against rows of another, and their places in the whole blocks."""

    pair: Pair
    left: np.ndarray
    right: np.ndarray


@dataclass(frozen=True)
class Apart:
    """Two blocks by value."""

    pair: Pair
    lefts: dict[Any, _Rows]
    rights: dict[Any, _Rows]

    @property
    def parts(self) -> Iterator[Part]:
        """All parts with different values."""
        for value, left in self.lefts.items():
            for other, right in self.rights.items():
                if value != other:
                    yield self._part(left, right)

    @property
    def comparisons(self) -> int:
        """How many pairs are to be compared."""
        alike = [
            self._part(left, self.rights[value]).pair
            for value, left in self.lefts.items()
            if value in self.rights
        ]
        return comparisons(self.pair) - sum(map(comparisons, alike))

    def _part(self, left: _Rows, right: _Rows) -> Part:
        pair = Pair(left.block, right.block, self.pair.window, self.pair.ordered)
        return Part(pair, left.places, right.places)


def taken_apart(pair: Pair, slot: str, cell: float) -> Apart | None:
    """Two blocks by the value of a column; None if that would cost more than it saves.

    `cell` is what it costs to compare two rows, in nanoseconds.

    Examples
    --------
    >>> rows = Block.of(np.arange(6), {"s0": np.array([7, 8, 7, 8, 7, 8])})
    >>> found = taken_apart(Pair(rows, rows, (9, 9)), "s0", cell=1e6)
    >>> found.comparisons, [(part.left.tolist(), part.right.tolist()) for part in found.parts]
    (18, [([0, 2, 4], [1, 3, 5]), ([1, 3, 5], [0, 2, 4])])
    >>> taken_apart(Pair(rows, rows, (9, 9)), "s0", cell=1) is None
    True
    """
    counts = [block.derive(("values", slot), lambda of: _counts(of, slot)) for block in _of(pair)]
    if counts[0] is None or counts[1] is None:
        return None
    alike = sum(float(counts[0][value]) * counts[1].get(value, 0) for value in counts[0])
    share = alike / max(float(len(pair.left)) * len(pair.right), 1.0)
    if not share or share * comparisons(pair) * cell < len(counts[0]) * len(counts[1]) * PART_NS:
        return None
    lefts, rights = (
        block.derive(("by value", slot), lambda of: _by_value(of, slot)) for block in _of(pair)
    )
    return Apart(pair, lefts, rights)


def _of(pair: Pair) -> tuple[Block, Block]:
    return pair.left, pair.right


def _codes(block: Block, slot: str) -> tuple[Any, np.ndarray]:
    """The distinct values of a column, and the number of that of each row."""
    column = block.columns[slot]
    if isinstance(column, np.ndarray):
        values, codes = np.unique(column, return_inverse=True)
        return values, codes
    texts = pc.dictionary_encode(column)
    # As bytes, for a text need not be UTF-8 to be another one.
    return texts.dictionary.cast(pa.large_binary()), texts.indices.to_numpy()


def _counts(block: Block, slot: str) -> dict[Any, int] | None:
    """How many rows have each value; None if there are too many values to be worth it."""
    values, codes = _codes(block, slot)
    if len(values) > MOST_VALUES:
        return None
    counts = np.bincount(codes, minlength=len(values))
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _by_value(block: Block, slot: str) -> dict[Any, _Rows]:
    """Rows by value, without columns that are only carried."""
    values, codes = _codes(block, slot)
    bare = block.without(*filter(_CARRIED.match, block.columns))
    found = {}
    for number, value in enumerate(values.tolist()):
        places = np.flatnonzero(codes == number).astype(np.int32)
        found[value] = _Rows(places, bare.take(places))
    return found
