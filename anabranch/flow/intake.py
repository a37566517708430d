"""Rows coming in: checked, brought into the form that kernels compare, and counted if rejected.

A row is bad if it can never be compared: a null id or time, a time that no sum of times may hold,
or a compared value that is null, not finite, of another length than its neighbours or, under the
cosine, without a direction. Bad rows stop the query with a sentence that names the row, or are
dropped and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import BadRow
from anabranch.flow.arguments import null_elements
from anabranch.flow.blocks import Block, Column
from anabranch.flow.conversion import compared_form, filled, readable, undecodable, unknown
from anabranch.flow.sides import (
    HASH,
    ID,
    KEY,
    REASON,
    TIME,
    WHOLE,
    Side,
    Slot,
    hash_column,
    keep_column,
    present_column,
)

__all__ = ["FAR", "Admitted", "Faults", "Intake", "time_faults", "whole_of"]

FAR = 1 << 61
"""Microseconds, 73,000 years: times beyond are rejected, since sums with windows overflow."""

_UNIT = 1e-4
_NO_POINT = "is no point: latitude is beyond 90, longitude beyond 360, or one is null or no number"


class Faults:
    """Which rows of a batch are bad, and why.

    The first one stops the query, unless bad rows are dropped; a row counts under the first reason
    that is found.

    Examples
    --------
    >>> faults = Faults("query", pa.array(["a", "b", "c"]), drop=True)
    >>> faults.where(np.array([True, False, True]), "k is null")
    >>> faults.where(np.array([True, True, False]), "its time is null")
    >>> faults.problems, faults.count
    (["query 'a', query 'c': k is null", "query 'b': its time is null"], 3)
    >>> Faults("left row", pa.array([7]), drop=False).where(pa.array([True]), "'v' is null")
    Traceback (most recent call last):
        ...
    anabranch.errors.BadRow: left row with id 7 cannot be compared: 'v' is null; repair the input, \
