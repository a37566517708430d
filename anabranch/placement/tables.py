"""A caller's tables and values: what they hold, and what is wrong with them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from csv import Error as CsvError
from csv import reader
from numbers import Number
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

__all__ = [
    "COLUMNS",
    "FILES",
    "SHOWN",
    "SOURCES",
    "column_problems",
    "id_column",
    "id_problems",
    "is_cost",
    "is_id",
    "listed",
    "named_as_given",
    "numbers",
    "read_file",
    "read_table",
]

SHOWN = 5
FILES = (".parquet", ".csv", ".feather", ".arrow")
COLUMNS = ("view", "input", "rate")
SOURCES = ("source", "device")


def read_table(
    value: Any,
    columns: Sequence[str],
    name: str,
    problems: list[str],
    own: Mapping[str, str] | None = None,
) -> pd.DataFrame | None:
    """A table with these columns, whatever form it was given in; None if it has none.

    `own` are the names that its columns have there, as far as they have others.
    """
    if isinstance(value, (str, PurePath)):
        value = read_file(value, name, problems)
        if value is None:
            return None
    theirs = [(own or {}).get(column, column) for column in columns]
    wants = f"a table with columns {', '.join(columns)}, or name yours with columns="
    if isinstance(value, (pa.Table, pa.RecordBatch)):
        have = value.schema.names
        if all(have.count(column) == 1 for column in theirs):
            value = value.select(theirs)
        value = value.to_pandas()
    if isinstance(value, pd.DataFrame):
        lacking = [c for c in theirs if c not in value.columns]
        if lacking:
            problems.append(
                f"{name} has no column {listed(lacking)}; it has {listed(value.columns)}: pass "
                f"{wants}"
            )
            return None
        found = value[theirs]
        if len(found.columns) != len(columns):
            twice = found.columns[found.columns.duplicated()].unique()
            problems.append(f"{name} has more than one column {listed(twice)}: rename the others")
            return None
        return found.set_axis(list(columns), axis=1).reset_index(drop=True)
    if isinstance(value, Mapping):
        if len(columns) != 2:
            problems.append(f"{name} must be {wants} or a list of tuples, got a dict")
            return None
        return pd.DataFrame(
            {c: _column(list(v)) for c, v in zip(columns, (value, value.values()), strict=True)}
        )
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        rows = list(value)
        wrong = [r for r in rows if not isinstance(r, (tuple, list)) or len(r) != len(columns)]
        if wrong:
            problems.append(f"{name} holds {wrong[0]!r}, but needs ({', '.join(columns)}) tuples")
            return None
        return pd.DataFrame({c: _column([row[k] for row in rows]) for k, c in enumerate(columns)})
    problems.append(f"{name} must be {wants} or a list of tuples, got {type(value).__name__}")
    return None


def column_problems(own: Any, known: Sequence[str] = (*COLUMNS, *SOURCES)) -> list[str]:
    """What is wrong with the names of a caller's columns; `known` are ours."""
    if own is None:
        return []
    if not isinstance(own, Mapping) or not all(isinstance(v, str) for v in own.values()):
        return [f'columns must be a dict such as {{"rate": "mbit"}}, got {own!r}']
    strange = [name for name in own if name not in known]
    if strange:
        return [f"columns names unknown columns {listed(strange)}: there are {listed(known)}"]
    return []


def named_as_given(problems: Sequence[str], own: Mapping[str, str] | None) -> list[str]:
    """Problems in which a column has the caller's name for it, not ours.

    Examples
    --------
    >>> named_as_given(["rate must be a number", "no input"], {"rate": "mbit"})
    ['mbit must be a number', 'no input']
    """
    found = list(problems)
    for ours, theirs in (own or {}).items():
        starts = {f"{ours} must": f"{theirs} must", f"column {ours!r}": f"column {theirs!r}"}
        for start, given in starts.items():
            found = [
                given + text.removeprefix(start) if text.startswith(start) else text
                for text in found
            ]
    return found


def read_file(path: Any, name: str, problems: list[str]) -> pa.Table | None:
    """A table out of a file, or out of the parts in a folder, which is what Spark writes."""
    path = Path(path)
    if not path.exists():
        problems.append(f"{name}: no file {path}")
        return None
    if path.suffix not in FILES:
        problems.append(f"{name}: {path} must be one of {', '.join(FILES)}")
        return None
    parts = [path]
    if path.is_dir() and path.suffix != ".parquet":  # whose reader knows folders
        files = sorted(part for part in path.rglob("*") if part.is_file())
        parts = [part for part in files if part.name[0] not in "._" and part.stat().st_size]
        if not parts:
            problems.append(f"{name}: the folder {path} holds no data")
            return None
    try:
        tables = [_read_part(part, path.suffix) for part in parts]
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowException, OSError, UnicodeError, CsvError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if path.suffix == ".csv" and not isinstance(error, OSError):
            reason += "; save it as UTF-8"
        problems.append(f"{name}: cannot read {path} as {path.suffix[1:]}: {reason}")
        return None


