"""One stream of a device: which rows it takes, and which of them are sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch.calls import is_number
from anabranch.edge.definitions import COLUMN_TYPES, Stream, listed
from anabranch.edge.ownership import EARLIEST
from anabranch.edge.sampling import bands, sampled
from anabranch.edge.sections import Section
from anabranch.errors import InvalidCall

__all__ = ["OwnStream", "Row", "due_losses", "portion", "row_size"]

_MOST = 500_000  # bytes of a row: the broker takes messages of a megabyte
_SHOWN = 60  # letters of a value in a message


@dataclass(frozen=True)
class Row:
    """A row as the outbox keeps it; `stamp` is None before the first directive."""

    stream: str
    n: int
    t: int
    stamp: int | None
    values: Mapping[str, Any]


@dataclass
class OwnStream:
    """What a device knows of a stream of its own; `number` and `declared` come with a directive."""

    name: str
    following: int  # number of the next row
    number: int = -1
    declared: Stream | None = None
    newest: int = EARLIEST  # time of the newest row
    watermark: int = EARLIEST
    told: int = EARLIEST  # the watermark that was sent
    framed: int = -1  # number of the newest row in a frame
    cell: int | None = None  # the tick of that row
    lengths: dict[str, int] = field(default_factory=dict)  # of vectors, as the first row has them
    unfit: int = 0  # rows that came before the stream was declared, and are of other columns
    counted: int = 0  # rows that could be sampled, since they were last counted
    dropped: int = 0  # rows that a full outbox did not take
    said: int = 0  # how many of those two the cloud has been told of

    @property
    def earliest(self) -> int:
        """The earliest time that the next row may have."""
        return max(self.newest, self.watermark + 1)

    def fits(self, t: int, share: float) -> bool:
        """Whether a row is in a share of the rows; one of a stream without a tick always is."""
        tick = 0 if self.declared is None else self.declared.tick
        return bool(sampled(np.array([t]), tick, share)[0])

    def time_at(self, now: int) -> int:
        """The time of a row that is made now, by a clock that may have been set back."""
        return max(now, self.earliest)

    def checked(self, t: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a row as they are kept; raises `InvalidCall` if it cannot be."""
        kept = {name: _kept(value) for name, value in values.items()}
        problems = self._time_problems(t)
        problems += [_strange(name, values[name]) for name in kept if kept[name] is None]
        if not problems and (size := row_size(kept)) > _MOST:
            problems.append(f"the row has about {size:,} bytes, and {_MOST:,} can be sent")
        if not problems and self.declared is not None:
            problems += self._value_problems(kept, self.declared)
        if problems:
            raise InvalidCall(f"put({self.name!r})", problems)
        return kept

    def row(self, t: int, values: Mapping[str, Any], stamp: int | None) -> Row:
        """The next row, numbered; raises `InvalidCall` if it cannot be."""
        row = Row(self.name, self.following, t, stamp, self.checked(t, values))
        self.note(row)
        return row

    def note(self, row: Row) -> None:
        """Remember that a row is there."""
        self.following = max(self.following, row.n + 1)
        self.newest = max(self.newest, row.t)
        for name, value in row.values.items():
            if isinstance(value, (list, tuple, np.ndarray)):
                self.lengths.setdefault(name, len(value))

    def _time_problems(self, t: int) -> list[str]:
        if isinstance(t, bool) or not isinstance(t, int) or not 0 <= t < 1 << 62:
            return [f"the time must be whole microseconds since 1970, got {t!r}"]
        if t < self.newest:
            return [f"time goes back by {self.newest - t} microseconds: rows come in order of time"]
        if t <= self.watermark:
            late = self.watermark + 1 - t
            return [f"the row is late by {late} microseconds: put rows when they are made"]
        return []

    def _value_problems(self, values: Mapping[str, Any], declared: Stream) -> list[str]:
        if values.keys() != declared.columns.keys():
            has, wanted = ", ".join(values) or "none", ", ".join(declared.columns)
            return [f"the columns must be {wanted}; got {has}"]
        problems = []
        for name, type_ in declared.columns.items():
            value = values[name]
            if type_.startswith("array<"):
                length = self.lengths.get(name)
                good = _is_vector(value) and length in (None, len(value))
                many = "" if length is None else f"{length} "
                wanted = f"{many}finite numbers"
            elif type_ in ("string", "boolean"):
                good, wanted = isinstance(value, str if type_ == "string" else bool), f"a {type_}"
            elif type_ in ("int", "bigint"):
                least = 31 if type_ == "int" else 63
                whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
                good, wanted = whole and -(1 << least) <= value < 1 << least, "a whole number"
            else:
                good, wanted = is_number(value), "a finite number"
            if not good:
                problems.append(f"column {name!r} must be {wanted}, got {value!r}")
        return problems

    def to_form(self) -> list[Any]:
        """All of it as lists, texts and numbers."""
        name, following, number, declared, *rest = listed(self)
        return [name, following, number, declared and listed(declared), *rest]

    @classmethod
    def from_form(cls, form: list[Any]) -> OwnStream:
        """What `to_form` wrote."""
        name, following, number, declared, *rest = form
        return cls(name, following, number, declared and Stream(*declared), *rest)

    def sections(self, rows: Sequence[Row], watermark: int) -> list[Section]:
        """The rows that can be sampled, as sections by stamp, with a watermark.

        Rows that came before the stream was declared and do not fit are left out and counted.
        """
        if self.declared is None or not rows:
            return []
        fitting = [row for row in rows if not self._value_problems(row.values, self.declared)]
        self.unfit += len(rows) - len(fitting)
        self.framed = rows[-1].n
        t = np.array([row.t for row in fitting], np.int64)
        if self.declared.tick and len(t):
            cells = t // self.declared.tick
            first = np.flatnonzero(np.diff(cells, prepend=cells[0] - 1))
            if self.cell == cells[0]:
                first = first[1:]
            self.cell = int(cells[-1])
            fitting, t = [fitting[k] for k in first], t[first]
        found = []
        for stamp in dict.fromkeys(row.stamp for row in fitting):
            mine = [k for k, row in enumerate(fitting) if row.stamp == stamp]
            n = np.array([fitting[k].n for k in mine], np.int64)
            columns = tuple(
                _column([fitting[k].values[name] for k in mine], type_)
                for name, type_ in self.declared.columns.items()
            )
            found.append(Section(self.number, stamp or 0, n, t[mine], columns, watermark))
        return found

    def uploads(self, section: Section, asked: Sequence[tuple[int, float, int]]) -> list[Section]:
        """The parts of a section that leave the device, by the bands of the shares asked for."""
        mine = [(share, until) for stream, share, until in asked if stream == self.number]
        found = []
        tick = self.declared.tick if self.declared is not None else 0
        for low, rows in bands(section.t, tick, [share for share, _ in mine]):
            until = max(until for share, until in mine if share > low)
            rows = rows[section.t[rows] <= until]
            if len(rows):
                columns = tuple(column[rows] for column in section.columns)
                n, t = section.n[rows], section.t[rows]
                found.append(
                    Section(self.number, section.stamp, n, t, columns, section.watermark, low)
                )
        return found


