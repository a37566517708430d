"""Queries with one kind of window and the algorithm that answers them, as a worker stores them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.flow.blocks import Block
from anabranch.neighbours.methods import Algorithm, Filtered, ListWithRepair, Probabilistic, Relaxed

__all__ = ["Group", "algorithm_of", "joined", "parts"]


class Group:
    """Queries with one kind of window, and the algorithm that answers them."""

    def __init__(self, algorithm: Algorithm, ids: Any, quiet: np.ndarray) -> None:
        self.algorithm = algorithm
        self.ids = ids
        self.quiet = quiet  # reports up to this instant are another worker's

    def encode(self) -> bytes:
        """Bytes that `decode` reads, without the window of objects."""
        block = Block.of(self.quiet, {"id": self.ids}).encode()
        if isinstance(self.algorithm, ListWithRepair):
            held = self.algorithm.detach()
            state = self.algorithm.to_bytes()
            self.algorithm.reattach(held)
        else:
            state = self.algorithm.to_bytes()
        return joined([block, state])

    @classmethod
    def decode(cls, data: bytes, kind: type[Algorithm]) -> Group:
        """The group that `encode` wrote; the window has to be attached."""
        block, state = parts(data)
        told = Block.decode(block)
        return cls(kind.from_bytes(state), told.columns["id"], told.t)


def algorithm_of(method: str) -> type[Any]:
    """The algorithm behind a method."""
    return {
        "exact": ListWithRepair,
        "probabilistic": Probabilistic,
        "relaxed": Relaxed,
        "filtered": Filtered,
    }[method]


def joined(parts: Sequence[bytes]) -> bytes:
    """Several byte strings as one, which `parts` takes apart."""
    lengths = struct.pack(f"<I{len(parts)}Q", len(parts), *(len(part) for part in parts))
    return lengths + b"".join(parts)


def parts(data: bytes) -> list[bytes]:
    """What `joined` was given.

    Examples
    --------
    >>> parts(joined([b"a", b"", b"bc"]))
    [b'a', b'', b'bc']
    """
    (count,) = struct.unpack_from("<I", data)
    at = struct.calcsize(f"<I{count}Q")
    lengths = struct.unpack_from(f"<I{count}Q", data)[1:]
    found = []
    for length in lengths:
        found.append(data[at : at + length])
        at += length
    return found
