"""Summaries in files: one per micro-batch or table, merged when read.

A batch that is run again writes the same file again, so nothing counts twice; a table has no number
and gets a file of its own. Since summaries merge in any order, no file of them ever has to be read
to write another.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.assembly.service_stats.summary import Summary
from anabranch.errors import StateMismatch
from anabranch.flow.folders import Folder

__all__ = ["SummaryStore", "summarise"]

Key = tuple[Any, int]  # service, beginning of the period in microseconds
_VERSION = 2
_OWNER = "owner.json"


def summarise(batch: pa.RecordBatch) -> Iterator[tuple[Any, int, Summary]]:
    """Summaries by service and period of rows with a figure, a count_ratio and a verdict.

    Examples
    --------
    >>> rows = pa.RecordBatch.from_pydict({"service": ["a", "b", "a"], "period": [0, 0, 0],
    ...     "figure": [1.0, 5.0, 3.0], "count_ratio": [1.0, None, 0.5],
    ...     "verdict": ["met", "unknown", "violated"]})
    >>> [(s, p, x.count, x.mean, x.count_ratio, x.met) for s, p, x in summarise(rows)]
    [('a', 0, 2.0, 2.0, 0.75, 1.0), ('b', 0, 1.0, 5.0, None, 0.0)]
    """
    if not batch.num_rows:
        return
    names = batch.column("service").dictionary_encode()
    codes = names.indices.to_numpy()
    periods, verdicts = batch.column("period").to_numpy(), np.array(batch.column("verdict"))
    figures = batch.column("figure").to_numpy(zero_copy_only=False)
    shares = batch.column("count_ratio").to_numpy(zero_copy_only=False)
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
    """A folder of summaries: a local path, or any address that pyarrow opens.

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

    def __init__(self, path: str) -> None:
        self._folder = Folder(path)

    def write(
        self,
        batch: int | None,
        parts: Iterable[tuple[Any, int, Summary]],
        query: str | None = None,
    ) -> None:
        """Keep the summaries of a micro-batch, in place of what an earlier attempt wrote.

        Without a number they are a table's, which are added to what is there. Numbers are those of
        one checkpoint: what another one brings, known by its `query` or by a number that is long
        past, is refused, since it would take the place of other instances.
        """
        if batch is not None:
            self._check_owner(query)
            merged = _merged_up_to(self._names())
            if batch < merged:
                raise StateMismatch(
                    f"{self._folder.path} holds all batches up to {merged} of its stream, and "
                    f"batch {batch} comes once more: a new checkpoint counts from 0 again and "
                    "needs a folder of its own"
                )
            if batch == merged:  # run again after it was merged
                return
        found: dict[Key, Summary] = {}
        for service, period, part in parts:
            found[service, period] = found.get((service, period), Summary()).merge(part)
        name = f"table-{secrets.token_hex(8)}" if batch is None else f"batch-{batch:012d}"
        self._put(f"{name}.json", found)

    def read(self) -> dict[Key, Summary]:
        """All summaries, by service and period."""
        return self._read(self._live(self._names()))

    def of(self, service: Any, *, at: int | None = None, half_life: float | None = None) -> Summary:
        """One summary of a service over all periods.

        With `half_life` (seconds) periods fade: each counts ``0.5 ** (age / half_life)``, its age
        being that of its beginning at the time `at` (microseconds; by default the newest period's
        beginning).
        """
        parts = {period: s for (name, period), s in self.read().items() if name == service}
        found = Summary()
        newest = max(parts, default=0) if at is None else at
        for period, part in parts.items():
            faded = part if half_life is None else part.decay((newest - period) / 1e6, half_life)
            found = found.merge(faded)
        return found

    def compact(self) -> None:
        """Merge all files into one."""
        names = self._names()
        live = self._live(names)
        if len(live) < 2:
            return
        # Tables have no number that says whether they are merged already, so their names are kept;
        # also of those that a compaction cut short has left behind.
        tables = [name for name in names if name.startswith("table-")]
        merged = f"merged-{_newest(live):012d}.json"
        self._put(merged, self._read(live), tables=tables)
        for name in {*live, *tables} - {merged}:
            self._folder.delete(name)

    def _names(self) -> list[str]:
        return self._folder.names("", ".json")

    def _live(self, names: list[str]) -> list[str]:
        """The newest merged file and what came after it; others are leftovers of a crash."""
        limit = _merged_up_to(names)
        merged = [name for name in names if _number(name, "merged-") == limit]
        within = {table for name in merged for table in self._form(name)["tables"]}
        batches = [name for name in names if _newest([name]) > limit and name.startswith("batch-")]
        tables = [name for name in names if name.startswith("table-") and name not in within]
        return [*merged, *batches, *tables]

    def _read(self, names: Iterable[str]) -> dict[Key, Summary]:
        found: dict[Key, Summary] = {}
        for name in names:
            for service, period, text in self._form(name)["summaries"]:
                key = (_value(service), period)
                found[key] = found.get(key, Summary()).merge(Summary.from_json(text))
        return found

    def _form(self, name: str) -> Any:
        content = self._folder.read(name)
        form = json.loads(content) if content is not None else {"version": None}
        if form["version"] != _VERSION:
            raise StateMismatch(
                f"{self._folder.path}/{name} has layout {form['version']}, this version reads "
                f"{_VERSION}: begin a new folder"
            )
        return form

    def _put(self, name: str, found: dict[Key, Summary], tables: Sequence[str] = ()) -> None:
        rows = [[_plain(service), period, s.to_json()] for (service, period), s in found.items()]
        form = {"version": _VERSION, "tables": list(tables), "summaries": rows}
        self._folder.write(name, json.dumps(form).encode())

    def _check_owner(self, query: str | None) -> None:
        """The first stream that writes here owns the folder; nobody is asked who is unknown."""
        if query is None:
            return
        known = self._folder.read(_OWNER)
        if known is None:
            self._folder.write(_OWNER, json.dumps({"query": query}).encode())
        elif (owner := json.loads(known)["query"]) != query:
            raise StateMismatch(
                f"{self._folder.path} holds the batches of query {owner}, these are of {query}: a "
                "query with a checkpoint of its own needs a folder of its own"
            )


