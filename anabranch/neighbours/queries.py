"""Rows of queries, checked and read into blocks that say when each query begins or ends.

A fixed table of queries is the same as a stream in which all of them are added before anything
else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.calls import LONGEST, describe, microseconds
from anabranch.errors import BadRow, InvalidCall
from anabranch.flow.blocks import Block, Column
from anabranch.flow.conversion import compared_form, readable
from anabranch.flow.instants import BEGINNING
from anabranch.flow.intake import Faults, time_faults
from anabranch.flow.sides import ID, TIME, UNKNOWN
from anabranch.neighbours.call import MOST_K, MOST_ROWS, Nearest

__all__ = ["fixed_queries", "read_queries", "refuse_bad_queries"]


def fixed_queries(nearest: Nearest, table: pa.Table) -> tuple[Block, Faults]:
    """A table of queries that hold for the whole run, and what is wrong with those left out.

    In the order of ids, since a table has none of its own and a restart must find the same; how
    many were left out is in ``meta["rejected"]``.
    """
    found, faults = read_queries(nearest, table)
    problems = faults.problems
    if problems and not nearest.drop_bad_rows:
        raise InvalidCall("nearest", problems)
    ids = pa.array(found.columns["id"])
    if len(ids.unique()) < len(ids):
        counts = ids.value_counts()
        twice = readable(counts.field("values")[int(np.argmax(counts.field("counts")))])
        raise InvalidCall(
            "nearest",
            [f"{nearest.query_id} {twice!r} is there more than once: give each query its own"],
        )
    if not len(ids):
        raise InvalidCall(
            "nearest", ["there are no queries: give at least one row that is good", *problems]
        )
    block = found.take(np.asarray(pc.sort_indices(ids))).without("row")
    block.meta["rejected"] = faults.count
    return block, faults


def read_queries(nearest: Nearest, table: pa.Table) -> tuple[Block, Faults]:
    """Rows of queries as a block, and what is wrong with the others.

    The table holds ``id, v, t`` (when it begins or ends, or null) and, as far as the queries have
    them, ``k, span`` (a duration) or ``text`` (of the window), ``rows`` and ``op``. In the block,
    `t` is the time after which objects count or, where `cancel` is set, up to which; `row` is the
    place in the table.
    """
    n = table.num_rows
    ids, times = (table[name].combine_chunks() for name in (ID, TIME))
    faults = Faults("query", ids, drop=True)
    cancel = np.zeros(n, bool)
    faults.where(ids.is_null(), f"{nearest.query_id!r} is null")
    if nearest.has_ops:
        ops = table["op"].combine_chunks()
        cancel = np.asarray(pc.equal(ops, "cancel").fill_null(False))
        known = pc.is_in(ops, value_set=pa.array(["add", "cancel"], ops.type))
        faults.where(pc.invert(known), "op is neither 'add' nor 'cancel'")
        faults.where(times.is_null(), "its time is null")
    # Ops may be as old as they like: one before all objects holds from the beginning.
    for rows, reason in time_faults(times, streaming=False):
        faults.where(rows, reason)
    t = _numbers(table, TIME, BEGINNING, n)
    k = _numbers(table, "k", nearest.k, n)
    counts = _lengths(table, "rows", n)
    adds = ~cancel
    spans = _spans(table, faults, adds)
    silent = (spans == 0) & (counts == 0)
    spans[silent], counts[silent] = nearest.window, nearest.rows
    faults.where(adds & (k < 1), "k must be at least 1")
    faults.where(adds & (k > MOST_K), f"k must be at most {MOST_K:,}, for so many are kept for it")
    faults.where(adds & (spans < 0), "its window is not positive")
    faults.where(adds & (spans > LONGEST), f"its window is longer than {describe(LONGEST)}")
    faults.where(adds & (counts > MOST_ROWS), f"rows must be at most {MOST_ROWS:,}")
    faults.where(adds & (counts < 0), "rows must be at least 1")
    faults.where(adds & (spans == 0) & (counts == 0), "it has neither window nor rows")
    faults.where(adds & (spans > 0) & (counts > 0), "it has both window and rows")
    if nearest.method == "filtered":
        short = np.maximum(spans, counts) == 1
        faults.where(adds & short, "method='filtered' needs a window of at least 2 us or 2 rows")
    fair = np.zeros(n, bool)
    fair[faults.good] = True
    points, wrong = _points(table["v"], nearest, adds & fair)
    for mask, reason in wrong:
        faults.where(mask, f"{nearest.query_point!r} {reason}")
    where = _where(table, nearest)
    good = faults.good
    columns = {
        "id": ids if nearest.query_id_is_text else _numbers(table, ID, 0, n),
        "v": points,
        "k": np.maximum(k, 1),
        "window": np.where(counts > 0, counts, spans),
        "counted": counts > 0,
        "cancel": cancel,
        "row": np.arange(n),
        **where,
    }
    return Block.of(t, columns).take(good), faults


def _where(table: pa.Table, nearest: Nearest) -> dict[str, Column]:
    """What the condition compares of each query."""
    found: dict[str, Any] = {}
    for slot in (slot for test in nearest.where for slot in test.travelling(test.queries)):
        column = table[slot.name].combine_chunks()
        if slot.kind == "text":
            column = column.cast(pa.string())  # offsets of those that the driver reads may be wide
        found[slot.name] = compared_form(slot, column)
        if slot.kind == "int" and slot.name.endswith("_low"):
            # The least of all numbers is a bound that is open, and not one that is missing.
            known = np.asarray(column.is_valid())
            found[slot.name] = np.where(known, np.maximum(found[slot.name], UNKNOWN + 1), UNKNOWN)
    return found


def _numbers(table: pa.Table, name: str, otherwise: int, n: int) -> np.ndarray:
    if name not in table.column_names:
        return np.full(n, otherwise, np.int64)
    column = table[name].combine_chunks()
    if pa.types.is_duration(column.type):
        column = column.cast(pa.duration("us"))
    column = column.cast(pa.int64()).fill_null(otherwise)
    return np.array(column.to_numpy(zero_copy_only=False), np.int64)


def _lengths(table: pa.Table, name: str, n: int) -> np.ndarray:
    """Windows in time or rows; 0 where a query has none, -1 where it says zero, which is wrong."""
    lengths = _numbers(table, name, 0, n)
    if name in table.column_names:
        lengths[(lengths == 0) & np.asarray(table[name].combine_chunks().is_valid())] = -1
    return lengths


def _spans(table: pa.Table, faults: Faults, adds: np.ndarray) -> np.ndarray:
    """Windows in microseconds; 0 where a query has none, -1 where it is not positive."""
    if "text" not in table.column_names:
        return _lengths(table, "span", len(adds))
    coded = table["text"].combine_chunks().dictionary_encode()
    lengths = []
    for text in coded.dictionary:
        try:
            length = microseconds(readable(text))
            # Longer ones need not fit into 64 bits.
            lengths.append(min(length, LONGEST + 1) if length > 0 else -1)
        except ValueError as error:
            lengths.append(-1)
            rows = np.asarray(coded.indices.fill_null(-1)) == len(lengths) - 1
            faults.where(adds & rows, f"window: {error}")
    places = np.asarray(coded.indices.fill_null(-1))
    found: np.ndarray = np.array([*lengths, 0], np.int64)[places]
    return found


def _points(
    column: pa.ChunkedArray, nearest: Nearest, wanted: np.ndarray
) -> tuple[np.ndarray, list[tuple[np.ndarray, str]]]:
    """The query points as a matrix (zeros where none is wanted), and which are wrong."""
    n = len(wanted)
    wrong: list[tuple[np.ndarray, str]] = []
    lengths = np.asarray(column.combine_chunks().value_lengths().fill_null(-1))
    wrong.append((wanted & (lengths < 0), "is null"))
    wrong.append((wanted & (lengths == 0), "is empty"))
    given = wanted & (lengths > 0)
    # Without dim= no length is right by itself; the one that most queries have is taken for it.
    dim = nearest.dim or (int(np.bincount(lengths[given]).argmax()) if given.any() else 1)
    expected = f"{dim} are expected" if nearest.dim else f"other queries have {dim}"
    for length in np.unique(lengths[given & (lengths != dim)]):
        wrong.append((given & (lengths == length), f"has {length} elements where {expected}"))
    fitting = np.flatnonzero(given & (lengths == dim))
    points = np.zeros((n, dim))
    if len(fitting):
        flat = column.combine_chunks().take(pa.array(fitting)).flatten().cast(pa.float64())
        points[fitting] = flat.to_numpy(zero_copy_only=False).reshape(-1, dim)
    odd = np.logical_not(np.isfinite(points).all(axis=1))
    wrong.append((odd, "holds null, NaN or infinity"))
    points[odd] = 0
    with np.errstate(over="ignore"):
        norms = np.einsum("ij,ij->i", points, points)
    great = ~np.isfinite(norms)
    wrong.append((great, "is too large: its squared norm overflows"))
    points[great] = 0
    if nearest.measure == "cosine":
        nowhere = np.zeros(n, bool)
        nowhere[fitting] = ~points[fitting].any(axis=1) & ~(odd | great)[fitting]
        wrong.append((nowhere, "is a zero vector, which has no direction"))
    return points, wrong


def refuse_bad_queries(nearest: Nearest, problems: list[str]) -> None:
    """Stop at queries that cannot run, unless they may be dropped."""
    if problems and not nearest.drop_bad_rows:
        raise BadRow(
            f"{problems[0]}; repair the queries, or pass bad_rows='drop' to leave such rows out "
            "(a stream counts them)"
        )
