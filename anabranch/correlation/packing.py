"""From a batch of input rows to one packed block per worker: check, route, branch, encode.

Worker 0 gets a block of every batch, be it empty: it hears of every plan and of the newest time, so
that a plan that does not belong to the stored rows is noticed even if it sends all rows to workers
that have stored none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.correlation.call import Correlation
from anabranch.flow.blocks import Block
from anabranch.flow.intake import Intake
from anabranch.flow.kernel import Packed
from anabranch.flow.lateness import hearing
from anabranch.flow.sides import HASH, LEAD
from anabranch.plans.plan import Rows
from anabranch.plans.routing import LivePlans, branch, route, route_both

__all__ = ["NOTHING", "SidePacking", "bound", "branched", "routed_by"]


@dataclass(frozen=True)
class SidePacking:
    """Packs the rows of one side; `room` is the most workers that any plan may have."""

    correlation: Correlation
    side: int
    streaming: bool = False
    room: int = 1

    def pack(self, batch: pa.RecordBatch, live: LivePlans) -> Packed:
        """The cells that the rows of one Arrow batch make under the live plans."""
        call, side = self.correlation, self.side
        live = bound(call, live)
        intake = Intake(call.sides[side], call.drop_bad_rows, self.streaming, call.one_stream)
        admitted = intake.admit(batch, side)
        block, h, key = admitted.block, admitted.h, admitted.key
        if call.unmatched:  # the hash is also that of a row's home
            block = Block(block.t, block.epoch, block.mask, {**block.columns, HASH: h}, block.meta)
        # Nothing is late in a table.
        whole = admitted.whole if self.streaming else None
        parts = branched(call, side, block, Rows(block.t, h, key), live, whole)
        by_last_step = self.streaming and call.by_last_step
        hearers = hearing(by_last_step, max(self.room, live.workers))
        for worker in hearers:
            parts.setdefault(worker, NOTHING)
        newest = int(block.t.max()) if len(block) else None
        meta = routed_by(live, side=side, newest=newest, bytes=block.meta["bytes"])
        if by_last_step:
            meta |= {"workers": live.workers, "heard": len(hearers)}
        nothing = NOTHING.encode(**meta, rejected=0) if by_last_step else b""
        cells = {
            worker: nothing
            if worker and part is NOTHING
            else part.encode(**meta, rejected=0 if worker else admitted.rejected)
            for worker, part in parts.items()
        }
        return Packed(cells, newest or 0, admitted.rejects)


NOTHING = Block.of([], {LEAD: np.zeros(0, bool)})
"""What a worker gets that shall hear of a batch and has no rows in it."""


def bound(call: Correlation, live: LivePlans) -> LivePlans:
    """The plans as this call has them: the log may hold them with the threshold of another run."""
    return LivePlans({number: call.bound(plan) for number, plan in live.plans.items()})


def branched(
    call: Correlation,
    side: int,
    block: Block,
    rows: Rows,
    live: LivePlans,
    whole: pa.Array | None = None,
) -> dict[int, Block]:
    """The copies of rows that each worker gets; `rows` has their event times and hashes.

    `whole` are the rows as they came, which go along in one copy of each.
    """
    value = call.values(block) if live.need("value") else None
    rows = rows._replace(value=value)
    if call.one_stream:
        copies = route_both(live, rows, call.apart)
    else:
        copies = route(live, side, rows, call.apart)
    return dict(branch(block, copies, live.epoch, whole))


def routed_by(live: LivePlans, **more: Any) -> dict[str, Any]:
    """What a cell says of the plans under which its rows were sent, and more."""
    return {
        "epoch": live.epoch,
        "live": live.bits,
        "plans": {str(number): plan.fingerprint for number, plan in live.plans.items()},
        "ranges": live.plans[live.epoch].ranges,
        **more,
    }
