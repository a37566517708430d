"""Slices that this Python process has seen, by token, so that state is rarely read back.

Spark's Python workers live on between micro-batches, but a worker key may visit any of them, and
state crosses the process border at only tens of MB/s. A slice never changes and its token is
random, so a cached slice is right whoever cached it, whatever attempt or batch that was; what is
not here is read from the state store.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Any, Protocol

from anabranch.flow.blocks import Block

__all__ = ["CACHE", "SliceCache"]


class Slice(Protocol):
    """Anything immutable that knows its size: a block of rows, the tables of a bucket."""

    @property
    def nbytes(self) -> int: ...


class SliceCache:
    """The least recently used slices go first once `budget` bytes are exceeded.

    Examples
    --------
    >>> from anabranch.flow.blocks import Block
    >>> cache = SliceCache(budget=50)
    >>> cache.put("a", Block.of(t=range(5), columns={}))
    >>> cache.put("b", Block.of(t=range(5), columns={}))
    >>> cache.get("a") is None, cache.get("b") is None
    (True, False)
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._blocks: OrderedDict[str, Slice] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._bytes = 0

    def get(self, token: str) -> Any:
        """The slice of this token, if it is here."""
        block = self._blocks.get(token)
        if block is not None:
            self._blocks.move_to_end(token)
            self._weigh(token, block)
        return block

    def put(self, token: str, block: Slice) -> None:
        """Remember a slice."""
        self.forget(token)
        self._blocks[token] = block
        self._weigh(token, block)
        while self._bytes > self.budget and len(self._blocks) > 1:
            oldest = next(iter(self._blocks))
            self.forget(oldest)

    def forget(self, token: str) -> None:
        """Drop a slice that no window holds any more."""
        if self._blocks.pop(token, None) is not None:
            self._bytes -= self._sizes.pop(token)

    def _weigh(self, token: str, block: Slice) -> None:
        # Each time anew: kernels attach what they derive, for some measures several times as much.
        size = block.held_bytes if isinstance(block, Block) else block.nbytes
        self._bytes += size - self._sizes.get(token, 0)
        self._sizes[token] = size


CACHE = SliceCache(int(os.environ.get("ANABRANCH_CACHE_MB", "1024")) << 20)