def _read_part(path: Path, suffix: str) -> pa.Table:
    if suffix == ".csv":
        from pyarrow import csv

        # CSV has no types: an id is what is written, 007 or NA too, and only nothing is nothing.
        with path.open(newline="", encoding="utf-8-sig") as lines:  # Arrow skips the mark, too
            names = next(reader(lines), [])
        options = csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
        )
        return csv.read_csv(path, convert_options=options)
    if suffix == ".parquet":
        from pyarrow import parquet

        return parquet.read_table(path)
    from pyarrow import feather

    return feather.read_table(path)


def _column(values: list[Any]) -> pd.Series:
    """Values as they are: numbers as numbers, all else as objects."""
    if values and all(type(v) is int and abs(v) < 2**63 for v in values):
        return pd.Series(values, dtype="int64")
    return pd.Series(values, dtype=object)


def numbers(column: pd.Series) -> np.ndarray:
    """A column as float64, NaN for what is no number.

    Examples
    --------
    >>> numbers(pd.Series([1, "2.5", None, "x", 1j, 10**400], dtype=object)).tolist()
    [1.0, 2.5, nan, nan, nan, nan]
    """
    found: np.ndarray
    if column.dtype.kind in "mMc":  # a time or a complex number is no rate
        return np.full(len(column), np.nan)
    try:
        read = pd.to_numeric(column, errors="coerce")
        if read.dtype.kind != "c":
            found = read.to_numpy(np.float64, copy=True, na_value=np.nan)
            return found
    except (OverflowError, TypeError):
        pass  # of huge integers, or of values that are no numbers at all
    strange = [
        isinstance(v, complex)
        or (isinstance(v, int) and not is_cost(abs(v)))
        or not isinstance(v, (str, Number))
        for v in column
    ]
    return numbers(column.mask(strange))


def is_cost(value: Any) -> bool:
    """Whether a value is a finite number of at least 0."""
    number = isinstance(value, (int, float, np.integer, np.floating))
    return number and not isinstance(value, bool) and bool(0 <= value <= sys.float_info.max)


def is_id(value: Any) -> bool:
    """Whether a value can name something: None and NaN name nothing, lists are no names.

    Examples
    --------
    >>> is_id("ann"), is_id((1, 2)), is_id(None), is_id(float("nan")), is_id(([1], 2))
    (True, True, False, False, False)
    """
    try:
        hash(value)
    except TypeError:
        return False
    if value is None or value is pd.NA or value is pd.NaT:
        return False
    # Integers beyond float64 break pandas' comparisons with other numbers.
    huge = isinstance(value, int) and abs(value) > sys.float_info.max
    return not huge and not (isinstance(value, Number) and value != value)


def id_problems(table: pd.DataFrame, columns: Sequence[str], name: str) -> list[str]:
    """Which columns hold what cannot be an id. Slow: asked once something has gone wrong."""
    problems = []
    for column in columns:
        wrong = [v for v in table[column].dropna() if not is_id(v)]
        if wrong:
            problems.append(
                f"column {column!r} of {name} holds {listed(wrong)}: an id must be text, a number, "
                "or another value that can be a key of a dict"
            )
    return problems


def listed(names: Iterable[Any]) -> str:
    """The first few of many names.

    Examples
    --------
    >>> listed("abcdefgh")
    "'a', 'b', 'c', 'd', 'e' and 3 more"
    """
    every = [n.item() if isinstance(n, np.generic) else n for n in names]
    shown = ", ".join(map(_short, every[:SHOWN]))
    return shown + (f" and {len(every) - SHOWN} more" if len(every) > SHOWN else "")


def _short(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 1000:
        return f"an integer of {math.ceil(value.bit_length() * math.log10(2))} digits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def id_column(names: Sequence[Any]) -> pa.Array:
    """Ids as a column: as they are if they are of one plain type, as text otherwise."""
    kinds = {type(name) for name in names}
    if len(kinds) <= 1 and not kinds & {tuple, frozenset}:
        try:
            return pa.array(names)
        except (pa.ArrowException, OverflowError):
            pass  # of a type that Arrow does not know, or numbers beyond its integers
    return pa.array([str(name) for name in names])
