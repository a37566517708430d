"""One chain of filters over two tables of histograms, and thresholds by share of matches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.correlation.emd.ground import read_ground
from anabranch.correlation.emd.potentials import Learning
from anabranch.correlation.emd.search import EmdSearch
from anabranch.correlation.emd.solve import solve
from anabranch.correlation.filters.tiles import Pair
from anabranch.flow.blocks import Block
from papers.emd.streams import Histograms

__all__ = ["Search", "quantiles"]

_START = 1_700_000_000_000_000
_FOREVER = (10**12, 10**12)


class Search:
    """One chain over two tables of histograms; a fresh left block and fresh lessons each time."""

    def __init__(
        self,
        left: np.ndarray,
        right: np.ndarray,
        ground: Any,
        threshold: float,
        filters: Any,
        learning: Learning | None = None,
    ) -> None:
        self.ground, problems = read_ground(
            ground, dim=left.shape[1] if isinstance(ground, str) else None
        )
        assert not problems, problems
        self.left, self.right, self.threshold = left, _block(right), threshold
        self.filters, self.learning = tuple(filters), learning
        self.pairs, self.matches = len(left) * len(right), 0
        self.search: EmdSearch | None = None

    def __call__(self) -> None:
        self.search = EmdSearch(
            "s0", self.ground, "<=", self.threshold, self.filters, learning=self.learning
        )
        pair = Pair(_block(self.left), self.right, _FOREVER)
        self.matches = sum(len(found.left) for found in self.search.matches(pair))

    @property
    def share(self) -> float:
        """Matches per pair."""
        return self.matches / self.pairs

    @property
    def solved(self) -> int:
        """Pairs decided by their exact distance in the last call."""
        assert self.search is not None
        return self.search.tally.solved

    @property
    def spared(self) -> float:
        """The share of pairs that do not match and were decided without a solution."""
        return 1 - self.solved / max(self.pairs - self.matches, 1)


def _block(table: np.ndarray) -> Block:
    return Block.of(_START + np.arange(len(table)), {"id": np.arange(len(table)), "s0": table})


def quantiles(
    a: Histograms, b: Histograms, shares: Sequence[float], sample: int = 3000
) -> list[float]:
    """Thresholds that about these shares of the pairs are within."""
    random = np.random.default_rng(7)
    ground, _ = read_ground(a.ground, dim=a.table.shape[1] if isinstance(a.ground, str) else None)
    i, j = random.integers(0, len(a.table), sample), random.integers(0, len(b.table), sample)
    p, q = a.table[i].astype(float), b.table[j].astype(float)
    p, q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
    if ground.kind == "line":
        values = np.abs(np.cumsum(p - q, axis=1)).sum(axis=1)
    else:
        values = np.array([solve(u, v, ground.costs).value for u, v in zip(p, q, strict=True)])
    return [float(np.quantile(values, share)) for share in shares]
