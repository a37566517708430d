"""Which queries have something to say of their top-k after a step, and what.

The top-k of a query is emitted when it has changed. What was before must not stand when nobody
goes on with it: a query that ends by a cancellation has a last word, that its top-k is empty, and a
worker that takes a query over from another speaks at once, for what changed at the handover may be
known to neither of them as a change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.flow.blocks import Column, joined, take
from anabranch.flow.instants import BEGINNING
from anabranch.neighbours.groups import Group
from anabranch.neighbours.lists.ordered import Ordered
from anabranch.neighbours.methods import ListWithRepair
from anabranch.neighbours.requests import places_in

__all__ = ["ended", "last_words", "speaking", "top_rows"]


def speaking(group: Group, before: int, upto: int) -> np.ndarray:
    """Places of the queries whose top-k is to be emitted after a step from one time to another.

    An instant is its old owner's up to the handover and the new one's after it.
    """
    lists = group.algorithm
    assert isinstance(lists, ListWithRepair)
    taken_over = (group.quiet > BEGINNING) & (group.quiet >= before)
    mine = (group.quiet < upto) & (lists.queries.until >= upto)
    found: np.ndarray = np.flatnonzero((lists.changed | taken_over) & mine)
    return found


def ended(groups: Sequence[Group], before: int, upto: int) -> Column | None:
    """Ids of the queries that were cancelled in a step and did not begin anew with something to
    say; of those that began before it, for others have never spoken.
    """
    gone: Column | None = None
    spoken: Column | None = None
    for group in groups:
        queries = group.algorithm.queries
        over = queries.until <= upto
        lost = take(group.ids, np.flatnonzero(over & (queries.since < before)))
        gone = lost if gone is None else joined([gone, lost])
        assert isinstance(group.algorithm, ListWithRepair)
        heard = take(group.ids, np.flatnonzero(group.algorithm.changed & ~over))
        spoken = heard if spoken is None else joined([spoken, heard])
    if gone is None or spoken is None or not len(gone):
        return None
    return take(gone, np.flatnonzero(places_in(spoken, gone) < 0))


def top_rows(
    group: Group,
    rows: np.ndarray,
    objects: Ordered,
    upto: int,
    text: bool,
    names: Sequence[str] = ("id",),
    within: float = math.inf,
) -> pa.RecordBatch:
    """The whole top-k of some queries, no farther than `within`; rank 0 is an empty one."""
    lists = group.algorithm
    assert isinstance(lists, ListWithRepair)
    query, seq, distance, rank = lists.tops(rows)
    # Nearest come first, so where the first is too far, all are.
    far = (rank > 0) & (distance > within)
    due = ~far | (rank == 1)
    rank = np.where(far, 0, rank)[due]
    query, seq, distance = query[due], seq[due], distance[due]
    empty = rank == 0
    number = np.cumsum(~empty) - 1
    columns: dict[str, Column] = {name: pa.nulls(0, _type(name, text)) for name in names}
    times = np.empty(0, np.int64)
    if not empty.all():
        columns, times = objects.look(seq[~empty], names)
    places = pa.array(number, mask=empty)
    return pa.RecordBatch.from_pydict(
        {
            "query_id": pa.array(take(group.ids, query)),
            "as_of": pa.array(np.full(len(query), upto)),
            "rank": pa.array(rank.astype(np.int32)),
            "object_t": pa.array(times).take(places),
            "distance": pa.array(distance, mask=empty),
            **{f"object_{name}": pa.array(of).take(places) for name, of in columns.items()},
        }
    )


def last_words(
    ids: Column, upto: int, text: bool, names: Sequence[str] = ("id",)
) -> pa.RecordBatch:
    """That the top-k of some queries is empty from now on."""
    n = len(ids)
    return pa.RecordBatch.from_pydict(
        {
            "query_id": pa.array(ids),
            "as_of": pa.array(np.full(n, upto)),
            "rank": pa.array(np.zeros(n, np.int32)),
            "object_t": pa.nulls(n, pa.int64()),
            "distance": pa.nulls(n, pa.float64()),
            **{f"object_{name}": pa.nulls(n, _type(name, text)) for name in names},
        }
    )


def _type(name: str, text: bool) -> pa.DataType:
    """Of a column without values; Spark knows the types of those that are only carried."""
    if name != "id":
        return pa.null()
    return pa.string() if text else pa.int64()
