"""The worker of a k-NN query set: holds objects until their turn, then runs the queries over them.

Objects are processed in the order of (time, id), which no batching changes: an object waits until
the watermark has passed it, for only then is it sure that none will come before it. So are queries
that begin or end. One step takes what reached this worker in one micro-batch, and then goes on to
the watermark. What is late says `flow.lateness`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.flow.blocks import Block, concat, joined, take, weigh
from anabranch.flow.container import pack, unpack
from anabranch.flow.gpu.choice import Choice
from anabranch.flow.instants import BEGINNING, FOREVER
from anabranch.flow.lateness import late_until, next_step
from anabranch.flow.load import Load
from anabranch.flow.slices import Slices
from anabranch.neighbours.call import Nearest
from anabranch.neighbours.groups import Group, algorithm_for, algorithm_of
from anabranch.neighbours.lengths import agreed, check_ops, check_width
from anabranch.neighbours.lists.algorithm import Reports
from anabranch.neighbours.lists.ordered import Ordered
from anabranch.neighbours.marking import Marking
from anabranch.neighbours.methods import Algorithm, ListWithRepair, Queries
from anabranch.neighbours.notes import NearestNotes
from anabranch.neighbours.requests import Requests, places_in
from anabranch.neighbours.tenure import Tenure
from anabranch.neighbours.tops import ended, last_words, speaking, top_rows
from anabranch.plans.plan import LEFT, RIGHT

__all__ = ["END", "NearestKernel"]

END = FOREVER - 1  # the watermark of a batch query: everything is processed
_HITS_AT_ONCE = 100_000
_HIT_BYTES_AT_ONCE = 64 << 20  # of columns that hits carry; one object may be in many
_KINDS = ("time", "count")


class NearestKernel:
    """One worker of one `nearest`.

    `step` yields Arrow batches with the columns ``query_id, object_id, object_t, entered_t,
    distance, rank`` (hits) or ``query_id, as_of, rank, object_id, object_t, distance`` (top); times
    are microseconds. `load` reports the step once it is exhausted.
    """

    late_until: int | None = None

    def __init__(
        self,
        nearest: Nearest,
        queries: Block | None,
        slices: Slices[NearestNotes],
        worker: int = 0,
        choice: Choice | None = None,
    ) -> None:
        self.nearest = nearest
        self.queries = queries
        self.slices = slices
        self.worker = worker
        self.choice = choice
        self.load = Load(worker)
        self.reached = BEGINNING
        self._groups: dict[str, Group] = {}
        self._requests = Requests(nearest.delay or 0)
        self._objects = Ordered()
        self._marking = Marking(nearest.where)
        self._tenure = Tenure(nearest.delay or 0, queries, worker)

    # One micro-batch

    def step(
        self, arrivals: Sequence[Block], now: int, last: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Take in objects and queries, and process all there is up to the watermark.

        With `last` the arrivals are all there will ever be, and everything is processed.
        """
        load = self.load = Load(self.worker)
        began = time.perf_counter()
        load.watermark = now
        self._tenure_ops(arrivals, now)
        heard = [block.meta.get("newest", BEGINNING) for block in arrivals]
        self.slices.notes.newest = max(self.slices.notes.newest, *heard, BEGINNING)
        self._take_objects([block for block in arrivals if block.meta["side"] == RIGHT], now)
        self._take_queries([block for block in arrivals if block.meta["side"] == LEFT])
        upto = max(now, self.reached)
        if last:
            # The top-k is wanted as of the last object, not when all have expired.
            upto = END if self.nearest.output == "hits" else self._objects.newest or 0
        before = self.reached
        self._apply_requests(upto)
        for group, reports in self._advance(upto):
            load.busy_seconds += time.perf_counter() - began
            if self.nearest.output == "hits":
                yield from self._hits(group, reports)
            began = time.perf_counter()
        if self.nearest.output == "top":
            tops = list(self._tops(before, upto))
            load.busy_seconds += time.perf_counter() - began
            yield from tops
            began = time.perf_counter()
        self._forget(upto)
        notes = self.slices.notes
        notes.reached = self.reached
        notes.bounds = {n: bound for n, bound in notes.bounds.items() if n in notes.tenures}
        # A plan lives on until its queries have changed hands; of the present one nothing is known.
        load.newest = dict.fromkeys(notes.tenures, 0) | notes.bounds
        load.state_rows, load.state_bytes = self.slices.rows, self.slices.nbytes
        load.busy_seconds += time.perf_counter() - began

    def due(self) -> int | None:
        """The next time at which there may be something to do without new rows."""
        found = next_step(self.nearest.by_last_step, self.reached)
        if found is not None:
            return found
        times = [self._requests.first_waiting, self._objects.first_waiting]
        group = self._groups.get("time")
        if group is not None and len(group.ids):
            if self._objects.first_past is not None:
                times.append(self._objects.first_past + int(group.algorithm.queries.window.min()))
            handovers = group.quiet[group.quiet >= self.reached]
            if len(handovers):  # what the last owner emitted is emitted anew
                times.append(int(handovers.min()) + 1)
        return min((t for t in times if t is not None), default=None)

    def _take_objects(self, blocks: Sequence[Block], watermark: int) -> None:
        load, good = self.load, []
        limit = self.late_until = late_until(self.nearest.by_last_step, self.reached, watermark)
        for block in blocks:
            load.bytes_in += block.nbytes
            load.copies_right += len(block)
            late = int((block.t <= limit).sum())
            if self.worker == 0:  # every worker has every object; one counts
                load.rejected += int(block.meta.get("rejected", 0))
                load.rows_right += len(block)
                load.late += late
            if not len(block):
                continue
            check_width(block, self._length(block))
            if late:
                block = block.take(np.flatnonzero(block.t > limit))
            if len(block):
                good.append(block)
        if good:
            fresh = concat(good).in_time_order()
            self.slices.append(0, fresh)
            self._objects.add(fresh)

    def _length(self, block: Block) -> int:
        """How long vectors are; those of `block` are the first if there were none."""
        said, notes = self.nearest.dim, self.slices.notes
        if self.queries is not None:
            said = self.queries.columns["v"].shape[1]
        notes.dim = agreed(notes.dim, said, block.columns["v"].shape[1])
        return notes.dim

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
                self._requests.add(block)

    # Queries that begin and end

    def _tenure_ops(self, arrivals: Sequence[Block], watermark: int) -> None:
        """Queries of a fixed table that this worker gets or gives away under a new plan."""
        notes = self.slices.notes
        bound = max(max(watermark, 0) + self._tenure.delay, notes.newest)
        for change in self._tenure.changes(arrivals, bound, notes.tenures):
            assert self.queries is not None
            if change.replaced is not None:
                notes.bounds[change.replaced] = change.bound
            mine = self.queries.take(change.take)
            if change.bound == BEGINNING and self.worker == 0:  # counted once, when all begin
                self.load.rejected += int(self.queries.meta.get("rejected", 0))
            since = np.maximum(mine.t, change.bound)
            quiet = np.full(len(mine), BEGINNING)
            if change.bound > BEGINNING:
                quiet = change.bound + 2 * mine.columns["window"]
            for kind, counted in zip(_KINDS, (False, True), strict=True):
                rows = np.flatnonzero(mine.columns["counted"] == counted)
                if len(rows):
                    self._add(kind, mine.take(rows), since[rows], quiet[rows])
            group = self._groups.get("time")
            if group is not None and len(change.give):
                leaving = take(self.queries.columns["id"], change.give)
                rows = np.flatnonzero(places_in(leaving, group.ids) >= 0)
                ends = change.bound + 2 * group.algorithm.queries.window[rows]
                group.algorithm.cancel(rows, ends)

    def _apply_requests(self, upto: int) -> None:
        """Begin and end queries as was asked for up to a time, though not in what is over."""
        if upto <= self.reached:
            # No instant follows, so it makes no difference yet; and a top-k emitted twice for
            # one time could not be told from the one before.
            return
        ops = self._requests.due(upto)
        if ops is None:
            return
        ids, at = ops.columns["id"], np.maximum(ops.t, self.reached)
        for group in self._groups.values():
            first = places_in(ids, group.ids)
            rows = np.flatnonzero(first >= 0)
            if len(rows):
                group.algorithm.cancel(rows, at[first[rows]])
        ends = _ends_among(places_in(ids, ids), at)
        begins = ~ops.columns["cancel"] & (ends > at)
        for kind, counted in zip(_KINDS, (False, True), strict=True):
            rows = np.flatnonzero(begins & (ops.columns["counted"] == counted))
            if len(rows):
                quiet = np.full(len(rows), BEGINNING)
                self._add(kind, ops.take(rows), at[rows], quiet, ends[rows])

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
        queries = self._marking.bound(queries, block)
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
        group.ids = joined([group.ids, block.columns["id"]])
        group.quiet = np.concatenate([group.quiet, quiet])

    def _algorithm(self, queries: Queries) -> Algorithm:
        return algorithm_for(self._kind(), queries, self.nearest.error)

    def _kind(self) -> type[Any]:
        return algorithm_of(self.nearest.method)

    # Objects in their order

    def _advance(self, upto: int) -> Iterator[tuple[Group, Reports]]:
        """Deal with every instant up to a time, group by group."""
        first = self._objects.next_number
        fresh = self._objects.due(upto)
        seq = np.arange(first, first + len(fresh))
        points = np.asarray(fresh.columns["v"], np.float64) if len(fresh) else None
        marks = self._marking.of(fresh)
        self.reached = upto
        for group in list(self._groups.values()):
            began = time.perf_counter()
            algorithm = group.algorithm
            group.use(self.choice)
            if points is None:
                points = np.empty((0, algorithm.queries.points.shape[1]))
            reports = algorithm.advance(fresh.t, seq, points, upto, marks)
            self.load.compare_seconds += time.perf_counter() - began
            self.load.comparisons += len(fresh) * len(algorithm.queries)
            yield group, reports

    def _hits(self, group: Group, reports: Reports) -> Iterator[pa.RecordBatch]:
        said = reports.distance <= self.nearest.within
        if (group.quiet > BEGINNING).any():
            said &= reports.entered_t > group.quiet[reports.query]
        rows = np.flatnonzero(said)
        self.load.pairs += len(rows)
        each = self._objects.bytes_of(self.nearest.carried)
        most = max(1, min(_HITS_AT_ONCE, int(_HIT_BYTES_AT_ONCE / max(each, 1.0))))
        for at in range(0, len(rows), most):
            part = rows[at : at + most]
            columns, times = self._objects.look(reports.seq[part], self.nearest.carried)
            yield pa.RecordBatch.from_pydict(
                {
                    "query_id": _array(take(group.ids, reports.query[part])),
                    "object_t": pa.array(times),
                    "entered_t": pa.array(reports.entered_t[part]),
                    "distance": pa.array(reports.distance[part]),
                    "rank": pa.array(reports.rank[part].astype(np.int32)),
                    **{f"object_{name}": _array(of) for name, of in columns.items()},
                }
            )

    def _tops(self, before: int, upto: int) -> Iterator[pa.RecordBatch]:
        """What is new in the table of tops; nothing of a query that another worker goes on with."""
        text, names = self.nearest.objects.id_is_text, self.nearest.carried
        for group in self._groups.values():
            rows = speaking(group, before, upto)
            if self.queries is None:
                rows = rows[group.algorithm.queries.until[rows] > upto]
            if len(rows):
                within = self.nearest.within
                batch = top_rows(group, rows, self._objects, upto, text, names, within)
                self.load.pairs += batch.num_rows
                yield batch
        gone = ended(list(self._groups.values()), before, upto) if self.queries is None else None
        if gone is not None and len(gone):
            self.load.pairs += len(gone)
            yield last_words(gone, upto, text, names)

    def _forget(self, upto: int) -> None:
        """Free queries that ended and objects that no window holds."""
        self._requests.forget(upto)
        needed, before = self._objects.next_number, sum(len(g.ids) for g in self._groups.values())
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
        if sum(len(group.ids) for group in self._groups.values()) < before:
            self._marking.forget([group.algorithm.queries for group in self._groups.values()])
        oldest = self._objects.drop_before(needed)
        # Slices stay for a while beyond the time that is given.
        floor = self.reached if oldest is None else oldest - 1
        self.slices.expire(floor + self.slices.stays[0])
        self.slices.merge_small()

    # State

    def snapshot(self) -> bytes:
        """Everything but the objects, which are in the slices."""
        groups = {f"group {kind}": group.encode() for kind, group in self._groups.items()}
        held = {"order": self._objects.encode(), "requests": self._requests.encode(), **groups}
        return pack(held | self._marking.encode(), {"reached": self.reached})

    def restore(self, data: Any) -> None:
        """Take up a snapshot, reading the objects from the slices."""
        held, meta = unpack(data)
        self.reached = meta["reached"]
        self._requests = Requests.decode(held["requests"], self.nearest.delay or 0)
        self._marking.take_up(held)
        stored = self.slices.reach(0, BEGINNING, FOREVER)
        self._objects = Ordered.decode(bytes(held["order"]), stored, self.reached)
        past = self._objects.past()
        for name, state in held.items():
            if not name.startswith("group "):
                continue
            group = Group.decode(state, self._kind())
            self._groups[name.removeprefix("group ")] = group
            if isinstance(group.algorithm, ListWithRepair) and past is not None:
                block, seq = past
                points = np.asarray(block.columns["v"], np.float64)
                group.algorithm.attach(block.t, seq, points, self._marking.of(block))

    def renew(self, fresh: NearestKernel) -> None:
        """Go on with the slices of a later micro-batch, and with the call, which may be another."""
        self.slices, self.nearest, self._tenure = fresh.slices, fresh.nearest, fresh._tenure
        self._requests.memory, self.choice = fresh._requests.memory, fresh.choice

    @property
    def nbytes(self) -> int:
        """Bytes of lists and objects in memory."""
        lists = sum(group.nbytes for group in self._groups.values())
        return lists + weigh(vars(self._objects))


def _ends_among(ids: np.ndarray, t: np.ndarray) -> np.ndarray:
    """For each op, in time order, the time of the next op on the same query."""
    ends = np.full(len(ids), FOREVER)
    order = np.lexsort((np.arange(len(ids)), ids))
    same = ids[order[1:]] == ids[order[:-1]]
    ends[order[:-1][same]] = t[order[1:][same]]
    return ends


def _array(values: Any) -> pa.Array:
    return pa.array(values) if isinstance(values, np.ndarray) else values