def _number(name: str, kind: str) -> int | None:
    """The number in a file's name, if it is of this kind; -1 if only tables are merged."""
    return int(name.removeprefix(kind).removesuffix(".json")) if name.startswith(kind) else None


def _newest(names: list[str]) -> int:
    numbers = [_number(name, kind) for name in names for kind in ("batch-", "merged-")]
    return max((number for number in numbers if number is not None), default=-1)


def _merged_up_to(names: list[str]) -> int:
    return _newest([name for name in names if name.startswith("merged-")])


# Names of services that JSON has no word for.
_FORMS: dict[str, tuple[type, Any, Any]] = {
    "timestamp": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "decimal": (Decimal, str, Decimal),
    "interval": (timedelta, lambda t: t // timedelta(microseconds=1), lambda n: timedelta(0, 0, n)),
    "binary": (bytes, lambda b: base64.b64encode(b).decode(), base64.b64decode),
}


def _plain(service: Any) -> Any:
    """A service as JSON can hold it.

    Examples
    --------
    >>> _plain("a"), _plain(Decimal("1.50")), _value(_plain(date(2024, 5, 1)))
    ('a', {'decimal': '1.50'}, datetime.date(2024, 5, 1))
    """
    for name, (kind, write, _) in _FORMS.items():
        if isinstance(service, kind):
            return {name: write(service)}
    return service


def _value(form: Any) -> Any:
    if not isinstance(form, dict):
        return form
    ((name, text),) = form.items()
    return _FORMS[name][2](text)
