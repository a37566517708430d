"""The newest late and rejected rows of a query, from where `rejects=` keeps them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from anabranch.flow.rejects import newest_rows
from anabranch.spark.listening import hearers
from anabranch.spark.rejects import Commits

__all__ = ["Rejected"]

_MOST = 5  # rows that are shown
_TEXT = 200  # characters of a column
_LOOKS = 2  # after news: the driver notes a little later that a micro-batch is committed
_HOW = "To keep such rows, with their reasons: rejects='/a/path', in a call that takes it."


class Rejected:
    """What is known of the rejected rows of a verb of a query."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._count = 0
        self._looks = 0
        self._rows: list[dict[str, Any]] = []

    def look(self, query: str, names: Sequence[str], count: int) -> None:
        """Read the newest, if there are more than before; `names` are those of its metrics."""
        if count > self._count:
            self._count, self._looks = count, _LOOKS
        if self._path is None:
            known = {name: path for of in hearers(Commits) for name, path in of.paths.items()}
            self._path = next((known[name] for name in names if name in known), None)
        if self._path is not None and self._looks:
            self._looks -= 1
            self._rows = newest_rows(self._path, query, _MOST)

    def form(self, columns: Sequence[str] | None, off: str) -> dict[str, Any]:
        """What the page is told: rows, all columns of them or these, or how to have them."""
        if not self._count:
            return {"say": "", "rows": []}
        if self._path is None:
            return {"say": _HOW, "rows": []}
        if off:
            return {"say": off, "rows": []}
        return {"say": "", "rows": [_shown(row, columns) for row in self._rows]}


def _shown(row: dict[str, Any], columns: Sequence[str] | None) -> dict[str, Any]:
    values = json.loads(row["row"])
    return {
        **{name: row[name] for name in ("batch", "side", "reason")},
        "row": {
            name: (value if isinstance(value, str) else json.dumps(value))[:_TEXT]
            for name, value in values.items()
            if columns is None or name in columns
        },
    }
