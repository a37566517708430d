"""The window of one worker: stored rows as time-sorted slices, found by time, dropped whole.

A *slice* is an immutable block of one side. The *directory* lists, for every slice, its time range
and size, so that a step reads only slices that its rows can meet, writes only new ones, and frees
space by removing whole slices. Small slices of neighbouring times are merged now and then. What
was added and what was dropped since the window was opened is all that a state store must write.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from anabranch.errors import StateMismatch
from anabranch.flow.blocks import Block, concat

__all__ = ["SLICE_BYTES", "Slice", "Window"]

# Measured: state is read and written at tens of MB/s whatever the layout, but adding or removing a
# slice costs only that slice; 4 to 8 MB keep both the number of calls and the rewriting small.
SLICE_BYTES = 4 << 20
_MERGE_AT = 8
# Where rows are so far apart in time that no eighth of a span holds many: a directory of so many
# slices is still read and written in well under a millisecond.
_MOST_SMALL = 64
_HEAD_VERSION = 1


@dataclass(frozen=True)
class Slice:
    """A directory entry. `token` names the content: equal tokens, equal bytes, for ever."""

    number: int
    token: str
    side: int
    rows: int
    bytes: int
    first: int
    last: int


@dataclass
class Window:
    """Stored rows of both sides of one worker.

    Parameters
    ----------
    spans
        How long a left row and a right row stay, in microseconds.
    fetch
        Reads a slice that was stored before.

    Examples
    --------
    >>> window = Window(spans=(10, 10))
    >>> window.append(0, Block.of(t=[100, 105], columns={}))
    >>> [block.t.tolist() for block in window.reach(0, 104, 200)]
    [[100, 105]]
    >>> window.expire(watermark=114), window.rows
    (0, 2)
    >>> window.expire(watermark=115), window.rows
    (2, 0)
    """

    spans: tuple[int, int]
    fetch: Callable[[Slice], Block] | None = None
    slices: list[Slice] = field(default_factory=list)
    next_number: int = 0
    notes: dict[str, Any] = field(default_factory=dict)
    added: dict[int, tuple[Slice, Block]] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows stored."""
        return sum(entry.rows for entry in self.slices)

    @property
    def nbytes(self) -> int:
        """Bytes stored, as encoded or about to be."""
        return sum(entry.bytes for entry in self.slices)

    def reach(self, side: int, first: int, last: int) -> Iterator[Block]:
        """The slices of `side` that hold times between `first` and `last`."""
        for entry in self.slices:
            if entry.side == side and entry.first <= last and entry.last >= first:
                yield self._read(entry)

    def append(self, side: int, block: Block) -> None:
        """Store the rows of a block in time order."""
        if len(block) == 0:
            return
        pieces = max(1, round(block.nbytes / SLICE_BYTES))
        step = -(-len(block) // pieces)
        for start in range(0, len(block), step):
            piece = block if pieces == 1 else block.slice(start, min(start + step, len(block)))
            self._add(side, piece)

    def expire(self, watermark: int) -> int:
        """Drop slices that no row later than `watermark` can meet; how many rows went."""
        gone = [e for e in self.slices if e.last + self.spans[e.side] <= watermark]
        for entry in gone:
            self._drop(entry)
        return sum(entry.rows for entry in gone)

    def withdraw(self, side: int, last: int) -> list[Block]:
        """Take out the slices of `side` that hold times up to `last`.

        Examples
        --------
        >>> window = Window(spans=(10, 10))
        >>> window.append(0, Block.of(t=[100, 105], columns={}))
        >>> window.append(0, Block.of(t=[106], columns={}))
        >>> [block.t.tolist() for block in window.withdraw(0, 100)], window.rows
        ([[100, 105]], 1)
        """
        found = [e for e in self.slices if e.side == side and e.first <= last]
        blocks = [self._read(entry) for entry in found]
        for entry in found:
            self._drop(entry)
        return blocks

    def next_expiry(self) -> int | None:
        """The watermark at which `expire` will next find something."""
        return min((e.last + self.spans[e.side] for e in self.slices), default=None)

    def merge_small(self) -> None:
        """Merge small slices of neighbouring times, once there are enough of them.

        A merged slice covers at most an eighth of its side's span, so that it is not kept much
        longer than its rows. If that leaves too many, as where rows stay for longer than a span,
        then slices of at most an eighth of the side's rows are made: about 16, whatever the rate.
        """
        for side in (0, 1):
            small = self._small(side)
            if len(small) > _MERGE_AT:
                self._merge(side, _groups(small, longest=self.spans[side] // _MERGE_AT))
            small = self._small(side)
            if len(small) > _MOST_SMALL:
                share = sum(e.rows for e in self.slices if e.side == side) // _MERGE_AT
                self._merge(side, _groups(small, most=share))

    def _small(self, side: int) -> list[Slice]:
        found = [e for e in self.slices if e.side == side and e.bytes < SLICE_BYTES // 2]
        return sorted(found, key=lambda entry: entry.first)

    def _merge(self, side: int, groups: Iterable[list[Slice]]) -> None:
        for group in groups:
            blocks = [self._read(entry) for entry in group]
            for entry in group:
                self._drop(entry)
            self._add(side, concat(blocks).in_time_order())

    def head(self) -> bytes:
        """The directory and the notes, to be stored beside the slices."""
        form = {
            "slices": [list(asdict(entry).values()) for entry in self.slices],
            "next": self.next_number,
            "notes": self.notes,
        }
        return bytes([_HEAD_VERSION]) + json.dumps(form).encode()

    @classmethod
    def open(
        cls, spans: tuple[int, int], head: bytes | None, fetch: Callable[[Slice], Block]
    ) -> Window:
        """The window whose directory is `head`; empty if there is none."""
        if head is None:
            return cls(spans, fetch)
        if head[0] != _HEAD_VERSION:
            raise StateMismatch(
                f"the checkpoint's window has layout {head[0]}, this version reads "
                f"{_HEAD_VERSION}: restart with the version that wrote it, or begin a new one"
            )
        form = json.loads(head[1:])
        entries = [Slice(*values) for values in form["slices"]]
        return cls(spans, fetch, entries, form["next"], form["notes"])

    def _add(self, side: int, block: Block) -> None:
        first, last = int(block.t[0]), int(block.t[-1])
        entry = Slice(
            self.next_number, secrets.token_hex(8), side, len(block), block.nbytes, first, last
        )
        self.next_number += 1
        self.slices.append(entry)
        self.added[entry.number] = (entry, block)

    def _drop(self, entry: Slice) -> None:
        self.slices.remove(entry)
        if self.added.pop(entry.number, None) is None:
            self.dropped.append(entry.number)

    def _read(self, entry: Slice) -> Block:
        if entry.number in self.added:
            return self.added[entry.number][1]
        if self.fetch is None:
            raise StateMismatch(f"slice {entry.number} is listed but there is nowhere to read it")
        return self.fetch(entry)


def _groups(
    entries: Iterable[Slice], longest: float = math.inf, most: float = math.inf
) -> Iterator[list[Slice]]:
    """Runs of entries that make one slice of allowed size, rows and span, but runs of one."""
    group: list[Slice] = []
    size = rows = last = 0
    for entry in entries:
        fits = group and size + entry.bytes <= SLICE_BYTES and rows + entry.rows <= most
        if fits and max(last, entry.last) - group[0].first <= longest:
            group.append(entry)
            size, rows, last = size + entry.bytes, rows + entry.rows, max(last, entry.last)
            continue
        if len(group) > 1:
            yield group
        group, size, rows, last = [entry], entry.bytes, entry.rows, entry.last
    if len(group) > 1:
        yield group
