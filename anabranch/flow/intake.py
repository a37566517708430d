"""Rows coming in: checked, brought into the form that kernels compare, and counted if refused.

A row is bad if it can never be compared: a null id or time, or a compared value that is null, not
finite, of another length than its neighbours or, under the cosine, without a direction. Bad rows
stop the query with a sentence that names the row, or are dropped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.correlation.call import Side, Slot
from anabranch.errors import BadRow
from anabranch.flow.arguments import null_elements
from anabranch.flow.blocks import Block, Column

_UNIT = 1e-4

__all__ = ["Admitted", "Intake", "hash_column", "keep_column"]


def hash_column(slot: Slot) -> str:
    """The column that holds the hash of a ``text`` slot."""
    return slot.name + "_h"


def keep_column(number: int) -> str:
    """The column that carries the kept column of this number (names may hold anything)."""
    return f"k{number}"


class Admitted(NamedTuple):
    """Good rows with the hashes of id and key that route them, and how many others there were."""

    block: Block
    h: np.ndarray
    key: np.ndarray
    rejected: int


@dataclass(frozen=True)
class Intake:
    """Turns Arrow batches of one side into blocks.

    A batch holds ``t`` (timestamp), ``id``, ``h`` (a hash of the id), ``key`` (a hash of the
    equality columns, if any), one column per slot (two for ``text``) and the kept columns.
    """

    side: Side
    drop_bad_rows: bool = False

    def admit(self, batch: pa.RecordBatch) -> Admitted:
        """The rows of `batch` that can be compared."""
        faults = _Faults(self, batch)
        faults.where(batch.column("t").is_null(), f"time column {self.side.time!r} is null")
        faults.where(batch.column("id").is_null(), f"id column {self.side.id!r} is null")
        for slot in self.side.slots:
            self._inspect(slot, batch.column(slot.name), faults)
        if faults.bad is not None:
            batch = batch.take(pa.array(np.flatnonzero(~faults.bad)))
        columns: dict[str, Column] = {"id": _id(batch.column("id"), self.side.id_is_text)}
        for slot in self.side.slots:
            columns[slot.name] = _convert(slot, batch.column(slot.name))
            if slot.kind == "text":
                columns[hash_column(slot)] = batch.column(hash_column(slot)).to_numpy()
        for name in map(keep_column, range(len(self.side.keep))):
            columns[name] = batch.column(name)
        t = batch.column("t").cast(pa.int64()).to_numpy()
        hashes = batch.column("h").to_numpy(), batch.column("key").to_numpy()
        block = Block.of(t, columns)
        block.meta["bytes"] = self._sizes(batch)
        return Admitted(block, *hashes, faults.count)

    def _sizes(self, batch: pa.RecordBatch) -> dict[str, int]:
        """The bytes of the values compared bit by bit, which their 64-bit words do not tell."""
        if batch.num_rows == 0:
            return {}
        slots = [s for s in self.side.slots if s.kind == "bits" and s.type == "binary"]
        return {s.name: pc.binary_length(batch.column(s.name)[:1])[0].as_py() for s in slots}

    def _inspect(self, slot: Slot, column: pa.Array, faults: _Faults) -> None:
        faults.where(column.is_null(), f"{slot.column!r} is null")
        if slot.kind == "raw":
            faults.where(null_elements(column), f"{slot.column!r} holds null")
        elif slot.kind == "float":
            finite = pc.is_finite(column.cast(pa.float64(), safe=False))
            faults.where(pc.invert(pc.fill_null(finite, True)), f"{slot.column!r} is not finite")
        elif slot.kind == "bits" and slot.type == "binary":
            self._inspect_lengths(slot, pc.binary_length(column), "bytes", faults)
        elif slot.kind == "vector":
            self._inspect_lengths(slot, column.value_lengths(), "elements", faults)
            self._inspect_vectors(slot, column, faults)

    def _inspect_lengths(self, slot: Slot, lengths: pa.Array, unit: str, faults: _Faults) -> None:
        known = lengths.drop_null()
        if len(known) == 0:
            return
        if slot.dim is None:
            self._refuse_mixed(slot, lengths, unit, faults)
        wanted = slot.dim or known[0].as_py()
        if wanted == 0:
            faults.where(pc.equal(lengths, 0), f"{slot.column!r} is empty")
        for length in pc.unique(known).to_pylist():
            if length != wanted and length != 0:
                faults.where(
                    pc.equal(lengths, length),
                    f"{slot.column!r} has {length} {unit} where {wanted} are expected",
                )
            elif length == 0 and wanted != 0:
                faults.where(pc.equal(lengths, 0), f"{slot.column!r} is empty")

    def _refuse_mixed(self, slot: Slot, lengths: pa.Array, unit: str, faults: _Faults) -> None:
        """Stop at two lengths of which none is known to be right, and name a row of each."""
        sizes = pc.fill_null(lengths, 0).to_numpy()
        rows = np.flatnonzero(sizes)
        others = rows[sizes[rows] != sizes[rows[:1]]]
        if len(others):
            ids = [faults.batch.column("id")[int(row)].as_py() for row in (rows[0], others[0])]
            raise BadRow(
                f"{self.side.label} rows cannot be compared: {slot.column!r} has {sizes[rows[0]]} "
                f"{unit} in the row with id {ids[0]!r} and {sizes[others[0]]} in that with id "
                f"{ids[1]!r}; repair the input, or fix the length with dim= and pass "
                "bad_rows='drop'"
            )

    def _inspect_vectors(self, slot: Slot, column: pa.Array, faults: _Faults) -> None:
        rows = np.arange(len(column)) if faults.bad is None else np.flatnonzero(~faults.bad)
        if len(rows) == 0:
            return
        vectors = _convert(
            slot, column if len(rows) == len(column) else column.take(pa.array(rows))
        )
        norms = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
        bad = np.zeros(len(column), bool)
        bad[rows] = ~np.isfinite(vectors).all(axis=1)
        faults.where(pa.array(bad), f"{slot.column!r} holds null, NaN or infinity")
        bad[rows] = ~np.isfinite(norms) & ~bad[rows]
        faults.where(pa.array(bad), f"{slot.column!r} is too large: its squared norm overflows")
        if slot.measure == "cosine":
            bad[rows] = norms == 0
            faults.where(pa.array(bad), f"{slot.column!r} is a zero vector, which has no direction")
        if slot.measure.startswith("emd "):
            self._inspect_histograms(slot, vectors, rows, len(column), faults)

    def _inspect_histograms(
        self, slot: Slot, vectors: np.ndarray, rows: np.ndarray, count: int, faults: _Faults
    ) -> None:
        bad = np.zeros(count, bool)
        with np.errstate(invalid="ignore"):
            bad[rows] = (vectors < 0).any(axis=1)
        faults.where(pa.array(bad), f"{slot.column!r} holds a negative mass")
        total = vectors.sum(axis=1, dtype=np.float64)
        bad[rows] = total == 0
        faults.where(pa.array(bad), f"{slot.column!r} has no mass: all bins are zero")
        if slot.measure.endswith(" unit"):
            # So much may be lost in writing the masses as float32.
            bad[rows] = ~(np.abs(total - 1) <= _UNIT)
            faults.where(
                pa.array(bad), f"{slot.column!r} does not sum to 1, as normalize=None demands"
            )


class _Faults:
    """Which rows of a batch are bad; raises at the first if they may not be dropped."""

    def __init__(self, intake: Intake, batch: pa.RecordBatch) -> None:
        self.intake = intake
        self.batch = batch
        self.bad: np.ndarray | None = None

    @property
    def count(self) -> int:
        return 0 if self.bad is None else int(self.bad.sum())

    def where(self, condition: pa.Array, reason: str) -> None:
        """Mark the rows for which `condition` is true (null is false)."""
        rows = pc.fill_null(condition, False).to_numpy(zero_copy_only=False)
        if not rows.any():
            return
        if not self.intake.drop_bad_rows:
            first = int(np.argmax(rows))
            raise BadRow(
                f"{self.intake.side.label} row with id {self.batch.column('id')[first].as_py()!r} "
                f"cannot be compared: {reason}; repair the input, or pass bad_rows='drop' to "
                "leave such rows out (a stream counts them)"
            )
        self.bad = rows if self.bad is None else self.bad | rows


def _id(column: pa.Array, is_text: bool) -> Column:
    return column if is_text else column.cast(pa.int64()).to_numpy()


def _convert(slot: Slot, column: pa.Array) -> Column:
    if slot.kind in ("raw", "text"):
        return column
    if slot.kind == "vector":
        flat = column.flatten()
        if pa.types.is_integer(flat.type):  # counts, exact up to 2**53
            flat = flat.cast(pa.float64(), safe=False)
        flat = flat.to_numpy(zero_copy_only=False)
        return flat.reshape(len(column), -1) if len(column) else flat.reshape(0, slot.dim or 1)
    if slot.kind == "bits":
        return _words(column) if slot.type == "binary" else column.to_numpy()[:, None].view("u8")
    if slot.kind == "float":
        return column.cast(pa.float64(), safe=False).to_numpy()
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    return column.cast(pa.int64()).to_numpy()


def _words(column: pa.Array) -> np.ndarray:
    """Equally long byte strings as rows of 64-bit words, padded with zeros."""
    size = len(column[0].as_py()) if len(column) else 0
    padded = np.zeros((len(column), -(-max(size, 1) // 8) * 8), np.uint8)
    if len(column):
        joined = b"".join(column.to_pylist())
        padded[:, :size] = np.frombuffer(joined, np.uint8).reshape(len(column), size)
    return padded.view(np.uint64)