or pass bad_rows='drop' to leave such rows out (a stream counts them)
    """

    def __init__(
        self, label: str, ids: pa.Array, drop: bool, name: str = "id", use: str = "compared"
    ) -> None:
        self.label, self.ids, self.drop, self.name, self.use = label, ids, drop, name, use
        self.reasons: dict[str, int] = {}
        self._first: dict[str, np.ndarray] = {}
        self._reason: np.ndarray | None = None  # of each row the reason's number, -1 if good

    @property
    def count(self) -> int:
        """How many rows are bad."""
        return sum(self.reasons.values())

    @property
    def bad(self) -> np.ndarray | None:
        """Which rows are bad; None if none is."""
        return None if self._reason is None else self._reason >= 0

    @property
    def good(self) -> np.ndarray:
        """The places of the other rows."""
        bad = self.bad
        return np.arange(len(self.ids)) if bad is None else np.flatnonzero(~bad)

    @property
    def problems(self) -> list[str]:
        """A sentence for each reason, with the ids of up to three rows."""
        return [f"{self._named(reason)}: {reason}" for reason in self.reasons]

    def where(self, condition: pa.Array | np.ndarray, reason: str) -> None:
        """Mark the rows for which `condition` is true (null is false)."""
        rows = condition
        if not isinstance(rows, np.ndarray):
            rows = pc.fill_null(rows, False).to_numpy(zero_copy_only=False)
        bad = self.bad
        if bad is not None:
            rows = rows & ~bad
        if not rows.any():
            return
        places = np.flatnonzero(rows)
        if not self.drop:
            raise BadRow(
                f"{self.label} with {self.name} {self._id(places[0])} cannot be {self.use}: "
                f"{reason}; repair "
                "the input, or pass bad_rows='drop' to leave such rows out (a stream counts them)"
            )
        self.reasons[reason] = self.reasons.get(reason, 0) + len(places)
        self._first.setdefault(reason, places[:3])
        if self._reason is None:
            self._reason = np.full(len(self.ids), -1)
        self._reason[places] = list(self.reasons).index(reason)

    def cell(
        self, whole: pa.Array | None, side: int, vectors: Mapping[str, pa.Array] | None = None
    ) -> bytes | None:
        """The bad rows as they came, with reasons, to be sent; None if there are none to send.

        `vectors` are columns that go along.
        """
        if whole is None or self._reason is None:
            return None
        rows = pa.array(np.flatnonzero(self._reason >= 0))
        reasons = pa.array(list(self.reasons)).take(pa.array(self._reason).take(rows))
        columns = {name: column.take(rows) for name, column in (vectors or {}).items()}
        columns |= {REASON: reasons, WHOLE: whole.take(rows)}
        return Block.of(np.zeros(len(rows)), columns).encode(side=side)

    def _id(self, place: int) -> str:
        return repr(readable(self.ids[int(place)]))

    def _named(self, reason: str) -> str:
        first = self._first[reason]
        more = self.reasons[reason] - len(first)
        names = ", ".join(f"{self.label} {self._id(place)}" for place in first)
        return names + (f" and {more} more" if more else "")


def time_faults(t: pa.Array, streaming: bool) -> Iterator[tuple[pa.Array, str]]:
    """Rows whose times no query may hold, and why; `t` is in microseconds, or timestamps of them.

    Examples
    --------
    >>> t = pa.array([5, None, 0, 1 << 62])
    >>> [(rows.to_pylist(), reason.split(":")[0]) for rows, reason in time_faults(t, False)]
    [([False, None, False, True], 'its time lies more than 73,000 years from 1970')]
    >>> [reason for _, reason in time_faults(t[:3], True)]
    ["its time is not after 1970-01-01 00:00:00 UTC, where Spark's watermarks begin: shift all \
times, or use a batch query"]
    """
    t = t.cast(pa.int64())
    least, most = (bound.as_py() for bound in pc.min_max(t).values())
    if least is None:
        return
    if least < -FAR or most > FAR:
        yield (
            pc.or_(pc.less(t, -FAR), pc.greater(t, FAR)),
            "its time lies more than 73,000 years from 1970: repair it, or shift all times",
        )
    if streaming and least <= 0:
        yield (
            pc.less_equal(t, 0),
            "its time is not after 1970-01-01 00:00:00 UTC, where Spark's watermarks begin: shift "
            "all times, or use a batch query",
        )


class Admitted(NamedTuple):
    """Good rows with the hashes of id and key that route them, and how many others, by reason.

    Where rows come with a column `WHOLE`, they have it here too, and the others are in a cell.
    """

    block: Block
    h: np.ndarray
    key: np.ndarray
    reasons: dict[str, int]
    whole: pa.Array | None = None
    rejects: bytes | None = None

    @property
    def rejected(self) -> int:
        """How many rows were left out."""
        return sum(self.reasons.values())


@dataclass(frozen=True)
class Intake:
    """Turns Arrow batches of one side into blocks.

    A batch holds the columns that `sides` names: `TIME` (microseconds, or timestamps of them),
    `ID`, `HASH` (of the id), `KEY` (a hash of the equality columns, if any), one column per slot
    (two for ``text``) and the kept columns. `streaming` queries cannot hold times before 1970.
    """

    side: Side
    drop_bad_rows: bool = False
    streaming: bool = False
    only_input: bool = False  # there is no other side

    def admit(self, batch: pa.RecordBatch, number: int = 0) -> Admitted:
        """The rows of `batch`, of the side of this number, that can be compared."""
        faults = Faults(
            "row" if self.only_input else f"{self.side.label} row",
            batch.column(ID),
            self.drop_bad_rows,
        )
        faults.where(batch.column(TIME).is_null(), f"time column {self.side.time!r} is null")
        faults.where(batch.column(ID).is_null(), f"id column {self.side.id!r} is null")
        for rows, reason in time_faults(batch.column(TIME), self.streaming):
            faults.where(rows, reason)
        known, came = {}, batch
        for slot in self.side.slots:
            if slot.optional:
                batch = unknown(slot, batch)
                known[present_column(slot)] = batch.column(slot.name).is_valid()
                batch = filled(slot, batch)
            self._inspect(slot, batch.column(slot.name), faults)
        vectors = {s.name: came.column(s.name) for s in self.side.slots if s.kind == "vector"}
        rejects = faults.cell(whole_of(batch), number, vectors)
        if faults.bad is not None:
            batch = batch.take(pa.array(faults.good))
        columns: dict[str, Column] = {"id": _id(batch.column(ID), self.side.id_is_text)}
        for slot in self.side.slots:
            columns[slot.name] = compared_form(slot, batch.column(slot.name))
            if slot.kind == "text" and not slot.nullable:
                columns[hash_column(slot)] = batch.column(hash_column(slot)).to_numpy()
        for name, flags in known.items():
            columns[name] = flags.to_numpy(zero_copy_only=False)[faults.good]
        for name in map(keep_column, range(len(self.side.keep))):
            columns[name] = batch.column(name)
        t = batch.column(TIME).cast(pa.int64()).to_numpy()
        hashes = batch.column(HASH).to_numpy(), batch.column(KEY).to_numpy()
        block = Block.of(t, columns)
        block.meta["bytes"] = self._sizes(batch)
        return Admitted(block, *hashes, faults.reasons, whole_of(batch), rejects)

    def _sizes(self, batch: pa.RecordBatch) -> dict[str, int]:
        """The bytes of the values compared bit by bit, which their 64-bit words do not tell."""
        if batch.num_rows == 0:
            return {}
        slots = [s for s in self.side.slots if s.kind == "bits" and s.type == "binary"]
        return {s.name: pc.binary_length(batch.column(s.name)[:1])[0].as_py() for s in slots}

    def _inspect(self, slot: Slot, column: pa.Array, faults: Faults) -> None:
        if not (slot.optional or slot.nullable):
            none = _NO_POINT if slot.measure == "haversine" else "is null"
            faults.where(column.is_null(), f"{slot.column!r} {none}")
        if slot.kind in ("raw", "set"):
            nulls = null_elements(column, texts=slot.kind == "set")
            faults.where(nulls, f"{slot.column!r} holds null")
        if slot.kind in ("raw", "string"):
            faults.where(undecodable(column), f"{slot.column!r} is no text in UTF-8")
        elif slot.kind == "float" and not slot.nullable:
            finite = pc.is_finite(column.cast(pa.float64(), safe=False))
            faults.where(pc.invert(pc.fill_null(finite, True)), f"{slot.column!r} is not finite")
        elif slot.kind == "bits" and slot.type == "binary":
            self._inspect_lengths(slot, pc.binary_length(column), "bytes", faults)
        elif slot.kind == "vector":
            self._inspect_lengths(slot, column.value_lengths(), "elements", faults)
            self._inspect_vectors(slot, column, faults)

    def _inspect_lengths(self, slot: Slot, lengths: pa.Array, unit: str, faults: Faults) -> None:
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

    def _refuse_mixed(self, slot: Slot, lengths: pa.Array, unit: str, faults: Faults) -> None:
        """Stop at two lengths of which none is known to be right, and name a row of each."""
        sizes = pc.fill_null(lengths, 0).to_numpy()
        rows = np.flatnonzero(sizes)
        others = rows[sizes[rows] != sizes[rows[:1]]]
        if len(others):
            ids = [readable(faults.ids[int(row)]) for row in (rows[0], others[0])]
            raise BadRow(
                f"{self.side.label} rows cannot be compared: {slot.column!r} has {sizes[rows[0]]} "
                f"{unit} in the row with id {ids[0]!r} and {sizes[others[0]]} in that with id "
                f"{ids[1]!r}; repair the input, or fix the length with dim= and pass "
                "bad_rows='drop'"
            )

    def _inspect_vectors(self, slot: Slot, column: pa.Array, faults: Faults) -> None:
        rows = faults.good
        if len(rows) == 0:
            return
        vectors = compared_form(
            slot, column if len(rows) == len(column) else column.take(pa.array(rows))
        )
        norms = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
        bad = np.zeros(len(column), bool)
        bad[rows] = ~np.isfinite(vectors).all(axis=1)
        faults.where(bad, f"{slot.column!r} holds null, NaN or infinity")
        bad[rows] = ~np.isfinite(norms) & ~bad[rows]
        faults.where(bad, f"{slot.column!r} is too large: its squared norm overflows")
        if slot.measure == "cosine":
            zero = norms == 0  # or so small that its square is
            zero[zero] = ~vectors[zero].any(axis=1)
            bad[rows] = zero
            faults.where(bad, f"{slot.column!r} is a zero vector, which has no direction")
        if slot.measure.startswith("emd "):
            self._inspect_histograms(slot, vectors, rows, len(column), faults)

    def _inspect_histograms(
        self, slot: Slot, vectors: np.ndarray, rows: np.ndarray, count: int, faults: Faults
    ) -> None:
        bad = np.zeros(count, bool)
        with np.errstate(invalid="ignore"):
            bad[rows] = (vectors < 0).any(axis=1)
        faults.where(bad, f"{slot.column!r} holds a negative mass")
        total = vectors.sum(axis=1, dtype=np.float64)
        bad[rows] = total == 0
        faults.where(bad, f"{slot.column!r} has no mass: all bins are zero")
        if slot.measure.endswith(" unit"):
            # So much may be lost in writing the masses as float32.
            bad[rows] = ~(np.abs(total - 1) <= _UNIT)
            faults.where(bad, f"{slot.column!r} does not sum to 1, as normalize=None demands")


def whole_of(batch: pa.RecordBatch | pa.Table) -> pa.Array | None:
    """The rows as they came, if that was asked for."""
    if WHOLE not in batch.schema.names:
        return None
    column = batch.column(WHOLE)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _id(column: pa.Array, is_text: bool) -> Column:
    return column if is_text else column.cast(pa.int64()).to_numpy()
