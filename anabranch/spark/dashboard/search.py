"""One saved search of `nearest`, whole: all that a micro-batch says of it, in its report."""

from __future__ import annotations

import json
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.flow.metrics import texts_of
from anabranch.spark.dashboard.sample import text_of
from anabranch.spark.frames import by_name

__all__ = ["Search", "searched", "searches_in"]

_PREFIX = "anabranch_search_"
_ROWS = 200  # of the search in a micro-batch
_BATCHES = 100  # that are remembered
_TIMES = ("ts", "entered_ts")


def searched(frame: DataFrame, asked: str, search: Any, columns: Sequence[str]) -> DataFrame:
    """The same rows; those of the search are in the progress report of each micro-batch."""
    types = {field.name: field.dataType for field in frame.schema}
    shown = F.struct(*(text_of(by_name(name), types[name]).alias(name) for name in columns))
    mine = F.when(by_name(asked) == F.lit(search), F.to_json(shown))
    name = f"{_PREFIX}{secrets.token_hex(4)}_{str(search).encode().hex()}"
    return frame.observe(name, F.slice(F.collect_list(mine), 1, _ROWS).alias("load"))


def searches_in(progress: Any) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The rows of whole searches in a progress report."""
    for name, row in (progress.observedMetrics or {}).items():
        if name.startswith(_PREFIX):
            search = bytes.fromhex(name.rpartition("_")[2]).decode()
            yield search, [json.loads(text) for text in texts_of(row)]


class Search:
    """The ranks of one search over the newest micro-batches that said something of it."""

    def __init__(self) -> None:
        self.batches: deque[tuple[int, list[dict[str, str]]]] = deque(maxlen=_BATCHES)

    def add(self, batch: int, rows: list[dict[str, str]]) -> None:
        """All rows of a micro-batch."""
        if rows:
            self.batches.appendleft((batch, sorted(rows, key=_place)))

    def form(self, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """What the page shows, newest first: all columns that have come, or these."""
        return [
            {
                "batch": batch,
                "rows": [
                    {k: text for k, text in row.items() if columns is None or k in columns}
                    for row in rows
                ],
            }
            for batch, rows in self.batches
        ]


def _place(row: dict[str, str]) -> tuple[str, int]:
    return next((row[name] for name in _TIMES if name in row), ""), int(row.get("rank") or 0)
