"""Letters of texts and elements of sets as *bags*: so many things, most of which have a bit each.

The overlap of two bags is at most the number of bits that both have, and the lesser number of
things that got no bit. A text sets a bit for the first, second, ... letter of a kind, for 32 kinds
of letters; a set one for the hash of an element. What finds its bit taken has none.

Letters: r is a row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.flow.blocks import Block
from anabranch.flow.process import njit

__all__ = ["Bags", "Elements", "bags_of", "elements_of", "words_for"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

_KINDS = 32
_THINGS_PER_WORD = 10
_LEAST_WORDS, _MOST_WORDS = 2, 64


class Bags(NamedTuple):
    """Rows as bags: how many things, their bits, how many have none, and the first letters."""

    sizes: np.ndarray
    bits: np.ndarray
    rest: np.ndarray
    heads: np.ndarray  # four letters of 16 bits; 0 for sets


class Elements(NamedTuple):
    """The elements of each row, by rising code: whole numbers themselves, or hashes of texts.

    `places` are those of the elements among all values of the column.
    """

    begins: np.ndarray
    codes: np.ndarray
    places: np.ndarray


def words_for(left: Block, right: Block, slot: str) -> int:
    """How many words of bits suit the larger bags of two blocks; a power of two.

    Examples
    --------
    >>> few, many = (Block.of([1], {"s0": pa.array([n * "x"])}) for n in (5, 75))
    >>> words_for(few, few, "s0"), words_for(few, many, "s0")
    (2, 8)
    """
    mean = max(_mean_size(left, slot), _mean_size(right, slot))
    words = 1 << max(0, int(np.ceil(np.log2(max(mean, 1) / _THINGS_PER_WORD))))
    return min(max(words, _LEAST_WORDS), _MOST_WORDS)


def bags_of(block: Block, slot: str, words: int) -> Bags:
    """The bags of a block's rows."""

    def make(of: Block) -> Bags:
        column, n = of.columns[slot], len(of)
        bags = Bags(
            np.zeros(n, np.int32),
            np.zeros((n, words), np.uint64),
            np.zeros(n, np.int32),
            np.zeros(n, np.uint64),
        )
        if pa.types.is_string(column.type):
            _fill_letters(*_bytes(column), bags)
        else:
            elements = elements_of(of, slot)
            _fill_elements(elements.begins, elements.codes, bags)
        for array in bags:
            array.flags.writeable = False  # as blocks are, or loops would be compiled once more
        return bags

    return block.derive(("bags", slot, words), make)


def elements_of(block: Block, slot: str) -> Elements:
    """The elements of sets, in the order in which two sets are compared."""

    def make(of: Block) -> Elements:
        column = of.columns[slot]
        begins = np.zeros(len(column) + 1, np.int64)
        np.cumsum(column.value_lengths().to_numpy(), out=begins[1:])
        values = column.flatten()
        codes = values.to_numpy() if pa.types.is_integer(values.type) else _hashes(*_bytes(values))
        rows = np.repeat(np.arange(len(column)), np.diff(begins))
        places = np.lexsort((codes, rows))
        return Elements(begins, codes[places], places)

    return block.derive(("elements", slot), make)


def _mean_size(block: Block, slot: str) -> float:
    """How many things a row has, about: of texts the bytes."""

    def make(of: Block) -> float:
        column = of.columns[slot]
        things = _bytes(column)[0] if pa.types.is_string(column.type) else column.offsets.to_numpy()
        return float(things[-1] - things[0]) / max(len(of), 1)

    return block.derive(("mean size", slot), make)


def _bytes(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of each text, and the bytes of all."""
    _, bounds, data = texts.buffers()
    if not len(texts):
        return np.frombuffer(bytes(4), np.int32), np.frombuffer(b"", np.uint8)
    ends = np.frombuffer(bounds, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return ends, np.frombuffer(data if data is not None else b"", np.uint8)


@njit(nogil=True)
def _fill_letters(bounds, data, bags):  # pragma: no cover
    sizes, bits, rest, heads = bags
    levels = bits.shape[1] * 64 // _KINDS
    seen = np.zeros(_KINDS, np.int32)
    for r in range(len(sizes)):
        seen[:] = 0
        at, end, size = bounds[r], bounds[r + 1], 0
        while at < end:
            first = data[at]
            length = 1 + (first >= 0xC0) + (first >= 0xE0) + (first >= 0xF0)
            letter = np.uint64(first if length == 1 else first & (0x7F >> length))
            for more in range(at + 1, at + length):
                letter = (letter << np.uint64(6)) | np.uint64(data[more] & 0x3F)
            at += length
            if size < 4:
                heads[r] |= (letter & np.uint64(0xFFFF)) << np.uint64(16 * size)
            size += 1
            kind = np.int64(letter & np.uint64(_KINDS - 1))
            if seen[kind] < levels:
                place = seen[kind] * _KINDS + kind
                bits[r, place >> 6] |= np.uint64(1) << np.uint64(place & 63)
            else:
                rest[r] += 1
            seen[kind] += 1
        sizes[r] = size


@njit(nogil=True)
def _fill_elements(begins, codes, bags):  # pragma: no cover
    sizes, bits, rest, _ = bags
    most = np.uint64(bits.shape[1] * 64 - 1)
    for r in range(len(sizes)):
        sizes[r] = begins[r + 1] - begins[r]
        for p in range(begins[r], begins[r + 1]):
            # Numbers in a row, or of one stride, would share bits without a multiplication.
            place = (np.uint64(codes[p]) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)) & most
            word, bit = np.int64(place >> np.uint64(6)), np.uint64(1) << (place & np.uint64(63))
            if bits[r, word] & bit:
                rest[r] += 1
            else:
                bits[r, word] |= bit


@njit(nogil=True)
def _hashes(bounds, data):  # pragma: no cover
    """FNV-1a of each text, mixed."""
    found = np.empty(len(bounds) - 1, np.int64)
    for r in range(len(found)):
        h = np.uint64(0xCBF29CE484222325)
        for at in range(bounds[r], bounds[r + 1]):
            h = (h ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
        h = (h ^ (h >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        found[r] = np.int64(h ^ (h >> np.uint64(32)))
    return found
