"""What is asked of the queries of a worker: what waits for its time, and what has been dealt with.

Of all that is ever asked of one query id, what is latest by (time, cancel before add) holds. So an
op that comes after a later one of the same id changes nothing: the time in which it would have held
is over. Nor does an op that has been dealt with, if it is delivered again. To know both, the latest
op of each id is remembered: of a running query as long as it runs, of a cancelled one for a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from anabranch.flow.blocks import Block, Column, concat, joined
from anabranch.flow.container import pack, unpack
from anabranch.flow.hashing import mix

__all__ = ["MEMORY", "MOST_CANCELLED", "Requests", "places_in"]

MEMORY = 3_600_000_000
"""Microseconds for which a cancellation is remembered, unless objects may be later than that."""

MOST_CANCELLED = 100_000
"""The most cancellations that a worker remembers; they are written with its state each time."""


class Requests:
    """Ops on the queries of one worker.

    Examples
    --------
    >>> def op(t, cancel):
    ...     ones = np.ones(1, np.int64)
    ...     columns = {"id": ones, "k": ones, "window": ones, "counted": ones > 1}
    ...     return Block.of([t], {**columns, "v": np.zeros((1, 2)), "cancel": ones == cancel})
    >>> requests = Requests()
    >>> requests.add(op(5, cancel=0))
    >>> requests.due(upto=4), requests.first_waiting
    (None, 5)
    >>> requests.due(upto=5).t.tolist()
    [5]
    >>> requests.add(op(5, cancel=0))  # delivered again
    >>> requests.add(op(7, cancel=1))
    >>> requests.due(upto=9).t.tolist()
    [7]
    """

    def __init__(self, delay: int = 0) -> None:
        self.memory = max(MEMORY, delay)
        self._waiting: list[Block] = []
        # The latest ops of each id; `current` is the last of those that have the same time.
        self._past: Block | None = None

    @property
    def first_waiting(self) -> int | None:
        """The time of the earliest op that waits."""
        return min((int(block.t.min()) for block in self._waiting), default=None)

    def add(self, block: Block) -> None:
        """Let ops wait for their time."""
        if len(block):
            self._waiting.append(block)

    def due(self, upto: int) -> Block | None:
        """The ops up to a time that change something, in the order in which they do."""
        first = self.first_waiting
        if first is None or first > upto:
            return None
        ops = _together(self._waiting)
        later = np.flatnonzero(ops.t > upto)
        self._waiting = [ops.take(later)] if len(later) else []
        # The sort is stable: at the same time, what came first is first.
        order = np.lexsort((~ops.columns["cancel"], ops.t))
        ops = ops.take(order[ops.t[order] <= upto])
        fresh = _marks(ops)
        marks = fresh if self._past is None else concat([self._past, fresh])
        known = len(marks) - len(fresh)
        code, count = _codes(marks.columns["id"])
        # At one time, cancel comes before add.
        key = 2 * marks.t + marks.columns["adds"]
        latest = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(latest, code[:known], key[:known])
        counts = (key >= latest[code]) & _first_of_its_kind(code, key, marks.columns["digest"])
        counts[:known] = True
        np.maximum.at(latest, code, key)
        kept = np.flatnonzero(counts & (key == latest[code]))
        self._past = _with_current(marks.take(kept), code[kept], count)
        changing = np.flatnonzero(counts[known:])
        return ops.take(changing) if len(changing) else None

    def forget(self, reached: int) -> None:
        """Free what is remembered of queries that were cancelled long ago."""
        past = self._past
        if past is None:
            return
        current, adds = past.columns["current"], past.columns["adds"]
        runs = current & adds
        kept = runs | (past.t > reached - self.memory)
        cancelled = np.flatnonzero(kept & ~runs)
        if len(cancelled) > MOST_CANCELLED:
            oldest = np.argsort(past.t[cancelled], kind="stable")[:-MOST_CANCELLED]
            kept[cancelled[oldest]] = False
        if not kept.all():
            self._past = past.take(np.flatnonzero(kept)) if kept.any() else None

    def encode(self) -> bytes:
        """Bytes that `decode` reads."""
        waiting = _together(self._waiting).encode() if self._waiting else b""
        past = b"" if self._past is None else self._past.encode()
        return pack({"waiting": waiting, "past": past})

    @classmethod
    def decode(cls, data: Any, delay: int = 0) -> Requests:
        """The requests that `encode` wrote."""
        made = cls(delay)
        parts, _ = unpack(data)
        made._waiting = [Block.decode(parts["waiting"])] if len(parts["waiting"]) else []
        made._past = Block.decode(parts["past"]) if len(parts["past"]) else None
        return made


def places_in(ids: Column, wanted: Column) -> np.ndarray:
    """For each of `wanted`, the first place in `ids` that holds it, or -1.

    Examples
    --------
    >>> places_in(np.array([7, 8, 7]), np.array([9, 7, 8])).tolist()
    [-1, 0, 1]
    """
    code, count = _codes(joined([ids, wanted]))
    first = np.full(count, -1)
    n = len(ids)
    first[code[:n][::-1]] = np.arange(n)[::-1]
    found: np.ndarray = first[code[n:]]
    return found


def _together(ops: Sequence[Block]) -> Block:
    """Ops in one block; points of blocks in which queries only end are of any width."""
    ending = [bool(block.columns["cancel"].all()) for block in ops]
    width = ops[ending.index(False) if False in ending else 0].columns["v"].shape[1]
    wide = []
    for block, ends in zip(ops, ending, strict=True):
        if ends and block.columns["v"].shape[1] != width:
            columns = {**block.columns, "v": np.zeros((len(block), width))}
            block = Block(block.t, block.epoch, block.mask, columns)
        wide.append(block)
    return concat(wide)


def _marks(ops: Block) -> Block:
    """What is remembered of ops: a digest tells two that say different things."""
    adds = ~ops.columns["cancel"]
    digest = mix(ops.columns["k"] ^ mix(ops.columns["window"] * 2 + ops.columns["counted"]))
    for column in (np.asarray(ops.columns["v"], np.float64) + 0.0).T:
        digest = mix(digest ^ np.ascontiguousarray(column).view(np.int64))
    for name in sorted(name for name in ops.columns if name.startswith("where")):
        compared = np.asarray(ops.columns[name])  # of texts an array of objects
        for part in compared.T if compared.ndim == 2 else [compared]:
            digest = mix(digest ^ pd.util.hash_array(part).view(np.int64))
    columns = {"id": ops.columns["id"], "adds": adds, "digest": np.where(adds, digest, 0)}
    return Block.of(ops.t, {**columns, "current": np.ones(len(ops), bool)})


def _codes(ids: Column) -> tuple[np.ndarray, int]:
    """Ids as small whole numbers, and how many different ones there are."""
    array = ids if isinstance(ids, pa.Array) else pa.array(ids)
    coded = array.dictionary_encode()
    return np.asarray(coded.indices, np.int64), len(coded.dictionary)


def _first_of_its_kind(*columns: np.ndarray) -> np.ndarray:
    """Whether no earlier row has the same values."""
    order = np.lexsort(columns)  # stable
    first = np.ones(len(order), bool)
    same = [column[order[1:]] == column[order[:-1]] for column in columns]
    first[order[1:]] = ~np.logical_and.reduce(same)
    return first


def _with_current(marks: Block, code: np.ndarray, count: int) -> Block:
    """The same rows, marked where they are the last of their id."""
    last = np.full(count, -1)
    last[code] = np.arange(len(code))
    current = last[code] == np.arange(len(code))
    return Block.of(marks.t, {**marks.columns, "current": current})
