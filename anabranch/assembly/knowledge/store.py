"""Summaries on disk: one file per micro-batch or table, merged when read.

A batch that is run again writes the same file again, so nothing counts twice; a table has no number
and gets a file of its own. Since summaries merge in any order, no file ever has to be read to write
another.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.assembly.knowledge.summary import Summary

__all__ = ["SummaryStore", "summarise"]

Key = tuple[Any, int]  # service, beginning of the period in microseconds
_VERSION = 1


def summarise(batch: pa.RecordBatch) -> Iterator[tuple[Any, int, Summary]]:
    """Summaries by service and period of rows with a figure, a completeness and a verdict.

    Examples
    --------
    >>> rows = pa.RecordBatch.from_pydict({"service": ["a", "b", "a"], "period": [0, 0, 0],
    ...     "figure": [1.0, 5.0, 3.0], "completeness": [1.0, None, 0.5],
    ...     "verdict": ["met", "unknown", "violated"]})
    >>> [(s, p, x.count, x.mean, x.completeness, x.met) for s, p, x in summarise(rows)]
    [('a', 0, 2.0, 2.0, 0.75, 1.0), ('b', 0, 1.0, 5.0, None, 0.0)]
    """
    if not batch.num_rows:
        return
    names = batch.column("service").dictionary_encode()
    codes = names.indices.to_numpy()
    periods, verdicts = batch.column("period").to_numpy(), np.array(batch.column("verdict"))
    figures = batch.column("figure").to_numpy(zero_copy_only=False)
    shares = batch.column("completeness").to_numpy(zero_copy_only=False)
    order = np.lexsort((periods, codes))
    fresh = np.diff(codes[order], prepend=-1) != 0
    fresh |= np.diff(periods[order], prepend=periods[order[0]]) != 0
    for rows in np.split(order, np.flatnonzero(fresh)[1:]):
        known = shares[rows][~np.isnan(shares[rows])].tolist()
        found = Summary.of(figures[rows][~np.isnan(figures[rows])], known)
        for name in ("met", "violated", "unknown"):
            setattr(found, name, float((verdicts[rows] == name).sum()))
        yield names.dictionary[int(codes[rows[0]])].as_py(), int(periods[rows[0]]), found


class SummaryStore:
    """A directory of summaries.

    Examples
    --------
    >>> import tempfile
    >>> store = SummaryStore(tempfile.mkdtemp())
    >>> store.write(0, [("a", 0, Summary.of([1.0])), ("a", 0, Summary.of([3.0]))])
    >>> store.write(1, [("a", 3_600_000_000, Summary.of([8.0]))])
    >>> store.write(1, [("a", 3_600_000_000, Summary.of([8.0]))])  # run again
    >>> {period: s.count for (_, period), s in store.read().items()}
    {0: 2.0, 3600000000: 1.0}
    >>> store.of("a").mean
    4.0
    >>> store.compact(); store.of("a").count
    3.0
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def write(self, batch: int | None, parts: Iterable[tuple[Any, int, Summary]]) -> None:
        """Keep the summaries of a micro-batch, in place of what an earlier attempt wrote.

        Without a number they are a table's, which are added to what is there.
        """
        if batch is not None and batch <= self._merged_up_to():
            return
        found: dict[Key, Summary] = {}
        for service, period, part in parts:
            found[service, period] = found.get((service, period), Summary()).merge(part)
        name = f"table-{secrets.token_hex(8)}" if batch is None else f"batch-{batch:012d}"
        self._put(self.path / f"{name}.json", found)

    def read(self) -> dict[Key, Summary]:
        """All summaries, by service and period."""
        return self._read(self._files())

    def _read(self, files: Iterable[Path]) -> dict[Key, Summary]:
        found: dict[Key, Summary] = {}
        for path in files:
            for service, period, text in _form(path)["summaries"]:
                key = (service, period)
                found[key] = found.get(key, Summary()).merge(Summary.from_json(text))
        return found

    def of(self, service: Any, *, at: int | None = None, tau: float | None = None) -> Summary:
        """One summary of a service over all periods.

        With `tau` (seconds) periods fade: each counts ``exp(-age / tau)``, its age being that of
        its beginning at the time `at` (microseconds; by default the newest period's beginning).
        """
        parts = {period: s for (name, period), s in self.read().items() if name == service}
        found = Summary()
        newest = max(parts, default=0) if at is None else at
        for period, part in parts.items():
            faded = part if tau is None else part.decay((newest - period) / 1e6, tau)
            found = found.merge(faded)
        return found

    def compact(self) -> None:
        """Merge all files into one."""
        # Tables have no number that says whether they are merged already, so their names are kept;
        # also of those that a compaction cut short has left behind.
        left = set(self.path.glob("table-*.json"))
        files = self._files()
        if len(files) < 2:
            return
        tables = left.union(path for path in files if path.name.startswith("table-"))
        newest = max((_number(path) for path in files if path not in tables), default=-1)
        merged = self.path / f"merged-{newest:012d}.json"
        self._put(merged, self._read(files), tables=[path.name for path in tables])
        for path in tables.union(files) - {merged}:
            path.unlink()

    def _files(self) -> list[Path]:
        """The newest merged file and what came after it; others are leftovers of a crash."""
        limit = self._merged_up_to()
        batches = [p for p in self.path.glob("batch-*.json") if _number(p) > limit]
        merged = [p for p in self.path.glob("merged-*.json") if _number(p) == limit]
        within = {name for path in merged for name in _form(path).get("tables", ())}
        tables = [p for p in self.path.glob("table-*.json") if p.name not in within]
        return sorted([*merged, *batches, *tables])

    def _merged_up_to(self) -> int:
        return max((_number(path) for path in self.path.glob("merged-*.json")), default=-1)

    def _put(self, path: Path, found: dict[Key, Summary], tables: Sequence[str] = ()) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [[service, period, s.to_json()] for (service, period), s in found.items()]
        partial = path.with_name("." + path.name)
        form = {"version": _VERSION, "tables": list(tables), "summaries": rows}
        partial.write_text(json.dumps(form))
        partial.replace(path)


def _number(path: Path) -> int:
    return int(path.stem.split("-", 1)[1])  # -1 if only tables are merged


def _form(path: Path) -> Any:
    form = json.loads(path.read_text())
    if form["version"] != _VERSION:
        raise ValueError(f"{path} has layout {form['version']}, this version reads {_VERSION}")
    return form
