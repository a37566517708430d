"""Bytes under numbers in the map of a key's state, large ones in parts."""

from __future__ import annotations

from typing import Any

from anabranch.errors import StateMismatch
from anabranch.flow.stored import in_parts, place_of

__all__ = ["Pieces"]


class Pieces:
    """The pieces of a key's state; how many parts each has is noted by whoever wrote it.

    Parameters
    ----------
    state
        Spark's map of whole numbers to bytes.
    """

    def __init__(self, state: Any) -> None:
        self._state = state

    def read(self, number: int, parts: int = 1, name: str = "") -> bytes:
        """What was written under a number; `name` is what messages call it."""
        found = [self._state.getValue((place_of(number, part),)) for part in range(parts)]
        if None in found:
            raise StateMismatch(f"{name or f'piece {number}'} is listed but not in the state store")
        return bytes(found[0][0]) if parts == 1 else b"".join(one[0] for one in found)

    def write(self, number: int, data: bytes, had: int = 0) -> int:
        """Put bytes under a number, in place of so many parts: how many parts they have now."""
        pieces = in_parts(data)
        for part, piece in enumerate(pieces):
            self.put(place_of(number, part), piece)
        self.remove(number, range(len(pieces), had))
        return len(pieces)

    def put(self, number: int, data: bytes) -> None:
        """Put bytes under a number whole."""
        self._state.updateValue((number,), (data,))

    def remove(self, number: int, parts: range = range(1)) -> None:
        """Remove parts of what was written under a number."""
        for part in parts:
            self._state.removeKey((place_of(number, part),))
