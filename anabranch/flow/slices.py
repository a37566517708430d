"""What one worker stores: time-sorted slices of rows, found by time, dropped whole.

A *slice* is an immutable block of rows of one side. The *directory* lists, for every slice, its
time range and size, so that a step reads only slices that its rows can meet, writes only new ones,
and frees space by removing whole slices. Small slices of neighbouring times are merged now and
then. What was added and what was dropped since the slices were opened is all that a state store
must write. Beside the directory stand *notes*: what else the worker must remember, a dataclass of
its verb.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

import numpy as np

from anabranch.errors import StateMismatch
from anabranch.flow.blocks import Block, concat
from anabranch.flow.container import pack, unpack
from anabranch.flow.instants import BEGINNING

__all__ = ["BEGINNING", "SLICE_BYTES", "Notes", "Slice", "Slices"]

# Measured: state is read and written at tens of MB/s whatever the layout, but adding or removing a
# slice costs only that slice; 4 to 8 MB keep both the number of calls and the rewriting small.
SLICE_BYTES = 4 << 20
_MERGE_AT = 8
# Where rows are so far apart in time that no eighth of a stay holds many: a directory of so many
# slices is still read and written in well under a millisecond.
_MOST_SMALL = 64


@dataclass
class Notes:
    """What the operator itself remembers of a worker; verbs add fields of their own.

    Fields hold what JSON can: numbers, texts, lists, and dictionaries with texts as keys.

    Attributes
    ----------
    settings
        Those of the call that began the checkpoint, by name.
    token
        Names the kernel whose snapshot is stored: equal tokens, equal state.
    timer
        When the worker's timer is set to fire, in milliseconds; None if there is none.
    reached
        The time up to which the last step went: a watermark, or the clock.
    """

    settings: dict[str, str] = field(default_factory=dict)
    token: str = ""
    timer: int | None = None
    reached: int = BEGINNING


N = TypeVar("N", bound=Notes)


@dataclass(frozen=True)
class Slice:
    """A directory entry. `token` names the content: equal tokens, equal bytes, always.

    In the state store it lies in so many `parts`.
    """

    number: int
    token: str
    side: int
    rows: int
    bytes: int
    first: int
    last: int
    parts: int = 1


_FIELDS = tuple(one.name for one in fields(Slice))


@dataclass
class Slices(Generic[N]):
    """Stored rows of all sides of one worker.

    Parameters
    ----------
    stays
        How long a row of each side stays, in microseconds.
    notes
        What else is remembered.
    fetch
        Reads a slice that was stored before.

    Examples
    --------
    >>> slices = Slices((10, 10), Notes())
    >>> stored = slices.append(0, Block.of(t=[100, 105], columns={}))
    >>> [block.t.tolist() for block in slices.reach(0, 104, 200)]
    [[100, 105]]
    >>> slices.expire(watermark=114), slices.rows
    (0, 2)
    >>> slices.expire(watermark=115), slices.rows
    (2, 0)
    """

    stays: tuple[int, ...]
    notes: N
    fetch: Callable[[Slice], Block] | None = None
    entries: dict[int, Slice] = field(default_factory=dict)
    next_number: int = 0
    added: dict[int, tuple[Slice, Block]] = field(default_factory=dict)
    dropped: list[Slice] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows stored."""
        return sum(entry.rows for entry in self.entries.values())

    @property
    def nbytes(self) -> int:
        """Bytes stored, as encoded or about to be."""
        return sum(entry.bytes for entry in self.entries.values())

    def of(self, side: int) -> list[Slice]:
        """The entries of one side."""
        return [entry for entry in self.entries.values() if entry.side == side]

    def reach(self, side: int, first: int, last: int) -> Iterator[Block]:
        """The slices of `side` that hold times between `first` and `last`."""
        for entry in self.of(side):
            if entry.first <= last and entry.last >= first:
                yield self.read(entry.number)

    def append(self, side: int, block: Block) -> list[Block]:
        """Store the rows of a block in time order, in the pieces that it returns.

        They are of a size that state stores bear.
        """
        if len(block) == 0:
            return []
        pieces = max(1, round(block.nbytes / SLICE_BYTES))
        step = -(-len(block) // pieces)
        cut = [
            block if pieces == 1 else block.slice(start, min(start + step, len(block)))
            for start in range(0, len(block), step)
        ]
        for piece in cut:
            self.add(side, piece)
        return cut

    def add(self, side: int, block: Block) -> int:
        """Store a block, in time order and with a row at least, as one slice; its number."""
        block = block.in_stored_form()
        number = self.next_number
        self.next_number += 1
        first, last = int(block.t[0]), int(block.t[-1])
        token = secrets.token_hex(8)
        entry = Slice(number, token, side, len(block), block.nbytes, first, last)
        self.entries[number] = entry
        self.added[number] = (entry, block)
        return number

    def read(self, number: int) -> Block:
        """The rows of a slice."""
        if number in self.added:
            return self.added[number][1]
        if self.fetch is None:
            raise StateMismatch(f"slice {number} is listed but there is nowhere to read it")
        return self.fetch(self.entries[number])

    def laid(self, number: int, parts: int) -> None:
        """Note in how many parts a slice lies in the state store."""
        if parts > 1:
            self.entries[number] = replace(self.entries[number], parts=parts)

    def drop(self, number: int) -> None:
        """Remove a slice."""
        entry = self.entries.pop(number)
        if self.added.pop(number, None) is None:
            self.dropped.append(entry)

    def expire(self, watermark: int, side: int | None = None) -> int:
        """Drop slices, of one side or all, that no row later than `watermark` can meet.

        It returns how many rows went.
        """
        known = self.entries.values() if side is None else self.of(side)
        gone = [e for e in known if e.last + self.stays[e.side] <= watermark]
        for entry in gone:
            self.drop(entry.number)
        return sum(entry.rows for entry in gone)

    def withdraw(self, side: int, last: int) -> list[Block]:
        """Take out the slices of `side` that hold times up to `last`.

        Examples
        --------
        >>> slices = Slices((10, 10), Notes())
        >>> stored = slices.append(0, Block.of(t=[100, 105], columns={}))
        >>> stored = slices.append(0, Block.of(t=[106], columns={}))
        >>> [block.t.tolist() for block in slices.withdraw(0, 100)], slices.rows
        ([[100, 105]], 1)
        """
        found = [entry.number for entry in self.of(side) if entry.first <= last]
        blocks = [self.read(number) for number in found]
        for number in found:
            self.drop(number)
        return blocks

    def take_until(self, side: int, last: int) -> Block | None:
        """Take out the rows of `side` up to a time; None if there are none.

        Examples
        --------
        >>> slices = Slices((10, 10), Notes())
        >>> stored = slices.append(0, Block.of(t=[100, 105], columns={}))
        >>> slices.take_until(0, 100).t.tolist(), slices.rows, slices.take_until(0, 104)
        ([100], 1, None)
        """
        taken = self.take_parts(side, last)
        return concat(taken) if taken else None

    def take_parts(self, side: int, last: int) -> list[Block]:
        """The same rows, in the blocks in which they were stored."""
        taken = []
        for block in self.withdraw(side, last):
            cut = int(np.searchsorted(block.t, last, "right"))
            taken.append(block.slice(0, cut))
            self.append(side, block.slice(cut, len(block)))
        return taken

    def next_expiry(self) -> int | None:
        """The watermark at which `expire` will next find something."""
        return min((e.last + self.stays[e.side] for e in self.entries.values()), default=None)

    def merge_small(self) -> None:
        """Merge small slices of neighbouring times, once there are enough of them.

        A merged slice covers at most an eighth of its side's stay, so that it is not kept much
        longer than its rows. If that leaves too many, as where rows stay for longer than that,
        then slices of at most an eighth of the side's rows are made: about 16, whatever the rate.
        """
        for side, stay in enumerate(self.stays):
            small = self._small(side)
            if len(small) > _MERGE_AT:
                self._merge(side, _groups(small, longest=stay // _MERGE_AT))
            small = self._small(side)
            if len(small) > _MOST_SMALL:
                share = sum(entry.rows for entry in self.of(side)) // _MERGE_AT
                self._merge(side, _groups(small, most=share))

    def _small(self, side: int) -> list[Slice]:
        found = [entry for entry in self.of(side) if entry.bytes < SLICE_BYTES // 2]
        return sorted(found, key=lambda entry: entry.first)

    def _merge(self, side: int, groups: Iterable[list[Slice]]) -> None:
        for group in groups:
            blocks = [self.read(entry.number) for entry in group]
            for entry in group:
                self.drop(entry.number)
            self.add(side, concat(blocks).in_time_order())

    def written(self) -> None:
        """The state store has all of it: a kernel that lives on holds no rows for its sake."""
        self.added, self.dropped = {}, []

    def head(self) -> bytes:
        """The directory and the notes, to be stored beside the slices."""
        form = {
            # Field by field: asdict copies all of it first, and takes most of a small step.
            "slices": [[getattr(e, name) for name in _FIELDS] for e in self.entries.values()],
            "next": self.next_number,
            "notes": {one.name: getattr(self.notes, one.name) for one in fields(self.notes)},
        }
        return pack({}, form)

    @classmethod
    def open(
        cls,
        stays: tuple[int, ...],
        notes: type[N],
        head: Any,
        fetch: Callable[[Slice], Block] | None,
    ) -> Slices[N]:
        """The slices whose directory is `head`; none if there is no head."""
        if head is None:
            return cls(stays, notes(), fetch)
        _, form = unpack(head)
        entries = [Slice(*values) for values in form["slices"]]
        known = {entry.number: entry for entry in entries}
        # Those of another operator are opened too: settings then say what was changed.
        mine = {of.name for of in fields(notes)} & form["notes"].keys()
        found = notes(**{name: form["notes"][name] for name in mine})
        return cls(stays, found, fetch, known, form["next"])


def _groups(
    entries: Iterable[Slice], longest: float = math.inf, most: float = math.inf
) -> Iterator[list[Slice]]:
    """Runs of entries that make one slice of allowed size, rows and time, but runs of one."""
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
