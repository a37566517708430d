"""Instances out of a sample of events or of assembled rows: sizes, spans, what is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from anabranch.assembly.fitting.sample import Floats
from anabranch.assembly.fitting.times import micros
from anabranch.calls.conditions import evaluate
from anabranch.errors import InvalidCall

__all__ = ["COMPLETE", "CUT", "Columns", "Instances", "Rows", "read_instances", "resolve"]

ASSEMBLED = ("count", "first_ts", "last_ts")
"""Columns by which rows of `ab.assemble` are known."""

_WINDOW = ("seq", "opened")  # these tell the windows of one key apart
_KEYS = ("kind", "instance_ts", "started", "client")
_TIMES = ("event_ts", "ts", "time")
COMPLETE = "_anabranch_complete"
"""A column of ours that says which rows are complete."""

CUT = ("evicted", "flush")
"""Reasons of windows that were closed before their time."""


@dataclass(frozen=True)
class Instances:
    """Instances as fitting takes them.

    Attributes
    ----------
    sizes, spans, complete
        Events, seconds from first to last, and whether that is all there was.
    rate
        Instances per second, if the sample is long enough to tell.
    unsettled, rejected
        Instances and events left out.
    notes
        What to know before relying on it.
    """

    sizes: Floats
    spans: Floats
    complete: np.ndarray[Any, np.dtype[np.bool_]]
    rate: float | None = None
    unsettled: int = 0
    rejected: int = 0
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, sizes: ArrayLike, spans: ArrayLike, complete: ArrayLike | None = None) -> Instances:
        """From two lists, and a third of truth values if some were cut off."""
        count = np.asarray(sizes, dtype=np.float64)
        whole = np.ones(len(count), bool) if complete is None else np.asarray(complete, bool)
        return cls(count, np.asarray(spans, dtype=np.float64), whole)

    @property
    def count(self) -> int:
        """Number of instances."""
        return len(self.sizes)


@dataclass(frozen=True)
class Columns:
    """Which columns of a sample to read."""

    key: tuple[str, ...]
    time: str | None
    complete: str | None
    assembled: bool
    window: tuple[str, ...] = ()
    reason: bool = False

    @property
    def read(self) -> list[str]:
        """All of them, each once."""
        found = [*self.key, *((self.time,) if self.time else ())]
        found += ASSEMBLED if self.assembled else ()
        found += [*self.window, *(("reason",) if self.reason else ())]
        return list(dict.fromkeys([*found, *((self.complete,) if self.complete else ())]))


@dataclass(frozen=True)
class Rows:
    """Rows of a sample; without a key each is an instance.

    Attributes
    ----------
    key, window
        The key's columns, and those that tell windows of one key apart.
    first, last, count, whole
        First and last time in microseconds, events, and whether that is all there was.
    rejected
        Events that are in no row, since they had no key or no time.
    assembled
        Rows are those of `ab.assemble`, and an instance is complete if all of its are. Of
        events one is enough, which is an end marker.
    """

    key: list[Any]
    first: Any
    last: Any
    count: Any
    whole: Any
    window: tuple[Any, ...] = ()
    rejected: int = 0
    assembled: bool = True

    def instances(self, settle: float | None) -> Instances:
        """Group by key, and leave out what began within `settle` seconds of the end."""
        keys = {f"k{n}": _without_nan(column) for n, column in enumerate(self.key)}
        window = {f"w{n}": column for n, column in enumerate(self.window)}
        rows = pa.table(
            keys
            | window
            | {"first": self.first, "last": self.last, "count": self.count, "whole": self.whole}
        )
        good = rows.filter(_all([pc.is_valid(rows[name]) for name in (*keys, "first", "last")]))
        rejected = self.rejected + _total(rows["count"]) - _total(good["count"])
        if not good.num_rows:
            raise InvalidCall(
                "fit_windows",
                [f"the sample has no usable event ({rejected} without key or time)"],
            )
        if keys:
            # A revision counts what its window had before, so the last one says it all; windows of
            # one key are parts of one instance and add up. `seq` begins again once a key is
            # forgotten.
            if window:
                good = _grouped(good, [*keys, *window], "max", "min")
            good = _grouped(good, list(keys), "sum", "min" if self.assembled else "max")
        first, last = good["first"].to_numpy(), good["last"].to_numpy()
        sizes = good["count"].to_numpy().astype(np.float64)
        whole = good["whole"].to_numpy().astype(bool)
        if not whole.any():
            raise InvalidCall(
                "fit_windows",
                [
                    f"none of the {len(whole)} instances is complete, so there is nothing to fit: "
                    "complete= must hold of at least one event of an instance, its end marker, or "
                    "of all rows of ab.assemble, which are incomplete if they were evicted or "
                    "flushed; correct it, leave it out, or take a longer sample"
                ],
            )
        return _settled(first, last, sizes, whole, settle, rejected)


def resolve(names: Sequence[Any], key: Any, time: Any, complete: Any) -> Columns:
    """Find the columns of a sample by what was said, or by their usual names."""
    have = ", ".join(map(str, names))
    assembled = all(name in names for name in ASSEMBLED) and time is None
    keys, problems = _key(names, key, assembled)
    if time is None and not assembled:
        time = next((name for name in _TIMES if name in names), None)
        if time is None:
            problems.append(f"say which column is the event time, time=...; the sample has {have}")
    asked = [("key", column) for column in keys]
    asked += [(n, c) for n, c in (("time", time), ("complete", complete)) if c is not None]
    for name, column in asked:
        if not isinstance(column, str):
            problems.append(f"{name} must name columns by their names, strings, got {column!r}")
        elif column not in names:
            problems.append(f"{name}: no column {column!r}; the sample has {have}")
    window: tuple[str, ...] = ()
    if assembled:
        window = tuple(name for name in _WINDOW if name in names) if "seq" in names else ()
    found = Columns(tuple(keys), time, complete, assembled, window, assembled and "reason" in names)
    if not problems:
        twice = [name for name in found.read if list(names).count(name) > 1]
        problems = [f"the sample has several columns {name!r}: rename one" for name in twice]
    if problems:
        raise InvalidCall("fit_windows", problems)
    return found


def _key(names: Sequence[Any], key: Any, assembled: bool) -> tuple[list[Any], list[str]]:
    """The key's columns, and what is wrong with how they were given."""
    if key is None:
        usual = [name for name in _KEYS if name in names]
        if usual or assembled:
            return usual, []
        have = ", ".join(map(str, names))
        return [], [f"say which columns tell instances apart, key=[...]; the sample has {have}"]
    if isinstance(key, str):
        return [key], []
    if not isinstance(key, (list, tuple)) or not key:
        return [], [f"key must be a column or a list of columns, got {key!r}"]
    twice = {repr(name) for name in key if list(key).count(name) > 1}
    return list(key), [f"key names {name} twice" for name in sorted(twice)]