def due_losses(streams: Iterable[OwnStream]) -> dict[str, Any]:
    """What a device is to say of rows that it left out: unfit ones and dropped ones, so far."""
    due = [own for own in streams if own.number >= 0 and own.unfit + own.dropped > own.said]
    for own in due:
        own.said = own.unfit + own.dropped
    return {"losses": {own.number: [own.unfit, own.dropped] for own in due}} if due else {}


def row_size(values: Mapping[str, Any]) -> int:
    """About how many bytes a row has.

    Examples
    --------
    >>> row_size({"xy": [1.0, 2.0], "name": "ann"})
    37
    """
    size = 16
    for value in values.values():
        if isinstance(value, str):
            size += len(value.encode(errors="replace")) + 2
        else:
            size += 8 * len(value) if hasattr(value, "__len__") else 9
    return size


def portion(rows: list[Row], most: int) -> int:
    """How many rows share a frame: the broker takes no message of any size."""
    size = 0
    for count, row in enumerate(rows):
        size += row_size(row.values)
        if size > most and count:
            return count
    return len(rows)


def _kept(value: Any) -> Any:
    """A value as the outbox can write it; None if it cannot."""
    if isinstance(value, np.ndarray):
        return _kept(value.tolist()) if value.ndim == 1 and value.dtype.kind in "biuf" else None
    if isinstance(value, (list, tuple)):
        found = [None if isinstance(one, (str, list, tuple)) else _kept(one) for one in value]
        return None if None in found else found
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str):
        return value if value.isascii() or _is_unicode(value) else None
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else None
    return value if isinstance(value, float) else None


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _strange(name: str, value: Any) -> str:
    shown = text if len(text := repr(value)) <= _SHOWN else f"{text[:_SHOWN]}..."
    return (
        f"column {name!r} must be a text, a boolean, a number of at most 64 bits or a list of "
        f"numbers, got {shown}"
    )


def _is_vector(value: Any) -> bool:
    if not isinstance(value, (list, tuple, np.ndarray)):
        return False
    return all(is_number(one) for one in value)


def _column(values: list[Any], type_: str) -> np.ndarray:
    if type_.startswith("array<"):
        return np.array(values, COLUMN_TYPES[type_[6:-1]])
    if type_ == "string":
        found = np.empty(len(values), object)
        found[:] = values
        return found
    return np.array(values, COLUMN_TYPES[type_])
