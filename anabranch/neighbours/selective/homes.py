"""Where objects are at home under selective routing: withheld from owners until they may matter.

Every object has one home, by a hash of its id, and for each owner of queries a time to *look* at
it, at first its own. A step looks at all that is due by the watermark, before owners go on to that
watermark, and asks the owner's newest merger until when the object surely is in no top-k. If that
is after the watermark, the object stays here until then; if it is beyond its last window, the owner
never gets it; if not, a copy goes there now. So every copy is there before the first instant at
which it can matter.

Mergers outlive the state that they tell of: where a checkpoint is restored, some are left of a
future that will not be. So every micro-batch of a home with arrivals has a random *stamp*, which
owners write into what they publish in that batch. A home believes a merger only if its own state,
which is restored with the owners', remembers the stamp.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.flow.blocks import Block, concat, weigh
from anabranch.flow.instants import BEGINNING, FOREVER
from anabranch.flow.kernel import addressed
from anabranch.flow.lateness import late_until, next_step
from anabranch.flow.load import Load
from anabranch.flow.slices import Notes, Slices
from anabranch.neighbours.lengths import check_width
from anabranch.neighbours.lists.algorithm import Queries
from anabranch.neighbours.lists.zones import zones
from anabranch.neighbours.marking import Marking
from anabranch.neighbours.selective.horizons import Merger
from anabranch.neighbours.where import Condition
from anabranch.plans.plan import RIGHT

__all__ = ["HomeKernel", "HomeNotes", "Owners"]

_CELL_BYTES = 64 << 20  # of copies; those that an owner gets in one step may be many


@dataclass(frozen=True, eq=False)
class Owners:
    """The queries of each owner, near ones together, and how objects are marked for them."""

    queries: tuple[Queries, ...]
    marking: Marking

    @classmethod
    def of(cls, table: Block, workers: int, metric: str, where: Sequence[Condition] = ()) -> Owners:
        """The owners of a table of queries with windows of time.

        Examples
        --------
        >>> points, one = np.array([[0.0], [9.0], [1.0]]), np.ones(3, int)
        >>> table = Block.of([0, 0, 0], {"v": points, "k": one, "window": one})
        >>> [mine.points.ravel().tolist() for mine in Owners.of(table, 2, "euclidean").queries]
        [[0.0, 1.0], [9.0]]
        """
        points, k, window = (table.columns[name] for name in ("v", "k", "window"))
        owner, marking = zones(points, workers), Marking(where)
        queries = marking.bound(Queries.of(points, k, window, table.t, metric=metric), table)
        rows = [np.flatnonzero(owner == worker) for worker in range(workers)]
        return cls(tuple(map(queries.take, rows)), marking)

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def nbytes(self) -> int:
        """Bytes of the queries, and of the values that marks stand for."""
        return weigh(self.queries) + weigh([vars(codes) for codes in self.marking.codes.values()])


@dataclass
class HomeNotes(Notes):
    """What a home remembers beside its objects: the stamps that mergers of use may have."""

    stamps: list[str] = field(default_factory=list)


class HomeKernel:
    """One home of objects.

    `step` yields Arrow batches of cells for owners, ``worker`` (its key) and ``block``: the copies
    that it gets, and in their notes when this home will next have something to look at, and by
    which watermark it has looked. `mergers` reads the owners' newest that this home `believes`.
    """

    nbytes = 0
    late_until: int | None = None

    def __init__(
        self,
        owners: Owners,
        slices: Slices[HomeNotes],
        home: int,
        mergers: Callable[[Callable[[Merger], bool]], Mapping[int, Merger]],
        by_last_step: bool = False,
    ) -> None:
        self.owners = owners
        self.slices = slices
        self.home = home
        self.load = Load(home)
        self._mergers = mergers
        self._by_last_step = by_last_step

    def step(
        self, arrivals: Sequence[Block], now: int, last: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Take in objects, and look at all that are due by the watermark."""
        yield from addressed(
            (owner, piece.in_stored_form().encode(side=RIGHT, **notes))
            for owner, block, notes in self.copies(arrivals, now)
            for piece in block.pieces(_CELL_BYTES)
        )

    def copies(
        self, arrivals: Sequence[Block], watermark: int
    ) -> Iterator[tuple[int, Block, dict[str, Any]]]:
        """For each owner the copies that it gets, and notes for it."""
        load = self.load = Load(self.home)
        began = time.perf_counter()
        load.watermark = watermark
        mergers = self._mergers(self.believes)
        # Without arrivals it may be a second step in one micro-batch, or only some homes' turn.
        stamp = secrets.token_hex(8) if arrivals else None
        self._remember(stamp, mergers)
        held = [*self._taken_in(arrivals, watermark), *self.slices.withdraw(0, watermark)]
        copies: dict[int, Block] = {}
        if held:
            objects = concat(held)
            due = objects.t <= watermark
            self._keep(objects.take(np.flatnonzero(~due)))
            copies = self._look(objects.take(np.flatnonzero(due)), watermark, mergers)
            self.slices.merge_small()
        self.slices.notes.reached = watermark
        load.state_rows, load.state_bytes = self.slices.rows, self.slices.nbytes
        next_look = self._next_look()
        notes = {
            "home": self.home,
            "stamp": stamp,
            "looked": watermark,
            "next_look": FOREVER if next_look is None else next_look,
            "nearest": {"0": [len(self.owners), None]},
        }
        load.busy_seconds += time.perf_counter() - began
        if arrivals or copies:
            # An owner hears of every look, even if there is nothing for it: its turn depends on it.
            for owner in range(len(self.owners)):
                yield owner, copies.get(owner, _NOTHING), notes

    def believes(self, merger: Merger) -> bool:
        """Whether a merger was made in a step that this home's state comes from."""
        return merger.heard.get(str(self.home)) in self.slices.notes.stamps

    def due(self) -> int | None:
        """The next time at which something is to be looked at."""
        found = next_step(self._by_last_step, self.slices.notes.reached)
        return self._next_look() if found is None else found

    def snapshot(self) -> None:
        """There is nothing beside the slices."""

    def restore(self, data: Any) -> None:
        """There is nothing to restore."""

    def renew(self, fresh: Any) -> None:
        """Nothing is kept from one batch to the next."""

    def _next_look(self) -> int | None:
        return min((entry.first for entry in self.slices.of(0)), default=None)

    def _remember(self, stamp: str | None, mergers: Mapping[int, Merger]) -> None:
        """Keep the stamps that mergers of use may have: the newest, and of those in use now.

        What is published in a micro-batch is there in the next one; so a stamp that is in no merger
        by then never will be.
        """
        newest = [stamp] if stamp is not None else self.slices.notes.stamps[:1]
        used = {merger.heard.get(str(self.home)) for merger in mergers.values()}
        self.slices.notes.stamps = [*newest, *sorted(filter(None, used))]

    def _taken_in(self, blocks: Sequence[Block], watermark: int) -> Iterator[Block]:
        """Fresh objects as they are kept here: due at their own time, for every owner."""
        load = self.load
        limit = late_until(self._by_last_step, self.slices.notes.reached, watermark)
        self.late_until = limit
        idle = [not len(queries) for queries in self.owners.queries]
        for block in blocks:
            load.bytes_in += block.nbytes
            load.copies_right += len(block)
            load.rows_right += len(block)
            load.rejected += int(block.meta.get("rejected", 0))
            if not len(block):
                continue
            check_width(block, self.owners.queries[0].points.shape[1])
            good = np.flatnonzero(block.t > limit)
            load.late += len(block) - len(good)
            block = block.take(good)
            look = np.repeat(block.t[:, None], len(self.owners), axis=1)
            look[:, idle] = FOREVER
            yield Block.of(block.t, {**block.columns, "at": block.t, "look": look})

    def _look(
        self, objects: Block, watermark: int, mergers: Mapping[int, Merger]
    ) -> dict[int, Block]:
        """Send what may matter by the watermark, keep what may matter later; copies by owner."""
        load = self.load
        at, look = objects.columns["at"], objects.columns["look"].copy()
        points = np.array(objects.columns["v"], np.float64)
        marks = self.owners.marking.of(objects)
        copies = {}
        for owner, queries in enumerate(self.owners.queries):
            rows = np.flatnonzero(look[:, owner] <= watermark)
            if not len(rows):
                continue
            t, seen = at[rows], look[rows, owner]
            first = seen == t
            clear = np.full(len(rows), BEGINNING)
            if owner in mergers:
                clear = mergers[owner].clear_until(queries, t, seen, points[rows], marks[rows])
            send, gone = clear <= watermark, clear >= FOREVER
            look[rows, owner] = np.where(send | gone, FOREVER, clear)
            load.looks += len(rows)
            load.sent_at_once += int((send & first).sum())
            load.sent_later += int((send & ~first).sum())
            load.withheld += int((~send & first).sum())
            load.dropped += int(gone.sum())
            sent = objects.take(rows[send])
            copies[owner] = Block.of(sent.columns["at"], sent.without("at", "look").columns)
        next_look = look.min(axis=1, initial=FOREVER)
        kept = np.flatnonzero(next_look < FOREVER)
        stay = objects.take(kept)
        self._keep(Block.of(next_look[kept], {**stay.columns, "look": look[kept]}))
        return copies

    def _keep(self, objects: Block) -> None:
        self.slices.append(0, objects.in_time_order())


_NOTHING = Block.of([], {})
