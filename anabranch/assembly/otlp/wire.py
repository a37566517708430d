"""The wire format of protobuf: many messages at once to a table of their fields.

A message is a row of bytes ``data[start:stop]``. Its fields are found in one compiled pass over
the bytes, without knowing what they mean: number, wire type, and a value or where the bytes are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anabranch.flow.process import njit

__all__ = ["BYTES", "FAULTS", "FIXED64", "VARINT", "Fields", "read_fields"]

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

FAULTS = (
    "",
    "it ends within a field",
    "a field has a number that no field may have",
    "a field has a wire type that is not in use",
)
_FINE, _CUT, _NUMBER, _WIRE = range(4)
_MOST_FIELDS = 1 << 29


class Fields(NamedTuple):
    """Fields of messages, in their order; one entry of each array per field.

    Attributes
    ----------
    of
        The number of the message.
    number, wire
        What the field is called on the wire, and its wire type.
    first, last
        Where its bytes start and stop; of a varint, its value and 0.
    """

    of: np.ndarray
    number: np.ndarray
    wire: np.ndarray
    first: np.ndarray
    last: np.ndarray


def read_fields(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> tuple[Fields, np.ndarray]:
    """The fields of all messages, and what is wrong with each message: a place in `FAULTS`.

    Of a message with a fault there are the fields before it.

    Examples
    --------
    >>> data = np.frombuffer(bytes.fromhex("089601 1203616263 12ff"), np.uint8)
    >>> fields, faults = read_fields(data, np.array([0, 8]), np.array([8, 10]))
    >>> [array.tolist() for array in fields]
    [[0, 0], [1, 2], [0, 2], [150, 5], [0, 8]]
    >>> [FAULTS[fault] for fault in faults]
    ['', 'it ends within a field']
    """
    table, faults = _read(data, starts.astype(np.int64), stops.astype(np.int64))
    return Fields(*table), faults


@njit
def _read(data, starts, stops):
    faults = np.zeros(len(starts), np.int64)
    table = np.empty((5, 0), np.int64)
    for times in range(2):  # first how many there are
        n = 0
        for message in range(len(starts)):
            n, faults[message] = _walk(data, starts[message], stops[message], message, table, n)
        if times == 0:
            table = np.empty((5, n), np.int64)
    return table, faults


@njit
def _walk(data, at, stop, message, table, n):
    """Write the fields of a message into the table, if there is room, from column n."""
    while at < stop:
        tag, at = _varint(data, at, stop)
        if at < 0:
            return n, _CUT
        number, wire = tag >> 3, tag & 7
        if number < 1 or number >= _MOST_FIELDS:
            return n, _NUMBER
        first, last = at, at
        if wire == VARINT:
            first, at = _varint(data, at, stop)
            last = 0
        elif wire == FIXED64:
            at = last = at + 8
        elif wire == FIXED32:
            at = last = at + 4
        elif wire == BYTES:
            length, first = _varint(data, at, stop)
            if first < 0 or length < 0 or length > stop - first:
                return n, _CUT
            at = last = first + length
        else:
            return n, _WIRE
        if at < 0 or at > stop:
            return n, _CUT
        if table.shape[1]:
            table[0, n], table[1, n], table[2, n] = message, number, wire
            table[3, n], table[4, n] = first, last
        n += 1
    return n, _FINE


@njit
def _varint(data, at, stop):
    """A number of seven bits a byte, and where it stops; -1 if it does not."""
    value, shift = np.int64(0), 0
    while at < stop and shift < 70:
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return value, -1
