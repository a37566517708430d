"""Rows of one stream that have the same time: their ids say which is the earlier one.

Where times are coarse, days for example, most pairs are of this kind. In blocks in order of
time and id, rows after a given one are found by position, so that no two are compared twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.flow.blocks import Block, joined, take
from anabranch.flow.sides import ID

__all__ = ["by_time_and_id", "first_after", "kept_earlier"]


def by_time_and_id(block: Block) -> Block:
    """The rows of a block in time order, those of one time by id; itself if they already are.

    Examples
    --------
    >>> rows = Block.of([1, 1, 2], {"id": np.array([7, 3, 1])})
    >>> by_time_and_id(rows).columns["id"].tolist()
    [3, 7, 1]
    """
    if _ordered(block):
        return block
    return block.take(np.lexsort((_codes(block.columns[ID])[0], block.t)))


def first_after(left: Block, right: Block) -> np.ndarray | None:
    """For each left row, the position of the first right row that is later, by time and id.

    None where there are no two rows of one time, or where rows of one time are in no order.

    Examples
    --------
    >>> rows = Block.of([1, 1, 2], {"id": np.array([3, 7, 1])})
    >>> first_after(rows, rows).tolist()
    [1, 2, 3]
    """
    low, high = (np.searchsorted(right.t, left.t, side) for side in ("left", "right"))
    tied = np.flatnonzero(high > low)
    if not len(tied) or not (_ordered(left) and _ordered(right)):
        return None
    # Of each run of right rows of one time, those whose id is not greater.
    starts, run = np.unique(low[tied], return_inverse=True)
    lengths = np.searchsorted(right.t, right.t[starts], "right") - starts
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    others = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    mine, theirs = _codes(take(left.columns[ID], tied), take(right.columns[ID], others))
    width = int(max(mine.max(), theirs.max())) + 1
    keys = np.repeat(np.arange(len(starts)), lengths) * width + theirs
    before = np.searchsorted(keys, run * width + mine, "right") - offsets[run]
    first = low.copy()
    first[tied] += before
    return first


def kept_earlier(left: Block, right: Block, found: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Of pairs of rows of one stream, those whose left row is the earlier one, by time and id.

    `found` are their places, and what else is known of them.

    Examples
    --------
    >>> rows = Block.of([1, 1], {"id": np.array([3, 7])})
    >>> [part.tolist() for part in kept_earlier(rows, rows, np.array([[0, 0, 1], [0, 1, 0]]))]
    [[0], [1]]
    """
    i, j = found[:2]
    later = left.t[i] < right.t[j]
    tied = np.flatnonzero(~later)  # the window lets no left row be later
    if len(tied):
        ids = take(left.columns[ID], i[tied]), take(right.columns[ID], j[tied])
        less = ids[0] < ids[1] if isinstance(ids[0], np.ndarray) else pc.less(*ids).to_numpy(False)
        later[tied[less]] = True
    return [column[later] for column in found]


def _ordered(block: Block) -> bool:
    """Whether rows of one time are by id; rows are in time order."""

    def make(of: Block) -> bool:
        same = np.flatnonzero(of.t[1:] == of.t[:-1])
        if not len(same):
            return True
        ids = of.columns[ID]
        one, two = take(ids, same), take(ids, same + 1)
        if isinstance(one, np.ndarray):
            return bool((one <= two).all())
        return bool(pc.all(pc.less_equal(one, two)).as_py())

    return block.derive("by time and id", make)


def _codes(*columns: np.ndarray | pa.Array) -> list[np.ndarray]:
    """Ids as small numbers in their order, that of bytes for texts."""
    if isinstance(columns[0], np.ndarray):
        _, codes = np.unique(np.concatenate(columns), return_inverse=True)
    else:
        whole = joined(columns)
        known = whole.unique()
        known = known.take(pc.sort_indices(known))
        codes = pc.index_in(whole, known).to_numpy(zero_copy_only=False)
    ends = np.cumsum([len(column) for column in columns])[:-1]
    return np.split(codes.astype(np.int64), ends)
