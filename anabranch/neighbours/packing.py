"""Objects and queries on their way to workers: checked, routed and packed where they are read.

Under ``broadcast`` every worker gets every object, so a batch of objects is encoded once and the
same bytes are sent to all. Under selective routing an object goes to its home alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import InvalidCall
from anabranch.flow.blocks import Block
from anabranch.flow.intake import Admitted, whole_of
from anabranch.flow.kernel import Packed
from anabranch.flow.sides import WHOLE
from anabranch.neighbours.call import Nearest
from anabranch.neighbours.queries import read_queries, refuse_bad_queries
from anabranch.neighbours.selective.routing import Selective
from anabranch.plans.hashed import Broadcast
from anabranch.plans.plan import LEFT, RIGHT, Rows
from anabranch.plans.routing import LivePlans

__all__ = ["HomePacking", "ObjectPacking", "QueryPacking"]


@dataclass(frozen=True)
class ObjectPacking:
    """Packs objects for every worker.

    `room` is the most workers that any plan may have, where those must hear of every batch that a
    later plan gives queries to.
    """

    nearest: Nearest
    room: int = 1

    def pack(self, batch: pa.RecordBatch, live: LivePlans) -> Packed:
        """One cell for all workers of the live plans, and one without objects for others."""
        admitted = self.nearest.intake.admit(batch, RIGHT)
        block, rejected = admitted.block, admitted.rejected
        newest = int(block.t.max()) if len(block) else 0
        about: dict[str, Any] = {"side": RIGHT, "nearest": _about(live), "rejected": rejected}
        about |= {"newest": newest} if newest else {}
        cells = dict.fromkeys(range(live.workers), block.encode(**about))
        idle = range(live.workers, self.room)
        if idle:
            cells |= dict.fromkeys(idle, block.slice(0, 0).encode(**about))
        if (along := _with_whole(self.nearest, admitted)) is not block:
            cells[0] = along.encode(**about)  # the first worker counts
        return Packed(cells, newest, admitted.rejects)


@dataclass(frozen=True)
class QueryPacking:
    """Packs queries that begin or end, each for its worker."""

    nearest: Nearest
    room: int = 1

    def pack(self, batch: pa.RecordBatch, live: LivePlans) -> Packed:
        """A cell for each worker that gets queries, or must hear of the batch."""
        table = pa.Table.from_batches([batch])
        block, faults = read_queries(self.nearest, table)
        refuse_bad_queries(self.nearest, faults.problems)
        rejected = faults.count
        h = table["h"].combine_chunks().to_numpy()[block.columns["row"]]
        homes = np.asarray(live.plans[live.epoch].route(LEFT, Rows(block.t, h), (0, 0)).workers)
        workers = set(homes.tolist()) | ({0} if rejected else set())
        if self.nearest.streaming and self.nearest.by_last_step:
            workers |= set(range(max(self.room, live.workers)))
        cells = {
            worker: block.take(np.flatnonzero(homes == worker)).encode(
                side=LEFT, nearest=_about(live), rejected=0 if worker else rejected
            )
            for worker in sorted(workers)
        }
        # A query may be told of its end long before; only objects say how far time is.
        return Packed(cells, 0, faults.cell(whole_of(table), LEFT))


@dataclass(frozen=True)
class HomePacking:
    """Packs objects for their homes; a home that gets nothing is called too."""

    nearest: Nearest
    routing: Selective

    def pack(self, batch: pa.RecordBatch, live: Any) -> Packed:
        """A cell for every home."""
        admitted = self.nearest.intake.admit(batch, RIGHT)
        block, h, rejected = _with_whole(self.nearest, admitted), admitted.h, admitted.rejected
        newest = int(block.t.max()) if len(block) else 0
        homes = self.routing.homes(h)
        cells = {
            home: block.take(np.flatnonzero(homes == home)).encode(
                side=RIGHT, rejected=0 if home else rejected
            )
            for home in range(self.routing.workers)
        }
        return Packed(cells, newest, admitted.rejects)


def _with_whole(nearest: Nearest, admitted: Admitted) -> Block:
    """Objects with their rows as they came, if they may be late and that is to be kept."""
    block = admitted.block
    if admitted.whole is None or not nearest.streaming:
        return block
    return Block.of(block.t, {**block.columns, WHOLE: admitted.whole})


def _about(live: LivePlans) -> dict[str, Any]:
    """The live plans as workers need to know them."""
    about: dict[str, Any] = {}
    for number, plan in live.plans.items():
        if not isinstance(plan, Broadcast) or plan.side != "right":
            raise InvalidCall(
                "nearest",
                [f"plan {number} in the plan log is {plan}; nearest takes ab.broadcast(workers)"],
            )
        about[str(number)] = [plan.workers, plan.weights]
    return about