def read_instances(
    sample: Any, key: Any, time: Any, complete: Any, settle: float | None
) -> Instances:
    """Group a pandas DataFrame or an Arrow table by instance; see `ab.fit_windows`."""
    names = _names(sample)
    if complete is not None and not (isinstance(complete, str) and complete in names):
        sample, complete = _judged(sample, complete), COMPLETE
        names = _names(sample)
    columns = resolve(names, key, time, complete)
    return _rows(_table(sample, columns.read), columns).instances(settle)


def _judged(sample: Any, complete: Any) -> Any:
    """The sample with a column more that says which rows are complete."""
    frame = sample if _is_pandas(sample) else sample.to_pandas()
    assembled = all(name in frame.columns for name in ASSEMBLED)
    text = "'count >= 3'" if assembled else "\"status = 'done'\", true of an instance's last event"
    forms = f"a column, text such as {text}, truth values, or a function of the sample"
    known = (
        callable(complete) or isinstance(complete, (str, bool)) or hasattr(complete, "__array__")
    )
    if not known:
        raise InvalidCall("fit_windows", [f"complete must be {forms}, got {complete!r}"])
    try:
        found = complete(sample) if callable(complete) else complete
        found = evaluate(frame, found) if isinstance(found, str) else found
        truth = np.broadcast_to(np.asarray(found), len(frame))
    except InvalidCall:
        raise
    except Exception as error:
        have = ", ".join(map(str, frame.columns))
        what = repr(complete) if isinstance(complete, str) else "it"
        raise InvalidCall(
            "fit_windows",
            [f"complete must be {forms}; of a sample with {have}, {what} fails: {error}"],
        ) from None
    if truth.dtype.kind not in "biuf":
        raise InvalidCall("fit_windows", [f"complete must be {forms}, got {complete!r}"])
    return frame.assign(**{COMPLETE: truth})


