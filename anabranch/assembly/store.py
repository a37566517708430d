"""A bucket's invocations as immutable slices, its windows as one table, and a small directory.

Every micro-batch adds one slice of the rows that came, in order of time; a window names its rows by
slice and place. What the loop reads of a row (hashes, times: its *marks*) is needed until the clock
has passed it, what is told of it until its window closes, so a slice is stored as two pieces. It
goes when no open window needs its rows and none of them is still ahead of the clock; slices that
are mostly dead are copied together. The table of windows is rewritten when it changes. What was
added and dropped since the store was opened is all that must be written.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import StateMismatch
from anabranch.flow.blocks import Block, concat

__all__ = ["BEGINNING", "Entry", "Store", "Tables", "pack_piece", "refs_of", "unpack_piece"]

BEGINNING = -(1 << 62)  # before any event time
TABLES = -1  # the number under which the tables are stored
_VERSION = 2
_SMALL = 1 << 18
_MANY = 64
_LOW = 0xFFFFFFFF


def pack_piece(piece: Block | Tables) -> bytes:
    """A piece as bytes for a state store, which moves bytes far slower than they are compressed.

    Examples
    --------
    >>> unpack_piece(0, pack_piece(Block.of([3, 4], {}))).t.tolist()
    [3, 4]
    """
    raw = piece.encode()
    packed: bytes = pa.compress(raw, "zstd", asbytes=True)
    return bytes([_VERSION]) + len(raw).to_bytes(8, "big") + packed


def unpack_piece(number: int, data: bytes) -> Any:
    """What `pack_piece` packed: the tables, or a block."""
    if data[0] != _VERSION:
        raise StateMismatch(_other_version(data[0]))
    size = int.from_bytes(data[1:9], "big")
    raw = pa.decompress(data[9:], size, "zstd", asbytes=True)
    return Tables.decode(raw) if number == TABLES else Block.decode(raw)


def marks_of(number: int) -> int:
    """The number under which the marks of a slice are stored."""
    return -2 - number


def refs_of(number: int, places: np.ndarray) -> np.ndarray:
    """Names of the rows at these places of a slice."""
    found: np.ndarray = (np.int64(number) << np.int64(32)) | places.astype(np.int64)
    return found


@dataclass(frozen=True)
class Entry:
    """A directory entry. `token` names the content: equal tokens, equal bytes, for ever."""

    number: int
    token: str
    rows: int
    bytes: int
    first: int
    last: int


@dataclass
class Tables:
    """Named integer arrays that are stored as one piece.

    Examples
    --------
    >>> tables = Tables({"meta": np.arange(6).reshape(3, 2)})
    >>> Tables.decode(tables.encode()).arrays["meta"].tolist()
    [[0, 1], [2, 3], [4, 5]]
    """

    arrays: dict[str, np.ndarray]

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(array.nbytes for array in self.arrays.values())

    def encode(self) -> bytes:
        """Bytes; columns one after the other, since their values are alike."""
        notes = [[n, str(a.dtype), list(a.shape)] for n, a in self.arrays.items()]
        raw = b"".join(np.ascontiguousarray(a.T).tobytes() for a in self.arrays.values())
        head = json.dumps(notes).encode()
        return bytes([_VERSION]) + len(head).to_bytes(4, "big") + head + raw

    @classmethod
    def decode(cls, data: bytes) -> Tables:
        """What `encode` wrote."""
        if data[0] != _VERSION:
            raise StateMismatch(_other_version(data[0]))
        size = int.from_bytes(data[1:5], "big")
        arrays, at = {}, 5 + size
        for name, dtype, shape in json.loads(data[5 : 5 + size]):
            count = int(np.prod(shape))
            flat = np.frombuffer(data, dtype, count, at)
            at += flat.nbytes
            arrays[name] = np.ascontiguousarray(flat.reshape(shape[::-1]).T)
        return cls(arrays)


@dataclass
class Store:
    """What one bucket holds between micro-batches.

    Parameters
    ----------
    fetch
        Reads a slice or the tables that were stored before, by directory entry.
    """

    fetch: Callable[[Entry], Any] | None = None
    slices: dict[int, Entry] = field(default_factory=dict)
    marks: dict[int, Entry] = field(default_factory=dict)
    tables_entry: Entry | None = None
    next_number: int = 0
    notes: dict[str, Any] = field(default_factory=dict)
    added: dict[int, tuple[Entry, Block]] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    written: tuple[Entry, Tables] | None = None

    @property
    def rows(self) -> int:
        """Rows stored, dead ones included."""
        return sum(entry.rows for entry in self.slices.values())

    @property
    def nbytes(self) -> int:
        """Bytes stored."""
        found = sum(e.bytes for family in (self.slices, self.marks) for e in family.values())
        return found + (self.tables_entry.bytes if self.tables_entry else 0)

    def tables(self) -> Tables:
        """The table of windows and what is learned; empty at first."""
        if self.written is not None:
            return self.written[1]
        if self.tables_entry is None:
            return Tables({})
        found: Tables = self._fetched(self.tables_entry)
        return found

    def put_tables(self, tables: Tables) -> None:
        """Replace the tables."""
        if self.tables_entry is not None:
            self.forgotten.append(self.tables_entry.token)
        entry = Entry(TABLES, secrets.token_hex(8), 0, tables.nbytes, 0, 0)
        self.tables_entry, self.written = entry, (entry, tables)

    def append(self, block: Block, clock: int) -> int:
        """Store the rows of a block, which is in order of time; the slice's number.

        Marks are kept of a slice that has rows ahead of the clock.
        """
        number = self.next_number
        self.next_number += 1
        # Without anything to tell, the marks are what is told; so in experiments.
        told = block.without("w") if len(block.columns) > 1 else block
        self.slices[number] = self._added(number, told)
        if int(block.t[-1]) > clock:
            marks = Block.of(block.t, {"w": block.columns["w"]})
            self.marks[number] = self._added(marks_of(number), marks)
        return number

    def read(self, number: int) -> Block:
        """What is told of the rows of a slice."""
        return self._piece(self.slices[number])

    def read_marks(self, number: int) -> Block:
        """Times and marks of the rows of a slice; it has rows ahead of the clock."""
        return self._piece(self.marks[number])

    def gather(self, refs: np.ndarray) -> Block:
        """The rows of these names, in this order; there is at least one."""
        numbers = refs >> 32
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        parts = [
            self.read(int(number)).take(refs[rows] & _LOW)
            for number, rows in zip(found, np.split(order, starts[1:]), strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return concat(parts).take(back)

    def clean(self, refs: np.ndarray, clock: int) -> np.ndarray:
        """Drop slices that nothing needs any more; the names under which `refs` now stand."""
        numbers, counts = np.unique(refs >> 32, return_counts=True)
        live = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        for number, entry in list(self.marks.items()):
            if entry.last <= clock:
                self._drop(self.marks.pop(number))
        done = [entry for entry in self.slices.values() if entry.last <= clock]
        for entry in done:
            if entry.number not in live:
                self._drop(self.slices.pop(entry.number))
        done = [entry for entry in done if entry.number in live]
        sparse = [e for e in done if 4 * live[e.number] < e.rows]
        small = [e for e in done if e.bytes < _SMALL]
        chosen = {e.number: e for e in (sparse if len(small) <= _MANY else [*sparse, *small])}
        if 2 * sum(e.rows for e in sparse) <= self.rows and len(small) <= _MANY:
            return refs
        moved = np.isin(refs >> 32, np.fromiter(chosen, np.int64, len(chosen)))
        rows = np.sort(refs[moved])
        block = self.gather(rows)
        order = np.argsort(block.t, kind="stable")
        number = self.append(block.take(order), int(block.t.max()))
        place = np.empty(len(rows), np.int64)
        place[order] = np.arange(len(rows))
        renamed = refs.copy()
        renamed[moved] = refs_of(number, place[np.searchsorted(rows, refs[moved])])
        for entry in chosen.values():
            self._drop(self.slices.pop(entry.number))
        return renamed

    def head(self) -> bytes:
        """The directory and the notes."""
        form = {
            "slices": [list(asdict(entry).values()) for entry in self.slices.values()],
            "marks": [[n, *asdict(entry).values()] for n, entry in self.marks.items()],
            "tables": None
            if self.tables_entry is None
            else list(asdict(self.tables_entry).values()),
            "next": self.next_number,
            "notes": self.notes,
        }
        return bytes([_VERSION]) + json.dumps(form).encode()

    @classmethod
    def open(cls, head: bytes | None, fetch: Callable[[Entry], Any]) -> Store:
        """The store whose directory is `head`; empty if there is none."""
        if head is None:
            return cls(fetch)
        if head[0] != _VERSION:
            raise StateMismatch(_other_version(head[0]))
        form = json.loads(head[1:])
        entries = [Entry(*values) for values in form["slices"]]
        tables = None if form["tables"] is None else Entry(*form["tables"])
        slices = {entry.number: entry for entry in entries}
        marks = {number: Entry(*values) for number, *values in form["marks"]}
        return cls(fetch, slices, marks, tables, form["next"], form["notes"])

    def _added(self, number: int, block: Block) -> Entry:
        first, last = int(block.t[0]), int(block.t[-1])
        entry = Entry(number, secrets.token_hex(8), len(block), block.nbytes, first, last)
        self.added[number] = (entry, block)
        return entry

    def _piece(self, entry: Entry) -> Block:
        if entry.number in self.added:
            return self.added[entry.number][1]
        found: Block = self._fetched(entry)
        return found

    def _drop(self, entry: Entry) -> None:
        if self.added.pop(entry.number, None) is None:
            self.dropped.append(entry.number)
            self.forgotten.append(entry.token)

    def _fetched(self, entry: Entry) -> Any:
        if self.fetch is None:
            raise StateMismatch(f"slice {entry.number} is listed but there is nowhere to read it")
        return self.fetch(entry)


def _other_version(found: int) -> str:
    return (
        f"the checkpoint's windows have layout {found}, this version reads {_VERSION}: restart "
        "with the version that wrote it, or begin a new checkpoint"
    )
