"""From a batch of input rows to one packed block per worker: check, route, branch, encode.

Worker 0 gets a block of every batch, be it empty: it hears of every plan and of the newest time, so
that a plan that does not belong to the stored rows is noticed even if it sends all rows to workers
that have stored none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.correlation.call import Correlation
from anabranch.flow.blocks import Block
from anabranch.flow.intake import Intake
from anabranch.plans.routing import LivePlans, branch, route

__all__ = ["Packed", "pack"]


@dataclass(frozen=True)
class Packed:
    """Encoded blocks by worker, and the newest event time among the rows (0 if there are none)."""

    blocks: dict[int, bytes]
    newest: int


def pack(correlation: Correlation, side: int, live: LivePlans, batch: pa.RecordBatch) -> Packed:
    """The blocks that the rows of one Arrow batch of `side` make under the live plans."""
    intake = Intake(correlation.sides[side], correlation.drop_bad_rows, correlation.streaming)
    admitted = intake.admit(batch)
    block, h, key = admitted.block, admitted.h, admitted.key
    value = None
    if any(plan.by_value for plan in live.plans.values()):
        value = correlation.values(block)
    copies = route(live, side, block.t, h, correlation.window, key, value)
    parts = dict(branch(block, copies, live.epoch))
    parts.setdefault(0, Block.of([], {"lead": np.zeros(0, bool)}))
    newest = int(block.t.max()) if len(block) else None
    meta = {
        "side": side,
        "epoch": live.epoch,
        "live": live.bits,
        "plans": {str(number): plan.fingerprint for number, plan in live.plans.items()},
        "former": {str(n): plan.former_fingerprint for n, plan in live.plans.items()},
        "newest": newest,
        "bytes": block.meta["bytes"],
    }
    blocks = {
        worker: part.encode(**meta, worker=worker, rejected=0 if worker else admitted.rejected)
        for worker, part in parts.items()
    }
    return Packed(blocks, newest or 0)
