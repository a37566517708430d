"""How a slice lies in a state store: small, and quick to read back.

Spark hands the bytes of a state value to Python inside a text, a character for each byte, and every
byte of 128 or more then takes two bytes and a slow path, in the JVM and in Python: measured, two
thirds of the processor time of handing a value over. So a slice is written in bytes below 128. That
makes it a seventh longer, and it is first made shorter by more than that: bytes of the same weight
are put together, since signs and exponents of neighbouring numbers are alike, and compressed. A
slice that this would not make shorter is stored as it is.

Values of several megabytes are handed over at a third of the speed of smaller ones: memory for each
copy is then fetched anew. So a slice lies in parts.

The layout: seven words of 64 bits become eight, the last of which holds the highest bit of each
byte of the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["PART_BYTES", "in_parts", "place_of", "restored", "stored"]

PART_BYTES = 1 << 19
"""What one value of a state store holds at most."""
_PLACE_BITS = 40  # below them the number of a slice, above them that of a part

_MARK = b"7"  # nothing else that is stored begins with it
_HEAD = 64  # what follows lies on a border of words
_LEAST = 4096  # bytes below which neither time nor space is worth a thought
_WIDTH = 4  # of most numbers; of a pair of those, for numbers of eight bytes
_LOW = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH = np.uint64(0x8080808080808080)
_CODEC = pa.Codec("zstd", compression_level=1)


def stored(data: bytes) -> bytes:
    """The bytes to store, from which `restored` makes `data` again; never more than those.

    Examples
    --------
    >>> data = np.linspace(0, 1, 5000, dtype=np.float32).tobytes()
    >>> len(stored(data)) < len(data), max(stored(data)) < 128, restored(stored(data)) == data
    (True, True, True)
    >>> stored(b"anabra")
    b'anabra'
    """
    if len(data) < _LEAST:
        return data
    short: bytes = _CODEC.compress(_together(data), asbytes=True)
    if _HEAD + _sevens_length(len(short)) >= len(data):
        return data
    head = _MARK + b"%d,%d" % (len(data), len(short))
    return head.ljust(_HEAD) + _to_sevens(short)


def in_parts(data: bytes) -> list[bytes]:
    """The parts in which bytes are stored, of about one size.

    Examples
    --------
    >>> [len(part) for part in in_parts(bytes(PART_BYTES + 2))]
    [262145, 262145]
    >>> in_parts(b"anabra")
    [b'anabra']
    """
    count = max(1, -(-len(data) // PART_BYTES))
    if count == 1:
        return [data]
    step = -(-len(data) // count)
    return [data[at : at + step] for at in range(0, len(data), step)]


def place_of(number: int, part: int) -> int:
    """Where a part of a slice is stored; the first one under the number of the slice.

    Examples
    --------
    >>> place_of(7, 0), place_of(7, 1) == place_of(7, 0) + (1 << 40)
    (7, True)
    """
    return number + (part << _PLACE_BITS)


def restored(data: Any) -> Any:
    """What `stored` was given, as a read-only view or copy of its own."""
    if bytes(data[:1]) != _MARK:
        return bytes(data)
    size, short = (int(number) for number in bytes(data[1:_HEAD]).split(b","))
    return _apart(_CODEC.decompress(_from_sevens(data, short), size))


def _together(data: bytes) -> np.ndarray:
    """The first byte of each number, then the second of each, and so on; what is left over."""
    whole = len(data) // _WIDTH * _WIDTH
    found = np.empty(len(data), np.uint8)
    flat = np.frombuffer(data, np.uint8)
    found[:whole].reshape(_WIDTH, -1)[:] = flat[:whole].reshape(-1, _WIDTH).T
    found[whole:] = flat[whole:]
    return found


def _apart(data: Any) -> memoryview:
    """Undo `_together`."""
    flat = np.frombuffer(data, np.uint8)
    whole = len(flat) // _WIDTH * _WIDTH
    found = np.empty(len(flat), np.uint8)
    numbers = found[:whole].reshape(-1, _WIDTH)
    for number, part in enumerate(flat[:whole].reshape(_WIDTH, -1)):
        numbers[:, number] = part
    found[whole:] = flat[whole:]
    return found.data.toreadonly()


def _sevens_length(size: int) -> int:
    return -(-size // 56) * 64


def _to_sevens(data: bytes) -> bytes:
    columns = -(-len(data) // 56)
    words = np.zeros(columns * 7, np.uint64)
    words.view(np.uint8)[: len(data)] = np.frombuffer(data, np.uint8)
    rows = words.reshape(7, columns)
    found = np.zeros((8, columns), np.uint64)
    np.bitwise_and(rows, _LOW, out=found[:7])
    for number, row in enumerate(rows):
        found[7] |= (row & _HIGH) >> np.uint64(7 - number)
    return found.tobytes()


def _from_sevens(data: Any, size: int) -> np.ndarray:
    columns = -(-size // 56)
    found = np.frombuffer(data, np.uint64, columns * 8, _HEAD).reshape(8, columns)
    words = np.empty((7, columns), np.uint64)
    for number, row in enumerate(words):
        np.left_shift(found[7], np.uint64(7 - number), out=row)
        row &= _HIGH
        row |= found[number]
    return words.reshape(-1).view(np.uint8)[:size]
