"""A few rows of each micro-batch, out of the progress reports: no second job, no second channel."""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType, TimestampType

from anabranch.flow.metrics import texts_of
from anabranch.spark.frames import by_name
from anabranch.spark.versions import newest_of

__all__ = ["KEPT", "Samples", "difference", "sampled", "samples_in", "sides_of", "text_of"]

KEPT = 50
"""Rows that are shown."""
_PREFIX = "anabranch_shown_"
_ROWS, _ROWS_WITH_BYTES = 20, 5  # of a micro-batch
_TEXT, _IMAGE = 400, 32 << 10  # characters, bytes
_WORDS = 300  # that are compared
_SEARCHES, _HITS = 12, 30  # of nearest that are remembered
_TIMES = ("ts", "entered_ts", "closed")
_MAGIC = {"png": "89504E47", "jpeg": "FFD8FF"}


def sampled(frame: DataFrame, name: str, label: str, columns: Sequence[str]) -> DataFrame:
    """The same rows; the newest of each micro-batch are in its progress report, as short texts."""
    types = {field.name: field.dataType for field in frame.schema}
    shown = [text_of(by_name(column), types[column]).alias(column) for column in columns]
    order = [c for c in _TIMES if c in types] + [
        c for c, kind in types.items() if isinstance(kind, TimestampType)
    ]
    by = by_name(order[0]) if order else F.lit(0)
    heavy = any(isinstance(types[column], BinaryType) for column in columns)
    rows = newest_of(F.struct(*shown), by, _ROWS_WITH_BYTES if heavy else _ROWS)
    name = f"{_PREFIX}{name}_{label.encode().hex()}"
    return frame.observe(name, F.transform(rows, lambda row: F.to_json(row)).alias("load"))


def text_of(value: Column, kind: DataType) -> Column:
    """A value as a text that is not long; a picture as the address that holds it."""
    if isinstance(kind, BinaryType):
        size = F.length(value)
        text = F.concat(size.cast("string"), F.lit(" bytes"))
        for image, magic in _MAGIC.items():
            begins = F.hex(F.substring(value, 1, len(magic) // 2)) == magic
            whole = F.concat(F.lit(f"data:image/{image};base64,"), F.base64(value))
            # base64 of Spark breaks lines, which an address must not have.
            whole = F.regexp_replace(whole, r"\s", "")
            text = F.when(begins & (size <= _IMAGE), whole).otherwise(text)
        return F.coalesce(text, F.lit("null"))
    text = value if isinstance(kind, StringType) else value.cast("string")
    return F.coalesce(F.substring(text, 1, _TEXT), F.lit("null"))


def samples_in(progress: Any) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The rows in a progress report by their label, newest first."""
    for name, row in (progress.observedMetrics or {}).items():
        if name.startswith(_PREFIX):
            label = bytes.fromhex(name.rpartition("_")[2]).decode()
            yield label, [json.loads(text) for text in texts_of(row)]


class Samples:
    """The newest rows of one label; of saved searches the newest of each."""

    def __init__(self) -> None:
        self.rows: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.searches: OrderedDict[str, deque[dict[str, str]]] = OrderedDict()

    def add(self, batch: int, rows: Iterable[dict[str, str]]) -> None:
        """Rows of a micro-batch, newest first."""
        for row in reversed(list(rows)):
            self.rows.appendleft({"batch": batch, **sides_of(row)})
            if "query_id" in row and "distance" in row:
                mine = self.searches.setdefault(row["query_id"], deque(maxlen=_HITS))
                mine.appendleft(row)
                self.searches.move_to_end(row["query_id"])
                while len(self.searches) > _SEARCHES:
                    self.searches.popitem(last=False)

    def form(self, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """What the page shows: all columns that have come, or these."""
        if columns is None:
            searches = {name: list(rows) for name, rows in self.searches.items()}
            return {"rows": list(self.rows), "searches": searches}
        rows = [
            {
                "batch": row["batch"],
                "facts": {name: text for name, text in row["facts"].items() if name in columns},
                "sides": [
                    one
                    for one in row["sides"]
                    if {f"left_{one['name']}", f"right_{one['name']}"} <= set(columns)
                ],
            }
            for row in self.rows
        ]
        searches = {
            name: [{key: text for key, text in row.items() if key in columns} for row in rows]
            for name, rows in self.searches.items()
        }
        return {"rows": rows, "searches": searches if "query_id" in columns else {}}


def sides_of(row: dict[str, str]) -> dict[str, Any]:
    """A row in facts of its own and columns that have a left and a right value.

    Examples
    --------
    >>> sides_of({"left_id": "1", "right_id": "2", "score": "0.9"})["facts"]
    {'score': '0.9'}
    """
    both = [name[5:] for name in row if name.startswith("left_") and f"right_{name[5:]}" in row]
    paired = {f"{side}_{name}" for name in both for side in ("left", "right")}
    return {
        "facts": {name: value for name, value in row.items() if name not in paired},
        "sides": [
            {"name": name, **dict(zip(("left", "right"), _marked(row, name), strict=True))}
            for name in both
        ],
    }


def _marked(row: dict[str, str], name: str) -> tuple[Any, Any]:
    left, right = row[f"left_{name}"], row[f"right_{name}"]
    image = any(value.startswith("data:image/") for value in (left, right))
    if image or not any(letter.isalpha() for letter in left):  # times and numbers always differ
        return [[left, False]], [[right, False]]
    return difference(left, right)


def difference(left: str, right: str) -> tuple[list[list[Any]], list[list[Any]]]:
    """Two texts in runs of words, each with whether the other text lacks it.

    Capitals and punctuation make no difference. Texts without a word in common are not marked.

    Examples
    --------
    >>> difference("storm hits the coast", "storm nears the coast")
    ([['storm ', False], ['hits ', True], ['the coast', False]], \
[['storm ', False], ['nears ', True], ['the coast', False]])
    """
    words = [text.split(" ") for text in (left, right)]
    if max(map(len, words)) > _WORDS:
        return [[left, False]], [[right, False]]
    for each in words:
        each[:-1] = [f"{word} " for word in each[:-1]]
    bare, other = ([word.strip(" .,:;!?").casefold() for word in each] for each in words)
    both = (set(bare) & set(other)) - {""}
    if not both:
        return [[left, False]], [[right, False]]
    one, two = (
        [
            ["".join(word for word, _ in run), lacks]
            for lacks, run in groupby(
                zip(each, names, strict=True), lambda pair: pair[1] not in {*both, ""}
            )
        ]
        for each, names in zip(words, (bare, other), strict=True)
    )
    return one, two
