"""Queries with one kind of window and the algorithm that answers them, as a worker stores them."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.flow.blocks import Block, weigh
from anabranch.flow.container import pack, unpack
from anabranch.flow.gpu.choice import Choice
from anabranch.neighbours.methods import (
    Algorithm,
    Filtered,
    ListWithRepair,
    Probabilistic,
    Queries,
    Relaxed,
)

__all__ = ["Group", "algorithm_for", "algorithm_of"]


class Group:
    """Queries with one kind of window, and the algorithm that answers them."""

    def __init__(self, algorithm: Algorithm, ids: Any, quiet: np.ndarray) -> None:
        self.algorithm = algorithm
        self.ids = ids
        self.quiet = quiet  # reports up to this instant are another worker's

    def use(self, choice: Choice | None) -> None:
        """Let the algorithm have a GPU, if it is one that can use it."""
        if choice is not None and isinstance(self.algorithm, ListWithRepair):
            self.algorithm.use(choice)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.algorithm.nbytes + weigh(self.ids) + self.quiet.nbytes

    def encode(self) -> bytes:
        """Bytes that `decode` reads, without the window of objects."""
        ids = Block.of(self.quiet, {"id": self.ids}).encode()
        if isinstance(self.algorithm, ListWithRepair):
            held = self.algorithm.detach()
            state = self.algorithm.to_bytes()
            self.algorithm.reattach(held)
        else:
            state = self.algorithm.to_bytes()
        return pack({"ids": ids, "lists": state})

    @classmethod
    def decode(cls, data: Any, kind: type[Algorithm]) -> Group:
        """The group that `encode` wrote; the window has to be attached."""
        parts, _ = unpack(data)
        ids = Block.decode(parts["ids"])
        return cls(kind.from_bytes(bytes(parts["lists"])), ids.columns["id"], ids.t)


def algorithm_for(kind: type[Any], queries: Queries, error: float) -> Algorithm:
    """The algorithm of a kind for some queries."""
    made: Algorithm = kind(queries, error) if kind is Probabilistic else kind(queries)
    return made


def algorithm_of(method: str) -> type[Any]:
    """The algorithm behind a method."""
    return {
        "exact": ListWithRepair,
        "probabilistic": Probabilistic,
        "relaxed": Relaxed,
        "filtered": Filtered,
    }[method]
