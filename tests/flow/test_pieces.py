"""Pieces of a key's state: what is large lies in parts, and none stays behind."""

from __future__ import annotations

import pytest

from anabranch.errors import StateMismatch
from anabranch.flow.pieces import Pieces
from anabranch.flow.stored import PART_BYTES
from tests.spark.states import Map


def test_what_is_written_is_read_back_and_no_part_stays_behind() -> None:
    state = Map()
    pieces = Pieces(state)
    pieces.write(7, b"beside")
    had = 0
    for size in (3 * PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES + 5, 4):
        data = bytes(range(251)) * (size // 251 + 1)
        data = data[:size]
        had = pieces.write(0, data, had)
        assert (pieces.read(0, had), len(state)) == (data, had + 1)
        assert max(len(piece) for (piece,) in state.values()) <= PART_BYTES
    pieces.remove(0, range(had))
    assert pieces.read(7) == b"beside" and len(state) == 1


def test_a_part_that_is_missing_is_named() -> None:
    state = Map()
    pieces = Pieces(state)
    parts = pieces.write(5, bytes(3 * PART_BYTES))
    pieces.remove(5, range(1, 2))
    with pytest.raises(StateMismatch, match=r"^slice 5 is listed but not in the state store$"):
        pieces.read(5, parts, "slice 5")
    with pytest.raises(StateMismatch, match=r"^piece 9 is listed but not in the state store$"):
        pieces.read(9)
