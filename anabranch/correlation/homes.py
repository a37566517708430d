"""The second step of a correlation that also emits rows without a partner: the homes of rows.

All that concerns a row comes to its home in one micro-batch, so that a home keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isqrt

import pyarrow as pa

from anabranch.correlation.call import Correlation
from anabranch.correlation.forwarding import MET, PAIRS
from anabranch.correlation.waiting import as_pairs, without
from anabranch.flow.blocks import Block, concat

__all__ = ["Homes", "homes_for"]


def homes_for(workers: int) -> int:
    """How many homes so many workers send to: each sends a cell to each.

    A home has little to do beside a worker, and every one of them is a task more.

    Examples
    --------
    >>> [homes_for(workers) for workers in (1, 2, 4, 16, 100)]
    [1, 1, 1, 2, 5]
    """
    return 1 + isqrt(workers - 1) // 2


@dataclass(frozen=True)
class Homes:
    """One micro-batch of some homes: cells in, pairs and rows that lack the other side out."""

    correlation: Correlation

    def __call__(self, cells: Iterable[Block]) -> Iterator[pa.RecordBatch]:
        """Let pairs through, and then emit the rows that have met nobody anywhere."""
        held: dict[tuple[str, int], list[Block]] = {}
        for block in cells:
            what = block.meta["what"]
            if what == PAIRS:
                yield pa.RecordBatch.from_pydict(dict(block.columns))
            else:
                held.setdefault((what, int(block.meta["side"])), []).append(block)
        known = {key: concat(blocks) for key, blocks in held.items()}
        for (what, side), rows in known.items():
            alone = None if what == MET else without(rows, known.get((MET, side)))
            if alone is not None:
                yield as_pairs(self.correlation, side, alone)
