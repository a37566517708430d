"""Where objects are at home under interest routing: withheld from owners until they may matter.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anabranch.errors import StateMismatch
from anabranch.flow.blocks import Block, concat
from anabranch.flow.load import Load
from anabranch.flow.slices import Window
from anabranch.neighbours.interest.horizons import Merger
from anabranch.neighbours.lengths import check_width
from anabranch.neighbours.lists.algorithm import FOREVER, Queries
from anabranch.neighbours.lists.zones import zones

__all__ = ["HomeKernel", "Owners"]


@dataclass(frozen=True, eq=False)
class Owners:
    """The queries of each owner, near ones together."""

    queries: tuple[Queries, ...]

    @classmethod
    def of(cls, table: Block, workers: int, metric: str) -> Owners:
        """The owners of a table of queries with windows of time.

        Examples
        --------
        >>> points, one = np.array([[0.0], [9.0], [1.0]]), np.ones(3, int)
        >>> table = Block.of([0, 0, 0], {"v": points, "k": one, "window": one})
        >>> [mine.points.ravel().tolist() for mine in Owners.of(table, 2, "euclidean").queries]
        [[0.0, 1.0], [9.0]]
        """
        points, k, window = (table.columns[name] for name in ("v", "k", "window"))
        owner = zones(points, workers)
        rows = [np.flatnonzero(owner == worker) for worker in range(workers)]
        return cls(
            tuple(Queries.of(points[r], k[r], window[r], table.t[r], metric=metric) for r in rows)
        )

    def __len__(self) -> int:
        return len(self.queries)


class HomeKernel:
    """One home of objects.

    `step` yields, for each owner, the copies that it gets and notes for `OwnerKernel`: when this
    home will next have something to look at, and by which watermark it has looked.
    """

    def __init__(self, owners: Owners, window: Window, home: int, fingerprint: str) -> None:
        self.owners = owners
        self.window = window
        self.home = home
        self.load = Load(home)
        self._fingerprint = fingerprint

    def step(
        self, arrivals: Sequence[Block], watermark: int, mergers: Mapping[int, Merger]
    ) -> Iterator[tuple[int, Block, dict[str, Any]]]:
        """Take in objects, and look at all that are due by the watermark.

        `mergers` are the owners' newest that this home `believes`.
        """
        load = self.load = Load(self.home)
        began = time.perf_counter()
        load.watermark = watermark
        self._check_state()
        # Without arrivals it may be a second step in one micro-batch, or only some homes' turn.
        stamp = secrets.token_hex(8) if arrivals else None
        self._remember(stamp, mergers)
        held = [*self._taken_in(arrivals, watermark), *self.window.withdraw(0, watermark)]
        copies: dict[int, Block] = {}
        if held:
            objects = concat(held)
            due = objects.t <= watermark
            self._keep(objects.take(np.flatnonzero(~due)))
            copies = self._look(objects.take(np.flatnonzero(due)), watermark, mergers)
            self.window.merge_small()
        load.state_rows, load.state_bytes = self.window.rows, self.window.nbytes
        next_look = self.due()
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
        return merger.heard.get(str(self.home)) in self.window.notes.get("stamps", ())

    def due(self) -> int | None:
        """The next time at which something is to be looked at."""
        return min((entry.first for entry in self.window.slices), default=None)

    def _remember(self, stamp: str | None, mergers: Mapping[int, Merger]) -> None:
        """Keep the stamps that mergers of use may have: the newest, and of those in use now.

        What is published in a micro-batch is there in the next one; so a stamp that is in no merger
        by then never will be.
        """
        newest = [stamp] if stamp is not None else self.window.notes.get("stamps", [])[:1]
        used = {merger.heard.get(str(self.home)) for merger in mergers.values()}
        self.window.notes["stamps"] = [*newest, *sorted(filter(None, used))]

    def _check_state(self) -> None:
        notes, mine = self.window.notes, [self._fingerprint, len(self.owners)]
        if notes.setdefault("query", mine) != mine:
            raise StateMismatch(
                "this checkpoint was begun by a nearest with other queries, another measure, "
                "output or number of workers; restart that one, or begin a new checkpoint"
            )

    def _taken_in(self, blocks: Sequence[Block], watermark: int) -> Iterator[Block]:
        """Fresh objects as they are kept here: due at their own time, for every owner."""
        load = self.load
        idle = [not len(queries) for queries in self.owners.queries]
        for block in blocks:
            load.bytes_in += block.nbytes
            load.copies_right += len(block)
            load.rows_right += len(block)
            load.rejected += int(block.meta.get("rejected", 0))
            if not len(block):
                continue
            check_width(block, self.owners.queries[0].points.shape[1])
            good = np.flatnonzero(block.t > watermark)
            load.late += len(block) - len(good)
            block = block.take(good)
            look = np.repeat(block.t[:, None], len(self.owners), axis=1)
            look[:, idle] = FOREVER
            columns = {name: block.columns[name] for name in ("id", "v")}
            yield Block.of(block.t, {**columns, "at": block.t, "look": look})

    def _look(
        self, objects: Block, watermark: int, mergers: Mapping[int, Merger]
    ) -> dict[int, Block]:
        """Send what may matter by the watermark, keep what may matter later; copies by owner."""
        load = self.load
        at, look = objects.columns["at"], objects.columns["look"].copy()
        points = np.array(objects.columns["v"], np.float64)
        copies = {}
        for owner, queries in enumerate(self.owners.queries):
            rows = np.flatnonzero(look[:, owner] <= watermark)
            if not len(rows):
                continue
            t, seen = at[rows], look[rows, owner]
            first = seen == t
            clear = np.full(len(rows), -FOREVER)
            if owner in mergers:
                clear = mergers[owner].clear_until(queries, t, seen, points[rows])
            send, gone = clear <= watermark, clear >= FOREVER
            look[rows, owner] = np.where(send | gone, FOREVER, clear)
            load.looks += len(rows)
            load.sent_at_once += int((send & first).sum())
            load.sent_later += int((send & ~first).sum())
            load.withheld += int((~send & first).sum())
            load.dropped += int(gone.sum())
            sent = objects.take(rows[send])
            columns = {name: sent.columns[name] for name in ("id", "v")}
            copies[owner] = Block.of(sent.columns["at"], columns)
        next_look = look.min(axis=1, initial=FOREVER)
        kept = np.flatnonzero(next_look < FOREVER)
        stay = objects.take(kept)
        self._keep(Block.of(next_look[kept], {**stay.columns, "look": look[kept]}))
        return copies

    def _keep(self, objects: Block) -> None:
        self.window.append(0, objects.in_time_order())


_NOTHING = Block.of([], {})
