"""Objects in the order of (time, id): those that wait for their turn, and those that had it.

Objects are numbered as their turn comes. The numbers and the order depend on the objects alone, not
on when they arrived, so stored objects can be put in order again from where they lie.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.flow.blocks import Block, Column, concat, joined, take

__all__ = ["Ordered"]


class Ordered:
    """Waiting and past objects of one worker.

    Examples
    --------
    >>> objects = Ordered()
    >>> objects.add(Block.of([5, 3, 9], {"id": np.array([50, 30, 90])}))
    >>> objects.due(upto=5).columns["id"].tolist()
    [30, 50]
    >>> columns, times = objects.look(np.array([1]))
    >>> objects.next_number, columns["id"].tolist(), times.tolist()
    (2, [50], [5])
    """

    def __init__(self) -> None:
        self._waiting: list[Block] = []
        self._past: list[Block] = []
        self._base = 0  # number of the first past object

    @property
    def next_number(self) -> int:
        """The number of the next object whose turn comes."""
        return self._base + sum(len(block) for block in self._past)

    @property
    def first_past(self) -> int | None:
        """The time of the oldest past object."""
        return int(self._past[0].t[0]) if self._past else None

    @property
    def first_waiting(self) -> int | None:
        """The time of the oldest object that waits."""
        return min((int(block.t.min()) for block in self._waiting), default=None)

    @property
    def newest(self) -> int | None:
        """The greatest time among all."""
        return max((int(block.t.max()) for block in self._waiting + self._past), default=None)

    def past(self) -> tuple[Block, np.ndarray] | None:
        """All past objects and their numbers."""
        if not self._past:
            return None
        self._past = [concat(self._past)]
        return self._past[0], np.arange(self._base, self.next_number)

    def add(self, block: Block) -> None:
        """Let objects wait."""
        if len(block):
            self._waiting.append(block)

    def due(self, upto: int) -> Block:
        """The objects up to a time whose turn has now come."""
        if not self._waiting:
            return Block.of([], {})
        waiting = concat(self._waiting)
        waiting = waiting.take(_order(waiting))
        cut = int(np.searchsorted(waiting.t, upto, "right"))
        self._waiting = [waiting.slice(cut, len(waiting))] if cut < len(waiting) else []
        fresh = waiting.slice(0, cut)
        if cut:
            self._past.append(fresh)
        return fresh

    def insert(self, block: Block) -> tuple[Block, np.ndarray, np.ndarray]:
        """Put belated objects among the past, whose numbers move up.

        Returns the objects in order, the numbers so far that they come before, and their own.

        Examples
        --------
        >>> objects = Ordered()
        >>> objects.add(Block.of([3, 9], {"id": np.array([30, 90])}))
        >>> _ = objects.due(upto=9)
        >>> _, before, numbers = objects.insert(Block.of([5, 4], {"id": np.array([50, 40])}))
        >>> before.tolist(), numbers.tolist(), objects.next_number
        ([1, 1], [1, 2], 4)
        """
        joined = concat([*self._past, block])
        order = _order(joined)
        places = np.flatnonzero(order >= len(joined) - len(block))
        self._past = [joined.take(order)]
        numbers = self._base + places
        return joined.take(order[places]), numbers - np.arange(len(places)), numbers

    def look(
        self, numbers: np.ndarray, names: Sequence[str] = ("id",)
    ) -> tuple[dict[str, Column], np.ndarray]:
        """The columns of these names, and the times, of past objects."""
        ends = self._base + np.cumsum([len(block) for block in self._past])
        place = np.searchsorted(ends, numbers, "right")
        order = np.argsort(place, kind="stable")
        counts = np.bincount(place, minlength=len(ends))
        found: dict[str, list[Column]] = {name: [] for name in names}
        times, at = [], 0
        for number in np.flatnonzero(counts):
            block = self._past[number]
            mine = order[at : at + counts[number]]
            rows = numbers[mine] - (ends[number] - len(block))
            for name, parts in found.items():
                parts.append(take(block.columns[name], rows))
            times.append(block.t[rows])
            at += counts[number]
        back = np.argsort(order, kind="stable")
        columns = {name: take(joined(parts), back) for name, parts in found.items()}
        return columns, np.concatenate(times)[back]

    def bytes_of(self, names: Sequence[str]) -> float:
        """Bytes of the columns of these names in a past object, on average."""
        total = sum(block.columns[name].nbytes for block in self._past for name in names)
        return float(total / max(1, self.next_number - self._base))

    def first_after(self, t: int) -> int:
        """The number of the first past object later than a time."""
        number = self._base
        for block in self._past:
            found = int(np.searchsorted(block.t, t, "right"))
            number += found
            if found < len(block):
                break
        return number

    def drop_before(self, number: int) -> int | None:
        """Forget past objects below a number; the oldest time that is still needed."""
        while self._past and self._base + len(self._past[0]) <= number:
            self._base += len(self._past.pop(0))
        cut = number - self._base
        if self._past and cut > len(self._past[0]) // 2:
            self._past[0] = self._past[0].slice(cut, len(self._past[0]))
            self._base = number
        times = [t for t in (self.first_past, self.first_waiting) if t is not None]
        return min(times, default=None)

    def encode(self) -> bytes:
        """Where the order begins; the objects themselves are stored elsewhere."""
        return struct.pack("<qq", self._base, self.next_number - self._base)

    @classmethod
    def decode(cls, data: bytes, blocks: Iterable[Block], reached: int) -> Ordered:
        """The order of stored objects, of which those up to `reached` have had their turn."""
        made = cls()
        made._base, count = struct.unpack("<qq", data)
        found = list(blocks)
        if not found:
            return made
        stored = concat(found)
        stored = stored.take(_order(stored))
        cut = int(np.searchsorted(stored.t, reached, "right"))
        # More may be stored than is still past, but none that came after what is.
        if count:
            made._past = [stored.slice(cut - count, cut)]
        if cut < len(stored):
            made._waiting = [stored.slice(cut, len(stored))]
        return made


def _order(block: Block) -> np.ndarray:
    """The order of (time, id); of those delivered twice with different vectors, by these."""
    t, ids, vectors = block.t, block.columns["id"], block.columns.get("v")
    if len(block) < 2 or bool((t[1:] > t[:-1]).all()):
        return np.arange(len(block))
    if isinstance(ids, np.ndarray):
        order = np.lexsort((ids, t))
    else:
        keys = [("t", "ascending"), ("id", "ascending")]
        order = np.array(pc.sort_indices(pa.table({"t": t, "id": ids}), sort_keys=keys))
    ordered, times = take(ids, order), t[order]
    same = times[1:] == times[:-1]
    if isinstance(ordered, np.ndarray):
        same &= ordered[1:] == ordered[:-1]
    elif same.any():
        same &= np.asarray(pc.equal(ordered[1:], ordered[:-1]))
    if vectors is None or not same.any():
        return order
    # Restoring must not depend on the order in which equals are stored.
    alike = np.concatenate([[False], same]) | np.concatenate([same, [False]])
    run = np.cumsum(np.concatenate([[True], ~same]))[alike]
    rows = order[alike]
    order[alike] = rows[np.lexsort((*vectors[rows].T[::-1], run))]
    return order
