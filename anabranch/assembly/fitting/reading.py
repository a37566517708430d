"""Instances out of a sample of invocations or of assembled rows: degrees, spans, what is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from anabranch.assembly.fitting.distribution import Floats
from anabranch.errors import InvalidCall

__all__ = ["ASSEMBLED", "TORN", "WINDOW", "Columns", "Instances", "read_instances", "resolve"]

ASSEMBLED = ("count", "first_ts", "last_ts")
"""Columns by which rows of `ab.assemble` are known."""

WINDOW = ("seq", "opened")
"""Columns that tell the windows of one key apart."""

TORN = "_torn"
"""Column of a sample that was grouped elsewhere: invocations that had no time."""

_KEYS = ("head", "instance_ts", "started", "client")
_TIMES = ("event_ts", "ts", "time")
_CUT = ("evicted", "flush")


@dataclass(frozen=True)
class Instances:
    """Instances as fitting takes them.

    Attributes
    ----------
    degrees, spans, complete
        Invocations, seconds from first to last, and whether that is all there was.
    rate
        Instances per second, if the sample is long enough to tell.
    unsettled, rejected
        Instances and invocations left out.
    notes
        What to know before relying on it.
    """

    degrees: Floats
    spans: Floats
    complete: np.ndarray[Any, np.dtype[np.bool_]]
    rate: float | None = None
    unsettled: int = 0
    rejected: int = 0
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, degrees: ArrayLike, spans: ArrayLike, complete: ArrayLike | None = None
    ) -> Instances:
        """From two lists, and a third of truth values if some were cut off."""
        count = np.asarray(degrees, dtype=np.float64)
        whole = np.ones(len(count), bool) if complete is None else np.asarray(complete, bool)
        return cls(count, np.asarray(spans, dtype=np.float64), whole)

    @property
    def count(self) -> int:
        """Number of instances."""
        return len(self.degrees)


@dataclass(frozen=True)
class Columns:
    """Which columns of a sample to read."""

    key: tuple[str, ...]
    time: str | None
    complete: str | None
    assembled: bool


def resolve(
    names: Sequence[str], key: str | Sequence[str] | None, time: str | None, complete: str | None
) -> Columns:
    """Find the columns of a sample by what was said, or by their usual names."""
    have = ", ".join(names)
    assembled = all(name in names for name in ASSEMBLED) and time is None
    problems = []
    if key is None:
        keys = tuple(name for name in _KEYS if name in names)
        if not keys and not assembled:
            problems.append(
                f"say which columns tell instances apart, key=[...]; the sample has {have}"
            )
    else:
        keys = (key,) if isinstance(key, str) else tuple(key)
    if time is None and not assembled:
        time = next((name for name in _TIMES if name in names), None)
        if time is None:
            problems.append(f"say which column is the event time, time=...; the sample has {have}")
    asked = [*keys, *([time] if time else []), *([complete] if complete else [])]
    problems += [
        f"no column {name!r}; the sample has {have}" for name in asked if name not in names
    ]
    if problems:
        raise InvalidCall("fit_windows", problems)
    return Columns(keys, time, complete, assembled)


def read_instances(
    sample: Any,
    key: str | Sequence[str] | None,
    time: str | None,
    complete: str | None,
    settle: float | None,
) -> Instances:
    """Group a sample by instance; see `ab.fit_windows`."""
    table = _table(sample)
    columns = resolve(table.column_names, key, time, complete)
    rows = _narrowed(table, columns)
    needed = [*columns.key, "_first", "_last"]
    good = rows.filter(_all([pc.is_valid(rows[name]) for name in needed]))
    rejected = int(pc.sum(rows["_count"]).as_py() or 0) - int(pc.sum(good["_count"]).as_py() or 0)
    if TORN in table.column_names:
        # A group without a key counts its invocations already, as far as they have a time.
        rejected += int(pc.sum(table[TORN]).as_py() or 0)
    if not good.num_rows:
        raise InvalidCall(
            "fit_windows",
            [f"the sample has no usable invocation ({rejected} without key or time)"],
        )
    if columns.key:
        # A revision counts what its window had before, so the last one says it all; windows of one
        # key are parts of one instance and add up. `seq` begins again once a key is forgotten.
        window = [name for name in ("_seq", "_opened") if name in good.column_names]
        if window:
            good = _grouped(good, [*columns.key, *window], "max")
        good = _grouped(good, list(columns.key), "sum")
    first, last = good["_first"].to_numpy(), good["_last"].to_numpy()
    degrees = good["_count"].to_numpy().astype(np.float64)
    whole = good["_whole"].to_numpy().astype(bool)
    return _settled(first, last, degrees, whole, settle, rejected)


def _settled(
    first: np.ndarray,
    last: np.ndarray,
    degrees: Floats,
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
        degrees[kept],
        spans[kept],
        whole[kept],
        rate=(len(first) - 1) / begun if begun > 0 else None,
        unsettled=int((~kept).sum()),
        rejected=rejected,
        notes=tuple(notes),
    )


def _table(sample: Any) -> pa.Table:
    if isinstance(sample, pa.RecordBatch):
        return pa.Table.from_batches([sample])
    if isinstance(sample, pa.Table):
        return sample
    if type(sample).__module__.split(".")[0] == "pandas":
        return pa.Table.from_pandas(sample, preserve_index=False)
    raise InvalidCall(
        "fit_windows",
        [
            "sample must be a Spark DataFrame, a pandas DataFrame or an Arrow table of "
            f"invocations, got {type(sample).__name__}"
        ],
    )


def _narrowed(table: pa.Table, columns: Columns) -> pa.Table:
    """Key columns, and first time, last time, count and completeness of every row."""
    if columns.assembled:
        first, last = (_micros(table[name], name) for name in ("first_ts", "last_ts"))
        count = pc.cast(table["count"], pa.int64())
        whole = _assembled_whole(table)
    else:
        assert columns.time is not None
        first = last = _micros(table[columns.time], columns.time)
        count = pa.chunked_array([pa.array(np.ones(table.num_rows, dtype=np.int64))])
        whole = pa.chunked_array([pa.array(np.ones(table.num_rows, dtype=bool))])
    if columns.complete is not None:
        whole = pc.fill_null(pc.cast(table[columns.complete], pa.bool_()), False)
    found = {name: table[name] for name in columns.key}
    if columns.assembled and "seq" in table.column_names:
        found |= {f"_{name}": table[name] for name in WINDOW if name in table.column_names}
    return pa.table(found | {"_first": first, "_last": last, "_count": count, "_whole": whole})


def _grouped(rows: pa.Table, key: list[str], counts: str) -> pa.Table:
    wanted = {"_first": "min", "_last": "max", "_count": counts, "_whole": "min"}
    found = rows.group_by(key).aggregate(list(wanted.items()))
    names = {f"{name}_{how}": name for name, how in wanted.items()}
    return found.rename_columns([names.get(name, name) for name in found.column_names])


def _assembled_whole(table: pa.Table) -> Any:
    """Assembled rows are whole unless they were thrown out or cut by the end of the input.

    Their own completeness is no witness: it is relative to a window's size.
    """
    if "reason" not in table.column_names:
        return pa.chunked_array([pa.array(np.ones(table.num_rows, dtype=bool))])
    return pc.invert(pc.is_in(table["reason"], value_set=pa.array(_CUT)))


def _micros(column: Any, name: str) -> Any:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return pc.cast(pc.cast(column, pa.timestamp("us", kind.tz), safe=False), pa.int64())
    if pa.types.is_integer(kind):
        return pc.cast(column, pa.int64())
    if pa.types.is_floating(kind):
        known = pc.if_else(pc.is_finite(column), column, pa.scalar(None, kind))
        return pc.cast(pc.round(pc.multiply(known, 1e6)), pa.int64())
    raise InvalidCall(
        "fit_windows",
        [
            f"column {name!r} is {kind}; the event time must be a timestamp, integer microseconds "
            "or seconds as float"
        ],
    )


def _all(conditions: list[Any]) -> Any:
    answer = conditions[0]
    for condition in conditions[1:]:
        answer = pc.and_(answer, condition)
    return answer
