"""Pairs coming in to be grouped: checked and packed, all of them for one worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.correlation.grouping import GroupsJob
from anabranch.flow.blocks import Block
from anabranch.flow.conversion import undecodable
from anabranch.flow.intake import Faults, time_faults, whole_of
from anabranch.flow.kernel import Packed
from anabranch.flow.sides import WHOLE

__all__ = ["PairPacking"]


@dataclass(frozen=True)
class PairPacking:
    """Packs pairs, all of them for one worker. `time` is what users call the column of times.

    A row with one id is a row without a partner, as an outer join has them: it is no pair, and it
    is counted. A row without any id is bad. So is one with an id that is no text in UTF-8: ids name
    groups.
    """

    time: str = "ts"
    drop_bad_rows: bool = False
    streaming: bool = False
    columns: tuple[str, ...] = GroupsJob.order

    def pack(self, batch: pa.RecordBatch, live: Any) -> Packed:
        """The cell of one batch of ``t``, the ids ``left`` and ``right``, and other columns."""
        none = [batch.column(end).is_null() for end in ("left", "right")]
        alone = pc.xor(*none)
        count = alone.true_count
        if count:
            batch = batch.filter(pc.invert(alone))
        t = batch.column("t")
        faults = Faults("pair", batch.column("left"), self.drop_bad_rows, "left id", "grouped")
        faults.where(batch.column("left").is_null(), "both ids are null")
        for end in ("left", "right"):
            if pa.types.is_string(batch.column(end).type):
                faults.where(undecodable(batch.column(end)), f"its {end} id is no text in UTF-8")
        faults.where(t.is_null(), f"time column {self.time!r} is null")
        for rows, reason in time_faults(t, self.streaming):
            faults.where(rows, reason)
        rejects = faults.cell(whole_of(batch), 0)
        if faults.count:
            batch = batch.take(pa.array(faults.good))
        columns = {name: _plain(batch.column(name)) for name in self.columns}
        whole = whole_of(batch)
        if whole is not None:
            columns[WHOLE] = whole
        block = Block.of(batch.column("t").to_numpy(), columns)
        newest = int(block.t.max()) if len(block) else 0
        cell = block.encode(rejected=faults.count, alone=count, side=0)
        return Packed({0: cell}, newest, rejects)


def _plain(column: pa.Array) -> Any:
    return column if pa.types.is_string(column.type) else column.to_numpy()