def _rows(table: pa.Table, columns: Columns) -> Rows:
    """First time, last time, count and count_ratio of every row."""
    ones = pa.chunked_array([pa.array(np.ones(table.num_rows, dtype=np.int64))])
    whole = pa.chunked_array([pa.array(np.ones(table.num_rows, dtype=bool))])
    if columns.assembled:
        first, last = (micros(table[name], name) for name in ("first_ts", "last_ts"))
        if not pa.types.is_integer(table["count"].type):
            kind = table["count"].type
            raise InvalidCall("fit_windows", [f"column 'count' is {kind}; it must be an integer"])
        count = pc.cast(table["count"], pa.int64())
        if columns.reason:
            # Assembled rows are whole unless they were thrown out or cut by the end of the input.
            # Their own count_ratio is no witness: it is relative to a window's size.
            reasons = pc.cast(table["reason"], pa.string())
            whole = pc.invert(pc.is_in(reasons, value_set=pa.array(CUT)))
    else:
        assert columns.time is not None
        first = last = micros(table[columns.time], columns.time)
        count = ones
    if columns.complete is not None:
        whole = _truth(table[columns.complete], columns.complete)
    nested = [name for name in columns.key if pa.types.is_nested(table[name].type)]
    if nested:
        what = [f"key column {name!r} is {table[name].type}, which is no key" for name in nested]
        raise InvalidCall("fit_windows", what)
    window = tuple(table[name] for name in columns.window)
    keys = [table[name] for name in columns.key]
    return Rows(keys, first, last, count, whole, window, assembled=columns.assembled)


def _without_nan(column: Any) -> Any:
    """NaN is no value, wherever the sample comes from."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


def _truth(column: Any, name: str) -> Any:
    """Whether a row is known to be whole; one that does not say is not."""
    kind = column.type
    if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise InvalidCall(
            "fit_windows", [f"column {name!r} is {kind}; complete must be of truth values"]
        )
    return pc.fill_null(pc.cast(_without_nan(column), pa.bool_()), False)


def _settled(
    first: np.ndarray,
    last: np.ndarray,
    sizes: Floats,
    whole: np.ndarray,
    settle: float | None,
    rejected: int,
) -> Instances:
    """Leave out what began too close to the end; by its beginning, so that nothing is biased."""
    spans = (last - first) / 1e6
    length = float(last.max() - first.min()) / 1e6
    notes = []
    wait = float(spans.max()) if settle is None else float(settle)
    if settle is None and wait > length / 2:
        wait = length / 2
        if len(first) > 1:
            notes.append(
                f"the sample covers {length:.4g} s and its longest instance {spans.max():.4g} s: "
                "long instances may be missing; take a longer sample"
            )
    kept = first <= last.max() - wait * 1e6
    # A sample of instances that all began at the end would leave nothing.
    if not (kept & whole).any():
        kept = np.ones(len(first), bool)
    begun = float(np.ptp(first)) / 1e6
    return Instances(
        sizes[kept],
        spans[kept],
        whole[kept],
        rate=(len(first) - 1) / begun if begun > 0 else None,
        unsettled=int((~kept).sum()),
        rejected=rejected,
        notes=tuple(notes),
    )


def _names(sample: Any) -> list[Any]:
    """The names of a table's columns."""
    if isinstance(sample, (pa.Table, pa.RecordBatch)):
        return list(sample.schema.names)
    if _is_pandas(sample):
        return list(sample.columns)
    raise InvalidCall(
        "fit_windows",
        [
            "sample must be a Spark DataFrame, a pandas DataFrame or an Arrow table of "
            f"events, got {type(sample).__name__}"
        ],
    )


def _table(sample: Any, names: list[str]) -> pa.Table:
    """The columns of these names in Arrow."""
    if isinstance(sample, pa.RecordBatch):
        return pa.Table.from_batches([sample]).select(names)
    if isinstance(sample, pa.Table):
        return sample.select(names)
    try:
        return pa.Table.from_pandas(sample[names], preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:  # a column of several types
        raise InvalidCall("fit_windows", [f"sample cannot be read: {error}"]) from None


def _is_pandas(sample: Any) -> bool:
    import pandas as pd

    return isinstance(sample, pd.DataFrame)


def _grouped(rows: pa.Table, key: list[str], counts: str, whole: str) -> pa.Table:
    wanted = {"first": "min", "last": "max", "count": counts, "whole": whole}
    found = rows.group_by(key).aggregate(list(wanted.items()))
    names = {f"{name}_{how}": name for name, how in wanted.items()}
    return found.rename_columns([names.get(name, name) for name in found.column_names])


def _total(column: Any) -> int:
    return int(pc.sum(column).as_py() or 0)


def _all(conditions: list[Any]) -> Any:
    answer = conditions[0]
    for condition in conditions[1:]:
        answer = pc.and_(answer, condition)
    return answer
