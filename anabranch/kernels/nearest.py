"""The worker of a k-NN query set: holds objects until their turn, then runs the queries over them.

Objects are dealt with in the order of (time, id), which no batching changes: an object waits until
the watermark has passed it, for only then is it sure that none will come before it. So are queries
that begin or end. One step takes what reached this worker in one micro-batch, and then goes on to
the watermark.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.blocks import Block, concat, take
from anabranch.errors import StateMismatch
from anabranch.kernels.groups import Group, algorithm_of, joined, parts
from anabranch.kernels.lengths import check_ops, check_width, settled
from anabranch.kernels.load import Load
from anabranch.kernels.tenure import Tenure
from anabranch.knn import Algorithm, ListWithRepair, Probabilistic, Queries
from anabranch.knn.algorithm import FOREVER, Reports
from anabranch.knn.ordered import Ordered
from anabranch.neighbours import Nearest
from anabranch.plans import LEFT, RIGHT
from anabranch.windows import Window

__all__ = ["END", "NearestKernel"]

END = FOREVER - 1  # the watermark of a batch query: everything is dealt with
_HITS_AT_ONCE = 100_000
_KINDS = ("time", "count")
_VERSION = 1


class NearestKernel:
    """One worker of one `nearest`.

    `step` yields Arrow batches with the columns ``query_id, object_id, object_t, entered_t,
    distance, rank`` (hits) or ``query_id, as_of, rank, object_id, object_t, distance`` (top); times
    are microseconds. `load` reports the step once it is exhausted.
    """

    def __init__(
        self,
        nearest: Nearest,
        queries: Block | None,
        window: Window,
        worker: int = 0,
        fingerprint: str | None = None,
    ) -> None:
        self.nearest = nearest
        self.queries = queries
        self.window = window
        self.worker = worker
        self.load = Load(worker)
        self.reached = -FOREVER
        self._fingerprint = fingerprint or nearest.fingerprint(queries)
        self._groups: dict[str, Group] = {}
        self._ops: list[Block] = []
        self._objects = Ordered()
        self._tenure = Tenure(nearest.late or 0, queries, worker)

    # One micro-batch

    def step(
        self, arrivals: Sequence[tuple[int, Block]], watermark: int, whole: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Take in objects and queries, and deal with all there is up to the watermark.

        With `whole` the arrivals are all there will ever be, and everything is dealt with.
        """
        load = self.load = Load(self.worker)
        began = time.perf_counter()
        load.watermark = watermark
        self._check_state()
        self._tenure_ops(arrivals, watermark)
        self._take_objects([block for side, block in arrivals if side == RIGHT], watermark)
        self._take_queries([block for side, block in arrivals if side == LEFT])
        upto = max(watermark, self.reached)
        if whole:
            # The top-k is wanted as of the last object, not when all have expired.
            upto = END if self.nearest.output == "hits" else self._objects.newest or 0
        self._apply_ops(upto)
        for group, reports in self._advance(upto):
            load.busy_seconds += time.perf_counter() - began
            yield from self._told(group, reports, upto)
            began = time.perf_counter()
        self._forget(upto)
        load.state_rows, load.state_bytes = self.window.rows, self.window.nbytes
        load.busy_seconds += time.perf_counter() - began

    def due(self) -> int | None:
        """The next time at which there may be something to do without new rows."""
        times = [int(block.t.min()) for block in self._ops]
        if self._objects.first_waiting is not None:
            times.append(self._objects.first_waiting)
        group = self._groups.get("time")
        if group is not None and len(group.ids) and self._objects.first_past is not None:
            times.append(self._objects.first_past + int(group.algorithm.queries.window.min()))
        return min(times, default=None)

    def _take_objects(self, blocks: Sequence[Block], watermark: int) -> None:
        load, good = self.load, []
        for block in blocks:
            load.bytes_in += block.nbytes
            load.copies_right += len(block)
            late = int((block.t <= watermark).sum())
            if self.worker == 0:  # every worker has every object; one counts
                load.rejected += int(block.meta.get("rejected", 0))
                load.rows_right += len(block)
                load.late += late
            if not len(block):
                continue
            check_width(block, self._length(block))
            if late:
                block = block.take(np.flatnonzero(block.t > watermark))
            if len(block):
                good.append(block)
        if good:
            fresh = concat(good).in_time_order()
            self.window.append(0, fresh)
            self._objects.add(fresh)

    def _length(self, block: Block) -> int:
        """How long vectors are; those of `block` are the first if there were none."""
        told = self.nearest.dim
        if self.queries is not None:
            told = self.queries.columns["v"].shape[1]
        return settled(self.window.notes, told, block.columns["v"].shape[1])

    def _take_queries(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            self.load.copies_left += len(block)
            self.load.rows_left += len(block)
            self.load.rejected += int(block.meta.get("rejected", 0))
            if len(block):
                self.load.late += int((block.t < self.reached).sum())
                # At once: were it stored, one of a wrong length would stay in the checkpoint.
                if not block.columns["cancel"].all():
                    check_ops(block, self._length(block))
                self._ops.append(block)

    def _check_state(self) -> None:
        notes = self.window.notes
        mine = self._fingerprint
        if notes.setdefault("query", mine) != mine:
            raise StateMismatch(
                "this checkpoint was begun by a nearest with other queries, another measure, "
                "method or output; restart that one, or begin a new checkpoint"
            )

    # Queries that begin and end

    def _tenure_ops(self, arrivals: Sequence[tuple[int, Block]], watermark: int) -> None:
        """Queries of a fixed table that this worker gets or gives away under a new plan."""
        for change in self._tenure.changes(arrivals, watermark, self.window.notes):
            assert self.queries is not None
            mine = self.queries.take(change.take)
            if change.bound == -FOREVER and self.worker == 0:  # told once, when all begin
                self.load.rejected += int(self.queries.meta.get("rejected", 0))
            since = np.maximum(mine.t, change.bound)
            quiet = np.full(len(mine), -FOREVER)
            if change.bound > -FOREVER:
                quiet = change.bound + 2 * mine.columns["window"]
            for kind, counted in zip(_KINDS, (False, True), strict=True):
                rows = np.flatnonzero(mine.columns["counted"] == counted)
                if len(rows):
                    self._add(kind, mine.take(rows), since[rows], quiet[rows])
            group = self._groups.get("time")
            if group is not None and len(change.give):
                leaving = _texts(take(self.queries.columns["id"], change.give))
                rows = np.flatnonzero(np.isin(_texts(group.ids), leaving))
                ends = change.bound + 2 * group.algorithm.queries.window[rows]
                for end in np.unique(ends):
                    group.algorithm.cancel(rows[ends == end], int(end))

    def _apply_ops(self, upto: int) -> None:
        """Begin and end queries in the order of time; at one time, end before begin."""
        if not self._ops:
            return
        ops = self._together()
        now = ops.t <= upto
        later = np.flatnonzero(~now)
        self._ops = [ops.take(later)] if len(later) else []
        ops = ops.take(np.flatnonzero(now))
        order = np.lexsort((~ops.columns["cancel"], ops.t))
        ops = ops.take(order)
        ids = _texts(ops.columns["id"])
        # A query that is added again begins anew: its earlier self ends when the new one begins.
        for kind in _KINDS:
            group = self._groups.get(kind)
            if group is None:
                continue
            known = _texts(group.ids)
            for place in np.flatnonzero(np.isin(ids, known)):
                rows = np.flatnonzero(known == ids[place])
                rows = rows[group.algorithm.queries.since[rows] < ops.t[place]]
                group.algorithm.cancel(rows, max(int(ops.t[place]), self.reached))
        ends = _ends_among(ids, ops.t)
        for kind, counted in zip(_KINDS, (False, True), strict=True):
            rows = np.flatnonzero(~ops.columns["cancel"] & (ops.columns["counted"] == counted))
            if len(rows):
                quiet = np.full(len(rows), -FOREVER)
                self._add(kind, ops.take(rows), ops.t[rows], quiet, ends[rows])

    def _together(self) -> Block:
        """All ops in one block; points of blocks in which queries only end are of any width."""
        width = self.window.notes.get("dim", 1)
        wide = []
        for block in self._ops:
            if block.columns["v"].shape[1] != width:
                columns = {**block.columns, "v": np.zeros((len(block), width))}
                block = Block(block.t, block.epoch, block.mask, columns)
            wide.append(block)
        return concat(wide)

    def _add(
        self,
        kind: str,
        block: Block,
        since: np.ndarray,
        quiet: np.ndarray,
        until: np.ndarray | int = FOREVER,
    ) -> None:
        queries = Queries.of(
            block.columns["v"],
            block.columns["k"],
            block.columns["window"],
            since,
            until,
            kind == "count",
            self.nearest.measure,
        )
        group = self._groups.get(kind)
        if group is None:
            none = np.empty(0, np.int64)
            algorithm = self._algorithm(queries.take(none.astype(np.int64)))
            ids = block.columns["id"][:0]
            group = self._groups[kind] = Group(algorithm, ids, none)
            algorithm.advance(none, none, np.empty((0, queries.points.shape[1])), self.reached)
            algorithm.newest = (
                self._objects.next_number - 1 if self._objects.next_number else -FOREVER
            )
        group.algorithm.add(queries)
        group.ids = _appended(group.ids, block.columns["id"])
        group.quiet = np.concatenate([group.quiet, quiet])

    def _algorithm(self, queries: Queries) -> Algorithm:
        kind = self._kind()
        if kind is Probabilistic:
            return Probabilistic(queries, self.nearest.error)
        made: Algorithm = kind(queries)
        return made

    def _kind(self) -> type[Any]:
        return algorithm_of(self.nearest.method)

    # Objects in their order

    def _advance(self, upto: int) -> Iterator[tuple[Group, Reports]]:
        """Deal with every instant up to a time, group by group."""
        first = self._objects.next_number
        fresh = self._objects.due(upto)
        seq = np.arange(first, first + len(fresh))
        points = np.asarray(fresh.columns["v"], np.float64) if len(fresh) else None
        self.reached = upto
        for group in list(self._groups.values()):
            began = time.perf_counter()
            algorithm = group.algorithm
            if points is None:
                points = np.empty((0, algorithm.queries.points.shape[1]))
            reports = algorithm.advance(fresh.t, seq, points, upto)
            self.load.compare_seconds += time.perf_counter() - began
            self.load.comparisons += len(fresh) * len(algorithm.queries)
            yield group, reports

    def _told(self, group: Group, reports: Reports, upto: int) -> Iterator[pa.RecordBatch]:
        if self.nearest.output == "top":
            yield from self._tops(group, upto)
            return
        rows = np.arange(len(reports))
        if (group.quiet > -FOREVER).any():
            rows = np.flatnonzero(reports.entered_t > group.quiet[reports.query])
        self.load.pairs += len(rows)
        for at in range(0, len(rows), _HITS_AT_ONCE):
            part = rows[at : at + _HITS_AT_ONCE]
            ids, times = self._objects.look(reports.seq[part])
            yield pa.RecordBatch.from_pydict(
                {
                    "query_id": _array(take(group.ids, reports.query[part])),
                    "object_id": _array(ids),
                    "object_t": pa.array(times),
                    "entered_t": pa.array(reports.entered_t[part]),
                    "distance": pa.array(reports.distance[part]),
                    "rank": pa.array(reports.rank[part].astype(np.int32)),
                }
            )

    def _tops(self, group: Group, upto: int) -> Iterator[pa.RecordBatch]:
        """The top-k of every query whose top-k has changed; rank 0 stands for an empty one."""
        lists = group.algorithm
        assert isinstance(lists, ListWithRepair)
        changed = np.flatnonzero(
            lists.changed & (group.quiet < upto) & (lists.queries.until > upto)
        )
        if not len(changed):
            return
        query, seq, distance, rank = lists.tops(changed)
        empty = rank == 0
        ids, times = self._objects.look(np.where(empty, self._objects.next_number - 1, seq))
        self.load.pairs += len(query)
        yield pa.RecordBatch.from_pydict(
            {
                "query_id": _array(take(group.ids, query)),
                "as_of": pa.array(np.full(len(query), upto)),
                "rank": pa.array(rank.astype(np.int32)),
                "object_id": pc.if_else(
                    pa.array(empty), pa.nulls(len(query), _array(ids).type), _array(ids)
                ),
                "object_t": pa.array(times, mask=empty),
                "distance": pa.array(distance, mask=empty),
            }
        )

    def _forget(self, upto: int) -> None:
        """Free queries that ended and objects that no window holds."""
        needed = self._objects.next_number
        for kind, group in self._groups.items():
            queries = group.algorithm.queries
            over = queries.until <= upto
            if over.any():
                kept = np.flatnonzero(~over)
                group.algorithm.keep(kept)
                group.ids, group.quiet = take(group.ids, kept), group.quiet[kept]
                queries = group.algorithm.queries
            longest = int(queries.window.max(initial=0))
            if kind == "count":
                needed = min(needed, self._objects.next_number - longest)
            else:
                needed = min(needed, self._objects.first_after(upto - longest))
        oldest = self._objects.drop_before(needed)
        # Slices are kept for the window's own span beyond the time that is given.
        floor = self.reached if oldest is None else oldest - 1
        self.window.expire(floor + self.window.spans[0])
        self.window.merge_small()

    # State

    def snapshot(self) -> bytes:
        """Everything but the objects, which are in the window's slices."""
        groups = [joined([kind.encode(), group.encode()]) for kind, group in self._groups.items()]
        ops = self._together().encode() if self._ops else b""
        head = struct.pack("<Bq", _VERSION, self.reached)
        return joined([head, self._objects.encode(), ops, *groups])

    def restore(self, data: bytes) -> None:
        """Take up a snapshot, reading the objects from the window."""
        head, order, ops, *groups = parts(data)
        version, self.reached = struct.unpack("<Bq", head)
        if version != _VERSION:
            raise StateMismatch(
                f"the checkpoint's queries have layout {version}, this version reads {_VERSION}: "
                "restart with the version that wrote it, or begin a new checkpoint"
            )
        self._ops = [Block.decode(ops)] if ops else []
        stored = self.window.reach(0, -FOREVER, FOREVER)
        self._objects = Ordered.decode(order, stored, self.reached)
        past = self._objects.past()
        for part in groups:
            name, state = parts(part)
            group = Group.decode(state, self._kind())
            self._groups[name.decode()] = group
            if isinstance(group.algorithm, ListWithRepair) and past is not None:
                block, seq = past
                group.algorithm.attach(block.t, seq, np.asarray(block.columns["v"], np.float64))


def _ends_among(ids: np.ndarray, t: np.ndarray) -> np.ndarray:
    """For each op, in time order, the time of the next op on the same query."""
    ends = np.full(len(ids), FOREVER)
    order = np.lexsort((np.arange(len(ids)), ids))
    same = ids[order[1:]] == ids[order[:-1]]
    ends[order[:-1][same]] = t[order[1:][same]]
    return ends


def _texts(ids: Any) -> np.ndarray:
    """Ids as a numpy array, whatever they are."""
    if isinstance(ids, np.ndarray):
        return ids
    found: np.ndarray = np.asarray(ids.to_pylist(), dtype=np.str_)
    return found


def _appended(ids: Any, more: Any) -> Any:
    if isinstance(ids, np.ndarray):
        return np.concatenate([ids, more])
    return pa.concat_arrays([ids, more])


def _array(values: Any) -> pa.Array:
    return pa.array(values) if isinstance(values, np.ndarray) else values
