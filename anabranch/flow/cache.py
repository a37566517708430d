"""What this Python process remembers of the state of workers, so that state is rarely read back.

Spark's Python workers live on between micro-batches, but a worker key may visit any of them, and
state crosses the process border at only tens of MB/s. Slices never change and are named by random
tokens, so a remembered slice is right whoever remembered it, whatever attempt or batch that was;
what is not here is read from the state store. A kernel is handed out only to who names the token
of the state that it wrote.

Memory is bounded in two ways. All entries together keep within a budget of bytes; the least
recently used go first, but not what the next micro-batch will ask for. A step reads the slices of
its window one after the other, every time: if the least recently used always made way, a window a
little larger than the budget would be read back whole in every micro-batch. So of a window that
does not fit, what is there stays, and only the rest is read again. And every entry has an owner,
the operator of a query, and a time at which it is of no more use: it goes when the process hears
that the owner's watermark has passed that time, whoever dropped the slice from the state. A worker
that comes here says what it still has: what another process dropped meanwhile goes too. A kernel
is of use in the next micro-batch alone, for if it is not called here then, it is called elsewhere.
Owners that were silent for long go altogether, and what no watermark or owner would ever end goes
when nobody has used it for as long.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from anabranch.flow.blocks import Block
from anabranch.flow.instants import FOREVER

__all__ = ["CACHE", "Cache"]

_T = TypeVar("_T")
_SILENT_SECONDS = 600.0
_SWEEP_SECONDS = 60.0
_WAITING_SECONDS = 60.0  # how long what another owner will need is kept for it


@dataclass
class _Entry:
    what: Any
    size: int
    owner: str
    expires: int
    last_batch: int
    worker: Hashable = None  # of the owner, whose state it is
    used: int = 0  # the last micro-batch that its owner had told of by then
    at: float = 0.0  # when it was last used


class Cache:
    """Remembers things by token; the least recently used go once `budget` bytes are exceeded.

    Examples
    --------
    >>> cache = Cache(budget=50)
    >>> cache.put("a", Block.of(t=range(5), columns={}), "query", expires=10)
    >>> cache.put("b", Block.of(t=range(5), columns={}), "query", expires=20)
    >>> cache.get("a") is None, cache.get("b") is None
    (True, False)
    >>> cache.hear("query", 20)
    >>> cache.get("b") is None, cache.nbytes
    (True, 0)
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._heard: dict[str, float] = {}
        self._batches: dict[str, int] = {}
        self._swept = time.monotonic()

    def get(self, token: str) -> Any:
        """What this token names, if it is here."""
        entry = self._entries.get(token)
        if entry is None:
            return None
        self._entries.move_to_end(token)
        self._use(entry)
        # Weighed anew: kernels attach what they derive, for some measures several times as much.
        self._weigh(entry)
        return entry.what

    def kept(self, token: str, owner: str, make: Callable[[], _T]) -> _T:
        """What this token names; if it is not here, it is made and remembered.

        Examples
        --------
        >>> cache = Cache(budget=50)
        >>> cache.kept("a", "query", lambda: Block.of([1], {})) is cache.get("a")
        True
        """
        found: _T | None = self.get(token)
        if found is None:
            found = make()
            self.put(token, found, owner)
        return found

    def put(
        self,
        token: str,
        what: Any,
        owner: str,
        *,
        expires: int = FOREVER,
        last_batch: int = FOREVER,
        worker: Hashable = None,
    ) -> None:
        """Remember a block, or anything else that knows its `nbytes`.

        It is kept until the owner's watermark reaches `expires` or its micro-batch passes
        `last_batch`. What is state of a `worker` goes once it no longer lists it (see `hear`).
        """
        self.forget(token)
        entry = self._entries[token] = _Entry(what, 0, owner, expires, last_batch, worker)
        self._weigh(entry)
        self._use(entry)
        self._sweep(entry.at)  # on drivers and in batch queries nobody is heard
        while self.nbytes > self.budget and len(self._entries) > 1:
            self.forget(self._to_go())

    def shrink(self, budget: int) -> None:
        """Keep to fewer bytes from now on."""
        self.budget = min(self.budget, budget)
        while self.nbytes > self.budget and self._entries:
            self.forget(next(iter(self._entries)))

    def take(self, token: str) -> Any:
        """Hand out what will be changed: it is no longer here."""
        found = self._entries.get(token)
        self.forget(token)
        return None if found is None else found.what

    def forget(self, token: str) -> None:
        """Drop what nobody holds any more."""
        entry = self._entries.pop(token, None)
        if entry is not None:
            self.nbytes -= entry.size

    def forget_all(self, beginning: str) -> None:
        """Drop all whose tokens begin so."""
        for token in [token for token in self._entries if token.startswith(beginning)]:
            self.forget(token)

    def disown(self, owner: str) -> None:
        """Drop all that an owner has here."""
        for token in [token for token, entry in self._entries.items() if entry.owner == owner]:
            self.forget(token)

    def hear(
        self,
        owner: str,
        watermark: int,
        batch: int = 0,
        worker: Hashable = None,
        listed: Collection[str] = (),
    ) -> None:
        """How far an owner is: what has expired by then goes, and who is silent for long.

        One that comes as a `worker` lists the tokens of all its state.
        """
        now = time.monotonic()
        if batch < self._batches.get(owner, batch):  # a checkpoint was put back: all of it is old
            self.disown(owner)
        if owner not in self._batches:  # what it has here it has used in this very batch
            for entry in self._entries.values():
                entry.used = batch if entry.owner == owner else entry.used
        self._heard[owner], self._batches[owner] = now, batch
        for token, entry in list(self._entries.items()):
            if entry.owner != owner:
                continue
            dropped = worker is not None and entry.worker == worker and token not in listed
            if dropped or entry.expires <= watermark or entry.last_batch < batch:
                self.forget(token)
        self._sweep(now)

    def _sweep(self, now: float) -> None:
        """Drop what has been of no use for long, now and then."""
        if now < self._swept + _SWEEP_SECONDS:
            return
        self._swept, limit = now, now - _SILENT_SECONDS
        # Copies, for several threads of a driver may be here.
        gone = {name for name, last in list(self._heard.items()) if last < limit}
        for name in gone:
            self._heard.pop(name, None)
            self._batches.pop(name, None)
        for token, entry in list(self._entries.items()):
            endless = entry.owner not in self._batches or entry.expires >= FOREVER
            if entry.owner in gone or (endless and entry.at < limit):
                self.forget(token)

    def _use(self, entry: _Entry) -> None:
        entry.at = self._heard[entry.owner] = time.monotonic()
        entry.used = self._batches.get(entry.owner, 0)

    def _to_go(self) -> str:
        """The least recently used of what nobody is about to need; else the newest slice."""
        now = time.monotonic()
        for token, entry in self._entries.items():
            batch = self._batches.get(entry.owner)
            # Batches are told of at their end: used in this one or the last counts as one back.
            needed = batch is not None and entry.used >= batch - 1
            if not needed or self._heard.get(entry.owner, 0.0) < now - _WAITING_SECONDS:
                return token
        # Kernels are worth more: they are read back whole, and were used this very batch.
        newest = reversed(self._entries.items())
        return next((t for t, e in newest if e.last_batch == FOREVER), next(iter(self._entries)))

    def _weigh(self, entry: _Entry) -> None:
        size = entry.what.held_bytes if isinstance(entry.what, Block) else entry.what.nbytes
        self.nbytes += size - entry.size
        entry.size = size


CACHE = Cache(int(os.environ.get("ANABRANCH_CACHE_MB", "1024")) << 20)
