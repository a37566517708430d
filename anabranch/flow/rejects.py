"""Rejected rows as files: each once, through repeated tasks, killed drivers and restored state.

The workers that count rejected rows also write them: a bad row travels with its reason to the first
worker, a row that may be late in the copy that leads. One micro-batch of one worker is one Parquet
file, in a folder of its query::

    query=<id>/<batch>.<worker>.<call>.<run>.parquet
    query=<id>/_runs/<number>.<first batch>.<run>
    query=<id>/_committed/<run>

A repeated task writes the same rows under the same name. A run of a query, that is one start of it,
is noted before its first micro-batch can be committed. Whatever earlier runs wrote of that batch
and later ones does not count: it was never committed, or belongs to a future that was given up when
an older checkpoint was restored. What they wrote of earlier batches was committed, or the run could
not have begun there. In the newest run a batch counts once the driver has heard that it is
committed, or once a later one has begun.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.flow.blocks import Block, Column
from anabranch.flow.cache import CACHE
from anabranch.flow.folders import Folder
from anabranch.flow.kernel import Task
from anabranch.flow.sides import PRESENT, REASON, WHOLE

__all__ = [
    "Rejecting",
    "accepted",
    "as_json",
    "commit",
    "counted_files",
    "counts",
    "newest_rows",
]

LATE = "late"
_QUERY, _RUNS, _COMMITTED = "query=", "_runs", "_committed"
_SCHEMA = pa.schema(
    {
        "verb": pa.string(),
        "side": pa.string(),
        "reason": pa.string(),
        "watermark": pa.timestamp("us", "UTC"),
        "batch": pa.int64(),
        "row": pa.string(),
    }
)
# Runs that this process has seen noted, by path, query and run.
_noted: set[tuple[str, str, str]] = set()


@dataclass(frozen=True)
class Rejecting:
    """Where the rejected rows of one call go, and how they are described.

    `sides` are the names of the inputs, by their numbers; `call` tells this call from others in the
    query. `beforehand` are rows that were rejected before the query began, as a cell. `vectors`
    tells, for each input, which columns of its cells hold columns that `WHOLE` leaves out.
    """

    path: str
    verb: str
    sides: tuple[str, ...]
    call: str
    beforehand: bytes | None = None
    vectors: tuple[Mapping[str, str], ...] = ()

    def keep(
        self,
        cells: Sequence[Block],
        late_until: int | None,
        watermark: int | None,
        task: Task,
        first: bool = False,
    ) -> None:
        """Write what a step has rejected of the cells that it was given.

        Rows up to `late_until` were late. With the `first` step of the first worker comes what was
        rejected `beforehand`. In a batch, which has no query, it counts at once.
        """
        if task.query:
            _note_run(self.path, task)
        if first and task.worker == 0 and self.beforehand is not None:
            cells = [*cells, Block.decode(self.beforehand)]
        found = list(self._rejected(cells, late_until, watermark))
        if not found:
            return
        table = pa.concat_tables(
            pa.table(
                {
                    "verb": pa.repeat(self.verb, len(reasons)),
                    "side": pa.repeat(self.sides[side], len(reasons)),
                    "reason": reasons,
                    "watermark": pa.repeat(pa.scalar(mark, pa.int64()), len(reasons)).cast(
                        _SCHEMA.field("watermark").type
                    ),
                    "batch": pa.repeat(
                        pa.scalar(task.batch if task.query else None, pa.int64()), len(reasons)
                    ),
                    "row": rows,
                },
                schema=_SCHEMA,
            )
            for side, reasons, mark, rows in found
        )
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        name = f"{task.batch:08d}.{task.worker}.{self.call}.{task.run}.parquet"
        folder = f"{_QUERY}{task.query or self.call}"
        Folder(self.path).write(f"{folder}/{name}", sink.getvalue().to_pybytes())

    def _rejected(
        self, cells: Iterable[Block], late_until: int | None, watermark: int | None
    ) -> Iterator[tuple[int, pa.Array, int | None, pa.Array]]:
        """Side, reasons, the watermark that decided and the rows, of each cell with rejects."""
        for block in cells:
            whole = block.columns.get(WHOLE)
            if whole is None:
                continue
            side = int(block.meta["side"])
            if REASON in block.columns:
                yield side, block.columns[REASON], watermark, self._texts(side, block)
            elif late_until is not None and len(block) and int(block.t.min()) <= late_until:
                leads = whole.is_valid().to_numpy(zero_copy_only=False)
                late = np.flatnonzero((block.t <= late_until) & leads)
                if len(late):
                    rows = self._texts(side, block.take(late))
                    yield side, pa.repeat(LATE, len(late)), late_until, rows

    def _texts(self, side: int, block: Block) -> pa.Array:
        known = self.vectors[side] if self.vectors else {}
        vectors = {name: _as_it_came(block, column) for name, column in known.items()}
        return as_json(block.columns[WHOLE], vectors)


def _as_it_came(block: Block, name: str) -> Column:
    """A compared column with its nulls, which stored rows have something harmless for."""
    column, known = block.columns[name], block.columns.get(name + PRESENT)
    if known is None:
        return column
    there = pa.array(np.asarray(known, bool))
    return pc.if_else(there, _lists(column), pa.scalar(None))


def accepted(cells: Iterable[Block]) -> list[Block]:
    """The cells that a kernel is to see: without bad rows, and without what only a letter holds."""
    return [block.without(WHOLE) for block in cells if REASON not in block.columns]


def as_json(whole: pa.Array, vectors: Mapping[str, Column] | None = None) -> pa.Array:
    """Rows as JSON text.

    `whole` are structs of a text, which has all but arrays of numbers, and these arrays by name. So
    the bulk of a row becomes text only if it is rejected. A boolean stands for one of the
    `vectors`, which travel anyway.

    Examples
    --------
    >>> rows = [{"{}": '{"id":1}', "v": [0.5, float("nan")]}, {"{}": "{}", "v": None}]
    >>> as_json(pa.array(rows)).to_pylist()
    ['{"id":1,"v":[0.5,"NaN"]}', '{"v":null}']
    >>> rows = pa.array([{"{}": "{}", "v": None}], pa.struct({"{}": pa.string(), "v": pa.bool_()}))
    >>> as_json(rows, {"v": np.eye(1, 2)}).to_pylist()
    ['{"v":[1,0]}']
    """
    text, *carried = whole.flatten()
    for field, vector in zip(list(whole.type)[1:], carried, strict=True):
        comma = pc.if_else(pc.equal(text, "{}"), "", ",")
        name = json.dumps(field.name, ensure_ascii=False) + ":"
        if pa.types.is_boolean(field.type):
            assert vectors is not None
            vector = _lists(vectors[field.name])
        begun = pc.utf8_slice_codeunits(text, 0, -1)
        text = pc.binary_join_element_wise(begun, comma, name, _numbers(vector), "}", "")
    return text


def _lists(column: Column) -> pa.Array:
    """A column of arrays of numbers, of a type that does not depend on rows: all may be null."""
    if not isinstance(column, np.ndarray):
        return column
    rows, width = column.shape
    starts = pa.array(np.arange(rows + 1) * width, pa.int64())
    return pa.LargeListArray.from_arrays(starts, pa.array(column.ravel()))


def _numbers(vector: pa.Array) -> pa.Array:
    """Arrays of numbers as JSON; what is not finite is named as Spark names it."""
    flat = vector.flatten()
    text = flat.cast(pa.string())
    if pa.types.is_floating(flat.type):
        named = pc.replace_substring(text, "nan", '"NaN"')
        named = pc.replace_substring_regex(named, "(-?)inf", '"\\1Infinity"')
        text = pc.if_else(pc.is_finite(flat), text, named)
    lengths = pc.fill_null(vector.value_lengths(), 0).to_numpy()
    starts = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    lists = pa.ListArray.from_arrays(starts, pc.fill_null(text, "null"))
    joined = pc.binary_join_element_wise("[", pc.binary_join(lists, ","), "]", "")
    return pc.if_else(vector.is_valid(), joined, "null")


def _note_run(path: str, task: Task) -> None:
    """Note in which micro-batch a run begins, if nobody has."""
    key = path, task.query, task.run
    if key in _noted:
        return
    folder, place = Folder(path), f"{_QUERY}{task.query}/{_RUNS}"
    known = folder.names(place, "")
    # Workers that look at the same time find the same number, and write the same file.
    if not any(name.endswith(f".{task.run}") for name in known):
        number = 1 + max((int(name.partition(".")[0]) for name in known), default=-1)
        folder.write(f"{place}/{number:08d}.{task.batch:08d}.{task.run}", b"")
    _noted.add(key)


def commit(path: str, query: str, run: str, batch: int) -> None:
    """Note that a run of a query has committed a micro-batch, and so all before it."""
    Folder(path).write(f"{_QUERY}{query}/{_COMMITTED}/{run}", str(batch).encode())


def counted_files(path: str) -> list[str]:
    """The files under a path that hold rejected rows of committed micro-batches."""
    folder = Folder(path)
    found = []
    for query in folder.names("", ""):
        if query.startswith(_QUERY):
            found += _counted(folder, query)
    return found


def _counted(folder: Folder, query: str) -> list[str]:
    # Files last: those of what is known to be committed are all there by then.
    runs = [name.split(".") for name in folder.names(f"{query}/{_RUNS}", "")]
    begun = [(run, int(first)) for _, first, run in runs]
    committed = folder.read(f"{query}/{_COMMITTED}/{begun[-1][0]}") if begun else None
    files = folder.names(query, ".parquet")
    return [f"{query}/{name}" for name in counts(files, begun, int(committed or -1))]


def newest_rows(path: str, query: str, most: int) -> list[dict[str, Any]]:
    """Up to `most` rows that a query has rejected, of its newest micro-batches.

    Files never change, so each is read once.
    """
    found: list[dict[str, Any]] = []
    for name in sorted(_counted(Folder(path), f"{_QUERY}{query}"), reverse=True):
        found += _first_rows(path, name, most)
        if len(found) >= most:
            break
    return found[:most]


def _first_rows(path: str, name: str, most: int) -> list[dict[str, Any]]:
    owner = f"rejected {path}"
    read = CACHE.kept(f"{owner} {name} {most}", owner, lambda: _read(path, name, most))
    rows: list[dict[str, Any]] = read.to_pylist()
    return rows


def _read(path: str, name: str, most: int) -> pa.Table:
    content = Folder(path).read(name)
    if content is None:
        return pa.table({})
    file = pq.ParquetFile(pa.BufferReader(content))
    first = next(file.iter_batches(batch_size=most), None)
    return pa.table({}) if first is None else pa.Table.from_batches([first])


def counts(
    files: Sequence[str], begun: Sequence[tuple[str, int]], committed: int = -1
) -> list[str]:
    """The files of a query that count.

    `begun` are its runs in their order, with the micro-batch that each began with; `committed` is
    the newest batch that the newest run is known to have committed.

    Examples
    --------
    >>> files = ["00000003.0.c.a.parquet", "00000004.0.c.a.parquet", "00000004.0.c.b.parquet"]
    >>> counts(files, [("a", 0)]), counts(files, [("a", 0), ("b", 4)])
    (['00000003.0.c.a.parquet'], ['00000003.0.c.a.parquet'])
    >>> counts(files, [("a", 0), ("b", 4)], committed=4)
    ['00000003.0.c.a.parquet', '00000004.0.c.b.parquet']
    """
    written = [(name, int(name.split(".")[0]), name.split(".")[3]) for name in files]
    ends = {"": 1}  # a batch query has no runs, and writes when it is computed
    newest = begun[-1][0] if begun else None
    end = max([committed + 1, *(batch for _, batch, run in written if run == newest)])
    for run, first in reversed(begun):
        ends[run] = end
        end = first if run == newest else min(end, first)
    return [name for name, batch, run in written if batch < ends.get(run, 0)]
