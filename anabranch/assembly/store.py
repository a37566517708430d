"""Events as one bucket stores them: in slices, found by name or by when they are due.

A row is *named* by the number of its slice and its place there. Of a slice with rows ahead of the
clock the *marks* are stored too, a slice of their own that holds what decides about a row: hashes,
end, stream and tie. So rows that wait are found without reading what they carry.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from anabranch.flow.blocks import Block, concat
from anabranch.flow.instants import BEGINNING
from anabranch.flow.slices import Notes, Slice, Slices

__all__ = ["MARKS", "ROWS", "SLICE_BYTES", "AssembleNotes", "Events", "refs_of"]

ROWS, MARKS = 0, 1
SLICE_BYTES = 32 << 20
"""About the most that a slice of rows holds."""
_LOW = np.int64(0xFFFFFFFF)
_SMALL = 1 << 20
_MANY = 16


@dataclass
class AssembleNotes(Notes):
    """What a bucket remembers beside its rows and its tables.

    Attributes
    ----------
    next
        The clock at which a window is next due.
    order, learned
        How many windows were ordered, and how many instances were learned from.
    marks
        The slice of marks that belongs to a slice of rows, by number.
    """

    next: int = BEGINNING
    order: int = 0
    learned: int = 0
    marks: dict[str, int] = field(default_factory=dict)


def refs_of(number: int, places: np.ndarray) -> np.ndarray:
    """Names of the rows at these places of a slice."""
    found: np.ndarray = (np.int64(number) << np.int64(32)) | places.astype(np.int64)
    return found


class Events:
    """The rows of one bucket, over its slices."""

    def __init__(self, slices: Slices[AssembleNotes]) -> None:
        self.slices = slices

    def marks(self) -> dict[int, Slice]:
        """The entries of the marks, by the number of the slice of rows."""
        entries = self.slices.entries
        return {int(number): entries[m] for number, m in self.slices.notes.marks.items()}

    def append(self, block: Block, clock: int) -> int:
        """Store the rows of a block, which is in order of time; the slice's number.

        Marks are kept of a slice that has rows ahead of the clock.
        """
        # Without anything to emit, the marks are what is emitted; so in experiments.
        rows = block.without("w") if len(block.columns) > 1 else block
        number = self.slices.add(ROWS, rows)
        if int(block.t[-1]) > clock:
            marks = Block.of(block.t, {"w": block.columns["w"]})
            self.slices.notes.marks[str(number)] = self.slices.add(MARKS, marks)
        return number

    def read_marks(self, number: int) -> Block:
        """Times and marks of the rows of a slice; it has rows ahead of the clock."""
        return self.slices.read(self.slices.notes.marks[str(number)])

    def gather(self, refs: np.ndarray) -> Block:
        """The rows of these names, in this order; there is at least one."""
        numbers = refs >> 32
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        parts = [
            self.slices.read(int(number)).take(refs[rows] & _LOW)
            for number, rows in zip(found, np.split(order, starts[1:]), strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return concat(parts).take(back)

    def clean(self, refs: np.ndarray, clock: int) -> np.ndarray:
        """Drop slices that nothing needs any more; the names under which `refs` now stand."""
        slices = self.slices
        numbers, counts = np.unique(refs >> 32, return_counts=True)
        live = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        for number, entry in self.marks().items():
            if entry.last <= clock:
                slices.drop(slices.notes.marks.pop(str(number)))
        done = [entry for entry in slices.of(ROWS) if entry.last <= clock]
        for entry in done:
            if entry.number not in live:
                slices.drop(entry.number)
        done = [entry for entry in done if entry.number in live]
        sparse = [e for e in done if 4 * live[e.number] < e.rows]
        small = [e for e in done if e.bytes < _SMALL]
        rows = sum(entry.rows for entry in slices.of(ROWS))
        if 2 * sum(e.rows for e in sparse) <= rows and len(small) <= _MANY:
            return refs
        chosen = {e.number for e in (sparse if len(small) <= _MANY else [*sparse, *small])}
        moved = np.isin(refs >> 32, np.fromiter(chosen, np.int64, len(chosen)))
        return self._moved(refs, moved, chosen)

    def _moved(self, refs: np.ndarray, moved: np.ndarray, chosen: set[int]) -> np.ndarray:
        """Bring the rows of some slices into few; the names under which `refs` now stand."""
        rows = np.sort(refs[moved])
        entries = [self.slices.entries[number] for number in chosen]
        each = sum(entry.bytes for entry in entries) / sum(entry.rows for entry in entries)
        names = []
        for part in np.array_split(rows, min(len(rows), 1 + int(each * len(rows) / SLICE_BYTES))):
            block = self.gather(part)
            order = np.argsort(block.t, kind="stable")
            number = self.append(block.take(order), int(block.t.max()))
            place = np.empty(len(part), np.int64)
            place[order] = np.arange(len(part))
            names.append(refs_of(number, place))
        renamed = refs.copy()
        renamed[moved] = np.concatenate(names)[np.searchsorted(rows, refs[moved])]
        for other in chosen:
            self.slices.drop(other)
        return renamed
